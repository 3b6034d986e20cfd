//! The operations on the lock. The rule is that of `fairlock-rules`; the store around it refuses attempts past their end. A wrong rule
//! is a mistake in the rule, or other arguments, or a change of the state before or after the operation.

use fairlock_core::FencingToken;
use fairlock_core::backend::{
    Acquire, Acquired, BackendError, ForceReleased, Hold as Held, Released, Renew, Renewal, Withdrawn,
};

use super::bounds::{Bounds, Discipline};
use super::entry::{NOW, in_ticks, number, owner, request, small, ticks};
use super::messages::{Answer, Command, Member, Verb, Word};
use super::rules::Rules;
use super::state::State;
use super::store::{Hold, Server};

/// One running operation.
pub struct Script<'a> {
    /// The limits of the check.
    pub bounds: &'a Bounds,
    /// The server, and what the model knows besides.
    pub state: &'a mut State,
}

impl Script<'_> {
    /// Executes a command.
    pub fn run(&mut self, Command { member, word }: Command) -> Answer {
        if self.bounds.discipline == Discipline::ByOwner {
            return self.run_by_owner(member, word);
        }
        self.prepare(member, word);
        let answer = match word.verb {
            _ if self.begins_too_late(member, word) => return Answer::TooLate,
            Verb::Ask => self.ask(member, word.number),
            Verb::Heartbeat => self.heartbeat(member, word.number),
            Verb::Renew => self.renew(member, word.number),
            Verb::Withdraw => self.withdraw(member),
            Verb::Release => self.release(member, word.number),
        };
        self.spoil(member, answer);
        self.state.server.tidy(self.bounds);
        answer
    }

    /// Takes the lock from any holder.
    pub fn force(&mut self, end: u8) {
        if end == 0 && !self.is(Rules::NoEndOfAForce) {
            return;
        }
        let taken = self.state.server.live_holds().next().copied();
        let lock = self.bounds.lock(0);
        let answer = self.bounds.on_entry(self.state, |entry, context| entry.force_release(context, lock));
        if let (Some(Hold { member, token, after_force, .. }), Ok(ForceReleased::Taken)) = (taken, answer) {
            self.state.seized |= after_force;
            let client = &mut self.state.clients[usize::from(member.client)];
            if !client.dead && client.request == member.request {
                client.forced = token;
            }
        }
        self.state.server.tidy(self.bounds);
    }

    /// The client may have given up this attempt long ago, and nobody would come for what it begins.
    fn begins_too_late(&self, member: Member, word: Word) -> bool {
        let server = &self.state.server;
        let begins = server.hold_of(member).is_none() && server.place_of(member).is_none();
        begins && word.verb == Verb::Ask && self.is_late(word, Rules::NoEndOfAnAsk)
    }

    fn ask(&mut self, member: Member, ticket: u8) -> Answer {
        if let Some(granted) = self.take_over(member) {
            return granted;
        }
        let ticket = if self.is(Rules::PutBackAtTheTail) { 0 } else { ticket };
        let ask = Acquire::new(self.bounds.place(member, ticket), ticks(self.bounds.lease(member)));
        let answer = self.bounds.on_entry(self.state, |entry, context| entry.acquire(context, &ask));
        self.told(answer)
    }

    fn heartbeat(&mut self, member: Member, ticket: u8) -> Answer {
        let server = &self.state.server;
        let is_gone = server.hold_of(member).is_none() && server.place_of(member).is_none();
        if is_gone && self.is(Rules::HeartbeatRestores) {
            return self.ask(member, ticket);
        }
        let place = self.bounds.place(member, ticket);
        let lease = ticks(self.bounds.lease(member));
        match self.renewed(Renew::Place { place, lease }) {
            _ if self.is(Rules::NobodyLooks) => {
                self.queued(0, number(self.state.server.last), ticks(u8::MAX))
            }
            Some(Renewal::Granted { token, lease }) => granted(token, lease),
            Some(Renewal::Waiting { recheck_in, latest, .. }) => self.queued(0, latest, recheck_in),
            _ => Answer::PlaceLost,
        }
    }

    /// Renews one hold, and does not look at the queue: waiters have heartbeats, and the first waiter looks at ends.
    pub fn renew(&mut self, member: Member, token: u8) -> Answer {
        let its = self.state.server.holds.iter().find(|hold| hold.member == member);
        let token = match its {
            Some(hold) if self.is(Rules::RenewalOfAnyHold) => hold.token,
            _ => token,
        };
        let lease = ticks(self.bounds.lease(member));
        let hold = self.hold(member, token);
        let was_over = self.state.server.hold_of(member).is_none_or(|hold| hold.token != token);
        match self.renewed(Renew::Hold { hold, holds: 1, lease }) {
            Some(Renewal::Renewed) => {
                self.state.revived |= was_over;
                let lease = self.bounds.lease(member);
                let its = self.state.server.holds.iter_mut().filter(|hold| hold.member == member);
                its.for_each(|hold| hold.own = hold.own.max(lease));
                Answer::Renewed
            }
            _ => Answer::HoldLost,
        }
    }

    fn withdraw(&mut self, member: Member) -> Answer {
        let place = self.bounds.place(member, 0);
        let is_blind = self.is(Rules::WithdrawalWithoutHandOn);
        let answer = self.bounds.on_entry(self.state, |entry, context| {
            if is_blind {
                entry.grant_nothing_until(NOW + ticks(1));
            }
            entry.withdraw(context, &place)
        });
        match answer {
            Withdrawn::WasGranted { token, lease } => granted(token, lease),
            _ => Answer::Left,
        }
    }

    fn release(&mut self, member: Member, token: u8) -> Answer {
        let any = self.state.server.holds.first().filter(|_| self.is(Rules::ReleaseOfAnyHold));
        let (member, token) = any.map_or((member, token), |hold| (hold.member, hold.token));
        let hold = self.hold(member, token);
        match self.bounds.on_entry(self.state, |entry, context| entry.release(context, &hold)) {
            Released::Released => Answer::Released,
            _ => Answer::NotHeld,
        }
    }

    fn renewed(&mut self, item: Renew<'_>) -> Option<Renewal> {
        let is_blind = self.is(Rules::NobodyLooks);
        let renew = |entry: &mut fairlock_rules::LockEntry,
                     context: &mut fairlock_rules::OperationContext<'_>| {
            if is_blind {
                entry.grant_nothing_until(NOW + ticks(1));
            }
            entry.renew(context, &[item]).pop()
        };
        self.bounds.on_entry(self.state, renew)
    }

    fn hold(&self, member: Member, token: u8) -> Held<'static> {
        let token = FencingToken::new(number(token));
        let mut hold =
            Held::new(self.bounds.lock(member.client), owner(member.client), request(member), token);
        hold.units = self.bounds.takes(member.client).into();
        hold
    }

    fn told(&self, answer: Result<Acquired, BackendError>) -> Answer {
        match answer {
            Ok(Acquired::Granted { token, lease }) => granted(token, lease),
            Ok(Acquired::Queued { recheck_in, ticket, latest, .. }) => {
                let ticket = if self.bounds.is_whole() { small(ticket) } else { 0 };
                self.queued(ticket, latest, recheck_in)
            }
            Ok(_) => Answer::Busy,
            Err(_) => Answer::Mismatch,
        }
    }

    fn queued(&self, ticket: u8, latest: u64, recheck_in: std::time::Duration) -> Answer {
        let is_blind = matches!(self.bounds.rules, Rules::NoLookAtEnds | Rules::NobodyLooks);
        let looks = self.bounds.is_prompt() && !is_blind && recheck_in < ticks(u8::MAX);
        let last_end = self.state.server.holds.iter().map(|hold| hold.left).max().unwrap_or(0);
        // In less than a tick is in one; a moment after an end is in the tick of that end.
        let look = if recheck_in.is_zero() { 0 } else { in_ticks(recheck_in).max(1) };
        let look = if self.is(Rules::LastEnd) { last_end } else { look };
        Answer::Queued { ticket, latest: small(latest), look: looks.then_some(look) }
    }

    /// Wrong rules that change the state first.
    fn prepare(&mut self, member: Member, word: Word) {
        let takes = self.bounds.takes(member.client);
        let server = &mut self.state.server;
        let fits = server.taken() + takes <= server.capacity;
        match self.bounds.rules {
            // The units of the hold that is granted already stay taken.
            Rules::RepeatIsGrantedAnew if word.verb == Verb::Ask && fits => {
                let its = server.holds.iter_mut().filter(|hold| hold.member == member);
                its.for_each(|hold| hold.member.request = 0);
            }
            Rules::FreedTwice if word.verb == Verb::Release => {
                let is_held = server.holds.iter().any(|hold| hold.token == word.number);
                if let Some(other) = server.holds.first_mut().filter(|_| !is_held) {
                    other.takes = other.takes.saturating_sub(takes);
                }
            }
            _ => {}
        }
    }

    /// Wrong rules that change the state afterwards.
    fn spoil(&mut self, member: Member, answer: Answer) {
        let lease = self.bounds.lease(member);
        let server = &mut self.state.server;
        let last = server.holds.iter().map(|hold| hold.left).max().unwrap_or(0);
        match self.bounds.rules {
            Rules::RenewalRaisesAll if answer == Answer::Renewed => {
                server.holds.iter_mut().for_each(|hold| hold.left = lease);
            }
            Rules::OneEnd => server.holds.iter_mut().for_each(|hold| hold.left = last),
            Rules::CapacityBeforeEnds => server.holds.retain(|hold| hold.left > 0),
            Rules::LostQueueDoesNotRest => server.rests = 0,
            _ => {}
        }
    }

    /// By a wrong rule the request takes the hold of another request of its owner.
    pub fn take_over(&mut self, member: Member) -> Option<Answer> {
        let server = &mut self.state.server;
        let is_others = |hold: &Hold| hold.member.client == member.client && hold.member != member;
        let takes_over = self.bounds.is(Rules::LateRequestTakesOver) && server.holds.iter().any(is_others);
        if !takes_over {
            return None;
        }
        server.holds.retain(|hold| !is_others(hold));
        Some(self.grant(member))
    }

    /// A hold for the whole lease, of a lock that is free.
    pub fn grant(&mut self, member: Member) -> Answer {
        let (takes, left) = (self.bounds.takes(member.client), self.bounds.lease(member));
        let after_force = self.state.is_after_force();
        let server = self.server();
        server.last += 1;
        server.capacity = 1;
        server.holds.push(Hold { token: server.last, member, takes, left, own: left, after_force });
        Answer::Granted { token: server.last, left }
    }

    /// Whether an attempt is past its end. By the wrong rule `endless` attempts have no end.
    pub fn is_late(&self, word: Word, endless: Rules) -> bool {
        word.end == 0 && self.bounds.has_end(word.verb) && !self.is(endless)
    }

    /// Whether these are the rules.
    pub fn is(&self, rules: Rules) -> bool {
        self.bounds.is(rules)
    }

    pub fn server(&mut self) -> &mut Server {
        &mut self.state.server
    }
}

fn granted(token: FencingToken, lease: std::time::Duration) -> Answer {
    Answer::Granted { token: small(token.get()), left: in_ticks(lease) }
}
