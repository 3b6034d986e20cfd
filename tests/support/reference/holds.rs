//! The holds of a lock: each has its units and its own end.

use super::{Answer, Lock, Member, Millis, Turn};

/// How many units a lock has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// One unit: a fair lock.
    #[default]
    Exclusive,
    /// Several: a semaphore, or a read-write lock.
    Shared {
        /// How many.
        capacity: u32,
    },
}

/// One owner's hold of the lock, named by request and token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The granted request.
    pub member: Member,
    /// The fencing token.
    pub token: u64,
    /// The units that it takes.
    pub takes: u32,
    /// The hold count.
    pub count: u32,
    /// The last millisecond of the lease. For a hold of a part of the units: the first one after it.
    pub ends: Millis,
    /// The human-readable name of the holder.
    pub label: &'static str,
}

impl Lock {
    /// The hold of an exclusive lock, if there is one.
    pub fn hold(&self) -> Option<Hold> {
        self.holds.first().copied()
    }

    /// How many units it has.
    pub fn capacity(&self) -> u32 {
        match self.kind {
            Kind::Exclusive => 1,
            Kind::Shared { capacity } => capacity,
        }
    }

    /// The units that no hold takes.
    pub fn free(&self) -> u32 {
        self.capacity() - self.holds.iter().map(|hold| hold.takes).sum::<u32>()
    }

    /// Whether several requests may hold it.
    pub fn is_shared(&self) -> bool {
        self.kind != Kind::Exclusive
    }

    /// The first step of every operation: removes what has expired.
    pub fn drop_expired(&mut self, now: Millis) {
        let capacity = self.capacity();
        self.holds.retain(|hold| now < hold.ends || now == hold.ends && hold.takes == capacity);
    }

    /// The server loses the holds silently: evicted, or deleted by hand.
    pub fn lose_hold(&mut self) {
        self.holds.clear();
    }

    /// The heartbeat of a hold, with its hold count. It touches only the hold, so it works even if the rest of the lock is
    /// unreachable.
    pub fn renew_hold(
        &mut self,
        turn: &Turn<'_>,
        member: Member,
        token: u64,
        count: u32,
        lease: Millis,
    ) -> Answer {
        let now = turn.now;
        self.drop_expired(now);
        let renewed = self.hold_as(member, token).map(|hold| {
            // Never shorter: an earlier renewal may arrive later.
            (hold.ends, hold.count) = (hold.ends.max(now + lease), count);
        });
        renewed.map_or(Answer::Lost, |()| Answer::Renewed)
    }

    /// When the first of its holds ends.
    pub(super) fn first_end(&self) -> Option<Millis> {
        self.holds.iter().map(|hold| hold.ends).min()
    }

    /// The hold of this request.
    pub fn hold_of(&self, member: Member) -> Option<Hold> {
        self.holds.iter().find(|hold| hold.member == member).copied()
    }

    pub(super) fn hold_as(&mut self, member: Member, token: u64) -> Option<&mut Hold> {
        self.holds.iter_mut().find(|hold| hold.member == member && hold.token == token)
    }

    /// Ends a hold. Returns whether there was one.
    pub(super) fn give_back(&mut self, member: Member, token: u64) -> bool {
        let before = self.holds.len();
        self.holds.retain(|hold| hold.member != member || hold.token != token);
        self.holds.len() < before
    }
}
