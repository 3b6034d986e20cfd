//! The rules: each operation, step by step, and the one way to hand a lock on.
//!
//! For all operations: a repeated command changes nothing more. A command about an old request or an old hold finds
//! nothing. Any command that finds the lock free hands it on, so an expired hold needs no message.

use super::line::Next;
use super::line_clock::LineClock;
use super::sequence::Sequence;
use super::{Answer, Ask, ClientNumber, Line, Member, Millis, Patience, Push};
use std::collections::BTreeSet;

/// One owner's hold of the lock, named by request and token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The granted request.
    pub member: Member,
    /// The fencing token.
    pub token: u64,
    /// The hold count.
    pub count: u32,
    /// The last millisecond of the lease.
    pub ends: Millis,
    /// The human-readable name of the holder.
    pub label: &'static str,
}

/// One lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// The hold, if there is one.
    pub hold: Option<Hold>,
    /// The waiters.
    pub line: Line,
    /// The clock that judges who is present.
    pub line_clock: LineClock,
    /// The sequence of tickets and tokens.
    pub sequence: Sequence,
    /// The greatest ticket that was granted the lock.
    pub served: u64,
    /// On the line clock. A lost line comes back: others may have stood ahead of the first ones to be heard, and send a
    /// heartbeat within a third of their places' time. No waiter is next before this.
    pub rests_until: Millis,
    /// The requests whose places an operator took away, each with the last number at that time.
    pub kicked: Vec<(Member, u64)>,
    /// As in Redisson's line, and not in the hand-off: a free lock waits until the first in line asks. Only replayed histories
    /// have this.
    pub first_must_ask: bool,
}

/// The context of a command.
#[derive(Debug)]
pub struct Turn<'a> {
    /// The server's clock.
    pub now: Millis,
    /// The microseconds of this millisecond.
    pub micros: u64,
    /// The clients that can receive a push.
    pub hearing: &'a BTreeSet<ClientNumber>,
    /// The pushes, in order.
    pub pushes: &'a mut Vec<Push>,
}

impl Turn<'_> {
    /// The least number that the sequence may draw now.
    fn number(&self) -> u64 {
        self.now * 1000 + self.micros
    }
}

impl Lock {
    /// `lock`, `try_lock`, and their repeats: takes the lock, or keeps the place.
    pub fn acquire(&mut self, turn: &mut Turn<'_>, ask: &Ask, patience: Patience) -> Answer {
        self.drop_expired(turn.now);
        // A hold of the owner under another request does not matter: the later of the two requests can't be
        // determined.
        if let Some(hold) = self.hold.filter(|hold| hold.member == ask.member) {
            return Answer::Granted { token: hold.token, left: hold.ends - turn.now };
        }
        let (mut in_line, free) = (self.refresh(turn.now, ask), self.hold.is_none());
        if !in_line && patience == Patience::Wait && self.may_restore(turn, ask.member, ask.ticket) {
            in_line = true;
            self.restore(turn, ask);
        }
        self.pulse_if_free(turn.now);
        match self.hand_on(turn, &[ask.member]) {
            Next::Waiter(member) if member == ask.member => return self.granted_to(turn.now, member),
            // No present waiter, so none is overtaken.
            Next::NoWaiter if self.hold.is_none() => {
                return self.grant_at_once(turn, ask);
            }
            Next::Waiter(_) | Next::NoWaiter | Next::MoreToScan => {}
        }
        if patience == Patience::Once {
            self.line.remove(ask.member);
            return Answer::Busy { left: self.hold.map_or(0, |hold| hold.ends - turn.now) };
        }
        if !in_line {
            self.join(turn, ask);
        }
        // A newcomer to a held lock has no time for that.
        if in_line || free {
            self.line.sweep(self.line_clock.at(turn.now));
        }
        self.queued(turn.now, ask)
    }

