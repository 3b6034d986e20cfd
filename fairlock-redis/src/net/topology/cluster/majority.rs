//! Which node keeps a slot, as more than half of all nodes say.
//!
//! The nodes are asked in rounds. Each answer counts for all callers as soon as it arrives: a silent or distant node delays only
//! the slots that depend on its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::round::Round;
use super::{Cluster, PAUSE, SLOTS};
use crate::net::commands::Pool;
use crate::net::connection::{Address, Failure};
use crate::net::settings::MajorityTerms;
use crate::net::topology::{Route, Runs};

/// After this time without a decision all nodes are asked once more: some may have changed their minds, and need not wait for the
/// silent or distant ones.
const AGAIN: Duration = Duration::from_millis(500);

/// What a majority of the nodes has named, and when.
pub(super) struct Majority {
    /// How the nodes' answers count.
    pub(super) terms: MajorityTerms,
    pub(super) runs: Mutex<Runs>,
    pub(super) state: Mutex<MajorityState>,
    /// Raised when an answer was counted.
    counted: Condvar,
}

pub(super) struct MajorityState {
    /// By slot.
    proofs: Vec<Option<Arc<Proof>>>,
    /// The latest round, and the last earlier round in which a node has answered.
    round: Arc<Round>,
    before: Arc<Round>,
    /// When the last answer was counted.
    answered: Option<Instant>,
    /// When a call failed last at a node that a majority had named.
    doubted: Option<Instant>,
    /// Whether the last caller waited in vain: the known nodes may no longer be nodes of the cluster.
    is_vain: bool,
}

impl Cluster {
    /// The way to the slot's keeper, for which there is a proof. Waits for the nodes' answers if there is none: for connect + response
    /// time-out at most.
    pub(super) fn proven(&self, majority: &Majority, slot: u16) -> Result<Route, Failure> {
        let mut state = majority.state.lock();
        let until = Instant::now() + self.settings.timeouts.connect + self.settings.timeouts.response;
        let (mut waited, mut asked) = (false, false);
        loop {
            if let Some(known) = majority.known(&state, slot) {
                if waited {
                    state.is_vain = false;
                }
                // One caller asks ahead of time, and waits no more than the others.
                if state.round.asked.elapsed() > majority.terms.proof_age / 2 {
                    self.begin_round(majority, state);
                }
                return Ok(known);
            }
            let now = Instant::now();
            let is_over = state.round.is_over();
            if now >= until || is_over && (asked || state.was_just_answered()) {
                state.is_vain = true;
                return Err(state.failure(slot));
            }
            let again = state.ask_again_at(&majority.terms);
            if is_over || now >= again {
                state.is_vain |= !is_over;
                asked = true;
                self.begin_round(majority, state);
                state = majority.state.lock();
            } else {
                waited = true;
                majority.counted.wait_until(&mut state, again.min(until));
            }
        }
    }

    /// Asks all nodes, without waiting for them.
    pub(super) fn begin_round(&self, majority: &Majority, mut state: MutexGuard<'_, MajorityState>) {
        let nodes = self.voters(&state);
        let round = state.begin(&majority.terms, nodes.len());
        // Starts a thread for each node; nobody else has to wait for that.
        drop(state);
        self.ask_voters(&round, &nodes);
    }

    /// The nodes that were found. The user's addresses may be out of date, and are asked only if the found nodes don't decide.
    fn voters(&self, state: &MajorityState) -> Vec<Address> {
        let mut voters = [&state.round, &state.before].into_iter().map(|round| round.voters());
        let mut voters = voters.find(|voters| !voters.is_empty()).unwrap_or_default();
        if voters.is_empty() || state.is_vain {
            let known: Vec<Address> =
                self.map.lock().nodes.values().map(|pool| pool.address().clone()).collect();
            for other in known.into_iter().chain(self.seeds.iter().cloned()) {
                if !voters.iter().any(|voter| voter.is_same_server(&other)) {
                    voters.push(other);
                }
            }
        }
        voters
    }
}

/// The keeper of some slots, as a majority named it when it was asked.
struct Proof {
    pool: Arc<Pool>,
    epoch: u64,
    /// A time before the nodes were asked: each node may name another keeper right after its answer.
    asked: Instant,
    /// Whether a call has failed since.
    doubted: AtomicBool,
}

