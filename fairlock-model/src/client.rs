//! What one client believes and sends next, as in `fairlock-core/src/claim/`.

use crate::bounds::{BEAT, MARGIN, OLD, PLACE};
use crate::messages::{Answer, Member, Push, Word};
use crate::rules::Rules;
use crate::settle::Owed;

/// A call to the server. It contains the command until that is executed, then the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Call {
    /// No call.
    #[default]
    None,
    /// The command is on its way.
    Sent {
        /// The request it is about.
        request: u8,
        /// The command.
        word: Word,
        /// Ticks since it was sent.
        age: u8,
    },
    /// The answer is on its way.
    Answered {
        /// The request it is about.
        request: u8,
        /// The command.
        word: Word,
        /// Ticks since it was sent.
        age: u8,
        /// The answer.
        answer: Answer,
    },
}

/// The progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Phase {
    /// No request, or the last one has ended.
    #[default]
    Idle,
    /// It is asking, or has a place.
    Waiting,
    /// It holds the lock while `valid` lasts.
    Held {
        /// The token of the hold.
        token: u8,
        /// The remaining validity in ticks.
        valid: u8,
    },
    /// The server must be told of the end.
    Leaving {
        /// The command to send.
        word: Word,
        /// A timed wait takes the lock if it was granted.
        wanted: bool,
        /// The last one was sent after the end of every unanswered attempt.
        after_the_end: bool,
    },
}

/// A client with one owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Client {
    /// Its process runs.
    pub alive: bool,
    /// The server counts it as a subscriber of its channel, even if it is dead.
    pub subscribed: bool,
    /// It was deaf at some time since the server last heard from it. (For the properties only.)
    pub was_deaf: bool,
    /// How many requests it has made. The last one is current.
    pub request: u8,
    /// The progress of that request.
    pub phase: Phase,
    /// Ticks since it sent the last command whose answer shows its place.
    pub heard: Option<u8>,
    /// When its request first stood in line, by order among all; 0 if it has not. (For the properties only.)
    pub stood: u8,
    /// The last number of the sequence that it was told.
    pub latest: u8,
    /// The ticket of the place, as last told. It is kept when the place is gone.
    pub ticket: u8,
    /// A push that overtook the first answer.
    pub pushed: Option<u8>,
    /// A reason to ask now.
    pub look: bool,
    /// Ask after this many ticks.
    pub look_in: Option<u8>,
    /// Send the heartbeat or the renewal after this many ticks.
    pub beat_in: Option<u8>,
    /// How long it has held the lock. (Counted only with prompt time.)
    pub held_for: u8,
    /// An attempt of this request was not answered: ticks until its end, by this client's clock.
    pub unsure: Option<u8>,
    /// Ended requests that must be withdrawn once more.
    pub owed: Vec<Owed>,
    /// It takes the server's clock to be earlier than it is: its attempts are past their end at once.
    pub behind: bool,
    /// The token of its hold that was taken by force; 0 for none. (For the properties only.)
    pub forced: u8,
    /// A command of an older request has cost it its place. (For the properties only.)
    pub robbed: bool,
    /// The caller's call: acquire, withdraw, release.
    pub ask: Call,
    /// The watchdog's call: renewals.
    pub renew: Call,
    /// The call for an ended request.
    pub tidy: Call,
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
            stood: 0,
            latest: 0,
            ticket: 0,
            pushed: None,
            look: false,
            look_in: None,
            beat_in: None,
            held_for: 0,
            unsure: None,
            owed: Vec::new(),
            behind: false,
            forced: 0,
            robbed: false,
            ask: Call::None,
            renew: Call::None,
            tidy: Call::None,
        }
    }
}

impl Client {
    /// Whether it believes that it holds the lock.
    pub fn believes(&self) -> bool {
        self.alive && matches!(self.phase, Phase::Held { valid: 1.., .. })
    }

    /// It believes, and nothing has told it that its hold was taken by force.
    pub fn is_forced(&self) -> bool {
        matches!(self.phase, Phase::Held { token, .. } if token == self.forced)
    }

    /// Its request, while it waits.
    pub fn waits_for(&self) -> Option<u8> {
        (self.alive && self.phase == Phase::Waiting).then_some(self.request)
    }

    /// Whether there is a reason to ask the server.
    pub fn should_ask(&self) -> bool {
        self.alive
            && self.phase == Phase::Waiting
            && self.ask == Call::None
            && (self.look || self.look_in == Some(0))
    }

    /// The heartbeat or renewal that is due.
    pub fn should_renew(&self) -> Option<Word> {
        if !self.alive || self.renew != Call::None || self.beat_in != Some(0) {
            return None;
        }
        match self.phase {
            // Not before it was told that it stands in line.
            Phase::Waiting if self.heard.is_some() => Some(Word::RenewPlace { told: self.ticket, end: 0 }),
            Phase::Held { token, valid: 1.. } => Some(Word::RenewHold { token }),
            _ => None,
        }
    }

