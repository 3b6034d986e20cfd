//! The rules: each operation, step by step, and the one way in which a lock is handed on.
//!
//! What holds for all: a command that is repeated changes nothing more. A command about an old request, or an old hold,
//! finds nothing. Whoever finds the lock free hands it on: so a hold that ended by itself needs no message from anybody.

use super::line::Next;
use super::line_clock::LineClock;
use super::sequence::Sequence;
use super::{Answer, Ask, ClientNumber, Member, Millis, Patience, Push};
use std::collections::BTreeSet;

/// One owner's possession of the lock, named by request and token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The request that was granted.
    pub member: Member,
    /// Its fencing token.
    pub token: u64,
    /// How often it is held.
    pub count: u32,
    /// The lease is over after this millisecond.
    pub ends: Millis,
    /// A person's idea of the holder.
    pub label: &'static str,
}

/// One lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// Who holds it.
    pub hold: Option<Hold>,
    /// Who waits.
    pub line: super::Line,
    /// Judges who is present.
    pub line_clock: LineClock,
    /// Tickets and tokens.
    pub sequence: Sequence,
    /// The greatest ticket that was granted the lock.
    pub served: u64,
    /// Whose places were taken away by an operator, each with the last number at that moment.
    pub kicked: Vec<(Member, u64)>,
}

/// Is a line that was lost coming back in this very command? Then nobody is next: others may have stood before those who
/// speak first, and speak within a third of their places' time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Whole,
    ComesBack,
}

/// What a command needs beside the lock.
#[derive(Debug)]
pub struct Turn<'a> {
    /// The server's clock.
    pub now: Millis,
    /// The clients that would hear a push.
    pub hearing: &'a BTreeSet<ClientNumber>,
    /// What is pushed, in this order.
    pub pushes: &'a mut Vec<Push>,
}

impl Lock {
    /// `lock`, `try_lock`, and every repeat of them: take it, or keep my place.
    pub fn acquire(&mut self, turn: &mut Turn<'_>, ask: &Ask, patience: Patience) -> Answer {
        self.look(turn.now);
        // That the owner holds it under another request does not matter: which of the two is the late one can't be known.
        if let Some(hold) = self.hold.filter(|hold| hold.member == ask.member) {
            return Answer::Granted { token: hold.token, left: hold.ends - turn.now };
        }
        let (mut in_line, free) = (self.speaks(turn.now, ask), self.hold.is_none());
        let mut line = Line::Whole;
        if !in_line && patience == Patience::Wait && self.believes(turn.now, ask.member, ask.ticket) {
            (in_line, line) = (true, self.puts_back(turn.now, ask));
        }
        self.pulse_if_free(turn.now);
        match self.hand_on(turn, line, &[ask.member]) {
            Next::Waiter(member) if member == ask.member => return self.granted_to(turn.now, member),
            // Nobody who is present waits, so nobody is overtaken.
            Next::Nobody if self.hold.is_none() && line == Line::Whole => {
                return self.grant_at_once(turn, ask);
            }
            Next::Waiter(_) | Next::Nobody | Next::LookAgain => {}
        }
        if patience == Patience::Once {
            self.line.remove(ask.member);
            return Answer::Busy { left: self.hold.map_or(0, |hold| hold.ends - turn.now) };
        }
        if !in_line {
            self.joins(turn.now, ask);
        }
        // A newcomer to a held lock has no time for that.
        if in_line || free {
            self.line.forget_the_silent(self.line_clock.at(turn.now));
        }
        self.queued(turn.now, ask, line)
    }

    /// The heartbeat of waiters of one client: all speak before anything is decided. Each has its lease and its ticket.
    ///
    /// What may have been granted the lock is not put back by it: a heartbeat may come after the release of the very hold
    /// that the place became. Who still waits is told that the place is lost, and asks.
    pub fn renew_places(
        &mut self,
        turn: &mut Turn<'_>,
        ttl: Millis,
        places: &[(Member, Millis, u64)],
    ) -> Vec<Answer> {
        self.look(turn.now);
        self.line_clock.hear(turn.now, ttl, self.line.is_empty());
        self.line.keep(turn.now, ttl);
        let deadline = self.line_clock.at(turn.now) + ttl;
        let members: Vec<Member> = places.iter().map(|(member, ..)| *member).collect();
        let is_gone = |&(member, _, ticket): &(Member, Millis, u64)| {
            // A hold has no place, and needs none.
            let stands = self.line.place(member).is_some() || self.is_held_by(member);
            !stands && ticket > self.served && self.believes(turn.now, member, ticket)
        };
        let gone: Vec<bool> = places.iter().map(is_gone).collect();
        let mut line = Line::Whole;
        for (&(member, lease, ticket), is_gone) in places.iter().zip(gone) {
            self.line.speak(member, lease, deadline);
            if is_gone {
                line = self.puts_back(turn.now, &Ask { member, lease, ttl, label: "", ticket });
            }
        }
        self.line.keep(turn.now, ttl);
        self.hand_on(turn, line, &members);
        self.line.forget_the_silent(self.line_clock.at(turn.now));
        let first = members.iter().filter_map(|member| self.line.rank(*member)).min();
        let answer = |member: &Member| match self.line.rank(*member) {
            Some(rank) if Some(rank) == first => self.waiting(turn.now, *member, ttl, line),
            Some(rank) => Answer::Waiting { rank, look_again: None, latest: self.sequence.0 },
            // It has the lock, perhaps for long, and the push was lost; or it asks again.
            None => self.granted_to(turn.now, *member),
        };
        members.iter().map(answer).collect()
    }

