//! Which answers are promises. A deposed primary must make none, also where a step reads them and changes nothing.

use fairlock_core::backend::{
    Acquired, BackendError, ForceReleased, HoldCountSet, HoldKept, Released, Renewal, Withdrawn,
};

/// What a step answers.
pub(crate) trait Answer {
    /// Whether its caller may believe in a hold because of it.
    fn is_promise(&self) -> bool {
        false
    }
}

impl Answer for Acquired {
    fn is_promise(&self) -> bool {
        matches!(self, Acquired::Granted { .. })
    }
}

impl Answer for Vec<Renewal> {
    fn is_promise(&self) -> bool {
        self.iter().any(|renewal| matches!(renewal, Renewal::Renewed | Renewal::Granted { .. }))
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
impl Answer for Released {}
impl Answer for ForceReleased {}

impl<T: Answer> Answer for Result<T, BackendError> {
    fn is_promise(&self) -> bool {
        self.as_ref().is_ok_and(Answer::is_promise)
    }
}
