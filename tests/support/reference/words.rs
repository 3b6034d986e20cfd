//! Questions, answers and pushes.

/// A time, or a duration.
pub type Millis = u64;

/// The number of a client.
pub type ClientNumber = usize;

/// One request. It stands in line, holds the lock, and is named by every command. So a late or repeated command of an
/// old request never touches a new request of the same owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// The client.
    pub client: ClientNumber,
    /// The owner, among those of this client.
    pub owner: u64,
    /// The request, among those of this owner.
    pub request: u64,
}

/// The content of every heartbeat of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The request.
    pub member: Member,
    /// The lease of the hold.
    pub lease: Millis,
    /// The place's time to live without another heartbeat.
    pub ttl: Millis,
    /// The human-readable name of the waiter.
    pub label: &'static str,
    /// The ticket that it was given, 0 if none.
    pub ticket: u64,
    /// The units that it asks for.
    pub takes: u32,
}

/// What a client's heartbeat says of one waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renew {
    /// The request.
    pub member: Member,
    /// The lease of the hold.
    pub lease: Millis,
    /// The ticket that it was given, 0 if none.
    pub ticket: u64,
    /// The units that it asks for.
    pub takes: u32,
}

/// Whether the caller waits if the lock is busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// One attempt, which leaves nothing behind.
    Once,
    /// It waits.
    Wait,
}

/// The answer to a command.
#[allow(missing_docs, reason = "the sentence of a variant says what its fields are")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The caller holds the lock, for this long.
    Granted { token: u64, left: Millis },
    /// A place with this ticket: its rank, and when to ask again (or only by heartbeats). Its grant will have a greater
    /// token than `latest`.
    Queued { rank: usize, recheck: Option<Millis>, ticket: u64, latest: u64 },
    /// The place is kept, or restored; as with `Queued`.
    Waiting { rank: usize, recheck: Option<Millis>, latest: u64 },
    /// Another owner holds it, for this long.
    Busy { left: Millis },
    /// The hold was released.
    Released,
    /// It is not this hold, or no hold; nothing was changed.
    NotHeld,
    /// The hold lives on.
    Renewed,
    /// The hold has ended, or the place is gone.
    Lost,
    /// Nothing is left of the request.
    Left,
    /// The request was granted, and still is.
    WasGranted { token: u64, left: Millis },
    /// The lock was taken from its holder.
    Taken,
}

/// A message to a subscribed client that did not ask.
#[allow(missing_docs, reason = "the sentence of a variant says what its fields are")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Push {
    /// This request holds the lock now.
    Granted { to: Member, token: u64 },
    /// The hold with this token was taken from this owner.
    Taken { client: ClientNumber, owner: u64, token: u64 },
}

impl Push {
    /// The recipient.
    pub fn client(&self) -> ClientNumber {
        match self {
            Push::Granted { to, .. } => to.client,
            Push::Taken { client, .. } => *client,
        }
    }
}