    /// The end that the server must still be told of. The watchdog tells it of the end of a wait, after its renewals.
    pub fn should_tell(&self) -> Option<Word> {
        match self.phase {
            Phase::Leaving { word: Word::Withdraw { .. }, .. } if self.renew != Call::None => None,
            Phase::Leaving { word, .. } if self.alive && self.ask == Call::None => Some(word),
            _ => None,
        }
    }

    /// The command that asks, with the ticket of its place.
    pub fn asking(&self) -> Word {
        Word::Acquire { told: self.ticket, end: 0 }
    }

    /// The caller's command.
    pub fn send(&mut self, word: Word) {
        if matches!(word, Word::Acquire { .. }) {
            // The reason is cleared before the request is sent.
            (self.look, self.look_in) = (false, None);
        }
        if let Phase::Leaving { after_the_end, .. } = &mut self.phase {
            *after_the_end = self.unsure == Some(0);
        }
        self.ask = Call::Sent { request: self.request, word, age: 0 };
    }

    /// The watchdog's command.
    pub fn send_renewal(&mut self, word: Word) {
        self.beat_in = None;
        self.renew = Call::Sent { request: self.request, word, age: 0 };
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
        self.leave(Word::Withdraw { end: 0 }, wanted);
    }

    /// Releases the hold.
    pub fn unlock(&mut self, token: u8) {
        let word = Word::Release { token };
        self.leave(word, false);
        self.send(word);
    }

    /// A command got no answer. A later answer is ignored.
    pub fn timed_out(&mut self, word: Word) {
        match (word, self.phase) {
            (Word::Acquire { .. }, Phase::Waiting) => self.look = true,
            (Word::RenewPlace { .. }, Phase::Waiting) | (Word::RenewHold { .. }, Phase::Held { .. }) => {
                self.beat_in = Some(0);
            }
            _ => {}
        }
    }

    /// Handles the answer to a command of this request, sent `age` ticks ago.
    pub fn answered(&mut self, word: Word, answer: Answer, age: u8, rules: Rules) {
        let age = if rules == Rules::ValidFromTheAnswer { 0 } else { age };
        if answer == Answer::TooLate {
            self.behind = false;
            self.look = self.phase == Phase::Waiting && rules != Rules::TooLateIsNotRepeated;
            return;
        }
        if matches!(word, Word::Acquire { .. } | Word::RenewPlace { .. })
            && rules != Rules::NewsOfAnotherGrantIsIgnored
        {
            self.note_another(answer);
        }
        match (word, self.phase) {
            (Word::Acquire { .. } | Word::RenewPlace { .. }, Phase::Waiting) => {
                self.answered_waiting(answer, age, rules);
            }
            (Word::RenewHold { token: renewed }, Phase::Held { token, valid }) if renewed == token => {
                if answer == Answer::Renewed {
                    let valid = valid.max(validity(self.lease(), age, rules));
                    self.phase = Phase::Held { token, valid };
                    self.beat_in = Some(BEAT.saturating_sub(age));
                } else {
                    // Lost. The server is still told, for cleanliness.
                    self.leave(Word::Release { token }, false);
                }
            }
            (Word::Withdraw { .. }, Phase::Leaving { wanted, .. }) => match answer {
                Answer::Granted { token, left } => {
                    let valid = validity(left, age, rules);
                    if wanted && valid > 0 {
                        self.hold(token, valid);
                    } else {
                        self.leave(Word::Release { token }, false);
                    }
                }
                _ => self.over(answer, rules),
            },
            (Word::Release { .. }, Phase::Leaving { .. }) => self.over(answer, rules),
            // Too late to matter.
            _ => {}
        }
    }

    /// Handles a push. Returns whether it is believed.
    pub fn pushed(&mut self, push: Push, rules: Rules) -> bool {
        if push.member.request != self.request {
            return false;
        }
        match self.phase {
            Phase::Held { token, .. } if push.taken && token == push.token => {
                // Lost. The server is still told, for cleanliness.
                self.leave(Word::Release { token }, false);
                return false;
            }
            Phase::Waiting if push.taken => self.look = true,
            Phase::Waiting => {}
            _ => return false,
        }
        if push.taken {
            return false;
        }
        let Some(heard) = self.heard else {
            // It has overtaken the first answer, which alone shows from when the place's time counts.
            self.pushed = Some(push.token);
            self.look = true;
            return false;
        };
        self.grant_pushed(push.token, heard, rules)
    }

    /// The process dies. What the server saw of it stays.
    pub fn die(&mut self) {
        *self =
            Client { alive: false, subscribed: self.subscribed, request: self.request, ..Client::default() };
    }

    /// The subscription is back, and messages may have been missed.
    pub fn hear_again(&mut self) {
        self.subscribed = true;
        if self.phase == Phase::Waiting {
            self.look = true;
        }
        if self.beat_in.is_some() {
            self.beat_in = Some(0);
        }
    }

