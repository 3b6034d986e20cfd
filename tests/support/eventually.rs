//! Waiting for a condition. Only this module polls.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// The first pause between two checks. Each pause is twice the one before, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// The longest pause: a time measured here is too long by at most this.
const LONGEST_PAUSE: Duration = Duration::from_millis(16);

/// Calls `look` until it returns something, for at most `bound`.
///
/// It checks at least once, and once more at the end of the bound.
pub fn look_until<T>(bound: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let left = bound.saturating_sub(start.elapsed());
        if let Some(found) = look() {
            return Some(found);
        }
        if left.is_zero() {
            return None;
        }
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// How long [`eventually`] waits on a machine where nothing has to wait for a processor.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `cond` is true and returns how long that took. Panics with `what` after 60 s, and as much longer as work has waited for a
/// processor in the meantime: a busy machine is no reason to fail.
#[track_caller]
pub fn eventually(what: &str, cond: impl FnMut() -> bool) -> Duration {
    within(PATIENCE, what, cond)
}

#[track_caller]
fn within(patience: Duration, what: &str, mut cond: impl FnMut() -> bool) -> Duration {
    let (start, waited) = (Instant::now(), waited_for_processors());
    let mut pause = FIRST_PAUSE;
    // The time is taken before the look, so that the last look is after the end.
    loop {
        let took = start.elapsed();
        let lost = waited_for_processors().saturating_sub(waited);
        if cond() {
            return start.elapsed();
        }
        if took >= patience + lost {
            panic!("not within {took:?}, of which {lost:?} without a free processor: {what}");
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// The time in which some work of this machine was ready and had no processor, since the machine started. Zero where the system does not
/// say.
fn waited_for_processors() -> Duration {
    let pressure = fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
    let micros =
        pressure.lines().find_map(|line| line.strip_prefix("some ")?.rsplit_once("total=")?.1.parse().ok());
    Duration::from_micros(micros.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "the moon is green")]
    fn what_never_becomes_true_ends_with_its_name() {
        within(Duration::from_millis(30), "the moon is green", || false);
    }
}
