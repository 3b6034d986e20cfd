//! What is asked, answered and told.

/// A moment, or a length of time.
pub type Millis = u64;

/// Names a client.
pub type ClientNumber = usize;

/// One request and nothing else. It is what stands in line, what holds the lock, and what every command carries: a
/// late or repeated command of an old request never touches a new one of the same owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// The client.
    pub client: ClientNumber,
    /// Which owner of this client.
    pub owner: u64,
    /// Which request of this owner.
    pub request: u64,
}

/// What a waiter says whenever it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Who asks.
    pub member: Member,
    /// The lease of the hold.
    pub lease: Millis,
    /// How long the place lasts without another word.
    pub ttl: Millis,
    /// A person's idea of who asks.
    pub label: &'static str,
    /// The ticket that it was told, 0 if none.
    pub ticket: u64,
}

/// Whether the caller stands in line if he can't have the lock now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// One attempt, that leaves nothing behind.
    Once,
    /// He waits.
    Wait,
}

/// What a command says to its caller.
#[allow(missing_docs, reason = "the sentence of a variant says what its fields are")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The lock is the caller's, for so long.
    Granted { token: u64, left: Millis },
    /// A place with this ticket: so many are ahead; ask again after so long, or only by heartbeats.
    /// Whatever is granted to it has a greater token than `latest`.
    Queued { rank: usize, look_again: Option<Millis>, ticket: u64, latest: u64 },
    /// The place is kept, or put back: as with `Queued`.
    Waiting { rank: usize, look_again: Option<Millis>, latest: u64 },
    /// Somebody else has it, for so long.
    Busy { left: Millis },
    /// The hold was given up.
    Released,
    /// It was no hold, or not this one; nothing was changed.
    NotHeld,
    /// Nobody waits, so the hold stays.
    Kept,
    /// The hold lives on.
    Renewed,
    /// The hold is over, or the place is gone.
    Lost,
    /// Nothing of the request is left.
    Left,
    /// The request had been granted, and still is.
    WasGranted { token: u64, left: Millis },
    /// The lock was taken from its holder.
    Taken,
}

/// What a client is told without asking, if it listens.
#[allow(missing_docs, reason = "the sentence of a variant says what its fields are")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Push {
    /// This request has the lock now.
    Granted { to: Member, token: u64 },
    /// The hold with this token was taken away from this owner.
    Taken { client: ClientNumber, owner: u64, token: u64 },
}

impl Push {
    /// Whom it is for.
    pub fn client(&self) -> ClientNumber {
        match self {
            Push::Granted { to, .. } => to.client,
            Push::Taken { client, .. } => *client,
        }
    }
}
