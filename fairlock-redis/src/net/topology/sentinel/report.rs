//! The master as one sentinel names it, and as a majority of the sentinels does.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use super::survey::SentinelAnswer;
use crate::net::connection::{Address, Failure};
use crate::net::topology::fan_out::Answer;
use crate::net::topology::voter::Run;

/// The master as one sentinel names it.
#[derive(Debug)]
pub(super) struct MasterReport {
    pub(super) address: Address,
    /// 0 if the sentinel does not say.
    pub(super) epoch: u64,
    /// How many sentinels this sentinel knows, with itself; and which, if the user may see that.
    pub(super) sentinels: usize,
    pub(super) told: Option<BTreeSet<String>>,
    /// The sentinel's id. An old sentinel has only its address.
    pub(super) id: String,
    /// With a majority.
    pub(super) run: Option<Run>,
    /// Whether the sentinel has been up for long enough to count.
    pub(super) is_old: bool,
}

/// The master that counts.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) address: Address,
    pub(super) epoch: u64,
    /// A time before the sentinels were asked: each may name another master right after its answer.
    pub(super) asked: Instant,
    /// With a majority: how many are a majority, and the runs of the sentinels that named the master.
    pub(super) voters: Option<Arc<str>>,
    /// With a majority: the answers that did not come yet.
    pub(super) late: Option<Late>,
}

/// The answers that a decided round still waits for: a sentinel that is far is one of the voters as well.
#[derive(Debug)]
pub(super) struct Late {
    /// With the number of the round.
    pub(super) answers: Receiver<(usize, Answer)>,
    pub(super) number: usize,
    pub(super) round: Round,
}

/// What the sentinels have said in one round, each once.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) asked: Instant,
    /// How many answers did not come yet.
    pub(super) pending: usize,
    pub(super) reports: Vec<MasterReport>,
}

impl Round {
    pub(super) fn new(asked: usize) -> Round {
        Round { asked: Instant::now(), pending: asked, reports: Vec::new() }
    }

    /// A sentinel that is configured twice counts once. The answers are in the order of the ids.
    pub(super) fn hear(&mut self, report: MasterReport) {
        let at = self.reports.binary_search_by(|known| known.id.cmp(&report.id));
        if let Err(at) = at {
            self.reports.insert(at, report);
        }
    }

    /// What a majority says: more than half of `all` sentinels name this master under this epoch. A sentinel that is missing in
    /// the address counts as silent; so does a sentinel that has not been up for the least uptime.
    ///
    /// # Errors
    /// There is no majority.
    pub(super) fn named(&self, all: usize, least_uptime: Duration) -> Result<Named, Failure> {
        let most_named = self.most_named();
        let Some((report, _)) = most_named.filter(|(_, most)| 2 * most > all) else {
            let most = most_named.map_or(0, |(_, most)| most);
            let mut what = format!("no majority: {most} of {all} sentinels named it");
            let young = self.reports.len() - self.old().count();
            if young > 0 {
                let _ = write!(what, ", and {young} may have forgotten: up for less than {least_uptime:.1?}");
            }
            return Err(Failure::NotSent(what.into()));
        };
        // The same ones are always in the same order.
        let runs = self.old().filter(|other| report.agrees(other));
        let runs = runs.filter_map(|other| other.run.as_ref());
        let voters = runs.fold((all / 2 + 1).to_string(), |voters, run| voters + " " + &run.id);
        let (address, epoch) = (report.address.clone(), report.epoch);
        Ok(Named { address, epoch, asked: self.asked, voters: Some(voters.into()), late: None })
    }

    /// Whether the answers that did not come yet can make a majority.
    pub(super) fn is_open(&self, all: usize) -> bool {
        let most = self.most_named().map_or(0, |(_, most)| most);
        2 * (most + self.pending) > all
    }

    /// The answers that count.
    pub(super) fn old(&self) -> impl Iterator<Item = &MasterReport> {
        self.reports.iter().filter(|report| report.is_old)
    }

    /// An answer with which most others agree, and how many do.
    fn most_named(&self) -> Option<(&MasterReport, usize)> {
        let votes = |report: &MasterReport| self.old().filter(|other| report.agrees(other)).count();
        self.old().map(|report| (report, votes(report))).max_by_key(|(_, votes)| *votes)
    }
}

impl MasterReport {
    /// What counts of a sentinel's answer, which tells of its process as well if the sentinel `votes`.
    pub(super) fn of(sentinel: &Address, said: SentinelAnswer, votes: bool) -> Result<MasterReport, Failure> {
        let number = |name| said.details.as_ref().map_or(0, |details| details.number(name));
        let sentinels = said.known();
        let others = said.others.iter().flatten().map(|(id, _)| id);
        let told = said.id.iter().chain(others).cloned().collect::<BTreeSet<_>>();
        Ok(MasterReport {
            epoch: number("config-epoch"),
            address: said.master?,
            sentinels,
            // One that has no right to SENTINEL SENTINELS says only how many there are.
            told: Some(told).filter(|told| told.len() == sentinels && said.id.is_ok()),
            id: said.id.unwrap_or_else(|_| sentinel.to_string()),
            is_old: false,
            run: if votes { Some(said.run?) } else { None },
        })
    }

