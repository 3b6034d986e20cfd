//! The steps of a plan: what is to become of holds and places. Nothing is done before `write`. `lib/plan.lua` of the Redis backend is
//! the same.

use std::time::Duration;

use fairlock_core::{FencingToken, OwnerId};
use smallvec::SmallVec;

use super::LockEntry;
use super::kept_hold::KeptHold;
use crate::queue::KeptPlace;
use crate::turn::Turn;
use crate::wake_up::News;

/// What an operation is going to change.
#[derive(Default)]
pub(super) struct Plan {
    /// The units that are taken then.
    pub(super) used: u32,
    /// The holds that end.
    pub(super) drops: SmallVec<[FencingToken; 1]>,
    /// The new holds, and who has not asked in this operation and is told.
    pub(super) grants: SmallVec<[KeptHold; 1]>,
    pub(super) news: SmallVec<[(OwnerId, News); 1]>,
    /// The tickets that leave the queue, and the greatest ticket that has had its turn.
    pub(super) leaves: SmallVec<[u64; 1]>,
    pub(super) served: u64,
    /// A new place.
    pub(super) joins: Option<(u64, KeptPlace)>,
    /// Others wait: for the first waiter, which does not fit, or since nobody is next while the queue rests.
    pub(super) blocked: bool,
    /// The ticket of a place whose request asks without a wait.
    pub(super) impatient: Option<u64>,
}

impl LockEntry {
    /// Begins a plan: from here on the operation is one on the queue, whose clock moves.
    pub(super) fn new_plan(&mut self, turn: &Turn<'_>) -> Plan {
        self.queue.pulse(turn.now, turn.last_number());
        Plan { used: self.holds.taken(), ..Plan::default() }
    }
}

impl Plan {
    /// Ends a hold.
    pub(super) fn drop(&mut self, hold: &KeptHold) {
        self.drops.push(hold.token);
        self.used -= hold.takes;
    }

    pub(super) fn grant(&mut self, turn: &mut Turn<'_>, place: &KeptPlace, lease: Duration) {
        let (owner, request, token) = (place.owner.clone(), place.request, turn.next_token());
        if place.asked_in != turn.call {
            self.news.push((owner.clone(), News::Granted { request, token }));
        }
        self.used += place.takes;
        self.grants.push(KeptHold {
            owner,
            request,
            token,
            takes: place.takes,
            holds: 1,
            since: turn.now,
            ends: turn.now.saturating_add(lease),
            label: place.label.clone(),
        });
    }

    /// A newcomer, or one that an operator kicks, stands at the tail.
    pub(super) fn join(&mut self, turn: &mut Turn<'_>, mut place: KeptPlace) {
        place.is_heard = false;
        self.joins = Some((turn.next_number(), place));
    }
}
