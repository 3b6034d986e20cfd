//! One round of questions to the nodes: which view of the slots most of them share, and where a majority counts, what it says.
//!
//! All nodes vote, replicas too. Two majorities of the primaries alone need not share a voter: B and C elect a replica in A's place;
//! then the replica and C are two of three primaries, and so are A and a B that has not heard the result. Any two majorities of all
//! nodes share a node, and no node goes back from the keeper of a slot to a keeper with a lower configuration epoch.
//!
//! The keeper has to agree. After CLUSTER SETSLOT a node names the new keeper before it knows the new keeper's epoch, and goes
//! back if it hears the old keeper first.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::{Cmd, Value, cmd};

use super::{Cluster, SLOTS};
use crate::net::connection::{Address, Failure, items, number, text};
use crate::net::settings::MajorityTerms;
use crate::net::topology::{Answer, Run, Runs, ask_all, fan_out, run_question};

/// What the nodes have answered so far. Where a majority counts, its mutex may be taken while that of the majority's state is held,
/// and not the other way round.
pub(super) struct Round {
    pub(super) asked: Instant,
    nodes: usize,
    /// How many answers are not counted yet.
    pending: AtomicUsize,
    tally: Mutex<Tally>,
}

struct Tally {
    heard: usize,
    views: Vec<View>,
    is_accepted: bool,
    ballot: Ballot,
    failure: Failure,
}

impl Round {
    /// Begins now, with so many nodes; in the round before, so many were listed.
    pub(super) fn new(terms: Option<&MajorityTerms>, nodes: usize, listed: usize) -> Round {
        let tally = Tally {
            heard: 0,
            views: Vec::new(),
            is_accepted: false,
            ballot: Ballot::new(terms.map(|terms| terms.least_uptime).unwrap_or_default(), listed),
            failure: Failure::NotSent("no node answers".into()),
        };
        Round { asked: Instant::now(), nodes, pending: AtomicUsize::new(nodes), tally: Mutex::new(tally) }
    }

    /// All answers are counted, or their time is over.
    pub(super) fn is_over(&self) -> bool {
        self.pending.load(Ordering::Relaxed) == 0
    }

    /// One more answer is counted. Called with the state's mutex, so that nobody sees the end of a round before its result.
    pub(super) fn counted(&self) {
        self.pending.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn is_silent(&self) -> bool {
        self.tally.lock().ballot.is_silent()
    }

    pub(super) fn listed(&self) -> usize {
        self.tally.lock().ballot.listed()
    }

    pub(super) fn voters(&self) -> Vec<Address> {
        self.tally.lock().ballot.voters()
    }

    /// Why no majority names a keeper of this slot.
    pub(super) fn failure(&self, slot: u16) -> Failure {
        self.tally.lock().ballot.failure(slot)
    }
}

impl Tally {
    fn hear(&mut self, (node, answer): Answer, runs: Option<&Mutex<Runs>>) {
        self.heard += 1;
        let mut replies = answer.unwrap_or_else(|failure| vec![Err(failure)]).into_iter();
        let mut reply = || replies.next().unwrap_or_else(|| Err(Failure::no_answer()));
        let view = reply().and_then(|slots| View::read(&node, &slots));
        let report = runs.map(|runs| {
            let report = Report::read(&node, &reply()?, &reply()?)?;
            Ok((report, runs))
        });
        match view {
            Ok(view) => self.views.push(view),
            Err(said) => self.fail(said),
        }
        match report {
            Some(Ok((report, runs))) => self.ballot.hear(report, &mut runs.lock()),
            Some(Err(said)) => self.fail(said),
            None => {}
        }
    }

    fn fail(&mut self, said: Failure) {
        let before = std::mem::replace(&mut self.failure, Failure::no_answer());
        self.failure = before.or(said);
    }
}

impl Cluster {
    /// Asks some of the nodes for the map, and accepts the view that most of them share. Takes connect + response time-out at most.
    /// Where a majority counts, these nodes say who votes.
    pub(super) fn ask_nodes(&self) -> Result<(), Failure> {
        let nodes = self.to_be_asked();
        // Before the nodes are asked: a doubt that comes up while they answer causes another refresh.
        self.map.lock().doubted = false;
        let round = match &self.majority {
            Some(majority) => majority.begin(nodes.len()),
            None => Arc::new(Round::new(None, nodes.len(), 0)),
        };
        for answer in fan_out(&nodes, self.settings.timeouts, &self.question(), 1) {
            self.heard(&round, answer);
        }
        let mut tally = round.tally.lock();
        tally.is_accepted = false;
        self.accept_view(&mut tally, true);
        let is_vain = self.majority.is_some() && tally.ballot.is_silent() || tally.views.is_empty();
        if is_vain { Err(tally.failure.clone()) } else { Ok(()) }
    }

    /// Asks these nodes, and counts each answer on the thread that has got it.
    pub(super) fn ask_voters(&self, round: &Arc<Round>, nodes: &[Address]) {
        let (cluster, round) = (self.this.clone(), Arc::clone(round));
        ask_all(nodes, self.settings.timeouts, &self.question(), move |answer| {
            if let Some(cluster) = cluster.upgrade() {
                cluster.heard(&round, answer);
            }
        });
    }

    fn question(&self) -> Vec<Cmd> {
        let mut question = vec![cmd("CLUSTER").arg("SLOTS").to_owned()];
        if self.majority.is_some() {
            question.extend([cmd("CLUSTER").arg("NODES").to_owned(), run_question()]);
        }
        question
    }

