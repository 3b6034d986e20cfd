//! What one client believes and sends next, as in `fairlock-core/src/claim/`.

use super::bounds::{Bounds, MARGIN};
use super::messages::{Answer, Call, Push, Thread, Verb, Word};
use super::rules::Rules;
use super::settle::Owed;

/// The progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Phase {
    /// No request, or the last one has ended.
    #[default]
    Idle,
    /// The request is being asked for, or has a place.
    Waiting,
    /// The client believes in the hold.
    Held {
        /// The token of the hold.
        token: u8,
        /// The remaining validity in ticks, at least 1.
        valid: u8,
    },
    /// The server must be told of the end.
    Leaving {
        /// The command to send.
        word: Word,
        /// A timed wait takes the lock if it was granted.
        wanted: bool,
        /// The last such command was sent after the end of every unanswered attempt.
        after_the_end: bool,
    },
}

/// A client with one owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Client {
    /// The client's process has died.
    pub dead: bool,
    /// The server does not count it as a subscriber of its channel. (A client that has died may go on to count.)
    pub deaf: bool,
    /// The client was deaf at some time since the server last heard from it. (For the properties only.)
    pub was_deaf: bool,
    /// How many requests it has made. The last one is current.
    pub request: u8,
    /// The progress of that request.
    pub phase: Phase,
    /// Ticks since it sent the last command whose answer shows its place.
    pub heard: Option<u8>,
    /// When its request first stood in the queue, by order among all; 0 if it has not. (For the properties only.)
    pub stood: u8,
    /// The last number of the sequence that the client was told.
    pub latest: u8,
    /// The ticket of the place, as last told. It is kept when the place is gone.
    pub ticket: u8,
    /// The token of a push that overtook the first answer; 0 for none.
    pub early: u8,
    /// A reason to ask now.
    pub look: bool,
    /// Ask after this many ticks.
    pub look_in: Option<u8>,
    /// Send the heartbeat or the renewal after this many ticks.
    pub beat_in: Option<u8>,
    /// How long the client has held its units. (Counted only with prompt time.)
    pub held_for: u8,
    /// An attempt of this request was not answered: ticks until its end, by this client's clock.
    pub unsure: Option<u8>,
    /// Ended requests that must be withdrawn once more.
    pub owed: Vec<Owed>,
    /// The client believes the server's clock to be earlier than it is: the client's attempts are past their end at once.
    pub behind: bool,
    /// The token of its hold that was taken by force; 0 for none. (For the properties only.)
    pub forced: u8,
    /// A command of an older request has cost it its place. (For the properties only.)
    pub robbed: bool,
    /// Its calls, by thread.
    pub calls: [Option<Call>; 3],
    /// The push to it in flight. An older one that has not arrived is lost.
    pub push: Option<Push>,
}

impl Client {
    /// The token of the hold in which it believes.
    pub fn believes(&self) -> Option<u8> {
        match self.phase {
            Phase::Held { token, .. } => Some(token),
            _ => None,
        }
    }

    /// The token of that hold, unless the hold was taken by force and the client does not know yet.
    pub fn rightly_believes(&self) -> Option<u8> {
        self.believes().filter(|token| *token != self.forced)
    }

    /// Its request, while it waits.
    pub fn waits_for(&self) -> Option<u8> {
        (self.phase == Phase::Waiting).then_some(self.request)
    }

    /// That request, if the client must not be passed over.
    pub fn lives(&self) -> Option<u8> {
        self.waits_for().filter(|_| !self.is_deaf_at_times())
    }

    /// Whether the client is deaf, or was since its last heartbeat.
    pub fn is_deaf_at_times(&self) -> bool {
        self.deaf || self.was_deaf
    }

    /// Whether this thread has no call.
    pub fn is_free(&self, thread: Thread) -> bool {
        self.calls[thread as usize].is_none()
    }

    /// Whether there is a reason to ask the server.
    pub fn should_ask(&self, bounds: &Bounds) -> bool {
        let beats = !bounds.is_whole() && self.beat_in == Some(0);
        self.phase == Phase::Waiting
            && self.is_free(Thread::Caller)
            && (self.look || self.look_in == Some(0) || beats)
    }

    /// The heartbeat or renewal that is due.
    pub fn should_renew(&self, bounds: &Bounds) -> Option<Word> {
        match self.phase {
            _ if !self.is_free(bounds.watchdog()) || self.beat_in != Some(0) => None,
            // Not before it was told that it stands in the queue.
            Phase::Waiting if bounds.is_whole() && self.heard.is_some() => {
                Some(Word::new(Verb::Heartbeat, self.ticket))
            }
            Phase::Held { token, .. } => Some(Word::new(Verb::Renew, token)),
            _ => None,
        }
    }

