//! Checks the durations that a program configures.

use std::time::Duration;

use crate::{Error, Result};

/// The shortest and the longest duration that can be configured.
pub(crate) const SHORTEST: Duration = Duration::from_millis(10);
pub(crate) const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// # Errors
/// [`Error::InvalidConfig`] that names `setting`.
pub(crate) fn check_duration(setting: &str, time: Duration) -> Result<()> {
    if (SHORTEST..=LONGEST).contains(&time) {
        return Ok(());
    }
    Err(Error::InvalidConfig {
        reason: format!("{setting} is {time:?}, it has to be from 10 ms to 100 years"),
    })
}