    fn heard(&self, round: &Round, answer: Answer) {
        let mut tally = round.tally.lock();
        tally.hear(answer, self.majority.as_ref().map(|majority| &majority.runs));
        let Some(majority) = &self.majority else { return };
        let is_last = tally.heard == round.nodes;
        self.accept_view(&mut tally, is_last);
        let elected = tally.ballot.elected();
        let elected = elected.map(|(at, epoch, slots)| (at.clone(), epoch, slots)).collect();
        drop(tally);
        majority.count(round, elected, |node| self.node(node));
    }

    /// Accepts the view of more than half of the nodes, or at the end of a round, of most of the nodes that have answered.
    fn accept_view(&self, tally: &mut Tally, is_over: bool) {
        let found = View::most_common(&tally.views);
        let found = found.filter(|(_, votes)| is_over || tally.ballot.is_majority(*votes));
        if tally.is_accepted || found.is_none() && !is_over {
            return;
        }
        let mut map = self.map.lock();
        map.refreshed = Some(Instant::now());
        match found {
            Some((view, _)) => self.accept(&mut map, view),
            None => map.doubted = true,
        }
        tally.is_accepted = true;
    }
}

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
    fn listed(&self) -> usize {
        self.reports.iter().flat_map(|report| report.nodes.keys()).collect::<HashSet<_>>().len()
    }

    fn is_silent(&self) -> bool {
        self.reports.is_empty()
    }

    fn terms(&self) -> impl Iterator<Item = &Report> {
        self.reports.iter().filter(|report| report.is_old)
    }

    fn is_majority(&self, votes: usize) -> bool {
        2 * votes > self.nodes
    }

    /// Each node that claims slots, its epoch, and the slots for which a majority agrees.
    fn elected(&self) -> impl Iterator<Item = (&Address, u64, Vec<u16>)> {
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
    /// that to [`run_question`].
    pub(super) fn read(at: &Address, described: &Value, info: &Value) -> Result<Report, Failure> {
        let unintelligible = || Failure::Broken("an unintelligible answer to CLUSTER NODES".into());
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

/// The cluster as one node sees it.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// First slot, last slot, and the node that keeps them; in order.
    pub(super) ranges: Vec<(u16, u16, Address)>,
    /// All known nodes by their addresses, including replicas.
    pub(super) nodes: HashMap<String, Address>,
}

impl View {
    /// Reads the reply to CLUSTER SLOTS: ranges of first slot, last slot, primary, replicas; a node is host, port, id and
    /// more. A missing host is that of the node that replied.
    pub(super) fn read(of: &Address, answer: &Value) -> Result<View, Failure> {
        let mut view = View { ranges: Vec::new(), nodes: HashMap::new() };
        for range in items(answer).map_err(|_| unintelligible())? {
            let parts = items(range).map_err(|_| unintelligible())?;
            let [first, last, primary, replicas @ ..] = parts else { return Err(unintelligible()) };
            let (first, last) = (slot(first)?, slot(last)?);
            if first > last {
                return Err(unintelligible());
            }
            let primary = node(of, primary)?;
            view.know(&primary);
            view.ranges.push((first, last, primary));
            for replica in replicas {
                view.know(&node(of, replica)?);
            }
        }
        if view.ranges.is_empty() {
            return Err(Failure::refused("CLUSTERDOWN", "the node knows of no hash slots"));
        }
        view.ranges.sort_by_key(|(first, ..)| *first);
        Ok(view)
    }

    fn know(&mut self, node: &Address) {
        self.nodes.entry(node.to_string()).or_insert_with(|| node.clone());
    }

    fn agrees(&self, other: &View) -> bool {
        let pairs = || self.ranges.iter().zip(&other.ranges);
        self.ranges.len() == other.ranges.len()
            && pairs().all(|(a, b)| a.0 == b.0 && a.1 == b.1 && a.2.is_same_server(&b.2))
    }

    /// The view that most nodes share, or the earliest of several: a node that was cut off from the others still names
    /// nodes that were replaced, and may be the quickest to answer. With it, how many share it.
    fn most_common(views: &[View]) -> Option<(&View, usize)> {
        let votes = |view: &View| views.iter().filter(|other| view.agrees(other)).count();
        // `max_by_key` returns the last of equals.
        views.iter().rev().map(|view| (view, votes(view))).max_by_key(|(_, votes)| *votes)
    }
}

fn slot(value: &Value) -> Result<u16, Failure> {
    let slot = number(value).ok().and_then(|slot| u16::try_from(slot).ok());
    slot.filter(|slot| *slot < SLOTS).ok_or_else(unintelligible)
}

fn node(of: &Address, value: &Value) -> Result<Address, Failure> {
    let [host, port, ..] = items(value).map_err(|_| unintelligible())? else { return Err(unintelligible()) };
    let host = if *host == Value::Nil { "" } else { text(host).map_err(|_| unintelligible())? };
    let port = number(port).ok().and_then(|port| u16::try_from(port).ok()).ok_or_else(unintelligible)?;
    Ok(named_by(of, host, port))
}

/// A node as another node names it. An empty host or `?` stands for the host of the naming node.
fn named_by(of: &Address, host: &str, port: u16) -> Address {
    let host = if host.is_empty() || host == "?" { of.host().unwrap_or_default() } else { host };
    of.announced(host, port, of)
}

/// The target of MOVED and ASK: slot and node, as in `3999 127.0.0.1:6381`.
pub(super) fn redirection(of: &Address, message: &str) -> Option<(u16, Address)> {
    let (slot, rest) = message.split_once(' ')?;
    let (host, port) = rest.split(' ').next()?.rsplit_once(':')?;
    let slot = slot.parse().ok().filter(|slot| *slot < SLOTS)?;
    Some((slot, named_by(of, host, port.parse().ok()?)))
}

fn unintelligible() -> Failure {
    Failure::Broken("an unintelligible answer to CLUSTER SLOTS".into())
}

#[cfg(test)]
mod tests;