    fn agrees(&self, other: &MasterReport) -> bool {
        self.epoch == other.epoch && self.address.is_same_server(&other.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_millis(11_600);

    /// What the sentinels `(id, port, epoch, seconds up)` say together, of this many.
    fn together(reports: &[(&str, u16, u64, u64)], all: usize) -> Result<(String, u64, String), String> {
        let servers = Address::parse("redis://h:1").expect("an address");
        let mut round = Round::new(reports.len());
        let reports = reports.iter().map(|&(id, port, epoch, uptime)| MasterReport {
            address: servers.announced("h", port, &servers),
            epoch,
            sentinels: 3,
            told: None,
            id: id.to_owned(),
            is_old: Duration::from_secs(uptime) > LEAST,
            run: Some(Run { id: format!("run-{id}"), uptime }),
        });
        reports.for_each(|report| round.hear(report));
        let named = round.named(all, LEAST);
        let told = |named: Named| {
            (named.address.to_string(), named.epoch, named.voters.as_deref().unwrap_or_default().to_owned())
        };
        named.map(told).map_err(|failure| failure.to_string())
    }

    /// More than half of all sentinels name one master under one epoch.
    #[test]
    fn a_majority_of_all_sentinels_names_one_master_and_epoch() {
        let named = |voters: &str| Ok(("h:7".to_owned(), 3, voters.to_owned()));
        let all = named("2 run-a run-b run-c");
        assert_eq!(together(&[("b", 7, 3, 99), ("a", 7, 3, 99), ("c", 7, 3, 99)], 3), all);
        assert_eq!(together(&[("a", 8, 2, 99), ("b", 7, 3, 99), ("c", 7, 3, 99)], 3), named("2 run-b run-c"));
        assert_eq!(together(&[("a", 7, 3, 99)], 1), named("1 run-a"));
        assert_eq!(together(&[("a", 7, 3, 99), ("b", 7, 3, 12), ("c", 8, 4, 11)], 3), named("2 run-a run-b"));
        for (reports, all, votes) in [
            (&[("a", 7, 3, 99)][..], 3, "1 of 3"),
            (&[("a", 7, 3, 99), ("b", 8, 3, 99)], 3, "1 of 3"),
            (&[("a", 7, 3, 99), ("b", 7, 4, 99)], 3, "1 of 3"),
            (&[("a", 7, 3, 99), ("b", 7, 3, 99)], 4, "2 of 4"),
            // One that is configured by two names.
            (&[("a", 7, 3, 99), ("a", 7, 3, 99)], 3, "1 of 3"),
            // Others that are not configured may name another master.
            (&[("a", 7, 3, 99), ("b", 7, 3, 99)], 5, "2 of 5"),
            // A sentinel that may have named another master before it lost its file.
            (&[("a", 7, 3, 99), ("b", 7, 3, 11)], 3, "1 of 3"),
        ] {
            let said = together(reports, all).expect_err("no majority");
            assert!(said.contains(&format!("no majority: {votes} sentinels named it")), "{said}");
        }
        let said = together(&[("a", 7, 3, 99)], 3).expect_err("no majority");
        assert!(!said.contains("forgotten"), "{said}");
        let said = together(&[("a", 7, 3, 99), ("b", 7, 3, 11)], 3).expect_err("no majority");
        assert!(said.contains("1 may have forgotten: up for less than 11.6s"), "{said}");
    }

    #[test]
    fn a_round_is_open_while_missing_answers_can_decide() {
        assert!(!Round::new(1).is_open(2) && Round::new(3).is_open(5));
    }

    /// Only a sentinel that says its own id and those of all others tells which sentinels there are.
    #[test]
    fn a_sentinel_tells_of_all_sentinels_or_of_their_number() {
        use redis::Value;
        let at = Address::parse("redis://h:1").expect("an address");
        let words =
            |all: &[&str]| Value::Array(all.iter().map(|word| Value::BulkString((*word).into())).collect());
        let other = |id| words(&["runid", id, "ip", "h", "port", "2"]);
        let refused = || Err(Failure::refused("NOPERM", "x"));
        let told = |id: Result<Value, Failure>, others: Result<Value, Failure>| {
            let details = words(&["num-other-sentinels", "2"]);
            let replies = [Ok(words(&["h", "7"])), Ok(details), id, refused(), others];
            let report = MasterReport::of(&at, SentinelAnswer::read(&replies, &at, &at), false);
            report.expect("a master").told.map(|told| told.into_iter().collect::<String>())
        };
        let id = || Ok(Value::BulkString("a".into()));
        let others = |all: &[&'static str]| Ok(Value::Array(all.iter().map(|id| other(id)).collect()));
        assert_eq!(told(id(), others(&["b", "c"])).as_deref(), Some("abc"));
        assert_eq!(told(id(), refused()), None);
        assert_eq!(told(refused(), others(&["b", "c", "d"])), None);
    }
}
