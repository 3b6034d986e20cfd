//! What one client believes and what it sends next, as `fairlock-core/src/claim/` has it.

use crate::bounds::{BEAT, MARGIN, OLD, PLACE};
use crate::rules::Rules;
use crate::server::{Answer, Member, Push, Word};

/// A call to the server. The command is part of it until it has been carried out, then the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Call {
    /// None is under way.
    #[default]
    None,
    /// The command is on its way, sent so long ago.
    Sent {
        /// For which request.
        request: u8,
        /// What it says.
        word: Word,
        /// Ticks since it was sent.
        age: u8,
    },
    /// The answer is on its way.
    Answered {
        /// For which request.
        request: u8,
        /// What the command said.
        word: Word,
        /// Ticks since it was sent.
        age: u8,
        /// What the server said.
        answer: Answer,
    },
}

/// How far the request has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Phase {
    /// No request, or the last one is over.
    #[default]
    Idle,
    /// It asks, or has a place.
    Waiting,
    /// It holds the lock, as long as `valid` lasts.
    Held {
        /// Of the hold.
        token: u8,
        /// For how many ticks it is certain.
        valid: u8,
    },
    /// The server has to be told of the end.
    Leaving {
        /// What it is told.
        word: Word,
        /// A timed wait takes the lock if it turns out to have been granted.
        wanted: bool,
    },
}

/// A client with one owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Client {
    /// Its process runs.
    pub alive: bool,
    /// The server counts it among the subscribers of its channel. It may be dead all the same.
    pub subscribed: bool,
    /// It was deaf at some time since the server last heard it. (For the properties only.)
    pub was_deaf: bool,
    /// How many requests it has made; the last one is the current one.
    pub request: u8,
    /// How far that has got.
    pub phase: Phase,
    /// Ticks since the last command was sent whose answer says that it stands in line.
    pub heard: Option<u8>,
    /// The ticket of the place, as last answered.
    pub ticket: u8,
    /// A push that overtook the first answer.
    pub pushed: Option<u8>,
    /// Something says: ask.
    pub look: bool,
    /// Ask after so many ticks.
    pub look_in: Option<u8>,
    /// Speak for the place, or renew the hold, after so many ticks.
    pub beat_in: Option<u8>,
    /// How long it has held the lock. (Counted only when nobody is late.)
    pub held_for: u8,
    /// The caller's call: acquire, withdraw, release.
    pub ask: Call,
    /// The watchdog's call: renewals.
    pub renew: Call,
}

impl Default for Client {
    fn default() -> Self {
        Client {
            alive: true,
            subscribed: true,
            was_deaf: false,
            request: 0,
            phase: Phase::Idle,
            heard: None,
            ticket: 0,
            pushed: None,
            look: false,
            look_in: None,
            beat_in: None,
            held_for: 0,
            ask: Call::None,
            renew: Call::None,
        }
    }
}

impl Client {
    /// Whether it believes that it holds the lock.
    pub fn believes(&self) -> bool {
        self.alive && matches!(self.phase, Phase::Held { valid: 1.., .. })
    }

    /// Its request, while it waits.
    pub fn waits_for(&self) -> Option<u8> {
        (self.alive && self.phase == Phase::Waiting).then_some(self.request)
    }

    /// A reason to ask the server.
    pub fn should_ask(&self) -> bool {
        self.alive
            && self.phase == Phase::Waiting
            && self.ask == Call::None
            && (self.look || self.look_in == Some(0))
    }

    /// A heartbeat or a renewal is due.
    pub fn should_renew(&self) -> Option<Word> {
        if !self.alive || self.renew != Call::None || self.beat_in != Some(0) {
            return None;
        }
        match self.phase {
            Phase::Waiting => Some(Word::RenewPlace),
            Phase::Held { token, valid: 1.. } => Some(Word::RenewHold { token }),
            _ => None,
        }
    }

    /// The server has still to be told of an end.
    pub fn should_tell(&self) -> Option<Word> {
        match self.phase {
            Phase::Leaving { word, .. } if self.alive && self.ask == Call::None => Some(word),
            _ => None,
        }
    }

    /// The caller's command.
    pub fn send(&mut self, word: Word) {
        if word == Word::Acquire {
            // The reason is used up before the request is sent.
            (self.look, self.look_in) = (false, None);
        }
        self.ask = Call::Sent { request: self.request, word, age: 0 };
    }

    /// The watchdog's command.
    pub fn send_renewal(&mut self, word: Word) {
        self.beat_in = None;
        self.renew = Call::Sent { request: self.request, word, age: 0 };
    }