impl Majority {
    pub(super) fn new(terms: MajorityTerms) -> Majority {
        let none = Arc::new(Round::new(Some(&terms), 0, 0));
        let state = MajorityState {
            proofs: vec![None; usize::from(SLOTS)],
            round: Arc::clone(&none),
            before: none,
            answered: None,
            doubted: None,
            is_vain: false,
        };
        Majority { terms, runs: Mutex::default(), state: Mutex::new(state), counted: Condvar::new() }
    }

    /// The way to the slot's keeper, if there is a proof for it and no doubt. After a doubt the nodes are asked again, but not at
    /// every call.
    fn known(&self, state: &MajorityState, slot: u16) -> Option<Route> {
        let proof = state.proofs[usize::from(slot)].as_ref()?;
        let is_doubted =
            proof.doubted.load(Ordering::Relaxed) && !(state.round.is_over() && state.was_just_answered());
        (proof.asked.elapsed() <= self.terms.proof_age && !is_doubted)
            .then(|| Route { epoch: proof.epoch, ..Route::to(&proof.pool) })
    }

    /// The slot's keeper by its latest proof, however old that is.
    pub(super) fn keeper(&self, slot: u16) -> Option<Arc<Pool>> {
        self.state.lock().proofs[usize::from(slot)].as_ref().map(|proof| Arc::clone(&proof.pool))
    }

    /// Notes what a majority has said so far in this round. A slot without a majority in this round keeps its earlier proof,
    /// until that proof ends. A late answer takes back nothing that a later round has found.
    pub(super) fn count(
        &self,
        round: &Round,
        elected: Vec<(Address, u64, Vec<u16>)>,
        pool: impl Fn(&Address) -> Arc<Pool>,
    ) {
        let (mut state, asked) = (self.state.lock(), round.asked);
        for (at, epoch, slots) in elected {
            // Each keeper has a slot. The map forgets a pool for an address that the nodes do not announce.
            let known = state.proofs[usize::from(slots[0])].as_ref().map(|proof| &proof.pool);
            let known = known.filter(|pool| pool.address().is_same_server(&at)).cloned();
            let pool = known.unwrap_or_else(|| pool(&at));
            let new = Arc::new(Proof { pool, epoch, asked, doubted: AtomicBool::new(false) });
            for slot in slots {
                let proof = &mut state.proofs[usize::from(slot)];
                if proof.as_ref().is_none_or(|known| known.asked < asked) {
                    *proof = Some(Arc::clone(&new));
                }
            }
        }
        state.answered = Some(Instant::now());
        round.counted();
        self.counted.notify_all();
    }

    /// After a failure of this node: its slots may have another keeper.
    pub(super) fn doubt(&self, pool: &Arc<Pool>) {
        let mut state = self.state.lock();
        state.doubted = Some(Instant::now());
        for proof in state.proofs.iter().flatten() {
            if Arc::ptr_eq(&proof.pool, pool) {
                proof.doubted.store(true, Ordering::Relaxed);
            }
        }
    }

    /// The first round, asked while the backend connects.
    pub(super) fn begin(&self, nodes: usize) -> Arc<Round> {
        self.state.lock().begin(&self.terms, nodes)
    }
}

impl MajorityState {
    /// Another round, in which so many nodes are asked.
    fn begin(&mut self, terms: &MajorityTerms, nodes: usize) -> Arc<Round> {
        // Silence does not make the cluster smaller.
        if !self.round.is_silent() {
            self.before = Arc::clone(&self.round);
        }
        self.round = Arc::new(Round::new(Some(terms), nodes, self.before.listed()));
        Arc::clone(&self.round)
    }

    fn was_just_answered(&self) -> bool {
        self.answered.is_some_and(|answered| answered.elapsed() < PAUSE)
    }

    /// When the nodes are asked once more although some have not answered yet. The answers that came may be from before a doubt, or too
    /// old.
    fn ask_again_at(&self, terms: &MajorityTerms) -> Instant {
        let asked = self.round.asked;
        let pause = if self.doubted.is_some_and(|doubted| doubted > asked) { 2 * PAUSE } else { AGAIN };
        asked + pause.min(terms.proof_age / 2)
    }

    /// Why there is no proof for this slot.
    fn failure(&self, slot: u16) -> Failure {
        self.round.failure(slot)
    }
}

#[cfg(feature = "night")]
#[cfg(test)]
mod tests;
