//! What one client believes and sends next.

use super::bounds::{Bounds, MARGIN};
use super::state::{Answer, Push, Word};

/// A call to the server. It is the command until that is executed, then the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Call {
    /// The number of the request.
    pub request: u8,
    /// The command.
    pub word: Word,
    /// Ticks since it was sent.
    pub age: u8,
    /// The answer on its way.
    pub answer: Option<Answer>,
}

/// The progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Phase {
    /// No request, or the last one has ended.
    #[default]
    Idle,
    /// It is asking, or has a place.
    Waiting,
    /// It believes that it holds its units.
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
    },
}

/// A client with one owner, and one call at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
    /// The last number of the sequence that it was told. A pushed token that is not greater is old.
    pub latest: u8,
    /// The token of a push that overtook the first answer.
    pub early: u8,
    /// A reason to ask now. (Counted only with prompt time, like the following three.)
    pub look: bool,
    /// Ask after this many ticks.
    pub look_in: Option<u8>,
    /// Send the heartbeat or the renewal after this many ticks.
    pub beat_in: Option<u8>,
    /// For how long it has held its units.
    pub held_for: u8,
    /// Its call.
    pub call: Option<Call>,
    /// The push to it in flight. An older one that has not arrived is lost.
    pub push: Option<Push>,
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
            latest: 0,
            early: 0,
            look: false,
            look_in: None,
            beat_in: None,
            held_for: 0,
            call: None,
            push: None,
        }
    }
}

impl Client {
    /// The token of the hold in which it believes.
    pub fn believes(&self) -> Option<u8> {
        match self.phase {
            Phase::Held { token, .. } => Some(token),
            _ => None,
        }
    }

    /// Its request, while it waits.
    pub fn waits(&self) -> Option<u8> {
        (self.phase == Phase::Waiting).then_some(self.request)
    }

    /// The repeat, heartbeat or renewal that it may send; with prompt time, only if it is due.
    pub fn due(&self, is_prompt: bool) -> Option<Word> {
        let is_due = !is_prompt || self.beat_in == Some(0);
        match self.phase {
            _ if self.call.is_some() => None,
            Phase::Waiting if is_due || self.look || self.look_in == Some(0) => Some(Word::Ask),
            Phase::Held { token, .. } if is_due => Some(Word::Renew { token }),
            _ => None,
        }
    }

    /// Sends a command.
    pub fn send(&mut self, word: Word) {
        if matches!(word, Word::Ask | Word::Renew { .. }) {
            // A reason to ask is used up before the request is sent.
            (self.look, self.look_in, self.beat_in) = (false, None, None);
        }
        self.call = Some(Call { request: self.request, word, age: 0, answer: None });
    }

    /// Makes a new request and sends it.
    pub fn begin(&mut self) {
        self.request += 1;
        self.phase = Phase::Waiting;
        self.send(Word::Ask);
    }

    /// The request ends, and the server is told.
    pub fn leave(&mut self, word: Word) {
        self.forget();
        self.phase = Phase::Leaving { word };
    }

    /// A command got no answer, and a later answer is ignored.
    pub fn timed_out(&mut self, word: Word) {
        match (word, self.phase) {
            (Word::Ask, Phase::Waiting) => self.look = true,
            (Word::Renew { .. }, Phase::Held { .. }) => self.beat_in = Some(0),
            _ => {}
        }
    }