    /// A new request, asked for at once.
    pub fn begin(&mut self) {
        self.request += 1;
        self.phase = Phase::Waiting;
        self.send(Word::Acquire);
    }

    /// The wait ends in vain.
    pub fn give_up(&mut self, wanted: bool, rules: Rules) {
        if rules == Rules::PlaceKeptOnTimeOut {
            return self.end();
        }
        self.leave(Word::Withdraw, wanted);
        self.send(Word::Withdraw);
    }

    /// The hold is given back.
    pub fn unlock(&mut self, token: u8) {
        let word = Word::Release { token };
        self.leave(word, false);
        self.send(word);
    }

    /// A command was not answered. The answer, should there be one, will not be heard.
    pub fn timed_out(&mut self, word: Word) {
        match (word, self.phase) {
            (Word::Acquire, Phase::Waiting) => self.look = true,
            (Word::RenewPlace, Phase::Waiting) | (Word::RenewHold { .. }, Phase::Held { .. }) => {
                self.beat_in = Some(0);
            }
            _ => {}
        }
    }

    /// Takes the answer to a command that was sent `age` ago for this request.
    pub fn answered(&mut self, word: Word, answer: Answer, age: u8, rules: Rules) {
        let age = if rules == Rules::ValidFromTheAnswer { 0 } else { age };
        match (word, self.phase) {
            (Word::Acquire | Word::RenewPlace, Phase::Waiting) => self.answered_waiting(answer, age, rules),
            (Word::RenewHold { token: renewed }, Phase::Held { token, valid }) if renewed == token => {
                if answer == Answer::Renewed {
                    let valid = valid.max(validity(self.lease(), age, rules));
                    self.phase = Phase::Held { token, valid };
                    self.beat_in = Some(BEAT.saturating_sub(age));
                } else {
                    // Lost. What is left to do is to tell the server, for good measure.
                    self.leave(Word::Release { token }, false);
                }
            }
            (Word::Withdraw, Phase::Leaving { wanted, .. }) => match answer {
                Answer::Granted { token, left } => {
                    let valid = validity(left, age, rules);
                    if wanted && valid > 0 {
                        self.hold(token, valid);
                    } else {
                        self.leave(Word::Release { token }, false);
                    }
                }
                _ => self.end(),
            },
            (Word::Release { .. }, Phase::Leaving { .. }) => self.end(),
            // Too late for anything.
            _ => {}
        }
    }

    /// Hears a push. Returns whether it is believed.
    pub fn pushed(&mut self, push: Push, rules: Rules) -> bool {
        let named = push.member.request == self.request || rules == Rules::PushWithoutRequest;
        if !named || self.phase != Phase::Waiting {
            return false;
        }
        let Some(heard) = self.heard else {
            // It has overtaken the first answer: only with that it is known from when the place's time counts.
            self.pushed = Some(push.token);
            self.look = true;
            return false;
        };
        self.grant_pushed(push.token, heard, rules)
    }

    /// The process is no more. What the server saw of it stays.
    pub fn die(&mut self) {
        *self =
            Client { alive: false, subscribed: self.subscribed, request: self.request, ..Client::default() };
    }

    /// The subscription is back, and something may have been missed.
    pub fn hear_again(&mut self) {
        self.subscribed = true;
        if self.phase == Phase::Waiting {
            self.look = true;
        }
        if self.beat_in.is_some() {
            self.beat_in = Some(0);
        }
    }

    /// Where anybody may be late without limit, anybody may also be early: when something is due does not matter.
    pub fn forget_what_is_due(&mut self) {
        (self.look, self.look_in, self.held_for) = (self.waits_for().is_some(), None, 0);
        self.beat_in = matches!(self.phase, Phase::Waiting | Phase::Held { .. }).then_some(0);
    }

