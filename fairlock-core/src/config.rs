//! What a builder has settled for a client; and what a program may name and configure.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::ids::{LockName, MAX_NAME_BYTES};
use crate::stop::Stop;
use crate::time::Clock;

/// See the setters of [`ClientBuilder`](crate::ClientBuilder).
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) lease: Duration,
    pub(crate) place_ttl: Duration,
    pub(crate) outage_limit: Duration,
    /// The backend's.
    pub(crate) attempt_ttl: Option<Duration>,
    pub(crate) label: Arc<str>,
    pub(crate) clock: Clock,
    pub(crate) stop: Stop,
}

/// The shortest and the longest duration that can be configured.
pub(crate) const SHORTEST: Duration = Duration::from_millis(10);
pub(crate) const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// # Errors
/// [`Error::InvalidConfig`] that names `setting`.
pub(crate) fn check_duration(setting: &str, time: Duration) -> Result<()> {
    check_range(setting, time, SHORTEST..=LONGEST)
}

/// # Errors
/// [`Error::InvalidConfig`] that names `setting` and both limits.
pub(crate) fn check_range(setting: &str, time: Duration, allowed: RangeInclusive<Duration>) -> Result<()> {
    if allowed.contains(&time) {
        return Ok(());
    }
    let (least, most) = (allowed.start(), allowed.end());
    let most = if *most == LONGEST { "100 years".to_owned() } else { format!("{most:?}") };
    let reason = format!("{setting} is {time:?}, it has to be from {least:?} to {most}");
    Err(Error::InvalidConfig { reason })
}

// Here and not beside the type, since errors name locks.
impl LockName {
    /// Checks `name`.
    ///
    /// # Errors
    /// [`Error::InvalidName`] when it is empty or longer than 512 bytes.
    pub fn new(name: &str) -> Result<LockName> {
        let reason = match name.len() {
            0 => "it is empty".to_owned(),
            1..=MAX_NAME_BYTES => return Ok(LockName::checked(name)),
            bytes => format!("it has {bytes} bytes, {MAX_NAME_BYTES} are allowed"),
        };
        Err(Error::InvalidName { name: shortened(name), reason })
    }
}

/// The first characters of a name that is too long to be shown whole.
fn shortened(name: &str) -> String {
    match name.char_indices().nth(40) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_from_10_ms_to_100_years() {
        const YEAR: u64 = 31_536_000; // seconds
        let is_good = |time| check_duration("lease", time).is_ok();
        let (least, most) = (Duration::from_millis(10), Duration::from_secs(100 * YEAR));
        assert!(is_good(least) && is_good(most));
        let just = Duration::from_nanos(1);
        for bad in [least - just, most + just] {
            let Err(Error::InvalidConfig { reason }) = check_duration("lease", bad) else {
                panic!("{bad:?}")
            };
            assert!(reason.starts_with("lease is "), "{reason}");
        }
    }
}
