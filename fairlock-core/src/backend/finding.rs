//! What a backend's `doctor` finds: whether locks are safe on a server, and if not, what has to change.

use std::time::Duration;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The server that was checked, without user and password.
    pub server: String,
    /// What was checked, in a word or two; the backend's `doctor` lists its topics.
    pub topic: &'static str,
    /// The result.
    pub verdict: Verdict,
    /// What was found and, if it is not good, what to change. A setting of the backend's builder stands between backticks, with a
    /// value in parentheses: `durable(quorum)`.
    pub text: String,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Good.
    Good,
    /// Locks work, but an operator should know this.
    Note,
    /// Locks don't work, or can be lost, until this is changed.
    Unsafe,
    /// The check could not run.
    Unknown,
}

/// A longer round trip is worth a note: it adds to every hand-over.
const SLOW: Duration = Duration::from_millis(50);

impl Finding {
    /// A finding at this server.
    pub fn new(
        server: impl Into<String>,
        topic: &'static str,
        verdict: Verdict,
        text: impl Into<String>,
    ) -> Finding {
        Finding { server: server.into(), topic, verdict, text: text.into() }
    }

    /// The time for people: no more than a tenth of a unit, and nothing below a microsecond.
    pub fn shown(time: Duration) -> String {
        let micros = time.as_micros();
        let (number, unit) = match micros {
            0..1000 => (micros.to_string(), "µs"),
            1000..1_000_000 => (format!("{:.1}", time.as_secs_f64() * 1000.0), "ms"),
            _ => (format!("{:.1}", time.as_secs_f64()), "s"),
        };
        format!("{}{unit}", number.strip_suffix(".0").unwrap_or(&number))
    }

    /// What these round trips tell, where an answer may take as long as the limit.
    pub fn of_round_trips(mut trips: Vec<Duration>, limit: Duration) -> (Verdict, String) {
        trips.sort_unstable();
        let middle = trips.get(trips.len() / 2).copied().unwrap_or_default();
        let longest = trips.last().copied().unwrap_or_default();
        let (verdict, then) = if longest > limit / 2 {
            let to_do = "raise it, or find out what holds the server up";
            (Verdict::Note, format!("; `response_timeout` is {}: {to_do}", Finding::shown(limit)))
        } else if middle > SLOW {
            (Verdict::Note, "; each hand-over takes one: a server that is nearer is quicker".to_owned())
        } else {
            (Verdict::Good, String::new())
        };
        let (middle, longest) = (Finding::shown(middle), Finding::shown(longest));
        (verdict, format!("half of {} within {middle}, all within {longest}{then}", trips.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_without_more_digits_than_it_is_worth() {
        for (nanos, text) in [
            (0, "0µs"),
            (999, "0µs"),
            (41_234, "41µs"),
            (1_234_567, "1.2ms"),
            (500_000_000, "500ms"),
            (1_000_000_000, "1s"),
            (6_666_666_667, "6.7s"),
        ] {
            assert_eq!(Finding::shown(Duration::from_nanos(nanos)), text);
        }
    }

    #[test]
    fn slow_round_trips_are_worth_a_note() {
        let judge = |millis: [u64; 3]| {
            let trips = millis.map(Duration::from_millis).to_vec();
            Finding::of_round_trips(trips, Duration::from_secs(1))
        };
        assert_eq!(judge([3, 1, 2]), (Verdict::Good, "half of 3 within 2ms, all within 3ms".to_owned()));
        for (millis, words) in [([1, 2, 501], "`response_timeout` is 1s"), ([1, 51, 60], "that is nearer")] {
            let (verdict, text) = judge(millis);
            assert!(verdict == Verdict::Note && text.contains(words), "{text}");
        }
    }
}
