//! The steps of a plan: what is to become of holds and places. Nothing is done before `write`. `lib/plan.lua` of the Redis backend is
//! the same.

use std::time::Duration;

use fairlock_core::{FencingToken, OwnerId};
use smallvec::SmallVec;

use super::LockEntry;
use super::granted_hold::GrantedHold;
use crate::context::OperationContext;
use crate::queue::QueuedPlace;
use crate::wake_up::WakeUpKind;

/// What an operation is going to change.
#[derive(Default)]
pub(super) struct Plan {
    /// The units that are taken after the plan.
    pub(super) used: u32,
    /// The holds that end.
    pub(super) drops: SmallVec<[FencingToken; 1]>,
    /// The new holds, and the owners to tell: those who have not asked in this operation.
    pub(super) grants: SmallVec<[GrantedHold; 1]>,
    pub(super) wake_ups: SmallVec<[(OwnerId, WakeUpKind); 1]>,
    /// The tickets that leave the queue, and the greatest ticket that has had its turn.
    pub(super) leaves: SmallVec<[u64; 1]>,
    pub(super) served: u64,
    /// A new place.
    pub(super) joins: Option<(u64, QueuedPlace)>,
    /// Whether all others have to wait: the first waiter does not fit, or the queue rests.
    pub(super) blocked: bool,
    /// The ticket of a place whose request asks without a wait.
    pub(super) impatient: Option<u64>,
}

impl LockEntry {
    /// Begins a plan: the operation counts as one on the queue, and moves the queue's clock.
    pub(super) fn new_plan(&mut self, context: &OperationContext<'_>) -> Plan {
        self.queue.pulse(context.now, context.last_number());
        Plan { used: self.holds.taken(), ..Plan::default() }
    }
}

impl Plan {
    /// Ends a hold.
    pub(super) fn drop(&mut self, hold: &GrantedHold) {
        self.drops.push(hold.token);
        self.used -= hold.units;
    }

    pub(super) fn grant(&mut self, context: &mut OperationContext<'_>, place: &QueuedPlace, lease: Duration) {
        let (owner, request, token) = (place.owner.clone(), place.request, context.next_token());
        if place.asked_in != context.call {
            self.wake_ups.push((owner.clone(), WakeUpKind::Granted { request, token }));
        }
        self.used += place.units;
        self.grants.push(GrantedHold {
            owner,
            request,
            token,
            units: place.units,
            holds: 1,
            since: context.now,
            ends: context.now.saturating_add(lease),
            label: place.label.clone(),
        });
    }

    /// Puts a newcomer, or a waiter that an operator kicks, at the tail.
    pub(super) fn join(&mut self, context: &mut OperationContext<'_>, mut place: QueuedPlace) {
        place.is_heard = false;
        self.joins = Some((context.next_number(), place));
    }
}
