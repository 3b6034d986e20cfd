//! The rules: each operation, step by step, and the one way to hand a lock on.
//!
//! For all operations: a repeated command changes nothing more. A command about an old request or an old hold finds
//! nothing. Any command that finds units free hands them on, so an expired hold needs no message.

use super::line::Next;
use super::line_clock::LineClock;
use super::sequence::Sequence;
use super::{Answer, Ask, ClientNumber, Hold, Kind, Line, Member, Millis, Patience, Push, Renew};
use std::collections::BTreeSet;

/// A waiter for a lock of several units looks no more often.
const LOOKS_EVERY: Millis = 50;

/// A store may drop a line, or the sequence, when no command has used it for so long.
pub const KEPT_FOR: Millis = 24 * 3600 * 1000;

/// One lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// How many units there are.
    pub kind: Kind,
    /// The holds, by token.
    pub holds: Vec<Hold>,
    /// The waiters.
    pub line: Line,
    /// The clock that judges who is present.
    pub line_clock: LineClock,
    /// The sequence of tickets and tokens.
    pub sequence: Sequence,
    /// The places of a line that was lost, each with its ticket, until they come back or their requests end.
    pub lost: Vec<(Member, u64)>,
    /// On the line clock. A lost line comes back: others may have stood ahead of the first ones to be heard, and are heard
    /// within their places' time, or are absent. No waiter is next before this.
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
        if let Some(hold) = self.hold_of(ask.member) {
            return Answer::Granted { token: hold.token, left: hold.ends - turn.now };
        }
        let (mut in_line, free) = (self.refresh(turn.now, ask), self.free() > 0);
        if !in_line && patience == Patience::Wait && self.may_restore(turn, ask.member, ask.ticket) {
            in_line = true;
            self.restore(turn, ask);
        }
        self.pulse_if_free(turn.now);
        let next = self.hand_on(turn, &[ask.member]);
        if self.hold_of(ask.member).is_some() {
            return self.granted_to(turn.now, ask.member);
        }
        // No present waiter, so none is overtaken.
        if next == Next::NoWaiter && ask.takes <= self.free() {
            return self.grant_at_once(turn, ask);
        }
        if patience == Patience::Once {
            if self.remove(ask.member) {
                self.hand_on(turn, &[]); // it may have been the one that did not fit
            }
            return Answer::Busy { left: self.first_end().map_or(0, |end| end - turn.now) };
        }
        if !in_line {
            self.join(turn, ask);
        }
        // A newcomer to a held lock has no time for that.
        if in_line || free {
            self.sweep(turn.now);
        }
        self.queued(turn.now, ask)
    }

    /// A client's heartbeat for its waiters, each with its lease and its ticket: all are noted before anything is decided.
    ///
    /// It restores only a place that was lost: it may come after the release of the hold that the place became, or after the
    /// request's withdrawal. A waiter without a place is told so, and asks again.
    pub fn renew_places(&mut self, turn: &mut Turn<'_>, ttl: Millis, places: &[Renew]) -> Vec<Answer> {
        self.drop_expired(turn.now);
        self.pulse(turn.now);
        let deadline = self.line_clock.at(turn.now) + ttl;
        let members: Vec<Member> = places.iter().map(|place| place.member).collect();
        let is_gone = |&Renew { member, ticket, .. }: &Renew| {
            // A holder has no place, and needs none.
            let stands = self.line.place(member).is_some() || self.hold_of(member).is_some();
            !stands && self.was_lost(member, ticket) && self.may_restore(turn, member, ticket)
        };
        let gone: Vec<bool> = places.iter().map(is_gone).collect();
        for (&Renew { member, lease, ticket, takes }, is_gone) in places.iter().zip(gone) {
            if self.line.refresh(member, lease, deadline).is_some() {
                self.line_clock.hear(turn.now, ttl, false);
            }
            if is_gone {
                self.restore(turn, &Ask { member, lease, ttl, label: "", ticket, takes });
            }
        }
        self.hand_on(turn, &members);
        self.sweep(turn.now);
        let first = members.iter().filter_map(|member| self.line.rank(*member)).min();
        let answer = |member: &Member| match self.line.rank(*member) {
            Some(rank) if Some(rank) == first => self.waiting(turn.now, *member, ttl),
            Some(rank) => Answer::Waiting { rank, recheck: None, latest: self.sequence.0 },
            // Either the request holds the lock, perhaps for long, and its push was lost; or it asks again.
            None => self.granted_to(turn.now, *member),
        };
        members.iter().map(answer).collect()
    }

    /// `unlock`.
    pub fn release(&mut self, turn: &mut Turn<'_>, member: Member, token: u64) -> Answer {
        self.drop_expired(turn.now);
        self.pulse_if_free(turn.now);
        let was_held = self.give_back(member, token);
        match was_held {
            true => self.pulse(turn.now),
            false => self.give_up(turn.now, member),
        }
        self.hand_on(turn, &[]);
        if was_held { Answer::Released } else { Answer::NotHeld }
    }

    /// The end of a wait: by time-out, by cancellation, or because the request was dropped.
    pub fn withdraw(&mut self, turn: &mut Turn<'_>, member: Member) -> Answer {
        self.drop_expired(turn.now);
        if let Some(hold) = self.hold_of(member) {
            return Answer::WasGranted { token: hold.token, left: hold.ends - turn.now };
        }
        self.pulse(turn.now);
        // Before the lock is handed on: a free unit must not go to the leaving request. It may have been the one that did not fit.
        self.leave(member);
        self.hand_on(turn, &[]);
        Answer::Left
    }

    /// The same by an operator: the place is not restored. A live waiter asks again, at the tail.
    pub fn kick(&mut self, turn: &mut Turn<'_>, member: Member) -> Answer {
        self.drop_expired(turn.now);
        if self.hold_of(member).is_none() && !self.line.is_empty() {
            self.line_clock.pulse(turn.now);
            self.kicked.push((member, self.sequence.0));
        }
        self.withdraw(turn, member)
    }

    /// `force_unlock`: takes the lock from all its holders, and notifies them. The line stays.
    pub fn force_release(&mut self, turn: &mut Turn<'_>) -> Answer {
        self.drop_expired(turn.now);
        let holds = self.holds.clone();
        self.take(turn, &holds)
    }

    /// The same for one hold.
    pub fn take_hold(&mut self, turn: &mut Turn<'_>, member: Member, token: u64) -> Answer {
        self.drop_expired(turn.now);
        let hold = self.hold_as(member, token).map(|hold| *hold);
        self.take(turn, hold.as_slice())
    }

    fn take(&mut self, turn: &mut Turn<'_>, holds: &[Hold]) -> Answer {
        self.pulse(turn.now);
        for hold in holds {
            let Member { client, owner, .. } = hold.member;
            turn.pushes.push(Push::Taken { client, owner, token: hold.token });
            self.give_back(hold.member, hold.token);
        }
        self.hand_on(turn, &[]);
        if holds.is_empty() { Answer::NotHeld } else { Answer::Taken }
    }

    /// The server loses the line silently.
    pub fn lose_line(&mut self) {
        let places = std::mem::take(&mut self.line).places;
        self.lost.extend(places.into_iter().map(|place| (place.member, place.ticket)));
        self.lost.sort_by_key(|(_, ticket)| *ticket);
    }

    fn was_lost(&self, member: Member, ticket: u64) -> bool {
        self.lost.contains(&(member, ticket))
    }

    /// The request ends. A late heartbeat finds nothing to bring back.
    fn leave(&mut self, member: Member) {
        self.lost.retain(|(lost, _)| *lost != member);
        self.remove(member);
    }

    fn remove(&mut self, member: Member) -> bool {
        let was_there = self.line.remove(member).is_some();
        if was_there {
            self.end_rest();
        }
        was_there
    }

    fn sweep(&mut self, now: Millis) {
        if !self.line.is_empty() {
            self.line.sweep(self.line_clock.at(now));
            self.end_rest();
        }
    }

    /// A rest ends with the last place.
    fn end_rest(&mut self) {
        if self.line.is_empty() {
            self.rests_until = 0;
        }
    }

    /// Grants all present waiters at the head that fit, each for the rest of its place's time. So a waiter knows the validity
    /// of a pushed grant without asking, and a dead one delays the others no longer than its place would have. It is notified,
    /// unless this command is its own heartbeat. None passes the first one that does not fit.
    pub(super) fn hand_on(&mut self, turn: &mut Turn<'_>, asking: &[Member]) -> Next {
        loop {
            if self.free() == 0 {
                return Next::NoWaiter;
            }
            if self.is_shared() {
                self.pulse_if_free(turn.now);
            }
            if !self.line.is_empty() && self.line_clock.at(turn.now) < self.rests_until {
                return Next::MoreToScan;
            }
            let next = self.next(turn, self.free(), asking);
            let Next::Waiter(member) = next else { return next };
            if self.first_must_ask && !asking.contains(&member) {
                return next;
            }
            let free = self.free();
            let Some(place) = self.line.remove_if(member, |place| place.takes <= free) else { return next };
            self.end_rest();
            self.line_clock.pulse(turn.now);
            let left_of_place = place.deadline.saturating_sub(self.line_clock.at(turn.now));
            let token = self.grant(turn, member, place.takes, left_of_place.min(place.lease), place.label);
            if !asking.contains(&member) {
                turn.pushes.push(Push::Granted { to: member, token });
            }
        }
    }

    /// A command that finds units free and waiters counts as a heartbeat, too.
    pub(super) fn pulse_if_free(&mut self, now: Millis) {
        if self.free() > 0 {
            self.pulse(now);
        }
    }

    /// So do a heartbeat, and a command that ends a hold or a wait. Where nobody waits none of them is heard: the clock of an
    /// empty line moves only when a waiter comes or the lock is granted. So a release need not look for a line that rests.
    fn pulse(&mut self, now: Millis) {
        if !self.line.is_empty() {
            self.line_clock.pulse(now);
        }
    }

    fn next(&mut self, turn: &Turn<'_>, free: u32, asking: &[Member]) -> Next {
        let (clock, least_ttl) = (self.line_clock.at(turn.now), self.line_clock.least_ttl());
        let asks = |member| asking.contains(&member);
        let hears = |member: Member| turn.hearing.contains(&member.client);
        self.line.next(|place| {
            // All others wait for the first that does not fit. So it counts without a subscription, too, while it was heard
            // lately: a subscription that blinks must not cost its turn.
            let blocks = place.takes > free && place.deadline > clock + least_ttl / 2;
            asks(place.member) || place.deadline > clock && hears(place.member) || blocks
        })
    }

    /// Grants the lock to the caller, without a place.
    fn grant_at_once(&mut self, turn: &Turn<'_>, ask: &Ask) -> Answer {
        self.remove(ask.member);
        self.line_clock.pulse(turn.now);
        let token = self.grant(turn, ask.member, ask.takes, ask.lease, ask.label);
        Answer::Granted { token, left: ask.lease }
    }

    fn grant(
        &mut self,
        turn: &Turn<'_>,
        member: Member,
        takes: u32,
        lease: Millis,
        label: &'static str,
    ) -> u64 {
        let token = self.sequence.next(turn.number());
        self.holds.push(Hold { member, token, takes, count: 1, ends: turn.now + lease, label });
        token
    }

    fn join(&mut self, turn: &Turn<'_>, ask: &Ask) {
        let now = turn.now;
        self.line_clock.hear(now, ask.ttl, self.line.is_empty());
        let ticket = self.sequence.next(turn.number());
        self.lost.retain(|(lost, _)| *lost != ask.member);
        self.line.join(ask, ticket, now, self.line_clock.at(now));
    }

    /// Whether a waiter without a place gets it back at its ticket. Not if the sequence can't have given out that ticket,
    /// which would let newcomers stand ahead of it. Not if an operator has taken the place away since.
    fn may_restore(&self, turn: &Turn<'_>, member: Member, ticket: u64) -> bool {
        let is_kicked = self.kicked.iter().any(|&(kicked, last)| kicked == member && ticket <= last);
        ticket > 0 && ticket <= self.sequence.0.max(turn.number()) && !is_kicked
    }

    /// Restores a place: that of a stopped waiter whose grant has ended, one that was removed after a long silence, or one of a
    /// lost line. The number drawn here is later than any grant of the former place, and so shows which pushes are old. Only a
    /// line that was lost rests.
    fn restore(&mut self, turn: &Turn<'_>, ask: &Ask) {
        let now = turn.now;
        self.line_clock.hear(now, ask.ttl, self.line.is_empty());
        let clock = self.line_clock.at(now);
        if self.was_lost(ask.member, ask.ticket) && clock >= self.rests_until {
            self.rests_until = clock + ask.ttl;
        }
        self.sequence.next(turn.number());
        self.lost.retain(|(lost, _)| *lost != ask.member);
        self.line.join(ask, ask.ticket, now, clock);
    }

    /// Renews the place of this request. Returns whether it has one.
    fn refresh(&mut self, now: Millis, ask: &Ask) -> bool {
        let deadline = self.line_clock.at(now) + ask.ttl;
        let Some(place) = self.line.refresh(ask.member, ask.lease, deadline) else { return false };
        place.label = ask.label;
        self.line_clock.hear(now, ask.ttl, false);
        true
    }

    /// A late repeat of the request may have come here after its hold ended: a release ends the request, whatever its
    /// state.
    fn give_up(&mut self, now: Millis, member: Member) {
        if self.line.place(member).is_some() {
            self.line_clock.pulse(now);
        }
        self.leave(member);
    }

    fn queued(&self, now: Millis, ask: &Ask) -> Answer {
        let Answer::Waiting { rank, recheck, latest } = self.waiting(now, ask.member, ask.ttl) else {
            return Answer::Lost;
        };
        let ticket = self.line.place(ask.member).map_or(0, |place| place.ticket);
        Answer::Queued { rank, recheck, ticket, latest }
    }

    /// An expired hold causes no message. So the first in line asks again when the first of the holds ends (a millisecond later, so
    /// that it has really ended). So does a client's first waiter, if that is before its next heartbeat: all waiters
    /// ahead of it may have died with the holder. While a lost line comes back, they ask after that.
    fn waiting(&self, now: Millis, member: Member, ttl: Millis) -> Answer {
        let rank = self.line.rank(member).unwrap_or(0);
        let left = self.first_end().map(|end| end - now);
        let looks = rank == 0 || left.is_none_or(|left| 3 * left < ttl);
        let rests_for = self.rests_until.saturating_sub(self.line_clock.at(now));
        let when = match left {
            None => rests_for,
            Some(_) if self.free() > 0 && rests_for > 0 => rests_for,
            Some(left) if self.is_shared() => LOOKS_EVERY.max(left + 1),
            Some(left) => left + 1,
        };
        let recheck = looks.then_some(when);
        Answer::Waiting { rank, recheck, latest: self.sequence.0 }
    }

    fn granted_to(&self, now: Millis, member: Member) -> Answer {
        match self.hold_of(member) {
            Some(hold) => Answer::Granted { token: hold.token, left: hold.ends - now },
            None => Answer::Lost,
        }
    }
}
