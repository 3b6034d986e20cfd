//! What clients and the server tell each other: commands, answers, pushes.

use std::fmt;

/// A request, by its client and number. It models the member `<client>:<owner>:<request>`; each client has one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Member {
    /// The client.
    pub client: u8,
    /// The number of the request, from 1.
    pub request: u8,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.client, self.request)
    }
}

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// `acquire.lua`, with a wait.
    Ask,
    /// `renew.lua`: a heartbeat of a place.
    Heartbeat,
    /// `renew_holds.lua`
    Renew,
    /// `withdraw.lua`
    Withdraw,
    /// `release.lua`
    Release,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Word {
    /// What it does.
    pub verb: Verb,
    /// The ticket that the request was told, or the token of the hold; 0 for none.
    pub number: u8,
    /// Ticks of the server's clock until it begins nothing any more; 0 also if it has no end.
    pub end: u8,
}

impl Word {
    /// A command without an end.
    pub fn new(verb: Verb, number: u8) -> Word {
        Word { verb, number, end: 0 }
    }

    /// The end of a wait.
    pub fn withdraw() -> Word {
        Word::new(Verb::Withdraw, 0)
    }

    /// The same command without ticket and end, which do not matter after the execution.
    pub fn carried_out(self) -> Word {
        Word::new(self.verb, if self.is_of_place() { 0 } else { self.number })
    }

    /// Whether it asks for a place or renews one.
    pub fn is_of_place(self) -> bool {
        matches!(self.verb, Verb::Ask | Verb::Heartbeat)
    }
}

/// A command on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Command {
    /// The sender and its request.
    pub member: Member,
    /// The command.
    pub word: Word,
}

/// The answer of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Answer {
    /// The request has its hold, for this long from now on.
    Granted {
        /// The token of the hold.
        token: u8,
        /// What is left of the lease.
        left: u8,
    },
    /// It is in the queue.
    Queued {
        /// The ticket of its place; 0 in the answer to a heartbeat, which does not tell it.
        ticket: u8,
        /// The last number of the sequence. Any grant of this request with a token that is not greater has ended.
        latest: u8,
        /// When it should ask again.
        look: Option<u8>,
    },
    /// It is not in the queue, and has no hold.
    PlaceLost,
    /// Another has the lock, and there is no queue.
    Busy,
    /// The end of the attempt is past: nothing was changed. It tells the server's clock.
    TooLate,
    /// The lock has another capacity than the request says.
    Mismatch,
    /// The hold was renewed.
    Renewed,
    /// It is not this hold, or it is over.
    HoldLost,
    /// The place is gone.
    Left,
    /// The hold is released.
    Released,
    /// There was no such hold.
    NotHeld,
}

/// A message to a client that did not ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Push {
    /// The number of its request.
    pub request: u8,
    /// The token of its hold.
    pub token: u8,
    /// The hold was taken by force. Otherwise it was granted.
    pub taken: bool,
}

/// The threads that make a client's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thread {
    /// Acquire, withdraw, release.
    Caller,
    /// Renewals.
    Watchdog,
    /// Withdrawals of ended requests.
    Background,
}

/// All of them.
pub const THREADS: [Thread; 3] = [Thread::Caller, Thread::Watchdog, Thread::Background];

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
