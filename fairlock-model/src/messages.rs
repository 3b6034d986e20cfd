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
        /// Ticks of the server's clock until it begins nothing any more.
        end: u8,
    },
    /// `renew.lua`: a heartbeat of a place.
    RenewPlace {
        /// The ticket that the request was told; 0 for none.
        told: u8,
        /// As above.
        end: u8,
    },
    /// `renew_hold.lua`
    RenewHold {
        /// The token of the hold.
        token: u8,
    },
    /// `withdraw.lua`
    Withdraw {
        /// As above, where places are named by owners; otherwise 0.
        end: u8,
    },
    /// `release.lua`
    Release {
        /// The token of the hold.
        token: u8,
    },
}

impl Word {
    /// The same command without its ticket and its end, which do not matter once it was carried out.
    pub fn carried_out(mut self) -> Word {
        if let Word::Acquire { told, .. } | Word::RenewPlace { told, .. } = &mut self {
            *told = 0;
        }
        self.until(0)
    }

    /// The same command with this end.
    pub fn until(mut self, end: u8) -> Word {
        if let Some(its) = self.end_mut() {
            *its = end;
        }
        self
    }

    /// The end of a command that has one.
    pub fn end(mut self) -> Option<u8> {
        self.end_mut().copied()
    }

    /// The same, to be changed.
    pub fn end_mut(&mut self) -> Option<&mut u8> {
        match self {
            Word::Acquire { end, .. } | Word::RenewPlace { end, .. } | Word::Withdraw { end } => Some(end),
            Word::RenewHold { .. } | Word::Release { .. } => None,
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
    /// Another has the lock, and there is no line.
    Busy,
    /// The end of the attempt is past: nothing was changed. It tells the server's clock.
    TooLate,
    /// The hold was renewed.
    Renewed,
    /// It is not this hold.
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
    /// The request.
    pub member: Member,
    /// The token of its hold.
    pub token: u8,
    /// The hold was taken by force. Otherwise it was granted.
    pub taken: bool,
}
