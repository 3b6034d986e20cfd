//! Answers of the store, as scenes and stories say them.

use std::time::Duration;

use super::super::store::{LEASE, Op, Plans, denied, down};
use crate::FencingToken;
use crate::backend::{
    Acquired, Answer, BackendError, BackendErrorKind, Declined, Released, Renewal, Withdrawn,
};

/// An answer to any call for which it makes sense.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Says {
    what: What,
    times: usize,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Got(u64, Duration),
    Rank { rank: u64, recheck_in: Duration, ticket: u64, latest: Option<u64> },
    Busy(Duration),
    Declined(Declined),
    Done,
    Gone,
    Down,
    Denied,
    Unsent,
    UnsentDenied,
    Fails(BackendErrorKind),
}

pub(crate) const BUSY: Says = busy(Duration::MAX);
pub(crate) const DONE: Says = Says::of(What::Done);
/// There is nothing that the call is about.
pub(crate) const GONE: Says = Says::of(What::Gone);
pub(crate) const DOWN: Says = Says::of(What::Down);
pub(crate) const DENIED: Says = Says::of(What::Denied);
/// The call was not sent: no answer, or a login that was refused.
pub(crate) const UNSENT: Says = Says::of(What::Unsent);
pub(crate) const UNSENT_DENIED: Says = Says::of(What::UnsentDenied);
/// It takes no writes.
pub(crate) const FULL: Says = error(BackendErrorKind::Refused);

/// Granted with this token, for the usual lease.
pub(crate) const fn got(token: u64) -> Says {
    Says::of(What::Got(token, LEASE))
}

/// In the queue, with nothing to look for before the next heartbeat.
pub(crate) const fn rank(rank: u64) -> Says {
    Says::of(What::Rank { rank, recheck_in: Duration::MAX, ticket: 1, latest: None })
}

pub(crate) const fn busy(recheck_in: Duration) -> Says {
    Says::of(What::Busy(recheck_in))
}

pub(crate) const fn declined(why: Declined) -> Says {
    Says::of(What::Declined(why))
}

pub(crate) const fn error(kind: BackendErrorKind) -> Says {
    Says::of(What::Fails(kind))
}

impl Says {
    const fn of(what: What) -> Says {
        Says { what, times: 1 }
    }

    /// The lease that is granted, or when to look again.
    pub(crate) fn time(mut self, time: Duration) -> Says {
        match &mut self.what {
            What::Got(_, it) | What::Rank { recheck_in: it, .. } => *it = time,
            other => panic!("{other:?} has no time"),
        }
        self
    }

    pub(crate) fn ticket(mut self, number: u64) -> Says {
        let What::Rank { ticket, .. } = &mut self.what else { panic!("only a place has a ticket") };
        *ticket = number;
        self
    }

    /// The latest number of the lock, if it is not the ticket.
    pub(crate) fn latest(mut self, number: u64) -> Says {
        let What::Rank { latest, .. } = &mut self.what else { panic!("only a place tells of that") };
        *latest = Some(number);
        self
    }

    pub(crate) fn times(self, times: usize) -> Says {
        Says { times, ..self }
    }

    pub(crate) fn answer<T: Sense>(self) -> Answer<T> {
        match self.what {
            What::Down => down(),
            What::Denied => denied(),
            What::Unsent => down().map_err(BackendError::unsent),
            What::UnsentDenied => denied().map_err(BackendError::unsent),
            What::Fails(kind) => Err(BackendError::new(kind, "planned: refused")),
            what => Ok(T::of(what).unwrap_or_else(|| panic!("{what:?} is no answer to this call"))),
        }
    }
}

impl AsRef<[Says]> for Says {
    fn as_ref(&self) -> &[Says] {
        std::slice::from_ref(self)
    }
}

/// An answer of one call.
#[expect(private_interfaces, reason = "only this file makes answers of words")]
pub(crate) trait Sense: Sized {
    fn of(what: What) -> Option<Self>;
}

macro_rules! sense {
    ($($answer:ty { $($what:pat => $is:expr,)+ })+) => {$(
        #[expect(private_interfaces, reason = "only this file makes answers of words")]
        impl Sense for $answer {
            fn of(what: What) -> Option<$answer> {
                Some(match what {
                    $($what => $is,)+
                    _ => return None,
                })
            }
        }
    )+};
}

sense! {
    Acquired {
        What::Got(token, lease) => Acquired::Granted { token: FencingToken::new(token), lease },
        What::Busy(recheck_in) => Acquired::Busy { recheck_in },
        What::Declined(declined) => Acquired::Declined(declined),
        What::Rank { rank, recheck_in, ticket, latest } => {
            Acquired::Queued { rank, recheck_in, ticket, latest: latest.unwrap_or(ticket) }
        },
    }
    Released { What::Done => Released::Released, What::Gone => Released::NotHeld, }
    Renewal {
        What::Done => Renewal::Renewed,
        What::Gone => Renewal::Lost,
        What::Got(token, lease) => Renewal::Granted { token: FencingToken::new(token), lease },
        What::Rank { rank, recheck_in, ticket, latest } => {
            Renewal::Waiting { rank, recheck_in, latest: latest.unwrap_or(ticket) }
        },
    }
    Withdrawn {
        What::Done => Withdrawn::Left,
        What::Got(token, lease) => Withdrawn::WasGranted { token: FencingToken::new(token), lease },
    }
}

/// The next answers to calls of this kind.
pub(super) fn plan(plans: &mut Plans, op: Op, answers: &[Says]) {
    for says in answers.iter().flat_map(|says| std::iter::repeat_n(*says, says.times)) {
        match op {
            Op::Acquire => plans.acquire.push_back(says.answer()),
            Op::Release => plans.release.push_back(says.answer()),
            Op::Renew => plans.renew.push_back(says.answer()),
            Op::Withdraw => plans.withdraw.push_back(says.answer()),
            Op::TakeHold => panic!("it has no plan"),
        }
    }
}