    /// The end that the server must still be told of. The watchdog tells it of the end of a wait, after its renewals.
    pub fn should_tell(&self) -> Option<Word> {
        match self.phase {
            Phase::Leaving { word, .. } if word.verb == Verb::Withdraw && !self.is_free(Thread::Watchdog) => {
                None
            }
            Phase::Leaving { word, .. } if self.is_free(Thread::Caller) => Some(word),
            _ => None,
        }
    }

    /// The command that asks, with the ticket of its place.
    pub fn asking(&self) -> Word {
        Word::new(Verb::Ask, self.ticket)
    }

    /// Sends a command about this request.
    pub fn send(&mut self, thread: Thread, request: u8, word: Word) {
        // The reason is used up before the request is sent.
        match word.verb {
            Verb::Ask => (self.look, self.look_in) = (false, None),
            Verb::Heartbeat | Verb::Renew => self.beat_in = None,
            _ => {}
        }
        if let Phase::Leaving { after_the_end, .. } = &mut self.phase
            && thread == Thread::Caller
        {
            *after_the_end = self.unsure == Some(0);
        }
        self.calls[thread as usize] = Some(Call { request, word, age: 0, answer: None });
    }

    /// Makes a new request.
    pub fn begin(&mut self) {
        self.request += 1;
        self.phase = Phase::Waiting;
    }

    /// The wait times out.
    pub fn give_up(&mut self, wanted: bool, rules: Rules) {
        if rules == Rules::PlaceKeptOnTimeOut {
            return self.end();
        }
        self.leave(Word::withdraw(), wanted);
    }

    /// A command got no answer. A later answer is ignored.
    pub fn timed_out(&mut self, word: Word) {
        match (word.verb, self.phase) {
            (Verb::Ask, Phase::Waiting) => self.look = true,
            (Verb::Heartbeat, Phase::Waiting) | (Verb::Renew, Phase::Held { .. }) => self.beat_in = Some(0),
            _ => {}
        }
    }

    /// Handles the answer to a command of this request, sent `age` ticks ago.
    pub fn answered(&mut self, word: Word, answer: Answer, age: u8, bounds: &Bounds) {
        let age = if bounds.is(Rules::ValidFromTheAnswer) { 0 } else { age };
        if answer == Answer::TooLate {
            self.behind = false;
            self.look = self.phase == Phase::Waiting && !bounds.is(Rules::TooLateIsNotRepeated);
            return;
        }
        if word.is_of_place() && bounds.is_whole() && !bounds.is(Rules::NewsOfAnotherGrantIsIgnored) {
            self.note_another(answer);
        }
        match (word.verb, self.phase) {
            (Verb::Ask | Verb::Heartbeat, Phase::Waiting) => self.answered_waiting(answer, age, bounds),
            (Verb::Renew, Phase::Held { token, valid }) if word.number == token => {
                if answer == Answer::Renewed {
                    let valid = valid.max(self.validity(bounds.times.lease(self.request), age, bounds));
                    self.phase = Phase::Held { token, valid };
                    self.beat_in = Some(bounds.times.renewal.saturating_sub(age));
                } else {
                    self.lose(token);
                }
            }
            (Verb::Withdraw, Phase::Leaving { wanted, .. }) => match answer {
                Answer::Granted { token, left } => match self.validity(left, age, bounds) {
                    valid @ 1.. if wanted => self.hold(token, valid, bounds),
                    _ => self.lose(token),
                },
                _ => self.over(answer, bounds.rules),
            },
            (Verb::Release, Phase::Leaving { .. }) => self.over(answer, bounds.rules),
            // Too late to matter.
            _ => {}
        }
    }

    /// A push is on its way, unless nobody listens.
    pub fn be_told(&mut self, push: Push) {
        if !self.dead && !self.deaf {
            self.push = Some(push);
        }
    }

    /// Handles a push. Returns whether it is believed.
    pub fn pushed(&mut self, push: Push, bounds: &Bounds) -> bool {
        if push.request != self.request {
            return false;
        }
        if let Phase::Held { token, .. } = self.phase
            && push.taken
            && token == push.token
        {
            self.lose(token);
        }
        if self.phase != Phase::Waiting {
            return false;
        }
        self.look = true;
        if push.taken || push.token == 0 {
            return false;
        }
        if self.heard.is_none() {
            // The push has overtaken the first answer, which alone shows from when the place's time counts.
            self.early = push.token;
            return false;
        }
        self.grant_pushed(push.token, bounds)
    }

    /// The process dies. What the server saw of it stays.
    pub fn die(&mut self) {
        *self = Client { dead: true, deaf: self.deaf, request: self.request, ..Client::default() };
    }

