//! What a call of a scene has come to, in words.

use std::time::Duration;

use super::words::text_of;
use crate::{AllGuard, AsyncGuard, Error, HeldLock, Lost, OwnedGuard, OwnedRequest, Result, TryLock};

pub(super) enum Guard {
    OfThread(OwnedGuard),
    OfTask(AsyncGuard),
}

/// What a call came to.
#[derive(Default)]
pub(super) struct Told {
    pub(super) text: String,
    pub(super) guard: Option<Guard>,
    pub(super) request: Option<OwnedRequest>,
    pub(super) error: String,
}

pub(super) trait Tell {
    fn told(self) -> Told;
}

fn text(text: impl Into<String>) -> Told {
    Told { text: text.into(), ..Told::default() }
}

pub(super) fn done() -> Told {
    text("done")
}

impl Tell for () {
    fn told(self) -> Told {
        done()
    }
}

/// It is dropped at once: it stays on its thread.
impl Tell for AllGuard {
    fn told(self) -> Told {
        text("gets-all")
    }
}

impl Tell for Lost {
    fn told(self) -> Told {
        text(format!("lost {:?}", self.cause))
    }
}

impl Tell for Duration {
    fn told(self) -> Told {
        text(format!("sure {}", text_of(self)))
    }
}

impl Tell for Vec<HeldLock> {
    fn told(self) -> Told {
        let name = |one: &HeldLock| format!("{}/{}/{}", one.lock.as_str(), one.token, text_of(one.held_for));
        let names: Vec<_> = self.iter().map(name).collect();
        text(format!("drained {}", if names.is_empty() { "nobody".to_owned() } else { names.join(" ") }))
    }
}

impl Tell for OwnedRequest {
    fn told(self) -> Told {
        Told { request: Some(self), ..text("asks") }
    }
}

impl Tell for OwnedGuard {
    fn told(self) -> Told {
        let text = text(format!("gets {}", self.token()));
        Told { guard: Some(Guard::OfThread(self)), ..text }
    }
}

impl Tell for AsyncGuard {
    fn told(self) -> Told {
        let text = text(format!("gets {}", self.token()));
        Told { guard: Some(Guard::OfTask(self)), ..text }
    }
}

impl<G: Tell> Tell for TryLock<G> {
    fn told(self) -> Told {
        match self {
            TryLock::Granted(guard) => guard.told(),
            TryLock::Busy => text("is-busy"),
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
        let kind = match error {
            Error::Lost(lost) => format!("lost {:?}", lost.cause),
            Error::Shutdown { lock: None } => "fails Shutdown all".to_owned(),
            Error::Unsettled { count, .. } => format!("fails Unsettled {count}"),
            other => format!("fails {}", kind_of(&other)),
        };
        Told { error: said, ..text(kind) }
    }
}

pub(super) fn kind_of(error: &Error) -> String {
    format!("{error:?}").split([' ', '(']).next().unwrap().to_owned()
}
