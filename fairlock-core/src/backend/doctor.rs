//! What the `doctor` of each backend finds: whether locks are safe on a server, and if not, what has to change. And the checks that
//! all of them make.
//! The last of these times hand-overs: a lock goes from one client to another, as fast as wake-ups arrive.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use super::{
    Acquire, Acquired, Backend, BackendError, BackendErrorKind, Hold, LockId, Place, RequestId, Subscription,
    Text, Wait, Wake, WakeSink, only, write_text,
};
use crate::ids::{ClientId, FencingToken, LockKind, LockName, OwnerId};

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
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
    #[doc(hidden)] // for stores
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
    #[doc(hidden)] // for stores
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
    #[doc(hidden)] // for stores
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
fn spread(mut times: Vec<Duration>) -> (Duration, Duration, String) {
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

/// How many hand-overs are timed.
const HAND_OVERS: u64 = 10;
/// No further hand-over begins after this time: without wake-ups each takes 1.7 s.
const ENOUGH: Duration = Duration::from_secs(5);
/// When a waiter looks that hears nothing: a client does at its heartbeat, after a third of the place TTL.
const HEARTBEAT: Duration = Duration::from_millis(5000 / 3);
/// No hand-over takes so long.
const LONGEST: Duration = Duration::from_secs(10);

/// A client of the trial: its backend, and the wake-ups that it hears.
struct Party<'a> {
    backend: &'a dyn Backend,
    client: ClientId,
    heard: Receiver<Option<(RequestId, FencingToken)>>,
    _subscription: Subscription,
}

/// Tells of each wake-up, and of the grant in it.
struct Ear(Sender<Option<(RequestId, FencingToken)>>);

impl WakeSink for Ear {
    fn wake(&self, wake: Wake<'_>) {
        let granted = match wake {
            Wake::Granted { request, token, .. } => Some((request, token)),
            _ => None,
        };
        let _ = self.0.send(granted); // the trial may be over
    }
}

impl<'a> Party<'a> {
    fn new(backend: &'a dyn Backend) -> Result<Party<'a>, BackendError> {
        let (client, (ear, heard)) = (ClientId::random(), channel());
        let _subscription = backend.subscribe(client, Arc::new(Ear(ear)))?;
        Ok(Party { backend, client, heard, _subscription })
    }

    fn ask(&self, place: Place<'_>) -> Result<Acquired, BackendError> {
        let lease = Duration::from_secs(5).min(self.backend.longest_lease().unwrap_or(Duration::MAX));
        only(self.backend.acquire(&[Acquire::new(place, lease)]))
    }

    /// Waits for the lock as a client does: by wake-ups, and else by looking. Returns whether a wake-up came.
    fn wait(&self, place: Place<'_>, mut look_in: Duration) -> Result<(FencingToken, bool), BackendError> {
        let (until, mut is_told) = (Instant::now() + LONGEST, false);
        while Instant::now() < until {
            match self.heard.recv_timeout(look_in.min(HEARTBEAT)) {
                Ok(Some((request, token))) if request == place.request => return Ok((token, true)),
                Ok(_) => is_told = true,
                Err(_) => {}
            }
            match self.ask(place)? {
                Acquired::Granted { token, .. } => return Ok((token, is_told)),
                Acquired::Queued { recheck_in, .. } | Acquired::Busy { recheck_in } => look_in = recheck_in,
            }
        }
        Err(BackendError::new(BackendErrorKind::Unavailable, "a lock was not handed over within 10 s"))
    }
}

/// Times hand-overs of a free lock between a client of one backend and a client of the other: ten, or fewer where they take seconds.
/// A wake-up has to go through the store, so the backends must not share their clients.
/// `without` says what to do where wake-ups don't arrive.
///
/// # Errors
/// Those of the backends.
pub fn hand_over(
    backends: [&dyn Backend; 2],
    lock: &LockId,
    without: impl Into<Text>,
) -> Result<(Verdict, Text), BackendError> {
    let [one, other] = backends;
    let parties = [Party::new(one)?, Party::new(other)?];
    let owners = [0, 1].map(|at: usize| OwnerId::new(&format!("{}:1", parties[at].client)));
    let refused = |what| BackendError::new(BackendErrorKind::Unavailable, what);
    let (begin, mut times, mut n_told) = (Instant::now(), Vec::new(), 0);
    let (mut holder, mut request) = (0, RequestId::new(1));
    let Acquired::Granted { mut token, .. } = parties[0].ask(Place::new(lock, &owners[0], request))? else {
        return Err(refused("a lock that nobody has was not granted"));
    };
    for number in 2..2 + HAND_OVERS {
        let (next, place) = (1 - holder, Place::new(lock, &owners[1 - holder], RequestId::new(number)));
        let Acquired::Queued { recheck_in, ticket, .. } = parties[next].ask(place)? else {
            return Err(refused("a lock that is held did not make a waiter wait"));
        };
        let place = Place { ticket, ..place };
        while parties[next].heard.try_recv().is_ok() {} // of an earlier turn
        let released = Instant::now();
        only(parties[holder].backend.release(&[Hold::new(lock, &owners[holder], request, token)]))?;
        let (granted, is_told) = parties[next].wait(place, recheck_in)?;
        times.push(released.elapsed());
        n_told += usize::from(is_told);
        (holder, request, token) = (next, place.request, granted);
        if begin.elapsed() > ENOUGH {
            break;
        }
    }
    only(parties[holder].backend.release(&[Hold::new(lock, &owners[holder], request, token)]))?;
    Ok(judged(times, n_told, without.into()))
}

/// What these times tell, of which so many ended by a wake-up.
fn judged(times: Vec<Duration>, n_told: usize, without: Text) -> (Verdict, Text) {
    let n = times.len();
    let (middle, _, text) = spread(times);
    match n - n_told {
        0 if middle <= SLOW => (Verdict::Good, text.into()),
        0 => (Verdict::Note, (text + "; a server that is nearer is quicker").into()),
        n_polled => (
            Verdict::Note,
            without.reworded(|without| {
                format!("{text}; {n_polled} of {n} by polling, since no wake-up arrived: {without}")
            }),
        ),
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