    /// The subscription is back, and messages may have been missed.
    pub fn hear_again(&mut self) {
        self.deaf = false;
        self.look |= self.phase == Phase::Waiting;
        self.beat_in = self.beat_in.map(|_| 0);
    }

    /// Time passes.
    pub fn tick(&mut self, bounds: &Bounds, counts_holds: bool) {
        let old = bounds.times.old();
        let owed = self.owed.iter_mut().map(|owed| &mut owed.left);
        let waits = [&mut self.look_in, &mut self.beat_in, &mut self.unsure];
        owed.chain(waits.into_iter().flatten()).for_each(|left| *left = left.saturating_sub(1));
        let calls = self.calls.iter_mut().flatten().map(|call| &mut call.age);
        calls.chain(&mut self.heard).for_each(|age| *age = (*age + 1).min(old));
        self.held_for += u8::from(counts_holds && self.believes().is_some());
        match &mut self.phase {
            Phase::Held { token, valid: 1 } => {
                let token = *token;
                self.lose(token);
            }
            Phase::Held { valid, .. } => *valid -= 1,
            _ => {}
        }
    }

    fn answered_waiting(&mut self, answer: Answer, age: u8, bounds: &Bounds) {
        match answer {
            Answer::Granted { token, left } => {
                // This answer does not count for pushes. The lease began before this command was sent: a grant too
                // short to be believed must not be believed longer because of its push.
                if bounds.is(Rules::PushCountsFromAnyAnswer) {
                    self.hear(age);
                }
                match self.validity(left, age, bounds) {
                    0 => self.look = true,
                    valid => self.hold(token, valid, bounds),
                }
            }
            Answer::Queued { ticket, latest, look } => {
                let is_first = self.heard.is_none();
                self.hear(age);
                self.ticket = if ticket > 0 { ticket } else { self.ticket };
                // The ticket of a place that was never put back is the last number when it was drawn.
                if is_first || !bounds.is(Rules::PushComparedWithTheTicket) {
                    self.latest = self.latest.max(latest);
                }
                self.look_in = look;
                self.beat_in = Some(bounds.times.heartbeat.saturating_sub(age));
                let early = std::mem::take(&mut self.early);
                if early > 0 {
                    self.grant_pushed(early, bounds);
                }
            }
            Answer::Mismatch => self.leave(Word::withdraw(), true),
            _ => {
                self.beat_in = None;
                self.look = true;
            }
        }
    }

    /// A pushed grant is valid for the rest of the place, counted from the last answered command.
    fn grant_pushed(&mut self, token: u8, bounds: &Bounds) -> bool {
        let known = if bounds.is(Rules::PushOlderThanThePlace) { 0 } else { self.latest };
        let lease = bounds.times.lease(self.request);
        let valid = match self.heard {
            None => 0,
            Some(_) if bounds.is(Rules::PushWithoutDeadline) => self.validity(lease, 0, bounds),
            Some(age) => self.validity(lease.min(bounds.times.place), age, bounds),
        };
        if token <= known || valid == 0 {
            self.look = true;
            return false;
        }
        self.hold(token, valid, bounds);
        true
    }

    /// The validity of a lease that was requested `age` ticks ago.
    fn validity(&self, lease: u8, age: u8, bounds: &Bounds) -> u8 {
        let margin = if bounds.is(Rules::NoMargin) { 0 } else { MARGIN };
        lease.saturating_sub(margin).saturating_sub(age)
    }

    fn hear(&mut self, age: u8) {
        self.heard = Some(self.heard.map_or(age, |heard| heard.min(age)));
    }

    fn hold(&mut self, token: u8, valid: u8, bounds: &Bounds) {
        self.forget();
        self.phase = Phase::Held { token, valid };
        self.beat_in = Some(bounds.times.renewal);
    }

    /// The request ends, and the server is told.
    pub fn leave(&mut self, word: Word, wanted: bool) {
        self.forget();
        self.phase = Phase::Leaving { word, wanted, after_the_end: false };
    }

    /// A hold is released, even if it is lost.
    pub fn lose(&mut self, token: u8) {
        self.leave(Word::new(Verb::Release, token), false);
    }

    /// The request has ended.
    pub fn end(&mut self) {
        self.forget();
        (self.unsure, self.forced) = (None, 0);
        self.phase = Phase::Idle;
    }

    fn forget(&mut self) {
        (self.heard, self.ticket, self.latest, self.stood, self.early) = (None, 0, 0, 0, 0);
        (self.look, self.look_in, self.beat_in, self.held_for) = (false, None, None, 0);
        self.robbed = false;
    }
}
