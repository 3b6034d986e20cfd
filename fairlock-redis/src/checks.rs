//! Checks what a program configures.

use std::ops::RangeInclusive;
use std::time::Duration;

use fairlock_core::backend::{BackendError, BackendErrorKind};

/// # Errors
/// `InvalidConfig` for a time that is out of range.
pub(crate) fn in_range(
    what: &str,
    time: Duration,
    allowed: RangeInclusive<Duration>,
) -> Result<(), BackendError> {
    if allowed.contains(&time) {
        return Ok(());
    }
    Err(invalid(format!(
        "{what} is {time:?}, it has to be from {:?} to {:?}",
        allowed.start(),
        allowed.end()
    )))
}

pub(crate) fn invalid(what: String) -> BackendError {
    BackendError::new(BackendErrorKind::InvalidConfig, what)
}