    /// The heartbeat of a hold, and the news of how often it is held. It touches the hold only, so it also works where
    /// the rest of the lock can't be reached.
    pub fn renew_hold(
        &mut self,
        now: Millis,
        member: Member,
        token: u64,
        count: u32,
        lease: Millis,
    ) -> Answer {
        self.look(now);
        match self.hold_as(member, token) {
            Some(hold) => {
                // Never shorter: a renewal that was sent earlier can arrive later.
                (hold.ends, hold.count) = (hold.ends.max(now + lease), count);
                Answer::Renewed
            }
            None => Answer::Lost,
        }
    }

    /// `unlock`.
    pub fn release(&mut self, turn: &mut Turn<'_>, member: Member, token: u64) -> Answer {
        self.look(turn.now);
        let was_held = self.hold_as(member, token).is_some();
        self.pulse_if_free(turn.now);
        if was_held {
            self.hold = None;
        } else {
            self.gives_up(turn.now, member);
        }
        self.hand_on(turn, Line::Whole, &[]);
        if was_held { Answer::Released } else { Answer::NotHeld }
    }

    /// `bump`: gives the hold up only if somebody waits, and stands in line again behind them.
    pub fn bump(&mut self, turn: &mut Turn<'_>, member: Member, token: u64, again: &Ask) -> Answer {
        self.look(turn.now);
        let now = turn.now;
        if self.hold_as(member, token).is_some() {
            // Only a look: if he keeps the lock nothing has changed.
            if self.clone().next(turn, &[]) == Next::Nobody {
                return Answer::Kept;
            }
            self.hold = None;
            self.joins(now, again);
        } else {
            self.gives_up(now, member);
            // Perhaps a repeat, whose first answer was lost: the new request is in line, or has the lock by now.
            self.speaks(now, again);
            self.pulse_if_free(now);
        }
        self.hand_on(turn, Line::Whole, &[again.member]);
        if self.is_held_by(again.member) {
            return self.granted_to(now, again.member);
        }
        if self.line.place(again.member).is_some() {
            self.queued(now, again, Line::Whole)
        } else {
            Answer::NotHeld
        }
    }

    /// A wait is over: by time, by cancel, or because nobody wants it any more.
    pub fn withdraw(&mut self, turn: &mut Turn<'_>, member: Member) -> Answer {
        self.look(turn.now);
        if let Some(hold) = self.hold.filter(|hold| hold.member == member) {
            return Answer::WasGranted { token: hold.token, left: hold.ends - turn.now };
        }
        self.pulse_if_free(turn.now);
        // Before anything is handed on: a free lock must not go to the one who leaves.
        self.line.remove(member);
        self.hand_on(turn, Line::Whole, &[]);
        Answer::Left
    }

    /// The same by an operator: the place is not put back. One that is alive asks again, at the tail.
    pub fn kick(&mut self, turn: &mut Turn<'_>, member: Member) -> Answer {
        self.look(turn.now);
        if !self.is_held_by(member) && !self.line.is_empty() {
            self.line_clock.pulse(turn.now);
            self.kicked.push((member, self.sequence.0));
        }
        self.withdraw(turn, member)
    }

    /// `force_unlock`: takes it from whoever holds it, and tells him. The line stays.
    pub fn force_release(&mut self, turn: &mut Turn<'_>) -> Answer {
        self.look(turn.now);
        self.pulse_if_free(turn.now);
        let taken = self.hold.take();
        if let Some(hold) = taken {
            let Member { client, owner, .. } = hold.member;
            turn.pushes.push(Push::Taken { client, owner, token: hold.token });
        }
        self.hand_on(turn, Line::Whole, &[]);
        if taken.is_some() { Answer::Taken } else { Answer::NotHeld }
    }

    /// The server lost the hold, and tells nobody: evicted, or deleted by hand.
    pub fn lose_hold(&mut self) {
        self.hold = None;
    }

    /// The server lost the line, and tells nobody.
    pub fn lose_line(&mut self) {
        self.line = super::Line::default();
    }

    /// The first step of every operation: what is over is not there.
    pub fn look(&mut self, now: Millis) {
        self.hold.take_if(|hold| now > hold.ends);
        self.line.drop_if_abandoned(now);
    }

