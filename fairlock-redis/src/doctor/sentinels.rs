//! The sentinels: whether they agree, how many may fail, and what their settings do to holds.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use super::{Finding, Verdict};
use crate::durable::Durability;
use crate::net::{MajorityTerms, SentinelAnswer, Servers, Surveyed};

/// How many sentinels agree, and how many there are: also sentinels that only their peers know.
pub(super) struct Agreed {
    pub(super) agree: usize,
    pub(super) all: usize,
}

impl Agreed {
    pub(super) fn majority(&self) -> usize {
        self.all / 2 + 1
    }

    /// How many of the agreeing sentinels may fail.
    pub(super) fn spare(&self) -> Option<usize> {
        self.agree.checked_sub(self.majority())
    }
}

/// A finding for each sentinel, and the findings about all sentinels.
pub(super) fn check(
    servers: &Servers,
    durability: Option<Durability>,
    findings: &mut Vec<Finding>,
) -> Agreed {
    let terms = durability.and_then(|durability| durability.majority_terms());
    let surveyed = servers.survey();
    let most = named_by_most(&surveyed);
    let mut known: HashMap<&str, &Surveyed> = HashMap::new();
    let mut agree = 0;
    for one in &surveyed {
        let same = one.id().and_then(|id| known.insert(id, one));
        let (verdict, text) = match (&one.said, same) {
            (Err(failure), _) => {
                let text = |failure: &str| format!("it does not answer, and counts as silent: {failure}");
                (Verdict::Note, failure.text().reworded(text))
            }
            (Ok(_), Some(other)) => {
                let to_do = "it counts once; name each sentinel once, and give each its own id";
                (
                    Verdict::Note,
                    format!("it is the same one as {} (SENTINEL MYID): {to_do}", other.sentinel).into(),
                )
            }
            (Ok(said), None) => {
                agree += usize::from(said.named().is_some() && said.named() == most);
                let (verdict, text) = judge(said, most.as_ref(), terms);
                (verdict, text.into())
            }
        };
        findings.push(Finding::new(one.sentinel.to_string(), "sentinel", verdict, text));
    }
    let others = surveyed.iter().filter_map(|one| one.said.as_ref().ok()?.others.as_ref().ok()).flatten();
    let mut unknown: BTreeSet<&str> = others
        .filter(|(id, at)| !known.contains_key(id.as_str()) && !surveyed.iter().any(|one| one.is_at(at)))
        .map(|(_, at)| at.as_str())
        .collect();
    // The others may know a silent sentinel by another name.
    let is_named = |one: &Surveyed| surveyed.iter().any(|other| other.knows(one));
    let silent = surveyed.iter().filter(|one| one.id().is_none() && !is_named(one)).count();
    if unknown.len() <= silent {
        unknown.clear();
    }
    let told = surveyed.iter().filter_map(|one| Some(one.said.as_ref().ok()?.known())).max();
    let all = surveyed.len().max(told.unwrap_or(0));
    let agreed = Agreed { agree, all };
    let mut say = |verdict, text| {
        findings.push(Finding::new(servers.to_string(), "sentinels", verdict, text));
    };
    let found = about_all(&surveyed, &unknown, &agreed, durability);
    if found.is_empty() {
        let spare = agreed.spare().unwrap_or(0);
        say(Verdict::Good, format!("{agree} of {all} agree; {spare} may fail"));
    }
    found.into_iter().for_each(|(verdict, text)| say(verdict, text));
    agreed
}

impl Surveyed {
    fn id(&self) -> Option<&str> {
        self.said.as_ref().ok()?.id.as_deref().ok()
    }

    fn is_at(&self, at: &str) -> bool {
        self.sentinel.to_string() == at
    }

    fn knows(&self, other: &Surveyed) -> bool {
        self.said.as_ref().is_ok_and(|said| said.others.iter().flatten().any(|(_, at)| other.is_at(at)))
    }
}

impl SentinelAnswer {
    fn named(&self) -> Option<(String, u64)> {
        Some((self.master.as_ref().ok()?.to_string(), self.details.as_ref().ok()?.number("config-epoch")))
    }
}

/// The master and its epoch that most sentinels name.
fn named_by_most(surveyed: &[Surveyed]) -> Option<(String, u64)> {
    let named: Vec<_> = surveyed.iter().filter_map(|one| one.said.as_ref().ok()?.named()).collect();
    named.iter().max_by_key(|name| named.iter().filter(|other| other == name).count()).cloned()
}

