//! The first connections, tried again while the server can't take them.

use std::thread;
use std::time::{Duration, Instant};

use super::{BackendError, pause};
use crate::logging::log_line;

/// Connects, and goes on trying for `within` while the store does not answer, is full or not ready (`Unavailable`, `Refused`). The last
/// attempt begins when that time is over; zero stands for one attempt. Another error ends it at once: it would be the same the next
/// time. For a backend's builder, and its first subscription. It blocks the thread; each attempt has to end by itself.
///
/// # Errors
/// That of the last attempt.
pub fn connect_within<T>(
    within: Duration,
    mut connect: impl FnMut() -> Result<T, BackendError>,
) -> Result<T, BackendError> {
    // None: longer than the clock can count.
    let end = Instant::now().checked_add(within);
    let left = || end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
    let mut failures = 1_u32;
    loop {
        let is_last = left().is_zero();
        match connect() {
            Err(error) if error.kind().is_transient() && !is_last => {
                if failures == 1 {
                    log_line!(warn, "fairlock::net",
                        event = "not connected", error:% = error;
                        "not connected yet, trying again: {error}"
                    );
                }
                // The first failure has a pause already: a server that is full has others who try.
                failures = failures.saturating_add(1);
                thread::sleep(pause(failures).min(left()));
            }
            ended => return ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::BackendErrorKind;

    const MS: Duration = Duration::from_millis(1);

    /// The number of attempts, and their time in all, if each attempt fails like this.
    fn fails(within: Duration, kind: BackendErrorKind) -> (u32, Duration) {
        let (mut attempts, began) = (0, Instant::now());
        let failed = connect_within::<()>(within, || {
            attempts += 1;
            Err(BackendError::new(kind, attempts.to_string()))
        });
        assert_eq!(failed.expect_err("always").message(), attempts.to_string(), "the last one is told");
        (attempts, began.elapsed())
    }

    #[test]
    fn it_is_tried_until_the_time_is_over_and_once_more() {
        for kind in [BackendErrorKind::Unavailable, BackendErrorKind::Refused] {
            let (attempts, took) = fails(900 * MS, kind);
            assert!(attempts > 2 && took >= 900 * MS && took < 9000 * MS, "{attempts} in {took:?}");
            assert_eq!(fails(Duration::ZERO, kind).0, 1);
        }
    }

    #[test]
    fn what_would_be_the_same_the_next_time_ends_it_at_once() {
        use BackendErrorKind::{Corrupt, Denied, InvalidConfig, InvalidName, Mismatch, Unsupported};
        for kind in [Corrupt, Denied, InvalidConfig, InvalidName, Mismatch, Unsupported] {
            assert_eq!(fails(Duration::MAX, kind).0, 1, "{kind:?}");
        }
        let mut answers = [Err(BackendError::new(BackendErrorKind::Unavailable, "away")), Ok(7)].into_iter();
        let connected = connect_within(Duration::MAX, || answers.next().expect("no third attempt"));
        assert_eq!(connected.expect("connected"), 7);
    }
}
