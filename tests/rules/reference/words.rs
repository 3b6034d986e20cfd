//! Questions, answers and messages of the comparison, with clients and owners by number and times in milliseconds.

/// A time, or a duration.
pub(crate) type Millis = u64;

/// The number of a client.
pub(crate) type ClientNumber = usize;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Member {
    pub(crate) client: ClientNumber,
    /// Among the owners of this client.
    pub(crate) owner: u64,
    pub(crate) request: u64,
}

/// What a waiter sends with each ask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) member: Member,
    pub(crate) lease: Millis,
    pub(crate) ttl: Millis,
    pub(crate) label: &'static str,
    /// 0 before it was told one.
    pub(crate) ticket: u64,
    pub(crate) units: u32,
    pub(crate) condition: Option<Condition>,
}

/// When a newcomer is declined: the first two if it does not wait, the last if it does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Condition {
    /// If the lock was granted in this period.
    Every(Millis),
    NotWithin(Millis),
    /// If more than so many are ahead.
    Behind(u64),
}

/// What a client's heartbeat says of one waiter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renew {
    pub(crate) member: Member,
    pub(crate) lease: Millis,
    pub(crate) ticket: u64,
    pub(crate) units: u32,
}

/// Whether the caller waits if the lock is busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// One attempt, which leaves nothing behind.
    Once,
    Wait,
}

/// The answer to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Granted {
        token: u64,
        left: Millis,
    },
    Queued {
        rank: u64,
        recheck: Option<Millis>,
        ticket: u64,
        latest: u64,
    },
    Waiting {
        rank: u64,
        recheck: Option<Millis>,
        latest: u64,
    },
    Busy {
        left: Millis,
    },
    /// The lock was granted then, in microseconds.
    DeclinedSince {
        granted: u64,
    },
    DeclinedBehind {
        ahead: u64,
    },
    Released,
    NotHeld,
    Renewed,
    Lost,
    Left,
    WasGranted {
        token: u64,
        left: Millis,
    },
    Taken,
}

/// A message to a subscribed client that did not ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Push {
    Granted { to: Member, token: u64 },
    Taken { client: ClientNumber, owner: u64, token: u64 },
}

impl Push {
    /// The recipient.
    pub(crate) fn client(&self) -> ClientNumber {
        match self {
            Push::Granted { to, .. } => to.client,
            Push::Taken { client, .. } => *client,
        }
    }
}

/// The outcome of a command: its answers (a heartbeat has one per place), and the messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) answers: Vec<Answer>,
    pub(crate) pushes: Vec<Push>,
}

/// A lock as `inspect` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// By token.
    pub(crate) holders: Vec<SeenHolder>,
    pub(crate) queue: Vec<SeenPlace>,
    pub(crate) absent: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenHolder {
    pub(crate) member: Member,
    pub(crate) units: u32,
    pub(crate) count: u32,
    pub(crate) token: u64,
    pub(crate) left: Millis,
    pub(crate) label: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenPlace {
    pub(crate) member: Member,
    pub(crate) units: u32,
    pub(crate) capacity: u32,
    pub(crate) waiting: Millis,
    pub(crate) left: Millis,
    pub(crate) label: String,
}