    /// Drops what makes no difference any more, so that fewer states have to be told apart. `pushes`: some may still come.
    pub fn forget_what_is_old(&mut self, rules: Rules, pushes: bool) {
        let Client { phase, heard, ticket, ask, renew, .. } = self;
        *heard = heard.map(|age| age.min(PLACE - MARGIN));
        let pushes = pushes || self.pushed.is_some();
        // A ticket is compared with pushes that are under way; later ones have greater tokens in any case.
        if !pushes {
            *ticket = 0;
        }
        for call in [ask, renew] {
            match call {
                Call::Sent { word: Word::Release { .. }, age, .. } => *age = 0,
                Call::Answered { request, .. } if *request != self.request => *call = Call::None,
                Call::Answered { answer: Answer::Granted { left, .. }, age, .. }
                    if !rules.ages_of_grants_matter() =>
                {
                    (*left, *age) = (left.saturating_sub(*age), 0);
                }
                Call::Answered { answer: Answer::Queued { ticket, .. }, age, .. } => {
                    *age = (*age).min(PLACE - MARGIN);
                    if !pushes {
                        *ticket = 0;
                    }
                }
                Call::Answered {
                    answer: Answer::PlaceLost | Answer::HoldLost | Answer::Done, age, ..
                } => *age = 0,
                _ => {}
            }
        }
        // The watchdog's call for a hold that is over is of no interest; nor is one for a place.
        if let Call::Answered { word, .. } = renew {
            let of_place = *word == Word::RenewPlace;
            if of_place != (*phase == Phase::Waiting) || matches!(phase, Phase::Idle | Phase::Leaving { .. })
            {
                *renew = Call::None;
            }
        }
    }

    /// Time goes by.
    pub fn tick(&mut self, counts_holds: bool) {
        let count_down = |ticks: &mut Option<u8>| {
            if let Some(left) = ticks {
                *left = left.saturating_sub(1);
            }
        };
        count_down(&mut self.look_in);
        count_down(&mut self.beat_in);
        if let Some(heard) = &mut self.heard {
            *heard = (*heard + 1).min(OLD);
        }
        if let Phase::Held { valid, .. } = &mut self.phase {
            *valid = valid.saturating_sub(1);
            self.held_for += u8::from(counts_holds);
        }
        for call in [&mut self.ask, &mut self.renew] {
            if let Call::Sent { age, .. } | Call::Answered { age, .. } = call {
                *age = (*age + 1).min(OLD);
            }
        }
    }

    fn answered_waiting(&mut self, answer: Answer, age: u8, rules: Rules) {
        match answer {
            Answer::Granted { token, left } => {
                // It does not count for pushes: the lease began before this command was sent, and one that is too
                // short to be believed must not be believed longer because its push comes after all.
                if rules == Rules::PushCountsFromAnyAnswer {
                    self.hear(age);
                }
                match validity(left, age, rules) {
                    0 => self.look = true,
                    valid => self.hold(token, valid),
                }
            }
            Answer::Queued { ticket, look } => {
                self.hear(age);
                self.ticket = self.ticket.max(ticket);
                self.look_in = look;
                self.beat_in = Some(BEAT.saturating_sub(age));
                if let (Some(token), Some(heard)) = (self.pushed.take(), self.heard) {
                    self.grant_pushed(token, heard, rules);
                }
            }
            _ => {
                self.beat_in = None;
                self.look = true;
            }
        }
    }

    /// A pushed grant is good for what is left of the place, and that counts from the last command that was answered.
    fn grant_pushed(&mut self, token: u8, heard: u8, rules: Rules) -> bool {
        let stale = token < self.ticket && rules != Rules::PushOlderThanThePlace;
        let valid = match rules {
            Rules::PushWithoutDeadline => validity(self.lease(), 0, rules),
            _ => validity(self.lease().min(PLACE), heard, rules),
        };
        if stale || valid == 0 {
            self.look = true;
            return false;
        }
        self.hold(token, valid);
        true
    }

    fn hear(&mut self, age: u8) {
        self.heard = Some(self.heard.map_or(age, |heard| heard.min(age)));
    }

    fn hold(&mut self, token: u8, valid: u8) {
        self.forget();
        self.phase = Phase::Held { token, valid };
        self.beat_in = Some(BEAT);
    }

    fn leave(&mut self, word: Word, wanted: bool) {
        self.forget();
        self.phase = Phase::Leaving { word, wanted };
    }

    fn end(&mut self) {
        self.forget();
        self.phase = Phase::Idle;
    }

    fn forget(&mut self) {
        (self.heard, self.ticket, self.pushed) = (None, 0, None);
        (self.look, self.look_in, self.beat_in, self.held_for) = (false, None, None, 0);
    }

    fn lease(&self) -> u8 {
        Member { client: 0, request: self.request }.lease()
    }
}

/// For how long a lease is certain that was asked for `age` ago.
fn validity(lease: u8, age: u8, rules: Rules) -> u8 {
    let margin = if rules == Rules::NoMargin { 0 } else { MARGIN };
    lease.saturating_sub(margin).saturating_sub(age)
}
