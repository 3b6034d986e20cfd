//! What the `doctor` of each backend finds: whether locks are safe on a server, and if not, what has to change. And the checks that
//! all of them make.

use std::fmt;
use std::time::Duration;

use super::{
    Acquire, Acquired, Backend, BackendError, BackendErrorKind, Hold, LockId, Place, RequestId, Text, Wait,
    only, write_text,
};
use crate::ids::{ClientId, LockKind, LockName, OwnerId};

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
    /// What was found and, if it is not good, what to change.
    pub text: String,
    /// The setting that the text is about, a method of the backend's builder.
    pub setting: Option<&'static str>,
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
pub(super) const SLOW: Duration = Duration::from_millis(50);

/// The text, and the setting in parentheses.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_text(f, &self.text, self.setting)
    }
}

impl Finding {
    /// A finding at this server.
    pub fn new(
        server: impl Into<String>,
        topic: &'static str,
        verdict: Verdict,
        text: impl Into<Text>,
    ) -> Finding {
        let text: Text = text.into();
        Finding { server: server.into(), topic, verdict, text: (*text).to_owned(), setting: text.setting() }
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

    /// What these times tell of something that each hand-over takes, where an answer may take as long as the limit. `quicker` says
    /// how it gets quicker.
    pub fn of_times(times: Vec<Duration>, limit: Duration, quicker: &str) -> (Verdict, Text) {
        let (middle, longest, shown) = spread(times);
        if longest > limit / 2 {
            let to_do = "raise the limit, or find out what holds the store up";
            let text = format!("{shown}, and {} is the limit: {to_do}", Finding::shown(limit));
            (Verdict::Note, Text::from(text).about_setting("response_timeout"))
        } else if middle > SLOW {
            (Verdict::Note, format!("{shown}; each hand-over takes one: {quicker}").into())
        } else {
            (Verdict::Good, shown.into())
        }
    }

    /// By how much a server's clock is off, and that in words, after a round trip in whose middle ours said `ours`.
    pub fn of_clocks(ours: Duration, theirs: Duration, trip: Duration) -> (Duration, String) {
        let (off, word) = if theirs > ours { (theirs - ours, "ahead of") } else { (ours - theirs, "behind") };
        let by = if off > trip / 2 {
            format!("{} {word} ours", Finding::shown(off))
        } else {
            "as ours".to_owned()
        };
        (off, format!("{by}, give or take {}", Finding::shown(trip / 2)))
    }
}

/// The median of the times, the longest time, and both in words.
pub(super) fn spread(mut times: Vec<Duration>) -> (Duration, Duration, String) {
    times.sort_unstable();
    let middle = times.get(times.len() / 2).copied().unwrap_or_default();
    let longest = times.last().copied().unwrap_or_default();
    let (half, all) = (Finding::shown(middle), Finding::shown(longest));
    (middle, longest, format!("half of {} within {half}, all within {all}", times.len()))
}

/// A lock that no other client knows: `fairlock-doctor:…`.
pub fn probe() -> LockId {
    let name = LockName::new(&format!("fairlock-doctor:{}", ClientId::random()));
    LockId::new(name.unwrap_or_else(|_| unreachable!("it is short")), LockKind::Fair)
}

/// Acquires such a lock and releases it.
///
/// # Errors
/// Those of the backend.
pub fn try_out(backend: &dyn Backend, lock: &LockId) -> Result<(), BackendError> {
    let (owner, request) = (OwnerId::new(&format!("{}:1", ClientId::random())), RequestId::new(1));
    let mut place = Place::new(lock, &owner, request);
    place.wait = Wait::No;
    let lease = Duration::from_secs(5).min(backend.longest_lease().unwrap_or(Duration::MAX));
    match only(backend.acquire(&[Acquire::new(place, lease)]))? {
        Acquired::Granted { token, .. } => {
            only(backend.release(&[Hold::new(lock, &owner, request, token)])).map(drop)
        }
        Acquired::Busy { .. } | Acquired::Queued { .. } => {
            let what = "a lock that nobody has was not granted";
            Err(BackendError::new(BackendErrorKind::Unavailable, what))
        }
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
            Finding::of_times(trips, Duration::from_secs(1), "that is nearer")
        };
        assert_eq!(judge([3, 1, 2]), (Verdict::Good, "half of 3 within 2ms, all within 3ms".into()));
        for (millis, words) in [([1, 2, 501], "1s is the limit"), ([1, 51, 60], "that is nearer")] {
            let (verdict, text) = judge(millis);
            assert!(verdict == Verdict::Note && text.contains(words), "{text}");
            assert_eq!(text.setting(), (millis[2] > 500).then_some("response_timeout"));
        }
    }

    #[test]
    fn clocks_differ_by_more_than_half_of_the_trip_or_not() {
        for (theirs, off, words) in [
            (1_000, 0, "as ours, give or take 2ms"),
            (1_002, 2, "as ours, give or take 2ms"),
            (1_500, 500, "500ms ahead of ours, give or take 2ms"),
            (997, 3, "3ms behind ours, give or take 2ms"),
        ] {
            let [ours, theirs, trip, off] = [1_000, theirs, 4, off].map(Duration::from_millis);
            assert_eq!(Finding::of_clocks(ours, theirs, trip), (off, words.to_owned()));
        }
    }
}
