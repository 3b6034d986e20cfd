//! What the nodes of a cluster say in one round, and what a majority of them agrees on.
//!
//! All nodes vote, replicas too. Two majorities of the primaries alone need not share a voter: B and C elect a replica in A's place;
//! then the replica and C are two of three primaries, and so are A and a B that has not heard the result. Any two majorities of all
//! nodes share a node, and no node goes back from the keeper of a slot to a keeper with a lower configuration epoch.
//!
//! The keeper has to agree. After CLUSTER SETSLOT a node names the new keeper before it knows the new keeper's epoch, and goes
//! back if it hears the old keeper first.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use redis::Value;

use crate::net::connection::{Address, Failure};
use crate::net::hash_slot::SLOTS;
use crate::net::topology::slot_map::named_by;
use crate::net::topology::voter::{Run, Runs};
use crate::net::value::text;

/// The answers of one round, one for each node.
pub(super) struct Ballot {
    reports: Vec<Report>,
    /// How many nodes there are: all that any answer lists, and no fewer than in the round before, which may have had more answers.
    pub(super) nodes: usize,
    /// A node that has been up for less may have an old file, and its vote does not count. It still names its slots.
    least_uptime: Duration,
}

impl Ballot {
    pub(super) fn new(least_uptime: Duration, nodes: usize) -> Ballot {
        Ballot { reports: Vec::new(), nodes, least_uptime }
    }

    /// A node that is reached at two addresses counts once. `runs`: the runs that were met before.
    pub(super) fn hear(&mut self, mut report: Report, runs: &mut Runs) {
        report.is_old = runs.is_older(&report.id, &report.run, self.least_uptime, Instant::now());
        if self.reports.iter().all(|known| known.id != report.id) {
            self.reports.push(report);
            self.nodes = self.nodes.max(self.listed());
        }
    }

    /// How many nodes are listed by any answer.
    pub(super) fn listed(&self) -> usize {
        self.reports.iter().flat_map(|report| report.nodes.keys()).collect::<HashSet<_>>().len()
    }

    pub(super) fn is_silent(&self) -> bool {
        self.reports.is_empty()
    }

    fn terms(&self) -> impl Iterator<Item = &Report> {
        self.reports.iter().filter(|report| report.is_old)
    }

    pub(super) fn is_majority(&self, votes: usize) -> bool {
        2 * votes > self.nodes
    }

    /// Each node that claims slots, its epoch, and the slots for which a majority agrees.
    pub(super) fn elected(&self) -> impl Iterator<Item = (&Address, u64, Vec<u16>)> {
        // Most rounds hear a minority first.
        let reports = if self.is_majority(self.reports.len()) { &self.reports[..] } else { &[] };
        reports.iter().filter_map(|report| {
            let own = report.nodes.get(&report.id)?;
            let mut votes = vec![0; usize::from(SLOTS)];
            for named in self.terms().filter_map(|other| other.nodes.get(&report.id)) {
                if named.epoch == own.epoch {
                    named.slots().for_each(|slot| votes[usize::from(slot)] += 1);
                }
            }
            let slots: Vec<u16> =
                own.slots().filter(|slot| self.is_majority(votes[usize::from(*slot)])).collect();
            (!slots.is_empty()).then_some((&report.at, own.epoch, slots))
        })
    }

    /// The addresses of all nodes that any answer lists.
    pub(super) fn voters(&self) -> Vec<Address> {
        let mut at: HashMap<&str, &Address> = HashMap::new();
        for (id, node) in self.reports.iter().flat_map(|report| &report.nodes) {
            at.extend(node.address.as_ref().map(|address| (id.as_str(), address)));
        }
        // The address at which the node answered goes before an address that other nodes name.
        at.extend(self.reports.iter().map(|report| (report.id.as_str(), &report.at)));
        at.into_values().cloned().collect()
    }

    pub(super) fn failure(&self, slot: u16) -> Failure {
        let mut votes: HashMap<(&str, u64), usize> = HashMap::new();
        for (id, node) in self.terms().flat_map(|report| &report.nodes) {
            if node.slots().any(|kept| kept == slot) {
                *votes.entry((id, node.epoch)).or_default() += 1;
            }
        }
        let most = votes.into_values().max().unwrap_or(0);
        let cause = if self.is_majority(most) {
            format!("the node that keeps hash slot {slot} does not say so itself")
        } else {
            let what = format!("no majority: {most} of {} nodes named it", self.nodes);
            match self.reports.len() - self.terms().count() {
                0 => what,
                young => {
                    format!(
                        "{what}, and {young} may have forgotten: up for less than {:.1?}",
                        self.least_uptime
                    )
                }
            }
        };
        Failure::NotSent(cause.into())
    }
}

/// The cluster as one node describes it.
pub(super) struct Report {
    /// The address at which the node answered.
    at: Address,
    id: String,
    run: Run,
    /// Whether the node has been up for long enough to vote.
    is_old: bool,
    nodes: HashMap<String, Node>,
}

struct Node {
    address: Option<Address>,
    epoch: u64,
    /// The first and the last slot of each range.
    ranges: Vec<(u16, u16)>,
}

impl Node {
    fn slots(&self) -> impl Iterator<Item = u16> {
        self.ranges.iter().flat_map(|(first, last)| *first..=*last)
    }
}

impl Report {
    /// Reads the reply to CLUSTER NODES: a line a node, with id, `host:port@…`, flags, primary, two times, epoch, link, slots; and
    /// that to [`voter::question`](crate::net::topology::voter::question).
    pub(super) fn read(at: &Address, described: &Value, info: &Value) -> Result<Report, Failure> {
        let (mut own, mut nodes) = (None, HashMap::new());
        for line in text(described).map_err(|_| unintelligible())?.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [id, address, flags, _, _, _, epoch, _, slots @ ..] = &words[..] else {
                return Err(unintelligible());
            };
            let has = |flag| flags.split(',').any(|known| known == flag);
            if has("myself") {
                own = Some(id.to_string());
            }
            // In brackets: a slot that is being moved, which is listed without them as well.
            let ranges = slots.iter().filter(|slots| !slots.starts_with('[')).map(|slots| range(slots));
            let ranges = ranges.collect::<Option<_>>().ok_or_else(unintelligible)?;
            let epoch = epoch.parse().map_err(|_| unintelligible())?;
            let address = address.split('@').next().and_then(|address| address.rsplit_once(':'));
            let address = address.and_then(|(host, port)| Some(named_by(at, host, port.parse().ok()?)));
            let address = address.filter(|_| !has("noaddr"));
            // A node that is just being met has no id yet.
            if !has("handshake") {
                nodes.insert(id.to_string(), Node { address, epoch, ranges });
            }
        }
        let id = own.ok_or_else(unintelligible)?;
        Ok(Report { at: at.clone(), id, run: Run::read(info)?, is_old: false, nodes })
    }
}

/// `5` or `5-7`
fn range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && last < SLOTS).then_some((first, last))
}

fn unintelligible() -> Failure {
    Failure::Broken("an unintelligible answer to CLUSTER NODES".into())
}