fn judge(
    said: &SentinelAnswer,
    most: Option<&(String, u64)>,
    terms: Option<MajorityTerms>,
) -> (Verdict, String) {
    // Without a quorum the other sentinels' answers are enough.
    let needed = if terms.is_some() { Verdict::Unsafe } else { Verdict::Note };
    let Ok(master) = &said.master else {
        return (needed, "it knows no master of that name, and counts as silent".to_owned());
    };
    let details = match (&said.details, &said.id) {
        (Err(failure), _) => {
            return (needed, format!("it does not say the epoch: {failure}; grant +sentinel|master"));
        }
        (_, Err(failure)) => {
            let to_do = "grant +sentinel|myid (Redis 6.2 and later)";
            return (needed, format!("it does not say its id: {failure}; {to_do}"));
        }
        (Ok(details), Ok(_)) => details,
    };
    if let Some(young) = terms.and_then(|terms| not_yet(said, terms)) {
        return young;
    }
    let text = format!("it names {master} under the epoch {}", details.number("config-epoch"));
    match most.filter(|most| said.named().as_ref() != Some(*most)) {
        Some((other, epoch)) => {
            let text = format!("{text}, and most name {other} under {epoch}");
            (Verdict::Note, format!("{text}: it is cut off, or a fail-over is under way"))
        }
        None => match &said.others {
            // Without a quorum nobody needs these answers.
            Err(failure) if terms.is_some() => {
                let what = format!("{text}, but does not say which others it knows: {failure}");
                let then = "or running clients go on counting a sentinel that is removed";
                (Verdict::Note, format!("{what}; grant +sentinel|sentinels, {then}"))
            }
            _ => (Verdict::Good, text),
        },
    }
}

/// With a quorum: why the vote of a sentinel that answers does not count.
fn not_yet(said: &SentinelAnswer, terms: MajorityTerms) -> Option<(Verdict, String)> {
    let least = terms.least_uptime;
    match said.uptime() {
        Err(failure) => {
            let what = format!("it does not say for how long it has been up: {failure}; grant +info");
            Some((Verdict::Unsafe, what))
        }
        Ok(uptime) if uptime <= least => {
            let what = "before that it may have forgotten its last vote";
            Some((
                Verdict::Note,
                format!(
                    "up for {}, it counts after {}: {what}",
                    Finding::shown(uptime),
                    Finding::shown(least)
                ),
            ))
        }
        Ok(_) => None,
    }
}

/// What an operator should change.
fn about_all(
    surveyed: &[Surveyed],
    unknown: &BTreeSet<&str>,
    agreed: &Agreed,
    durability: Option<Durability>,
) -> Vec<(Verdict, String)> {
    let (mut found, all, majority) = (Vec::new(), agreed.all, agreed.majority());
    let mut note = |text: String| found.push((Verdict::Note, text));
    if !unknown.is_empty() {
        let names = unknown.iter().copied().collect::<Vec<_>>().join(", ");
        note(format!(
            "{names}: known to the others, and not in the address, so it counts as silent: add it, or if it is gone for good \
             run SENTINEL RESET at the others"
        ));
    }
    if all < 3 {
        note(format!("there is no majority without each of the {all}: have three, on three hosts"));
    } else if all.is_multiple_of(2) {
        note(format!("of {all}, no more may fail than of {}: have an odd number", all - 1));
    }
    match agreed.spare() {
        None => note(format!("{} of {all} agree, and a majority is {majority}: no quorum", agreed.agree)),
        Some(0) if all >= 3 => {
            note(format!("{} of {all} agree: if one more fails, there is no quorum", agreed.agree));
        }
        Some(_) => {}
    }
    let details: Vec<_> =
        surveyed.iter().filter_map(|one| one.said.as_ref().ok()?.details.as_ref().ok()).collect();
    let quorums: BTreeSet<u64> = details.iter().map(|details| details.number("quorum")).collect();
    let of_them = quorums.iter().map(u64::to_string).collect::<Vec<_>>().join(" and ");
    if quorums.last().is_some_and(|most| *most > all as u64) {
        note(format!(
            "their own setting `quorum` is {of_them}, and there are {all}: they never replace the master"
        ));
    } else if quorums.iter().any(|quorum| *quorum != majority as u64) {
        note(format!(
            "their own setting `quorum` is {of_them}: {majority} of {all} is usual (SENTINEL SET NAME quorum)"
        ));
    }
    let down_after = details.iter().map(|details| details.number("down-after-milliseconds")).max();
    let down_after = Duration::from_millis(down_after.unwrap_or(0));
    if let Some(durability) = durability
        && down_after * 3 > durability.longest_lease()
    {
        note(format!(
            "they take {} ms to see that the master is down (down-after-milliseconds), and a hold lasts {} without an answer: \
             a fail-over costs holds; set it to 1000 or 2000",
            down_after.as_millis(),
            Finding::shown(durability.longest_lease() - durability.longest_lease() / 3),
        ));
    }
    found
}
