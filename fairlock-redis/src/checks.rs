//! Checks what a program configures.

use std::ops::RangeInclusive;
use std::time::Duration;

use fairlock_core::backend::{BackendError, BackendErrorKind, in_words};

/// # Errors
/// `InvalidConfig` for a time that is out of range.
pub(crate) fn in_range(
    setting: &'static str,
    time: Duration,
    allowed: RangeInclusive<Duration>,
) -> Result<(), BackendError> {
    if allowed.contains(&time) {
        return Ok(());
    }
    let [time, least, most] = [time, *allowed.start(), *allowed.end()].map(in_words);
    Err(invalid(format!("the time is {time}, it has to be from {least} to {most}")).about_setting(setting))
}

pub(crate) fn invalid(what: String) -> BackendError {
    BackendError::new(BackendErrorKind::InvalidConfig, what)
}
