//! The settings of a client, what a program may choose as a time or a name, and what a client that ends still allows.

#[cfg(feature = "tracing")]
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::ids::{LockName, MAX_NAME_BYTES};
use crate::logging::in_words;
use crate::time::{self, Clock};

/// See the setters of [`ClientBuilder`](crate::ClientBuilder).
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) lease: Duration,
    /// Of holds whose handle has no other terms.
    pub(crate) max_hold: Option<Duration>,
    /// Stands before the name of each lock.
    pub(crate) prefix: String,
    pub(crate) place_ttl: Duration,
    pub(crate) outage_limit: Duration,
    /// After how long a line in the log explains a wait.
    pub(crate) slow_wait: Duration,
    /// The backend's.
    pub(crate) attempt_ttl: Option<Duration>,
    pub(crate) label: Arc<str>,
    pub(crate) clock: Clock,
    pub(crate) stop: Stop,
    #[cfg(feature = "tracing")]
    pub(crate) traceparent: Traceparent,
}

/// Reads the `traceparent` of the program's current span. Runs without our mutexes.
#[cfg(feature = "tracing")]
#[derive(Default)]
pub(crate) struct Traceparent(pub(crate) Option<Box<dyn Fn() -> Option<String> + Send + Sync>>);

#[cfg(feature = "tracing")]
impl fmt::Debug for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traceparent").finish_non_exhaustive()
    }
}

/// How many requests the client's threads put into one call of the backend: renewals wait for the end of that call, and Redis takes as
/// many in one round trip.
pub(crate) const MOST_AT_ONCE: usize = 128;

impl Config {
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The longest pause between two attempts: short beside a lease and a place's time to live, so that the next attempt still
    /// comes in time.
    pub(crate) fn longest_pause(&self) -> Duration {
        time::LONGEST_PAUSE.min(self.lease / 9).min(self.place_ttl / 9)
    }

    /// The full name of a lock.
    ///
    /// # Errors
    /// [`Error::InvalidName`].
    pub(crate) fn name(&self, name: &str) -> Result<LockName> {
        if self.prefix.is_empty() {
            LockName::new(name)
        } else {
            LockName::new(&format!("{}{name}", self.prefix))
        }
    }

    /// # Errors
    /// [`Error::Shutdown`] after `shutdown`.
    pub(crate) fn check_running(&self, lock: Option<&LockName>) -> Result<()> {
        if self.stop.is_stopped() { Err(Error::Shutdown { lock: lock.cloned() }) } else { Ok(()) }
    }
}

/// Open, closed or stopped; it only grows. A claim reads it, under its mutex, whenever it would become a hold: see `Held::may_be`.
#[derive(Debug, Default)]
pub(crate) struct Stop(AtomicU8);

const OPEN: u8 = 0;
/// After a drain: no claim becomes a hold, and holds go on.
const CLOSED: u8 = 1;
/// After a shutdown: no hold goes on either.
const STOPPED: u8 = 2;

/// Which call has stopped a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopping {
    Now,
    Before,
}

impl Stop {
    pub(crate) fn is_closed(&self) -> bool {
        self.0.load(Ordering::SeqCst) != OPEN
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.0.load(Ordering::SeqCst) == STOPPED
    }

    pub(crate) fn close(&self) {
        self.0.fetch_max(CLOSED, Ordering::SeqCst);
    }

    pub(crate) fn stop(&self) -> Stopping {
        match self.0.swap(STOPPED, Ordering::SeqCst) {
            STOPPED => Stopping::Before,
            _ => Stopping::Now,
        }
    }
}

/// The shortest duration that can be configured.
pub(crate) const SHORTEST: Duration = Duration::from_millis(10);
/// 100 years. A longer time is taken for this one, in each setting and argument.
pub(crate) const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The time, at most [`LONGEST`].
///
/// # Errors
/// [`Error::InvalidConfig`] about `setting`, for a shorter time than `least`.
pub(crate) fn at_least(setting: &'static str, time: Duration, least: Duration) -> Result<Duration> {
    let time = time.min(LONGEST);
    check_range(setting, time, least..=LONGEST).map(|()| time)
}

/// # Errors
/// [`Error::InvalidConfig`] about `setting` that names both limits.
pub(crate) fn check_range(
    setting: &'static str,
    time: Duration,
    allowed: RangeInclusive<Duration>,
) -> Result<()> {
    if allowed.contains(&time) {
        return Ok(());
    }
    let [time, least, most] = [time, *allowed.start(), *allowed.end()].map(in_words);
    let reason = format!("the time is {time}, it has to be from {least} to {most}");
    Err(Error::InvalidConfig { reason, setting: Some(setting) })
}

impl LockName {
    /// Checks `name`.
    ///
    /// # Errors
    /// [`Error::InvalidName`] when it is empty or longer than 512 bytes.
    pub fn new(name: &str) -> Result<LockName> {
        let reason = match name.len() {
            0 => "it is empty".to_owned(),
            1..=MAX_NAME_BYTES => return Ok(LockName::unchecked(name)),
            bytes => format!("it has {bytes} bytes, {MAX_NAME_BYTES} are allowed"),
        };
        Err(Error::InvalidName { name: shortened(name), reason })
    }
}

/// As [`LockName::new`]: for settings and arguments that are parsed.
impl FromStr for LockName {
    type Err = Error;

    fn from_str(name: &str) -> Result<LockName> {
        LockName::new(name)
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
    fn a_time_is_from_10_ms_on_and_a_very_long_one_100_years() {
        const YEAR: u64 = 31_536_000; // seconds
        let taken = |time| at_least("slow_wait", time, SHORTEST);
        let (least, most) = (Duration::from_millis(10), Duration::from_secs(100 * YEAR));
        let just = Duration::from_nanos(1);
        for (time, is) in [(least, least), (most, most), (most + just, most), (Duration::MAX, most)] {
            assert_eq!(taken(time).unwrap(), is);
        }
        let refused = taken(least - just).unwrap_err().to_string();
        assert!(refused.ends_with(" (slow_wait)"), "{refused}");
    }

    /// The longest pause is a second, or a ninth of the lease or of a place.
    #[test]
    fn the_longest_pause_is_a_second_or_a_ninth() {
        const S: Duration = Duration::from_secs(1);
        for (lease, place_ttl, longest) in [(30, 18, S), (30, 5, 5 * S / 9), (2, 5, 2 * S / 9)] {
            let (lease, place_ttl) = (lease * S, place_ttl * S);
            let config = Config { lease, place_ttl, ..Config::of_tests(Clock::system()) };
            assert_eq!(config.longest_pause(), longest);
        }
    }

    #[test]
    fn it_only_grows() {
        let stop = Stop::default();
        let is = || (stop.is_closed(), stop.is_stopped());
        assert_eq!(is(), (false, false));
        stop.close();
        assert_eq!(is(), (true, false));
        assert_eq!((stop.stop(), is()), (Stopping::Now, (true, true)));
        stop.close();
        assert_eq!((stop.stop(), is()), (Stopping::Before, (true, true)));
    }
}