    /// Handles the answer to a command of this request, sent `age` ticks ago.
    pub fn answered(&mut self, word: Word, answer: Answer, age: u8, bounds: &Bounds) {
        let times = bounds.times;
        match (word, self.phase, answer) {
            (Word::Ask, Phase::Waiting, Answer::Granted { token, left }) => match validity(left, age) {
                0 => self.look = true,
                valid => self.hold(token, valid, bounds),
            },
            (Word::Ask, Phase::Waiting, Answer::Queued { latest, look }) => {
                self.heard = Some(self.heard.map_or(age, |heard| heard.min(age)));
                self.latest = self.latest.max(latest);
                self.look_in = look;
                self.beat_in = Some(times.heartbeat.saturating_sub(age));
                let early = std::mem::take(&mut self.early);
                if early > 0 {
                    self.grant_pushed(early, bounds);
                }
            }
            (Word::Ask, Phase::Waiting, Answer::Mismatch) => self.leave(Word::Withdraw),
            (Word::Renew { token: renewed }, Phase::Held { token, valid }, _) if renewed == token => {
                if answer == Answer::Renewed {
                    let valid = valid.max(validity(times.lease, age));
                    self.phase = Phase::Held { token, valid };
                    self.beat_in = Some(times.renewal.saturating_sub(age));
                } else {
                    self.leave(Word::Release { token });
                }
            }
            // A wait that ends takes the units if it has just been granted them.
            (Word::Withdraw, Phase::Leaving { .. }, Answer::Granted { token, left }) => {
                match validity(left, age) {
                    0 => self.leave(Word::Release { token }),
                    valid => self.hold(token, valid, bounds),
                }
            }
            // It tells the server again, until all that is over was dropped.
            (Word::Withdraw | Word::Release { .. }, Phase::Leaving { .. }, Answer::Done { more: false }) => {
                self.end();
            }
            // Too late to matter.
            _ => {}
        }
    }

    /// Handles a push.
    pub fn pushed(&mut self, push: Push, bounds: &Bounds) {
        if push.request != self.request || self.phase != Phase::Waiting {
            return;
        }
        self.look = true;
        match push.token {
            Some(token) if self.heard.is_some() => self.grant_pushed(token, bounds),
            // It has overtaken the first answer, which alone shows from when the place's time counts.
            Some(token) => self.early = token,
            None => {}
        }
    }

    /// The process dies. What the server saw of it stays.
    pub fn die(&mut self) {
        let Client { subscribed, request, .. } = *self;
        *self = Client { alive: false, subscribed, request, ..Client::default() };
    }

    /// The subscription is back, and messages may have been missed.
    pub fn hear_again(&mut self) {
        self.subscribed = true;
        self.look = self.phase == Phase::Waiting;
    }

    /// Time passes.
    pub fn tick(&mut self, bounds: &Bounds) {
        let old = bounds.times.old();
        for ticks in [&mut self.look_in, &mut self.beat_in].into_iter().flatten() {
            *ticks = ticks.saturating_sub(1);
        }
        self.heard = self.heard.map(|age| (age + 1).min(old));
        if let Some(call) = &mut self.call {
            call.age = (call.age + 1).min(old);
        }
        self.held_for += u8::from(bounds.is_prompt() && self.believes().is_some());
        match &mut self.phase {
            // Lost: reported, and released.
            Phase::Held { token, valid: 1 } => {
                let word = Word::Release { token: *token };
                self.leave(word);
            }
            Phase::Held { valid, .. } => *valid -= 1,
            _ => {}
        }
    }

    /// A pushed grant is valid for the rest of the place, counted from the last answered command.
    fn grant_pushed(&mut self, token: u8, bounds: &Bounds) {
        let rest = bounds.times.lease.min(bounds.times.place);
        let valid = self.heard.map_or(0, |heard| validity(rest, heard));
        if token > self.latest && valid > 0 {
            self.hold(token, valid, bounds);
        } else {
            self.look = true;
        }
    }

    fn hold(&mut self, token: u8, valid: u8, bounds: &Bounds) {
        self.forget();
        self.phase = Phase::Held { token, valid };
        self.beat_in = Some(bounds.times.renewal);
    }

    fn end(&mut self) {
        self.forget();
        self.phase = Phase::Idle;
    }

    fn forget(&mut self) {
        (self.heard, self.latest, self.early) = (None, 0, 0);
        (self.look, self.look_in, self.beat_in, self.held_for) = (false, None, None, 0);
    }
}

/// The validity of a lease that was requested `age` ticks ago.
fn validity(lease: u8, age: u8) -> u8 {
    lease.saturating_sub(MARGIN).saturating_sub(age)
}