    /// A client's heartbeat for its waiters, each with its lease and its ticket: all are noted before anything is decided.
    ///
    /// It does not restore a place that may have been granted the lock, since it may come after the release of the hold
    /// that the place became. A waiter without a place is told so, and asks again.
    pub fn renew_places(
        &mut self,
        turn: &mut Turn<'_>,
        ttl: Millis,
        places: &[(Member, Millis, u64)],
    ) -> Vec<Answer> {
        self.drop_expired(turn.now);
        self.line_clock.hear(turn.now, ttl, self.line.is_empty());
        self.line.keep(turn.now, ttl);
        let deadline = self.line_clock.at(turn.now) + ttl;
        let members: Vec<Member> = places.iter().map(|(member, ..)| *member).collect();
        let is_gone = |&(member, _, ticket): &(Member, Millis, u64)| {
            // A holder has no place, and needs none.
            let stands = self.line.place(member).is_some() || self.is_held_by(member);
            !stands && ticket > self.served && self.may_restore(turn, member, ticket)
        };
        let gone: Vec<bool> = places.iter().map(is_gone).collect();
        for (&(member, lease, ticket), is_gone) in places.iter().zip(gone) {
            self.line.refresh(member, lease, deadline);
            if is_gone {
                self.restore(turn, &Ask { member, lease, ttl, label: "", ticket });
            }
        }
        self.line.keep(turn.now, ttl);
        self.hand_on(turn, &members);
        self.line.sweep(self.line_clock.at(turn.now));
        let first = members.iter().filter_map(|member| self.line.rank(*member)).min();
        let answer = |member: &Member| match self.line.rank(*member) {
            Some(rank) if Some(rank) == first => self.waiting(turn.now, *member, ttl),
            Some(rank) => Answer::Waiting { rank, recheck: None, latest: self.sequence.0 },
            // Either the request holds the lock, perhaps for long, and its push was lost; or it asks again.
            None => self.granted_to(turn.now, *member),
        };
        members.iter().map(answer).collect()
    }

    /// The heartbeat of a hold, with its hold count. It touches only the hold, so it works even if the rest of the
    /// lock is unreachable.
    pub fn renew_hold(
        &mut self,
        now: Millis,
        member: Member,
        token: u64,
        count: u32,
        lease: Millis,
    ) -> Answer {
        self.drop_expired(now);
        match self.hold_as(member, token) {
            Some(hold) => {
                // Never shorter: an earlier renewal may arrive later.
                (hold.ends, hold.count) = (hold.ends.max(now + lease), count);
                Answer::Renewed
            }
            None => Answer::Lost,
        }
    }

    /// `unlock`.
    pub fn release(&mut self, turn: &mut Turn<'_>, member: Member, token: u64) -> Answer {
        self.drop_expired(turn.now);
        let was_held = self.hold_as(member, token).is_some();
        self.pulse_if_free(turn.now);
        if was_held {
            self.hold = None;
        } else {
            self.give_up(turn.now, member);
        }
        self.hand_on(turn, &[]);
        if was_held { Answer::Released } else { Answer::NotHeld }
    }

    /// `bump`: releases the lock only if there is a waiter, and queues again behind all waiters.
    pub fn bump(&mut self, turn: &mut Turn<'_>, member: Member, token: u64, again: &Ask) -> Answer {
        self.drop_expired(turn.now);
        let now = turn.now;
        if self.hold_as(member, token).is_some() {
            // Only a check: a kept hold changes nothing.
            if self.clone().next(turn, &[]) == Next::NoWaiter {
                return Answer::Kept;
            }
            self.hold = None;
            self.join(turn, again);
        } else {
            self.give_up(now, member);
            // Perhaps a repeat after a lost answer: the new request is in line, or holds the lock by now.
            self.refresh(now, again);
            self.pulse_if_free(now);
        }
        self.hand_on(turn, &[again.member]);
        if self.is_held_by(again.member) {
            return self.granted_to(now, again.member);
        }
        if self.line.place(again.member).is_some() { self.queued(now, again) } else { Answer::NotHeld }
    }

    /// The end of a wait: by time-out, by cancellation, or because the request was dropped.
    pub fn withdraw(&mut self, turn: &mut Turn<'_>, member: Member) -> Answer {
        self.drop_expired(turn.now);
        if let Some(hold) = self.hold.filter(|hold| hold.member == member) {
            return Answer::WasGranted { token: hold.token, left: hold.ends - turn.now };
        }
        self.pulse_if_free(turn.now);
        // Before the lock is handed on: a free lock must not go to the leaving request.
        self.line.remove(member);
        self.hand_on(turn, &[]);
        Answer::Left
    }

