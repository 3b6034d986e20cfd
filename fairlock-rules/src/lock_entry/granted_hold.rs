//! One hold of a lock.

use std::sync::Arc;
use std::time::Duration;

use fairlock_core::backend::{Acquired, Holder, RequestId};
use fairlock_core::{FencingToken, OwnerId};

use crate::context::{Moment, OperationContext};

/// A hold, named by owner, request and token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantedHold {
    /// Who has the hold.
    pub owner: OwnerId,
    /// The request that was granted.
    pub request: RequestId,
    /// Its fencing token.
    pub token: FencingToken,
    /// How many units of the lock the hold takes.
    pub units: u32,
    /// The hold count.
    pub holds: u32,
    /// When it was granted.
    pub since: Moment,
    /// When its lease ends.
    pub ends: Moment,
    /// The label that operators see; often empty.
    pub label: Arc<str>,
}

impl GrantedHold {
    pub(super) fn is_of(&self, owner: &OwnerId, request: RequestId) -> bool {
        self.request == request && self.owner == *owner
    }

    /// Whether the hold has ended with its process. A keeper, whose count is 0, has no process.
    pub(super) fn is_of_gone(&self, context: &OperationContext<'_>) -> bool {
        self.holds > 0 && context.is_gone(&self.owner)
    }

    /// The rest of the lease.
    pub(super) fn left(&self, now: Moment) -> Duration {
        self.ends.saturating_sub(now)
    }

    pub(super) fn granted(&self, now: Moment) -> Acquired {
        Acquired::Granted { token: self.token, lease: self.left(now) }
    }

    /// The holder as an operator sees it.
    pub(super) fn inspect(&self, now: Moment) -> Holder {
        let mut holder = Holder::new(self.owner.clone(), self.holds);
        holder.units = self.units;
        holder.request = Some(self.request);
        holder.token = Some(self.token);
        holder.lease_left = Some(self.left(now));
        holder.held_for = Some(now.saturating_sub(self.since));
        holder.set_label(&self.label);
        holder
    }
}
