//! What a fast part does for one question: see `fast`.

use fairlock_core::OwnerId;
use fairlock_core::backend::{Hold, LockId, RequestId};

use crate::net::{Statement, Value};
use crate::sql::{ACQUIRE, RELEASE, RENEW};

/// What a fast part may do, in the order in which a flight does it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum What {
    Renew,
    Release,
    Acquire,
}

/// One such statement with its values.
pub(crate) struct Attempt {
    pub(crate) what: What,
    values: Vec<Value>,
}

impl Attempt {
    /// The values after these three are given.
    pub(crate) fn new(
        what: What,
        lock: &LockId,
        owner: &OwnerId,
        request: RequestId,
        more: impl IntoIterator<Item = Value>,
    ) -> Attempt {
        let request = request.get().cast_signed().into();
        let named = [lock.name.as_str().as_bytes().into(), owner.as_str().into(), request];
        Attempt { what, values: named.into_iter().chain(more).collect() }
    }

    /// The values after the token are given.
    pub(crate) fn of_hold(what: What, hold: &Hold<'_>, more: impl IntoIterator<Item = i64>) -> Attempt {
        let more = [hold.token.get().cast_signed()].into_iter().chain(more);
        Attempt::new(what, hold.lock, hold.owner, hold.request, more.map(Value::from))
    }

    pub(crate) fn statement(mut self, grace_ends: Option<i64>) -> Statement {
        let sql = match self.what {
            What::Renew => &RENEW,
            What::Release => &RELEASE,
            What::Acquire => {
                self.values.push(grace_ends.into());
                &ACQUIRE
            }
        };
        Statement::new(sql, self.values)
    }
}
