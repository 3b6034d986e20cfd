//! The doctor for durable clients: whether a server has a new past, how an operator ends its grace, and which faults a hold survives; and
//! the sentinels: whether they agree, how many may fail, and what their settings do to holds.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use super::{Finding, Text, Verdict, Visit};
use crate::backend::RedisBackend;
use crate::durable::{Durability, lives_of};
use crate::net::{Arrangement, MajorityTerms, SentinelAnswer, Servers, Surveyed};
use crate::rules::Shared;

impl RedisBackend {
    /// Ends the grace of each server by hand: each server counts as one with a known past, and grants locks at once. Returns what was
    /// left of the longest grace; zero if no grace was running, and the whole grace if it had not begun.
    ///
    /// **Two clients can hold one lock then**, if the server has forgotten a hold whose client still believes in it. Safe when no
    /// lock was held: on a new server, or when all workers were stopped.
    ///
    /// # Errors
    /// As [`doctor`](RedisBackend::doctor) without a name.
    pub fn begin_life(&self) -> fairlock_core::Result<Duration> {
        let Shared { servers, calls, .. } = &*self.0.shared;
        let usual = || Durability::default().among(servers.arrangement());
        let grace = calls.durability().unwrap_or_else(usual).grace();
        let mut longest = Duration::ZERO;
        for server in servers.servers().map_err(|failure| failure.explain(servers, "looking"))? {
            let lives = lives_of(servers, &server, calls.confirms_messages(), Some(grace));
            let lives = lives.map_err(|failure| failure.explain(server.pool.address(), "life.lua"))?;
            let left = lives.iter().map(|life| life.left.unwrap_or(grace)).max();
            longest = longest.max(left.unwrap_or_default());
        }
        Ok(longest)
    }

    /// The finding in one line; with sentinels, also what each sentinel says.
    pub(super) fn survey(&self, findings: &mut Vec<Finding>) {
        let durability = self.0.shared.calls.durability();
        let servers = &self.0.shared.servers;
        let has_sentinels = servers.arrangement() == Arrangement::Sentinels;
        let agreed = has_sentinels.then(|| check(servers, durability, findings));
        let (verdict, text) = survives(durability, agreed.as_ref());
        findings.push(Finding::new(servers.to_string(), "durable", verdict, text));
    }
}

impl Visit<'_> {
    /// Without durable clients a failure does not matter: the user may lack the rights.
    pub(super) fn life(&mut self) {
        let (durability, shared) = (self.durability(), &self.backend.0.shared);
        let lives = match lives_of(&shared.servers, self.server, shared.calls.confirms_messages(), None) {
            Ok(lives) => lives,
            Err(_) if durability.is_none() => return,
            Err(failure) => return self.say("life", Verdict::Unknown, failure.text()),
        };
        let Some(ours) = durability.map(|durability| durability.grace().as_millis().to_string()) else {
            if lives.iter().any(|life| life.grace.is_some()) {
                let what = "other clients of this server are durable, and this one is not: it grants locks in a grace; set the same \
                            for all";
                self.say("life", Verdict::Unsafe, Text::from(what).about_setting("durable"));
            }
            return;
        };
        if let Some(theirs) =
            lives.iter().filter_map(|life| life.grace.as_ref()).find(|grace| **grace != ours)
        {
            let what = format!(
                "the grace is {theirs} ms here, and {ours} ms for this client, which is refused: give all clients the same \
                 times"
            );
            return self.say("life", Verdict::Unsafe, what);
        }
        let counted = |count: usize| match lives.len() {
            1 => String::new(),
            all => format!(" in {count} of {all} hash slots"),
        };
        let (begun, unbegun): (Vec<_>, Vec<_>) =
            lives.iter().map(|life| life.left).partition(Option::is_some);
        let running: Vec<Duration> = begun.into_iter().flatten().filter(|left| !left.is_zero()).collect();
        if let Some(longest) = running.iter().max() {
            let place = counted(running.len());
            let what = format!("a new past{place}: it grants nothing for {} more", Finding::shown(*longest));
            self.say("life", Verdict::Note, what);
        }
        if !unbegun.is_empty() {
            let what = format!(
                "a new past{}: with the first request it begins to grant nothing for {ours} ms; on a new server, end that \
                 with `fairlock doctor --begin-life`",
                counted(unbegun.len())
            );
            self.say("life", Verdict::Note, what);
        }
        if running.is_empty() && unbegun.is_empty() {
            self.say("life", Verdict::Good, "its past is known");
        }
    }
}

fn survives(durability: Option<Durability>, agreed: Option<&Agreed>) -> (Verdict, Text) {
    let Some(durability) = durability else {
        let missing = agreed.map_or(String::new(), |agreed| match agreed.spare() {
            _ if agreed.all < 3 => "; have three sentinels for that".to_owned(),
            None => "; a majority of the sentinels has to agree for that".to_owned(),
            Some(_) => format!(": {} of {} sentinels agree", agreed.agree, agreed.all),
        });
        let text = "off: two clients can hold a lock after a restart that forgets it, a flush or a fail-over; a setting closes that";
        return (Verdict::Note, Text::from(format!("{text}{missing}")).about_setting("durable"));
    };
    const SURVIVES: &str =
        "a hold survives a restart (empty, or with an old file), a flush, and the promotion of a replica";
    const DEPOSED: &str = "a master that was deposed and still answers";
    match durability.asks_quorum() {
        true => {
            let by = agreed.map_or(String::new(), |agreed| {
                format!("; {} of {} sentinels have to answer", agreed.majority(), agreed.all)
            });
            (Verdict::Good, format!("{SURVIVES}, and {DEPOSED}{by}").into())
        }
        false => {
            let text = format!("{SURVIVES} of a dead master, but not {DEPOSED}: that takes sentinels");
            (Verdict::Good, text.into())
        }
    }
}

/// How many sentinels agree, and how many there are: also sentinels that only their peers know.
struct Agreed {
    agree: usize,
    all: usize,
}

impl Agreed {
    fn majority(&self) -> usize {
        self.all / 2 + 1
    }

    /// How many of the agreeing sentinels may fail.
    fn spare(&self) -> Option<usize> {
        self.agree.checked_sub(self.majority())
    }
}

/// A finding for each sentinel, and the findings about all sentinels.
fn check(servers: &Servers, durability: Option<Durability>, findings: &mut Vec<Finding>) -> Agreed {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_is_survived_and_what_is_missing_for_more() {
        let of = |agree, all| Some(Agreed { agree, all });
        let among = |servers| Some(Durability::default().among(servers));
        let (single, sentinels) = (among(Arrangement::Single), among(Arrangement::Sentinels));
        for (durability, agreed, verdict, words) in [
            (None, None, Verdict::Note, "a fail-over; a setting closes that"),
            (None, of(3, 3), Verdict::Note, "a setting closes that: 3 of 3 sentinels agree"),
            (None, of(2, 2), Verdict::Note, "have three sentinels for that"),
            (None, of(2, 4), Verdict::Note, "a majority of the sentinels has to agree for that"),
            (single, None, Verdict::Good, "of a dead master, but not a master that was deposed"),
            (sentinels, of(3, 5), Verdict::Good, "still answers; 3 of 5 sentinels have to answer"),
            (
                among(Arrangement::Cluster),
                None,
                Verdict::Good,
                "and a master that was deposed and still answers",
            ),
        ] {
            let (found, text) = survives(durability, agreed.as_ref());
            assert!(found == verdict && text.contains(words), "{text}");
            assert_eq!(text.setting(), (verdict == Verdict::Note).then_some("durable"));
        }
    }
}