    /// With free time, a call may be early or late, so the time when it is due does not matter.
    pub fn forget_what_is_due(&mut self) {
        (self.look, self.look_in, self.held_for) = (self.waits_for().is_some(), None, 0);
        self.beat_in = matches!(self.phase, Phase::Waiting | Phase::Held { .. }).then_some(0);
    }

    /// Drops what no longer makes a difference, to reduce the states. `push`: the token of the push in flight.
    pub fn forget_what_is_old(&mut self, rules: Rules, push: Option<u8>) {
        if self.phase == Phase::Idle {
            self.forced = 0;
        }
        let Client { phase, heard, latest, ask, renew, .. } = self;
        *heard = heard.map(|age| age.min(PLACE - MARGIN));
        // It is compared with the pushes that have been sent. Later ones have greater tokens anyway.
        let held = match phase {
            Phase::Held { token, .. } | Phase::Leaving { word: Word::Release { token }, .. } => Some(*token),
            _ => None,
        };
        let pushes = [push, self.pushed, held];
        let round =
            |latest: u8| pushes.into_iter().flatten().filter(|token| *token <= latest).max().unwrap_or(0);
        *latest = round(*latest);
        for call in [ask, renew] {
            match call {
                Call::Sent { word: Word::Release { .. }, age, .. } => *age = 0,
                Call::Answered { request, .. } if *request != self.request => *call = Call::None,
                Call::Answered { answer: Answer::Granted { left, .. }, age, .. }
                    if !rules.ages_of_grants_matter() =>
                {
                    (*left, *age) = (left.saturating_sub(*age), 0);
                }
                Call::Answered { answer: Answer::Queued { latest, .. }, age, .. } => {
                    *age = (*age).min(PLACE - MARGIN);
                    *latest = round(*latest);
                }
                Call::Answered {
                    answer: Answer::PlaceLost | Answer::HoldLost | Answer::Left | Answer::NotHeld,
                    age,
                    ..
                } => *age = 0,
                _ => {}
            }
        }
        // The watchdog's call for an ended hold does not matter; nor does one for a place that is gone, if it found none.
        if let Call::Answered { word, answer, .. } = renew {
            let of_place = matches!(word, Word::RenewPlace { .. });
            let is_over = of_place != (*phase == Phase::Waiting)
                || matches!(phase, Phase::Idle | Phase::Leaving { .. });
            let is_news = of_place
                && *phase != Phase::Idle
                && matches!(answer, Answer::Granted { .. } | Answer::Queued { .. });
            if is_over && !is_news {
                *renew = Call::None;
            }
        }
    }

    /// Time passes.
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
        self.unsure = self.unsure.map(|left| left.saturating_sub(1));
        self.owed.iter_mut().for_each(|owed| owed.left = owed.left.saturating_sub(1));
        for call in [&mut self.ask, &mut self.renew, &mut self.tidy] {
            if let Call::Sent { age, .. } | Call::Answered { age, .. } = call {
                *age = (*age + 1).min(OLD);
            }
        }
    }

    fn answered_waiting(&mut self, answer: Answer, age: u8, rules: Rules) {
        match answer {
            Answer::Granted { token, left } => {
                // This answer does not count for pushes. The lease began before this command was sent: a grant too
                // short to be believed must not be believed longer because of its push.
                if rules == Rules::PushCountsFromAnyAnswer {
                    self.hear(age);
                }
                match validity(left, age, rules) {
                    0 => self.look = true,
                    valid => self.hold(token, valid),
                }
            }
            Answer::Queued { ticket, latest, look } => {
                self.hear(age);
                self.ticket = if ticket > 0 { ticket } else { self.ticket };
                self.latest = self.latest.max(latest);
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

    /// A pushed grant is valid for the rest of the place, counted from the last answered command.
    fn grant_pushed(&mut self, token: u8, heard: u8, rules: Rules) -> bool {
        let stale = match rules {
            Rules::PushOlderThanThePlace => false,
            Rules::PushComparedWithTheTicket => token <= self.ticket,
            _ => token <= self.latest,
        };
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
        self.phase = Phase::Leaving { word, wanted, after_the_end: false };
    }

    /// The request has ended.
    pub(crate) fn end(&mut self) {
        self.forget();
        (self.unsure, self.forced) = (None, 0);
        self.phase = Phase::Idle;
    }

    fn forget(&mut self) {
        (self.heard, self.ticket, self.latest, self.stood, self.pushed) = (None, 0, 0, 0, None);
        self.robbed = false;
        (self.look, self.look_in, self.beat_in, self.held_for) = (false, None, None, 0);
    }

    fn lease(&self) -> u8 {
        Member { client: 0, request: self.request }.lease()
    }
}

/// The validity of a lease that was requested `age` ticks ago.
fn validity(lease: u8, age: u8, rules: Rules) -> u8 {
    let margin = if rules == Rules::NoMargin { 0 } else { MARGIN };
    lease.saturating_sub(margin).saturating_sub(age)
}
