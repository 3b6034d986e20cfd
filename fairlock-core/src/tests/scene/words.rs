//! What a scene expects: calls of the store, numbers and times.

use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::super::store::{Asked, Op};

/// A value, or all from one to another.
#[derive(Clone, Debug)]
pub(crate) struct Span<T>(T, T);

impl<T: Clone> From<T> for Span<T> {
    fn from(value: T) -> Span<T> {
        Span(value.clone(), value)
    }
}

impl<T> From<RangeInclusive<T>> for Span<T> {
    fn from(range: RangeInclusive<T>) -> Span<T> {
        let (from, to) = range.into_inner();
        Span(from, to)
    }
}

impl<T: PartialOrd + Debug> Span<T> {
    pub(super) fn has(&self, value: &T) -> bool {
        self.0 <= *value && *value <= self.1
    }

    #[track_caller]
    pub(super) fn check(&self, value: &T, what: &str) {
        assert!(self.has(value), "{what}: {value:?} is expected to be in {:?}..={:?}", self.0, self.1);
    }
}

/// A call of the store, as far as a scene says what it is.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(super) op: Op,
    pub(super) lock: Option<String>,
    number: Option<u64>,
    at: Option<Duration>,
    by: Option<&'static str>,
    times: usize,
}

pub(crate) const ACQUIRE: Call = Call::to(Op::Acquire);
pub(crate) const RELEASE: Call = Call::to(Op::Release);
pub(crate) const RENEW: Call = Call::to(Op::Renew);
pub(crate) const WITHDRAW: Call = Call::to(Op::Withdraw);

impl Call {
    const fn to(op: Op) -> Call {
        Call { op, lock: None, number: None, at: None, by: None, times: 1 }
    }

    /// Its token, hold count, ticket, number of items, or milliseconds.
    pub(crate) fn of(self, number: u64) -> Call {
        Call { number: Some(number), ..self }
    }

    pub(crate) fn about(self, lock: &str) -> Call {
        Call { lock: Some(lock.to_owned()), ..self }
    }

    pub(crate) fn at(self, at: Duration) -> Call {
        Call { at: Some(at), ..self }
    }

    pub(crate) fn by_dog(self) -> Call {
        Call { by: Some("fairlock-dog"), ..self }
    }

    pub(crate) fn by_tasks(self) -> Call {
        Call { by: Some("fairlock-tasks"), ..self }
    }

    pub(crate) fn times(self, times: usize) -> Call {
        Call { times, ..self }
    }

    fn is(&self, asked: &Asked) -> bool {
        self.op == asked.op
            && self.lock.as_ref().is_none_or(|lock| *lock == asked.lock)
            && self.number.is_none_or(|number| number == asked.number)
            && self.at.is_none_or(|at| at == asked.at)
            && self.by.is_none_or(|by| asked.by.as_deref() == Some(by))
    }
}

impl AsRef<[Call]> for Call {
    fn as_ref(&self) -> &[Call] {
        std::slice::from_ref(self)
    }
}

/// These calls came, in this order, and more behind them if the list is open.
#[track_caller]
pub(super) fn check_calls(asked: &[Asked], calls: &[Call], is_open: bool) {
    let calls: Vec<&Call> = calls.iter().flat_map(|call| std::iter::repeat_n(call, call.times)).collect();
    let is_all = asked.len() == calls.len() || is_open && asked.len() > calls.len();
    let is_so = is_all && calls.iter().zip(asked).all(|(call, asked)| call.is(asked));
    assert!(is_so, "expected calls: {calls:#?}, but came: {asked:#?}");
}
