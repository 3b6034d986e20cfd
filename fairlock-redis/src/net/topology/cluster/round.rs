//! One round of questions to the nodes: which view of the slots most of them share, and where a majority counts, what it says.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use redis::{Cmd, cmd};

use super::Cluster;
use super::ballot::{Ballot, Report};
use crate::net::connection::{Address, Failure};
use crate::net::settings::MajorityTerms;
use crate::net::topology::fan_out::{Answer, ask_all, fan_out};
use crate::net::topology::slot_map::View;
use crate::net::topology::voter::{self, Runs};

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
            question.extend([cmd("CLUSTER").arg("NODES").to_owned(), voter::question()]);
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Weak;
    use std::time::Duration;

    use super::*;
    use crate::net::hash_slot::SLOTS;
    use crate::net::settings::Settings;
    use crate::net::test_server::{TIMEOUTS, bulk, up_for};
    use crate::net::topology::cluster::{Majority, Map};

    /// The view of a majority is accepted as soon as it is there; without a majority the last answer decides.
    #[test]
    fn a_view_is_accepted_with_a_majority_or_the_last_answer() {
        let terms = MajorityTerms { proof_age: Duration::from_secs(60), least_uptime: Duration::ZERO };
        let slots = vec![None; usize::from(SLOTS)];
        let cluster = Cluster {
            seeds: Vec::new(),
            settings: Settings { majority: Some(terms), ..Settings::new(TIMEOUTS, 1) },
            map: Mutex::new(Map { nodes: HashMap::new(), slots, doubted: false, refreshed: None }),
            majority: Some(Majority::new(terms)),
            asking: Mutex::new(()),
            turn: AtomicUsize::new(0),
            this: Weak::new(),
        };
        let at = Address::parse("redis://h:1").expect("an address");
        let reply =
            |wire: String| redis::parse_redis_value(wire.as_bytes()).map_err(|_| Failure::no_answer());
        let hears = |round: &Round| {
            let slots = "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\nh\r\n:1\r\n".to_owned();
            let nodes = bulk("id h:1@2 myself,master - 0 0 1 connected 0-16383\n");
            cluster.map.lock().refreshed = None;
            cluster.heard(round, (at.clone(), Ok([slots, nodes, up_for(60)].map(reply).into())));
            cluster.map.lock().refreshed.is_some()
        };
        // Where five were listed before, one view is no majority, nor are two.
        let [of_one, of_five] = [1, 5].map(|listed| Round::new(Some(&terms), 2, listed));
        assert_eq!([hears(&of_one), hears(&of_one)], [true, false], "once");
        assert_eq!([hears(&of_five), hears(&of_five)], [false, true]);
    }
}
