//! The master as one sentinel names it, and as a majority of them does.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use super::survey::Said;
use crate::net::connection::{Address, Failure};
use crate::net::topology::voter::Run;

/// The master as one sentinel names it.
#[derive(Debug)]
pub(super) struct MasterReport {
    pub(super) address: Address,
    /// 0 if the sentinel does not say.
    pub(super) epoch: u64,
    /// How many sentinels this one knows of, with itself.
    pub(super) sentinels: usize,
    /// Of the sentinel. An old one has only its address.
    id: String,
    /// With a majority.
    run: Option<Run>,
}

/// The master that counts.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) address: Address,
    pub(super) epoch: u64,
    /// With a majority: how many are a majority, and the runs of those that named it.
    pub(super) voters: Option<Arc<str>>,
}

impl From<MasterReport> for Named {
    fn from(report: MasterReport) -> Named {
        Named { address: report.address, epoch: report.epoch, voters: None }
    }
}

impl MasterReport {
    /// What counts of the words of a sentinel, which says something of its process as well if it `votes`.
    pub(super) fn of(sentinel: &Address, said: Said, votes: bool) -> Result<MasterReport, Failure> {
        let number = |name| said.details.as_ref().map_or(0, |details| details.number(name));
        let others = usize::try_from(number("num-other-sentinels")).unwrap_or(0);
        Ok(MasterReport {
            epoch: number("config-epoch"),
            address: said.master?,
            sentinels: 1 + others,
            id: said.id.unwrap_or_else(|_| sentinel.to_string()),
            run: if votes { Some(said.run?) } else { None },
        })
    }

    /// What a majority says: more than half of `all` sentinels name this master under this epoch. A sentinel
    /// that is configured twice counts once. One that is known to another but not configured counts as silent, and so does one
    /// that has not been up for the least uptime.
    ///
    /// # Errors
    /// There is no majority.
    pub(super) fn of_majority(
        mut reports: Vec<MasterReport>,
        all: usize,
        least_uptime: Duration,
    ) -> Result<Named, Failure> {
        reports.sort_by(|a, b| a.id.cmp(&b.id));
        reports.dedup_by(|a, b| a.id == b.id);
        let heard = reports.len();
        let is_old = |run: &Run| Duration::from_secs(run.uptime) > least_uptime;
        reports.retain(|report| report.run.as_ref().is_some_and(is_old));
        let young = heard - reports.len();
        let votes = |report: &MasterReport| reports.iter().filter(|other| report.agrees(other)).count();
        let most = reports.iter().map(votes).max().unwrap_or(0);
        let named = reports.iter().find(|report| 2 * most > all && votes(report) == most);
        let Some(named) = named else {
            let mut what = format!("no majority: {most} of {all} sentinels named it");
            if young > 0 {
                let _ = write!(what, ", and {young} may have forgotten: up for less than {least_uptime:.1?}");
            }
            return Err(Failure::NotSent(what));
        };
        // The same ones are always in the same order.
        let runs = reports.iter().filter(|other| named.agrees(other)).filter_map(|other| other.run.as_ref());
        let voters = runs.fold((all / 2 + 1).to_string(), |voters, run| voters + " " + &run.id);
        Ok(Named { address: named.address.clone(), epoch: named.epoch, voters: Some(voters.into()) })
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
        let reports = reports.iter().map(|&(id, port, epoch, uptime)| MasterReport {
            address: servers.at("h", port),
            epoch,
            sentinels: 3,
            id: id.to_owned(),
            run: Some(Run { id: format!("run-{id}"), uptime }),
        });
        let named = MasterReport::of_majority(reports.collect(), all, LEAST);
        let told = |named: Named| {
            (named.address.to_string(), named.epoch, named.voters.as_deref().unwrap_or_default().to_owned())
        };
        named.map(told).map_err(|failure| failure.to_string())
    }

    #[test]
    fn more_than_half_of_all_sentinels_name_one_master_under_one_epoch() {
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
            // One that may have named another one before it lost its file.
            (&[("a", 7, 3, 99), ("b", 7, 3, 11)], 3, "1 of 3"),
        ] {
            let said = together(reports, all).expect_err("no majority");
            assert!(said.contains(&format!("no majority: {votes} sentinels named it")), "{said}");
        }
        let said = together(&[("a", 7, 3, 99), ("b", 7, 3, 11)], 3).expect_err("no majority");
        assert!(said.contains("1 may have forgotten: up for less than 11.6s"), "{said}");
    }
}
