//! Replays a history through the rules of fairlock-rules: could a lock have done what the processes saw?
//!
//! A process knows when a call began and when it had returned; what the store did in between has no time. So the replay
//! looks for times. The order is known: tickets and tokens come from one sequence, so they say in which order the store gave
//! places and grants. Each step gets the earliest time that its call and all steps before it allow. Every limit moves in
//! one direction only, so if a step is then later than the return of its call, no choice of times does better, and the
//! history is wrong. It is also wrong if the rules answer otherwise than the store did.
//!
//! A hold ends just before the next grant: at its release, or, if the holder was killed or lost it, with its lease. A
//! request that ended without a grant may have been granted the lock while it left: then the replay grants it, too, and takes
//! the lock back when the request can have left.

mod calls;
mod lock;
mod sentences;
#[cfg(test)]
mod tests;

use std::time::Duration;

use fairlock_core::backend::Acquired;
use fairlock_rules::GrantedHold;

use super::{Event, Violations, sort};
use calls::{Call, Heartbeat, calls};
use lock::{Lock, MS, Millis, number};
use sentences::Because;

/// A server counts a lease in whole milliseconds of another clock.
const ROUNDING: u64 = 2 * MS;
/// Which rules the history has to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// The rules as they are: tickets, hand-overs, tokens, leases, exclusion.
    HandOff,
    /// The same, of fairlock-rules, where tickets count the places of a queue, and are no numbers of the sequence of tokens. So a place
    /// may be taken late: before any of a greater ticket, before its grant, and before a grant without a place that was asked for later.
    Queue,
}

/// What was replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// The grants.
    pub grants: usize,
    /// Those that the end of the hold before made.
    pub handed_over: usize,
    /// How often the lock was busy though no process is known to have held it. 0 in a history without faults.
    pub unseen: usize,
}

struct Replay<'a> {
    rules: Rules,
    calls: &'a [Call],
    lock: Lock,
    now: u64,
    because: Because,
    /// What is still to come, the next one last: heartbeats by time, places by their order.
    heartbeats: Vec<(Heartbeat, usize)>,
    places: Vec<((u64, u64), usize)>,
    /// Whose recorded grant was replayed.
    had: Vec<bool>,
    /// How much earlier a place may end than here, since it may have been there when its call began.
    late: Vec<Millis>,
    done: Replayed,
}

/// Replays what happened to `lock`, whose requests all had this lease, and this time to live of their places.
pub fn replay(
    events: &[Event],
    lock: &str,
    rules: Rules,
    lease: Duration,
    place_ttl: Duration,
) -> Result<Replayed, Violations> {
    let mut events = events.to_vec();
    sort(&mut events);
    let millis = |time: Duration| u64::try_from(time.as_millis()).expect("no lease is that long");
    let replayed = calls(&events, lock)
        .and_then(|calls| Replay::new(rules, millis(lease), millis(place_ttl), &calls).run());
    replayed.map_err(|sentence| Violations(vec![format!("`{lock}`: {sentence}")]))
}