    /// The same by an operator: the place is not restored. A live waiter asks again, at the tail.
    pub fn kick(&mut self, turn: &mut Turn<'_>, member: Member) -> Answer {
        self.drop_expired(turn.now);
        if !self.is_held_by(member) && !self.line.is_empty() {
            self.line_clock.pulse(turn.now);
            self.kicked.push((member, self.sequence.0));
        }
        self.withdraw(turn, member)
    }

    /// `force_unlock`: takes the lock from its holder, and notifies it. The line stays.
    pub fn force_release(&mut self, turn: &mut Turn<'_>) -> Answer {
        self.drop_expired(turn.now);
        self.pulse_if_free(turn.now);
        let taken = self.hold.take();
        if let Some(hold) = taken {
            let Member { client, owner, .. } = hold.member;
            turn.pushes.push(Push::Taken { client, owner, token: hold.token });
        }
        self.hand_on(turn, &[]);
        if taken.is_some() { Answer::Taken } else { Answer::NotHeld }
    }

    /// The server loses the hold silently: evicted, or deleted by hand.
    pub fn lose_hold(&mut self) {
        self.hold = None;
    }

    /// The server loses the line silently.
    pub fn lose_line(&mut self) {
        self.line = Line::default();
    }

    /// The first step of every operation: removes what has expired.
    pub fn drop_expired(&mut self, now: Millis) {
        self.hold.take_if(|hold| now > hold.ends);
        self.line.drop_if_abandoned(now);
    }

    /// If the lock is free, the first present waiter gets it, for the rest of its place's time. So a waiter knows the
    /// validity of a pushed grant without asking, and a dead one delays the others no longer than its place would
    /// have. It is notified, unless this command is its own heartbeat.
    fn hand_on(&mut self, turn: &mut Turn<'_>, asking: &[Member]) -> Next {
        if self.hold.is_some() {
            return Next::NoWaiter;
        }
        if !self.line.is_empty() && self.line_clock.at(turn.now) < self.rests_until {
            return Next::MoreToScan;
        }
        let next = self.next(turn, asking);
        let Next::Waiter(member) = next else { return next };
        if self.first_must_ask && !asking.contains(&member) {
            return next;
        }
        let Some(place) = self.line.remove(member) else { return next };
        self.served = self.served.max(place.ticket);
        self.line_clock.pulse(turn.now);
        let left_of_place = place.deadline.saturating_sub(self.line_clock.at(turn.now));
        let token = self.grant(turn, member, left_of_place.min(place.lease), place.label);
        if !asking.contains(&member) {
            turn.pushes.push(Push::Granted { to: member, token });
        }
        next
    }

    /// A command that finds an expired hold and waiters counts as a heartbeat, too.
    fn pulse_if_free(&mut self, now: Millis) {
        if self.hold.is_none() && !self.line.is_empty() {
            self.line_clock.pulse(now);
        }
    }

    fn next(&mut self, turn: &Turn<'_>, asking: &[Member]) -> Next {
        let clock = self.line_clock.at(turn.now);
        let asks = |member| asking.contains(&member);
        self.line.next(clock, asks, |member: Member| turn.hearing.contains(&member.client))
    }

    /// Grants the lock to the caller, without a place.
    fn grant_at_once(&mut self, turn: &Turn<'_>, ask: &Ask) -> Answer {
        self.line.remove(ask.member);
        self.line_clock.pulse(turn.now);
        let token = self.grant(turn, ask.member, ask.lease, ask.label);
        Answer::Granted { token, left: ask.lease }
    }

    fn grant(&mut self, turn: &Turn<'_>, member: Member, lease: Millis, label: &'static str) -> u64 {
        let (now, token) = (turn.now, self.sequence.next(turn.number()));
        self.hold = Some(Hold { member, token, count: 1, ends: now + lease, label });
        token
    }

