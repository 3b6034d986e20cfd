//! The question to a sentinel about a master, and its answer.

use redis::{Cmd, Value, cmd};

use crate::net::connection::{Address, Failure};
use crate::net::topology::fan_out::Answer;
use crate::reply::{items, number, text};

/// Three commands: for the master's address, for its other properties, and for the sentinel's own id (from 6.2).
pub(super) fn question(name: &str) -> [Cmd; 3] {
    [
        cmd("SENTINEL").arg("get-master-addr-by-name").arg(name).to_owned(),
        cmd("SENTINEL").arg("master").arg(name).to_owned(),
        cmd("SENTINEL").arg("myid").to_owned(),
    ]
}

/// The master as one sentinel names it.
#[derive(Debug)]
pub(super) struct MasterReport {
    pub(super) address: Address,
    /// 0 if the sentinel does not say.
    pub(super) epoch: u64,
    /// How many sentinels this one knows of, with itself.
    sentinels: usize,
    /// Of the sentinel. An old one has only its address.
    id: String,
}

impl MasterReport {
    pub(super) fn read((sentinel, answer): &Answer, servers: &Address) -> Result<MasterReport, Failure> {
        let replies = answer.as_ref().map_err(Clone::clone)?;
        let [address, details, id] = &replies[..] else { return Err(unintelligible()) };
        let address = address.as_ref().map_err(Clone::clone)?;
        if *address == Value::Nil {
            return Err(Failure::refused("NOMASTER", "No such master with that name"));
        }
        let [host, port] = items(address).map_err(|_| unintelligible())? else {
            return Err(unintelligible());
        };
        let host = text(host).ok().filter(|host| !host.is_empty()).ok_or_else(unintelligible)?;
        let port = number(port).ok().and_then(|port| u16::try_from(port).ok()).ok_or_else(unintelligible)?;
        let count = |name| details.as_ref().ok().and_then(|details| count(details, name));
        let epoch = count("config-epoch").unwrap_or(0);
        let others = count("num-other-sentinels").and_then(|others| usize::try_from(others).ok());
        let id =
            id.as_ref().ok().and_then(|id| text(id).ok()).map_or_else(|| sentinel.to_string(), str::to_owned);
        Ok(MasterReport { address: servers.at(host, port), epoch, sentinels: 1 + others.unwrap_or(0), id })
    }

    /// The report of a majority: more than half of all sentinels name this master under this epoch. One that is configured
    /// twice counts once, and one that is not configured, but known to another one, counts as silent.
    ///
    /// # Errors
    /// There is no majority.
    pub(super) fn of_majority(
        mut reports: Vec<MasterReport>,
        configured: usize,
    ) -> Result<MasterReport, Failure> {
        reports.sort_by(|a, b| a.id.cmp(&b.id));
        reports.dedup_by(|a, b| a.id == b.id);
        let all = reports.iter().map(|report| report.sentinels).max().unwrap_or(0).max(configured);
        let votes = |report: &MasterReport| reports.iter().filter(|other| report.agrees(other)).count();
        let most = reports.iter().map(votes).max().unwrap_or(0);
        if 2 * most <= all {
            return Err(Failure::NotSent(format!("no quorum: {most} of {all} sentinels named it")));
        }
        let named = reports.iter().position(|report| votes(report) == most);
        named.map(|at| reports.swap_remove(at)).ok_or_else(unintelligible)
    }

    fn agrees(&self, other: &MasterReport) -> bool {
        self.epoch == other.epoch && self.address.is_same_server(&other.address)
    }
}

pub(super) fn count(details: &Value, name: &str) -> Option<u64> {
    let mut pairs = items(details).ok()?.chunks_exact(2);
    let found = pairs.find(|pair| text(&pair[0]).is_ok_and(|field| field == name))?;
    number(&found[1]).ok().and_then(|count| u64::try_from(count).ok())
}

fn unintelligible() -> Failure {
    Failure::Broken("an unintelligible answer of a sentinel".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the sentinels `(id, port, epoch, how many it knows)` say together, of so many configured ones.
    fn together(reports: &[(&str, u16, u64, usize)], configured: usize) -> Result<(String, u64), String> {
        let servers = Address::parse("redis://h:1").expect("an address");
        let reports = reports.iter().map(|&(id, port, epoch, sentinels)| MasterReport {
            address: servers.at("h", port),
            epoch,
            sentinels,
            id: id.to_owned(),
        });
        let named = MasterReport::of_majority(reports.collect(), configured);
        named.map(|named| (named.address.to_string(), named.epoch)).map_err(|failure| failure.to_string())
    }

    #[test]
    fn more_than_half_of_all_sentinels_name_one_master_under_one_epoch() {
        let named = Ok(("h:7".to_owned(), 3));
        assert_eq!(together(&[("a", 7, 3, 3), ("b", 7, 3, 3), ("c", 7, 3, 3)], 3), named);
        assert_eq!(together(&[("a", 8, 2, 3), ("b", 7, 3, 3), ("c", 7, 3, 3)], 3), named);
        assert_eq!(together(&[("a", 7, 3, 1)], 1), named);
        for (reports, configured, votes) in [
            (&[("a", 7, 3, 3)][..], 3, "1 of 3"),
            (&[("a", 7, 3, 3), ("b", 8, 3, 3)], 3, "1 of 3"),
            (&[("a", 7, 3, 3), ("b", 7, 4, 3)], 3, "1 of 3"),
            (&[("a", 7, 3, 4), ("b", 7, 3, 4)], 4, "2 of 4"),
            // One that is configured by two names.
            (&[("a", 7, 3, 3), ("a", 7, 3, 3)], 3, "1 of 3"),
            // Others that are not configured may name another master.
            (&[("a", 7, 3, 5), ("b", 7, 3, 5)], 2, "2 of 5"),
        ] {
            let said = together(reports, configured).expect_err("no majority");
            assert!(said.contains(&format!("no quorum: {votes} sentinels named it")), "{said}");
        }
    }
}