    /// If the lock is free, the first in line who is present gets it: for what is left of his place, so that he knows
    /// without asking how long a grant is good of which he is only told, and one who has just died keeps the others
    /// waiting no longer than his place would have. He is told, unless he speaks in this very command.
    fn hand_on(&mut self, turn: &mut Turn<'_>, line: Line, speaking: &[Member]) -> Next {
        if self.hold.is_some() || line == Line::ComesBack {
            return Next::Nobody;
        }
        let next = self.next(turn, speaking);
        let Next::Waiter(member) = next else { return next };
        let Some(place) = self.line.remove(member) else { return next };
        self.served = self.served.max(place.ticket);
        self.line_clock.pulse(turn.now);
        let left_of_place = place.deadline.saturating_sub(self.line_clock.at(turn.now));
        let token = self.grant(turn.now, member, left_of_place.min(place.lease), place.label);
        if !speaking.contains(&member) {
            turn.pushes.push(Push::Granted { to: member, token });
        }
        next
    }

    /// Whoever finds that a hold is over and others wait is a sign of life, too.
    fn pulse_if_free(&mut self, now: Millis) {
        if self.hold.is_none() && !self.line.is_empty() {
            self.line_clock.pulse(now);
        }
    }

    fn next(&mut self, turn: &Turn<'_>, speaking: &[Member]) -> Next {
        let clock = self.line_clock.at(turn.now);
        let speaks = |member| speaking.contains(&member);
        self.line.next(clock, speaks, |member: Member| turn.hearing.contains(&member.client))
    }

    /// The caller gets the lock without a place.
    fn grant_at_once(&mut self, turn: &Turn<'_>, ask: &Ask) -> Answer {
        self.line.remove(ask.member);
        self.line_clock.pulse(turn.now);
        let token = self.grant(turn.now, ask.member, ask.lease, ask.label);
        Answer::Granted { token, left: ask.lease }
    }

    fn grant(&mut self, now: Millis, member: Member, lease: Millis, label: &'static str) -> u64 {
        let token = self.sequence.next(now);
        self.hold = Some(Hold { member, token, count: 1, ends: now + lease, label });
        token
    }

    fn joins(&mut self, now: Millis, ask: &Ask) {
        self.line_clock.hear(now, ask.ttl, self.line.is_empty());
        let ticket = self.sequence.next(now);
        self.line.join(ask, ticket, now, self.line_clock.at(now));
        self.line.keep_if_half_is_over(now, ask.ttl);
    }

    /// Whether a waiter that has no place is put back where its ticket says. Not if the sequence can't have given that out:
    /// who came new would stand before it. Not if an operator has taken the place away since.
    fn believes(&self, now: Millis, member: Member, ticket: u64) -> bool {
        let is_kicked = self.kicked.iter().any(|&(kicked, last)| kicked == member && ticket <= last);
        ticket > 0 && ticket <= self.sequence.0.max(now * 1000) && !is_kicked
    }

    /// Puts it back: that of a waiter that was granted the lock while it stood still, and whose grant is over; one that was
    /// forgotten; a whole line that was lost. The number that is drawn is later than any grant of the place that is gone, and
    /// so tells which pushes are old.
    fn puts_back(&mut self, now: Millis, ask: &Ask) -> Line {
        self.line_clock.hear(now, ask.ttl, self.line.is_empty());
        self.sequence.next(now);
        self.line.join(ask, ask.ticket, now, self.line_clock.at(now));
        self.line.keep_if_half_is_over(now, ask.ttl);
        if ask.ticket > self.served { Line::ComesBack } else { Line::Whole }
    }

    /// If the request is in line, it lives on. Is it?
    fn speaks(&mut self, now: Millis, ask: &Ask) -> bool {
        let deadline = self.line_clock.at(now) + ask.ttl;
        let Some(place) = self.line.speak(ask.member, ask.lease, deadline) else { return false };
        place.label = ask.label;
        self.line_clock.hear(now, ask.ttl, false);
        self.line.keep_if_half_is_over(now, ask.ttl);
        true
    }

    /// A late repeat of its ask may have come here after its hold was over: a release gives the request up, whatever
    /// its state.
    fn gives_up(&mut self, now: Millis, member: Member) {
        if self.line.place(member).is_some() {
            self.line_clock.pulse(now);
            self.line.remove(member);
        }
    }

    fn queued(&self, now: Millis, ask: &Ask, line: Line) -> Answer {
        let Answer::Waiting { rank, look_again, latest } = self.waiting(now, ask.member, ask.ttl, line)
        else {
            return Answer::Lost;
        };
        let ticket = self.line.place(ask.member).map_or(0, |place| place.ticket);
        Answer::Queued { rank, look_again, ticket, latest }
    }

    /// When the hold is over nobody tells those who wait. So the first in line looks then (a millisecond later, so that it
    /// has really ended), and so does the first of a client if that is before its next heartbeat: all who stand before
    /// him may have died with the holder. In a line that comes back, when all have spoken.
    fn waiting(&self, now: Millis, member: Member, ttl: Millis, line: Line) -> Answer {
        let rank = self.line.rank(member).unwrap_or(0);
        let left = self.hold.map(|hold| hold.ends - now);
        let looks = rank == 0 || left.is_none_or(|left| 3 * left < ttl);
        let when_free = if line == Line::ComesBack { ttl / 3 } else { 0 };
        let look_again = looks.then(|| left.map_or(when_free, |left| left + 1));
        Answer::Waiting { rank, look_again, latest: self.sequence.0 }
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
