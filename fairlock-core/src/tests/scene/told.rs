//! What a call of a scene has come to.

use std::time::Duration;

use crate::{AllGuard, AsyncGuard, Error, HeldLock, Lost, LostCause, Owner, Request, Result, TryLock};

pub(super) enum Guard {
    OfThread(crate::Guard<Owner>),
    OfTask(AsyncGuard),
}

/// What a call came to.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::tests) enum End {
    Done,
    /// With this token.
    Gets(u64),
    GetsAll,
    Asks,
    IsBusy,
    /// The hold is certain for so long.
    Sure(Duration),
    Drained(Vec<(String, u64, Duration)>),
    Lost(LostCause),
    Fails(Kind),
}

impl End {
    pub(super) fn is_success(&self) -> bool {
        matches!(self, End::Done | End::Gets(_) | End::GetsAll | End::Asks)
    }
}

macro_rules! kinds {
    ($($kind:ident)+) => {
        /// The kinds of errors.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub(in crate::tests) enum Kind {
            $($kind,)+
            /// Of the whole client.
            ShutdownOfAll,
            UnsettledOf(usize),
            Other,
        }

        impl Kind {
            pub(super) fn of(error: &Error) -> Kind {
                match error {
                    Error::Shutdown { lock: None } => Kind::ShutdownOfAll,
                    Error::Unsettled { count, .. } => Kind::UnsettledOf(*count),
                    $(Error::$kind { .. } => Kind::$kind,)+
                    _ => Kind::Other,
                }
            }
        }
    };
}

kinds! { Cancelled Corrupt Denied InvalidConfig InvalidName Mismatch Misuse NotHeld Shutdown Unavailable Unsupported }

/// An end, with what it leaves to the caller.
pub(super) struct Told {
    pub(super) end: End,
    pub(super) guard: Option<Guard>,
    pub(super) request: Option<Request<Owner>>,
    pub(super) error: String,
}

pub(super) trait Tell {
    fn told(self) -> Told;
}

impl Tell for End {
    fn told(self) -> Told {
        Told { end: self, guard: None, request: None, error: String::new() }
    }
}

impl Tell for () {
    fn told(self) -> Told {
        End::Done.told()
    }
}

/// It is dropped at once: it stays on its thread.
impl Tell for AllGuard {
    fn told(self) -> Told {
        End::GetsAll.told()
    }
}

impl Tell for Lost {
    fn told(self) -> Told {
        End::Lost(self.cause).told()
    }
}

impl Tell for Duration {
    fn told(self) -> Told {
        End::Sure(self).told()
    }
}

impl Tell for Vec<HeldLock> {
    fn told(self) -> Told {
        let held = |one: &HeldLock| (one.lock.as_str().to_owned(), one.token.get(), one.held_for);
        End::Drained(self.iter().map(held).collect()).told()
    }
}

impl Tell for Request<Owner> {
    fn told(self) -> Told {
        Told { request: Some(self), ..End::Asks.told() }
    }
}

impl Tell for crate::Guard<Owner> {
    fn told(self) -> Told {
        let end = End::Gets(self.token().get());
        Told { guard: Some(Guard::OfThread(self)), ..end.told() }
    }
}

impl Tell for AsyncGuard {
    fn told(self) -> Told {
        let end = End::Gets(self.token().get());
        Told { guard: Some(Guard::OfTask(self)), ..end.told() }
    }
}

impl<G: Tell> Tell for TryLock<G> {
    fn told(self) -> Told {
        match self {
            TryLock::Granted(guard) => guard.told(),
            TryLock::Busy(_) => End::IsBusy.told(),
        }
    }
}

impl<T: Tell> Tell for Result<T> {
    fn told(self) -> Told {
        let error = match self {
            Ok(value) => return value.told(),
            Err(error) => error,
        };
        let said = error.to_string();
        let end =
            if let Error::Lost(lost) = &error { End::Lost(lost.cause) } else { End::Fails(Kind::of(&error)) };
        Told { error: said, ..end.told() }
    }
}
