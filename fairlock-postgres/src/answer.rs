//! Which answers are promises, and what a fast part answers. A deposed primary must make no promise, also where a step reads it and
//! changes nothing.

use fairlock_core::FencingToken;
use fairlock_core::backend::{
    Acquired, BackendError, ForceReleased, HoldCountSet, HoldKept, Released, Renewal, Withdrawn,
};

use crate::net::{Failure, Row};
use crate::row::moment;

/// What a question is answered.
pub(crate) trait Answer: Sized {
    /// Whether its caller may believe in a hold because of it.
    fn is_promise(&self) -> bool {
        false
    }

    /// The answer, if a fast part has returned this row.
    fn of_row(_: &Row) -> Result<Self, Failure> {
        Err(Failure::senseless())
    }
}

impl Answer for Acquired {
    fn is_promise(&self) -> bool {
        matches!(self, Acquired::Granted { .. })
    }

    fn of_row(row: &Row) -> Result<Acquired, Failure> {
        let token = FencingToken::new(row.number(2)?.cast_unsigned());
        Ok(Acquired::Granted { token, lease: moment(row.number(3)?) })
    }
}

impl Answer for Vec<Renewal> {
    fn is_promise(&self) -> bool {
        self.iter().any(|renewal| matches!(renewal, Renewal::Renewed | Renewal::Granted { .. }))
    }

    fn of_row(_: &Row) -> Result<Vec<Renewal>, Failure> {
        Ok(vec![Renewal::Renewed])
    }
}

impl Answer for Withdrawn {
    fn is_promise(&self) -> bool {
        matches!(self, Withdrawn::WasGranted { .. })
    }
}

impl Answer for HoldKept {
    fn is_promise(&self) -> bool {
        *self == HoldKept::Kept
    }
}

impl Answer for HoldCountSet {}
impl Answer for Released {
    fn of_row(_: &Row) -> Result<Released, Failure> {
        Ok(Released::Released)
    }
}
impl Answer for ForceReleased {}

impl<T: Answer> Answer for Result<T, BackendError> {
    fn is_promise(&self) -> bool {
        self.as_ref().is_ok_and(Answer::is_promise)
    }

    fn of_row(row: &Row) -> Result<Result<T, BackendError>, Failure> {
        T::of_row(row).map(Ok)
    }
}