    fn join(&mut self, turn: &Turn<'_>, ask: &Ask) {
        let now = turn.now;
        self.line_clock.hear(now, ask.ttl, self.line.is_empty());
        let ticket = self.sequence.next(turn.number());
        self.line.join(ask, ticket, now, self.line_clock.at(now));
        self.line.keep_if_half_is_over(now, ask.ttl);
    }

    /// Whether a waiter without a place gets it back at its ticket. Not if the sequence can't have given out that ticket,
    /// which would let newcomers stand ahead of it. Not if an operator has taken the place away since.
    fn may_restore(&self, turn: &Turn<'_>, member: Member, ticket: u64) -> bool {
        let is_kicked = self.kicked.iter().any(|&(kicked, last)| kicked == member && ticket <= last);
        ticket > 0 && ticket <= self.sequence.0.max(turn.number()) && !is_kicked
    }

    /// Restores a place: that of a stopped waiter whose grant has ended, a forgotten one, or one of a lost line. The number
    /// drawn here is later than any grant of the former place, and so shows which pushes are old.
    fn restore(&mut self, turn: &Turn<'_>, ask: &Ask) {
        let now = turn.now;
        self.line_clock.hear(now, ask.ttl, self.line.is_empty());
        let clock = self.line_clock.at(now);
        if ask.ticket > self.served && clock >= self.rests_until {
            self.rests_until = clock + ask.ttl / 2;
        }
        self.sequence.next(turn.number());
        self.line.join(ask, ask.ticket, now, clock);
        self.line.keep_if_half_is_over(now, ask.ttl);
    }

    /// Renews the place of this request. Returns whether it has one.
    fn refresh(&mut self, now: Millis, ask: &Ask) -> bool {
        let deadline = self.line_clock.at(now) + ask.ttl;
        let Some(place) = self.line.refresh(ask.member, ask.lease, deadline) else { return false };
        place.label = ask.label;
        self.line_clock.hear(now, ask.ttl, false);
        self.line.keep_if_half_is_over(now, ask.ttl);
        true
    }

    /// A late repeat of the request may have come here after its hold ended: a release ends the request, whatever its
    /// state.
    fn give_up(&mut self, now: Millis, member: Member) {
        if self.line.place(member).is_some() {
            self.line_clock.pulse(now);
            self.line.remove(member);
        }
    }

    fn queued(&self, now: Millis, ask: &Ask) -> Answer {
        let Answer::Waiting { rank, recheck, latest } = self.waiting(now, ask.member, ask.ttl) else {
            return Answer::Lost;
        };
        let ticket = self.line.place(ask.member).map_or(0, |place| place.ticket);
        Answer::Queued { rank, recheck, ticket, latest }
    }

    /// An expired hold causes no message. So the first in line asks again when the hold ends (a millisecond later, so
    /// that it has really ended). So does a client's first waiter, if that is before its next heartbeat: all waiters
    /// ahead of it may have died with the holder. While a lost line comes back, they ask after that.
    fn waiting(&self, now: Millis, member: Member, ttl: Millis) -> Answer {
        let rank = self.line.rank(member).unwrap_or(0);
        let left = self.hold.map(|hold| hold.ends - now);
        let looks = rank == 0 || left.is_none_or(|left| 3 * left < ttl);
        let when_free = self.rests_until.saturating_sub(self.line_clock.at(now));
        let recheck = looks.then(|| left.map_or(when_free, |left| left + 1));
        Answer::Waiting { rank, recheck, latest: self.sequence.0 }
    }

    fn granted_to(&self, now: Millis, member: Member) -> Answer {
        match self.hold {
            Some(hold) if hold.member == member => {
                Answer::Granted { token: hold.token, left: hold.ends - now }
            }
            _ => Answer::Lost,
        }
    }

    fn is_held_by(&self, member: Member) -> bool {
        self.hold.is_some_and(|hold| hold.member == member)
    }

    fn hold_as(&mut self, member: Member, token: u64) -> Option<&mut Hold> {
        self.hold.as_mut().filter(|hold| hold.member == member && hold.token == token)
    }
}
