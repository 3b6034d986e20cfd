//! What clients and the server tell each other: commands, answers, pushes.

use crate::bounds::LEASES;

/// A request, by its client and number. It models the member `<client>:<owner>:<request>`; each client has one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Member {
    /// The client.
    pub client: u8,
    /// The number of the request, from 1.
    pub request: u8,
}

impl Member {
    /// The lease that it asks for.
    pub fn lease(self) -> u8 {
        LEASES[usize::from(self.request - 1).min(LEASES.len() - 1)]
    }
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Word {
    /// `acquire.lua`, with a wait.
    Acquire {
        /// The ticket that the request was told; 0 for none.
        told: u8,
    },
    /// `renew.lua`: a heartbeat of a place.
    RenewPlace {
        /// The ticket that the request was told; 0 for none.
        told: u8,
    },
    /// `renew_hold.lua`
    RenewHold {
        /// The token of the hold.
        token: u8,
    },
    /// `withdraw.lua`
    Withdraw,
    /// `release.lua`
    Release {
        /// The token of the hold.
        token: u8,
    },
}

impl Word {
    /// The same command without its ticket, which does not matter once it was carried out.
    pub fn carried_out(self) -> Word {
        match self {
            Word::Acquire { .. } => Word::Acquire { told: 0 },
            Word::RenewPlace { .. } => Word::RenewPlace { told: 0 },
            word => word,
        }
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
    /// The request holds the lock, for this long from now on.
    Granted {
        /// The token of the hold.
        token: u8,
        /// What is left of the lease.
        left: u8,
    },
    /// It is in line.
    Queued {
        /// The ticket of its place; 0 in the answer to a heartbeat, which does not tell it.
        ticket: u8,
        /// The last number of the sequence. Any grant of this request with a token that is not greater has ended.
        latest: u8,
        /// When it should ask again, if it is the first in line or the line rests.
        look: Option<u8>,
    },
    /// It is not in line, and does not hold the lock.
    PlaceLost,
    /// The hold was renewed.
    Renewed,
    /// It is not this hold.
    HoldLost,
    /// The place or the hold is gone.
    Done,
}

/// A message to a client that did not ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Push {
    /// The granted request.
    pub member: Member,
    /// Its token.
    pub token: u8,
}