impl Replay<'_> {
    fn new(rules: Rules, lease: Millis, ttl: Millis, calls: &[Call]) -> Replay<'_> {
        let of = |(index, call): (usize, &Call)| -> Vec<_> {
            call.heartbeats.iter().map(|heartbeat| (*heartbeat, index)).collect()
        };
        let mut heartbeats: Vec<(Heartbeat, usize)> = calls.iter().enumerate().flat_map(of).collect();
        heartbeats.sort_by_key(|(heartbeat, _)| std::cmp::Reverse(heartbeat.sent));
        Replay {
            rules,
            calls,
            lock: Lock::new(calls, lease, ttl),
            now: calls.first().map_or(0, |call| call.asked),
            because: Because::Begins,
            heartbeats,
            places: Vec::new(),
            had: vec![false; calls.len()],
            late: vec![0; calls.len()],
            done: Replayed::default(),
        }
    }

    fn run(mut self) -> Result<Replayed, String> {
        let mut grants: Vec<usize> =
            (0..self.calls.len()).filter(|&index| self.calls[index].granted.is_some()).collect();
        grants.sort_by_key(|&index| self.calls[index].token());
        let due = self.order_places(&grants);
        for (index, due) in grants.into_iter().zip(due) {
            while let Some((_, first)) = self.places.pop_if(|(order, _)| *order <= due) {
                self.take_place(first)?;
            }
            self.grant(index)?;
        }
        if let Some(hold) = self.lock.hold() {
            self.end(hold, None)?;
        }
        Ok(self.done)
    }

    /// Puts the places in order. Returns for each grant up to where they are taken before it.
    fn order_places(&mut self, grants: &[usize]) -> Vec<(u64, u64)> {
        let calls = self.calls;
        let places = || calls.iter().enumerate().filter_map(|(index, call)| Some((index, call, call.place?)));
        self.places = places().filter_map(|(index, _, place)| Some(((place.ticket?, 1), index))).collect();
        let due: Vec<(u64, u64)> = match self.rules {
            Rules::HandOff => grants.iter().map(|&index| (calls[index].token(), 0)).collect(),
            Rules::Queue => {
                let due = |call: &Call| match call.place.and_then(|place| place.ticket) {
                    Some(ticket) => ticket,
                    None => {
                        let before = places().filter(|(_, _, place)| place.seen <= call.asked);
                        before.filter_map(|(_, _, place)| place.ticket).max().unwrap_or(0)
                    }
                };
                grants.iter().map(|&index| (due(&calls[index]), 1)).collect()
            }
        };
        self.places.sort_by(|a, b| b.cmp(a));
        due
    }

    /// A request queues.
    fn take_place(&mut self, index: usize) -> Result<(), String> {
        let Some(place) = self.calls[index].place else { return Ok(()) };
        self.reach(self.calls[index].asked, Because::Asks(index))?;
        let told = place.ticket.filter(|_| self.rules == Rules::HandOff);
        if told.is_some() {
            self.check_limit(index, "was in the queue", place.seen)?;
        }
        self.keep_held(self.now)?;
        if self.lock.hold().is_none() {
            self.done.unseen += 1;
            self.lock.hold_unseen(self.now);
        }
        match self.lock.queue(self.now, index, told) {
            Acquired::Queued { .. } if told.is_none_or(|told| number(told) == self.lock.last_number()) => {
                if self.rules == Rules::Queue {
                    self.late[index] = (self.now - self.calls[index].asked) / MS;
                }
                Ok(())
            }
            answer => Err(format!(
                "{} was told ticket {}, but an earlier place or grant had no smaller number ({answer:?})",
                self.name(index),
                place.ticket.unwrap_or(0)
            )),
        }
    }

    /// The next grant by tokens. All holds before it end first.
    fn grant(&mut self, index: usize) -> Result<(), String> {
        let Call { granted, place, .. } = self.calls[index];
        let (at, token) = granted.unwrap_or_default();
        if place.is_some_and(|place| place.ticket >= Some(token)) {
            return Err(format!("{} had a ticket that is not less than its token", self.name(index)));
        }
        loop {
            match self.lock.hold() {
                Some(hold) if index_of(&hold) == Some(index) => {
                    self.lock.end_earlier(self.now, self.late[index]);
                    self.done.handed_over += 1;
                    break;
                }
                Some(hold) => self.end(hold, Some(index))?,
                None => {
                    self.take(index)?;
                    break;
                }
            }
        }
        if self.lock.hold().is_none_or(|hold| hold.token.get() != number(token)) {
            return Err(format!("the token of {} is not greater than all before", self.name(index)));
        }
        self.check_limit(index, "had the lock", at)?;
        self.had[index] = true;
        self.done.grants += 1;
        Ok(())
    }

    /// The lock is free, and this request takes it. Requests ahead of it that got nothing leave first.
    fn take(&mut self, index: usize) -> Result<(), String> {
        self.reach(self.calls[index].asked, Because::Asks(index))?;
        while let Some(first) = self.first().filter(|first| self.calls[*first].granted.is_none()) {
            self.reach(self.calls[first].leaves, Because::Waits(first))?;
            self.lock.withdraw(self.now, first);
        }
        let first = self.first();
        match self.lock.take(self.now, index, self.calls[index].token()) {
            Acquired::Granted { .. } => Ok(()),
            _ => Err(self.out_of_turn(index, first.unwrap_or(index))),
        }
    }

    /// The hold ends, and the lock is handed on. By the history it goes to `next`.
    fn end(&mut self, hold: GrantedHold, next: Option<usize>) -> Result<(), String> {
        if let Some(holder) = index_of(&hold) {
            match (self.calls[holder].granted, next) {
                (Some(_), _) if self.had[holder] => self.reach_end(holder)?,
                (Some(_), Some(next)) => return Err(self.out_of_turn(next, holder)),
                _ => self.reach(self.calls[holder].leaves, Because::Waits(holder))?,
            }
        }
        if let Some(next) = next.filter(|next| self.first() == Some(*next)) {
            self.reach(self.calls[next].last_kept(), Because::IsKept(next))?;
        }
        // From here on the end is the holder's release, whatever it was.
        self.lock.hold_until(self.now);
        let token = next.and_then(|next| {
            self.revive(next);
            (self.first() == Some(next)).then(|| self.calls[next].token())
        });
        if !self.lock.release(self.now, token) {
            return Err(format!("the rules do not end {hold:?}"));
        }
        Ok(())
    }

    /// Goes to the earliest end of a hold: its release, or the end of its lease.
    fn reach_end(&mut self, holder: usize) -> Result<(), String> {
        let Call { release, believed, .. } = self.calls[holder];
        let from = release.map_or(u64::MAX, |release| release.from);
        loop {
            let ends = self.lock.lease_end() * MS;
            let (until, because) = match from <= ends {
                true => (from, Because::Holds(holder)),
                false => (ends.saturating_sub(ROUNDING), Because::Leased(holder)),
            };
            if self.now >= until {
                break;
            }
            // A heartbeat on the way may move the end.
            self.reach(until, because)?;
        }
        self.check_belief(holder, believed)?;
        // The lock was busy after that: a request that was leaving had it.
        if release.and_then(|release| release.until).is_some_and(|until| until < self.now) {
            self.done.unseen += 1;
        }
        Ok(())
    }

    /// Time passes, with all heartbeats on the way.
    fn reach(&mut self, at: u64, because: Because) -> Result<(), String> {
        while let Some((heartbeat, index)) = self.heartbeats.pop_if(|(heartbeat, _)| heartbeat.sent <= at) {
            self.heartbeat(heartbeat, index)?;
        }
        if at > self.now {
            (self.now, self.because) = (at, because);
        }
        Ok(())
    }

    /// At the earliest time, and only if it is still one of that kind: a place may have become a hold.
    fn heartbeat(&mut self, Heartbeat { sent, of_hold }: Heartbeat, index: usize) -> Result<(), String> {
        if of_hold {
            let is_held = self.lock.hold().is_some_and(|hold| index_of(&hold) == Some(index));
            if is_held && !self.lock.renew_hold(sent) {
                return Err(format!("{} renewed its hold at {sent} ns, after its lease", self.name(index)));
            }
            return Ok(());
        }
        self.keep_held(sent)?;
        // A free lock would go to the place.
        if self.lock.hold().is_some() && self.lock.renew_place(sent, index) {
            self.late[index] = 0;
        }
        Ok(())
    }

    /// The lock stays held until the next grant: a lease may have lasted longer than known, or a killed process have got it.
    fn keep_held(&mut self, at: u64) -> Result<(), String> {
        if self.lock.hold().is_none() || self.lock.lease_end() >= at / MS {
            return Ok(());
        }
        if let Some(holder) = self.lock.hold().as_ref().and_then(index_of).filter(|holder| self.had[*holder])
        {
            self.check_belief(holder, self.calls[holder].believed)?;
        }
        self.done.unseen += 1;
        self.lock.hold_until(at);
        Ok(())
    }

    /// A waiter that is granted the lock later was alive, even if its last heartbeats were not answered.
    fn revive(&mut self, index: usize) {
        if self.first() != Some(index) && self.lock.ask_again(self.now, index) {
            self.late[index] = 0;
        }
    }

    /// The waiter that a release would make the holder.
    fn first(&self) -> Option<usize> {
        self.lock.first(self.now)
    }
}

/// Whose hold it is; none if no process has seen that.
fn index_of(hold: &GrantedHold) -> Option<usize> {
    usize::try_from(hold.request.get()).ok().filter(|request| *request != usize::MAX)
}
