//! Which node keeps a slot, as more than half of all nodes say.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::ballot::{Ballot, Report};
use super::{Cluster, PAUSE};
use crate::net::commands::Pool;
use crate::net::connection::{Address, Failure};
use crate::net::hash_slot::SLOTS;
use crate::net::settings::MajorityTerms;
use crate::net::topology::route::Route;

/// What a majority of the nodes has named, and when.
pub(super) struct Majority {
    /// How the nodes' answers count.
    terms: MajorityTerms,
    pub(super) state: Mutex<State>,
}

pub(super) struct State {
    /// By slot.
    proofs: Vec<Option<Arc<Proof>>>,
    /// When the nodes were last asked, when that was over, and what they said.
    pub(super) asked: Option<Instant>,
    answered: Option<Instant>,
    pub(super) ballot: Ballot,
}

impl State {
    fn was_just_asked(&self) -> bool {
        self.answered.is_some_and(|answered| answered.elapsed() < PAUSE)
    }
}

impl Cluster {
    /// The way to the slot's keeper, for which there is a proof.
    pub(super) fn proven(&self, majority: &Majority, slot: u16) -> Result<Route, Failure> {
        if let Some(known) = majority.known(slot) {
            // One caller asks before it has to be done, and the others go on.
            if majority.is_to_be_asked()
                && let Some(_asking) = self.asking.try_lock()
                && majority.is_to_be_asked()
            {
                let _ = self.ask_nodes();
                return majority.known(slot).ok_or_else(|| majority.failure(slot));
            }
            return Ok(known);
        }
        let Some(_asking) =
            self.asking.try_lock_for(self.settings.timeouts.connect + self.settings.timeouts.response)
        else {
            return Err(Failure::NotSent("the nodes are still being asked".to_owned()));
        };
        // Another caller may have asked meanwhile.
        let is_vain = majority.known(slot).is_some() || majority.state.lock().was_just_asked();
        let seen = if is_vain { Ok(()) } else { self.ask_nodes() };
        match majority.known(slot) {
            Some(route) => Ok(route),
            None => seen.and(Err(majority.failure(slot))),
        }
    }
}

/// The keeper of some slots, as a majority named it when it was asked.
struct Proof {
    pool: Arc<Pool>,
    epoch: u64,
    /// From before the nodes were asked: each of them may name another one right after its answer.
    asked: Instant,
    /// A call has failed since.
    doubted: AtomicBool,
}

impl Majority {
    pub(super) fn new(terms: MajorityTerms) -> Majority {
        let (proofs, ballot) = (vec![None; usize::from(SLOTS)], Ballot::default());
        Majority { terms, state: Mutex::new(State { proofs, asked: None, answered: None, ballot }) }
    }

    /// The way to the slot's keeper, if there is a proof for it and no doubt. After a doubt the nodes are asked again, but not at
    /// every call.
    pub(super) fn known(&self, slot: u16) -> Option<Route> {
        let state = self.state.lock();
        let proof = state.proofs[usize::from(slot)].as_ref()?;
        let is_doubted = proof.doubted.load(Ordering::Relaxed) && !state.was_just_asked();
        (proof.asked.elapsed() <= self.terms.proof_age && !is_doubted)
            .then(|| Route { epoch: proof.epoch, ..Route::to(&proof.pool) })
    }

    /// The slot's keeper by its latest proof, however old that is.
    pub(super) fn keeper(&self, slot: u16) -> Option<Arc<Pool>> {
        self.state.lock().proofs[usize::from(slot)].as_ref().map(|proof| Arc::clone(&proof.pool))
    }

    /// Half of the time is over in which the nodes have to be asked.
    pub(super) fn is_to_be_asked(&self) -> bool {
        self.state.lock().asked.is_none_or(|asked| asked.elapsed() > self.terms.proof_age / 2)
    }

    /// Counts the answers of one round. A slot that no majority names in it keeps its earlier proof, for as long as that lasts.
    pub(super) fn count(&self, asked: Instant, reports: Vec<Report>, pool: impl Fn(&Address) -> Arc<Pool>) {
        let ballot = Ballot::of(reports, self.terms.least_uptime);
        let mut state = self.state.lock();
        for (at, epoch, slots) in ballot.elected() {
            // Each keeper has a slot. The map forgets a pool for an address that the nodes do not announce.
            let known = state.proofs[usize::from(slots[0])].as_ref().map(|proof| &proof.pool);
            let known = known.filter(|pool| pool.address().is_same_server(at)).cloned();
            let pool = known.unwrap_or_else(|| pool(at));
            let proof = Arc::new(Proof { pool, epoch, asked, doubted: AtomicBool::new(false) });
            slots.into_iter().for_each(|slot| state.proofs[usize::from(slot)] = Some(Arc::clone(&proof)));
        }
        // Silence does not make the cluster smaller.
        let nodes = if ballot.reports.is_empty() { state.ballot.nodes } else { ballot.nodes };
        (state.ballot, state.answered) = (Ballot { nodes, ..ballot }, Some(Instant::now()));
    }

    /// After a failure of this node: its slots may have another keeper.
    pub(super) fn doubt(&self, pool: &Arc<Pool>) {
        for proof in self.state.lock().proofs.iter().flatten() {
            if Arc::ptr_eq(&proof.pool, pool) {
                proof.doubted.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Why there is no proof for this slot.
    pub(super) fn failure(&self, slot: u16) -> Failure {
        self.state.lock().ballot.failure(slot)
    }
}

#[cfg(test)]
mod tests;
