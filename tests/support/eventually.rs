//! Waiting for a condition, with a limit. Only this module polls.

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

/// Waits until `cond` is true and returns how long that took. Panics with `what` after `bound`.
#[track_caller]
pub fn eventually(bound: Duration, what: &str, mut cond: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    match look_until(bound, || cond().then_some(())) {
        Some(()) => start.elapsed(),
        None => panic!("not within {bound:?}: {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "not within 30ms: the moon is green")]
    fn what_never_becomes_true_ends_with_its_name() {
        eventually(Duration::from_millis(30), "the moon is green", || false);
    }
}
