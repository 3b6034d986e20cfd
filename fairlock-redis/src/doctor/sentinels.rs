//! The facts of the sentinels: whether they agree, how many may fail, and what their settings do to holds; and which faults a hold survives.

use std::collections::{BTreeSet, HashMap};

use super::{Facts, Finding, TABLE, Text, Verdict};
use crate::backend::RedisBackend;
use crate::durable::Durability;
use crate::net::{Arrangement, Failure, MajorityTerms, SentinelAnswer, Servers, Surveyed};

impl RedisBackend {
    /// What a hold survives, in one line; with sentinels, also what each sentinel says.
    pub(super) fn survey(&self, findings: &mut Vec<Finding>) {
        let durability = self.0.calls.durability();
        let servers = &self.0.scripts.servers;
        let has_sentinels = servers.arrangement() == Arrangement::Sentinels;
        let agreed = has_sentinels.then(|| check(servers, durability, findings));
        let said = survives(durability, agreed.as_ref()).into_iter();
        findings
            .extend(said.map(|(verdict, text)| Finding::new(servers.to_string(), "durable", verdict, text)));
    }
}

fn survives(durability: Option<Durability>, agreed: Option<&Agreed>) -> Vec<(Verdict, Text)> {
    let facts = agreed.map_or_else(Facts::default, Agreed::facts).when("durable", durability.is_some());
    TABLE.say("durable", &facts.when("quorum", durability.is_some_and(|durability| durability.asks_quorum())))
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

    /// `spare`: how many of the agreeing sentinels may fail.
    fn facts(&self) -> Facts {
        let Agreed { agree, all } = *self;
        let facts =
            Facts::default().shown("agree", agree).shown("all", all).shown("majority", self.majority());
        let facts = facts
            .when("few", all < 3)
            .when("even", all.is_multiple_of(2))
            .shown("fewer", all.saturating_sub(1));
        facts.known("spare", agree.checked_sub(self.majority()).map(|spare| spare.to_string()))
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
        let facts = match (&one.said, same) {
            (Err(failure), _) => Facts::of("silent", failure.text()),
            (Ok(_), Some(other)) => Facts::of("same", other.sentinel.to_string()),
            (Ok(said), None) => {
                agree += usize::from(said.named().is_some() && said.named() == most);
                facts_of(said, most.as_ref(), terms)
            }
        };
        findings.extend(TABLE.findings(&one.sentinel.to_string(), "sentinel", &facts));
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
    let agreed = Agreed { agree, all: surveyed.len().max(told.unwrap_or(0)) };
    let unknown = unknown.into_iter().collect::<Vec<_>>().join(", ");
    let facts = with_settings(agreed.facts(), &surveyed, &agreed, durability);
    let facts = facts.known("unknown", (!unknown.is_empty()).then_some(unknown));
    findings.extend(TABLE.findings(&servers.to_string(), "sentinels", &facts));
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

/// What one sentinel says. With a quorum its vote counts once it has been up for long enough.
fn facts_of(said: &SentinelAnswer, most: Option<&(String, u64)>, terms: Option<MajorityTerms>) -> Facts {
    let young =
        terms.map(|terms| terms.least_uptime).zip(said.uptime().ok()).filter(|(least, up)| up <= least);
    let other = most.filter(|most| said.named().as_ref() != Some(*most));
    Facts::default()
        .when("quorum", terms.is_some())
        .known("master", said.master.as_ref().ok().map(ToString::to_string))
        .when("no_master", said.master.is_err())
        .known("epoch", said.details.as_ref().ok().map(|details| details.number("config-epoch").to_string()))
        .known("no_epoch", said.details.as_ref().err().map(Failure::text))
        .known("no_id", said.id.as_ref().err().map(Failure::text))
        .known("no_uptime", said.uptime().err().map(Failure::text))
        .known("young", young.map(|(_, up)| Finding::shown(up)))
        .known("least", young.map(|(least, _)| Finding::shown(least)))
        .known("other", other.map(|(master, _)| &**master))
        .known("other_epoch", other.map(|(_, epoch)| epoch.to_string()))
        .known("no_others", said.others.as_ref().err().map(Failure::text))
}

/// The sentinels' own settings: of how many a fail-over needs the votes, and how long they take to see that the master is down.
fn with_settings(
    facts: Facts,
    surveyed: &[Surveyed],
    agreed: &Agreed,
    durability: Option<Durability>,
) -> Facts {
    let details = || surveyed.iter().filter_map(|one| one.said.as_ref().ok()?.details.as_ref().ok());
    let quorums: BTreeSet<u64> = details().map(|details| details.number("quorum")).collect();
    let shown: Vec<_> = quorums.iter().map(u64::to_string).collect();
    let down_after = details().map(|details| details.number("down-after-milliseconds")).max().unwrap_or(0);
    let longest = durability.map(|durability| durability.longest_lease());
    let slow = longest.filter(|longest| 3 * u128::from(down_after) > longest.as_millis());
    facts
        .with("quorums", shown.join(" and "))
        .when("never", quorums.last().is_some_and(|most| *most > agreed.all as u64))
        .when("unusual", quorums.iter().any(|quorum| *quorum != agreed.majority() as u64))
        .known("slow", slow.map(|_| down_after.to_string()))
        .known("lasts", slow.map(|longest| Finding::shown(longest - longest / 3)))
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
            let [(found, text)] = &survives(durability, agreed.as_ref())[..] else { panic!("one") };
            assert!(*found == verdict && text.contains(words), "{text}");
            assert_eq!(text.setting(), (verdict == Verdict::Note).then_some("durable"));
        }
    }
}
