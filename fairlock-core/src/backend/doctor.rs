//! What the `doctor` of each backend finds: whether locks are safe on a server, and if not, what has to change. A backend collects facts,
//! and a table in Markdown says what they mean. Here is what all of them check: clocks, round trips, and a trial, in which a lock goes from
//! one client to another as fast as wake-ups arrive. `doctor.md` has what is said of these.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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

/// What a doctor says: a table in Markdown, with topics, questions, a verdict and a text in each row. A row is said if all of its questions
/// are answered by yes. `doctor.md` has the rows that belong to each table, below its own.
///
/// | question | the answer is yes |
/// | --- | --- |
/// | `word`, `!word` | if there is such a fact; if there is none |
/// | `word=value`, `word!=value` | if there is such a fact, and it is this value, or another one |
/// | `else` | if no row above of this topic was said |
/// | `-` | always |
///
/// In the place of `{word}` in a text stands the fact, or what is said of topic `word`. A setting may stand behind the text, in brackets.
/// `note; unsafe if word` is a verdict, too.
#[doc(hidden)] // for stores
#[derive(Clone, Copy, Debug)]
pub struct Table(pub &'static str);

/// What is known of a server, by words.
#[doc(hidden)] // for stores
#[derive(Clone, Debug, Default)]
pub struct Facts(BTreeMap<String, Text>);

impl Table {
    /// What is said of a topic.
    pub fn say(self, topic: &str, facts: &Facts) -> Vec<(Verdict, Text)> {
        const COMMON: &str = include_str!("doctor.md");
        let (rows, mut said) = (self.0.lines().chain(COMMON.lines()), Vec::new());
        for row in rows.filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")) {
            let mut cells = row.splitn(4, " | ");
            let [of, questions, verdicts, text] = [(); 4].map(|()| cells.next().unwrap_or_default());
            let is_yes = |question| question == "else" && said.is_empty() || facts.answer(question);
            if of.split(", ").any(|of| of == topic) && questions.split(' ').all(is_yes) {
                let verdicts = verdicts.split("; ").map(|it| it.split_once(" if ").unwrap_or((it, "-")));
                let verdict = verdicts.filter(|(_, question)| facts.answer(question)).last();
                let verdict = match verdict.unwrap_or_default().0 {
                    "good" => Verdict::Good,
                    "note" => Verdict::Note,
                    "unknown" => Verdict::Unknown,
                    _ => Verdict::Unsafe,
                };
                said.push((verdict, self.fill(text, facts)));
            }
        }
        said
    }

    /// The findings at a server.
    pub fn findings(self, server: &str, topic: &'static str, facts: &Facts) -> Vec<Finding> {
        let said = self.say(topic, facts).into_iter();
        said.map(|(verdict, text)| Finding::new(server, topic, verdict, text)).collect()
    }

    fn fill(self, text: &'static str, facts: &Facts) -> Text {
        let about = text.strip_suffix(']').and_then(|text| text.rsplit_once(" ["));
        let (text, mut setting) = about.map_or((text, None), |(text, setting)| (text, Some(setting)));
        let mut filled = String::new();
        for (at, part) in text.split(['{', '}']).enumerate() {
            let nested = || Some(self.say(part, facts).pop()?.1);
            match facts.0.get(part).cloned().or_else(nested).filter(|_| at % 2 == 1) {
                Some(fact) => {
                    filled.push_str(&fact);
                    setting = setting.or(fact.setting());
                }
                None if at % 2 == 1 => {}
                None => filled.push_str(&part.replace("\\|", "|")),
            }
        }
        Text::from(filled).about_setting(setting)
    }
}

impl Facts {
    /// A single fact in words.
    pub fn of(word: &str, what: impl Into<Text>) -> Facts {
        Facts::default().with(word, what)
    }

    /// A fact in words.
    #[must_use]
    pub fn with(mut self, word: &str, what: impl Into<Text>) -> Facts {
        self.0.insert(word.to_owned(), what.into());
        self
    }

    /// A fact in words, if it is known.
    #[must_use]
    pub fn known(self, word: &str, what: Option<impl Into<Text>>) -> Facts {
        what.into_iter().fold(self, |facts, what| facts.with(word, what))
    }

    /// A fact as it shows itself.
    #[must_use]
    pub fn shown(self, word: &str, what: impl fmt::Display) -> Facts {
        self.with(word, what.to_string())
    }

    /// A fact that has only to be there.
    #[must_use]
    pub fn when(self, word: &str, is_there: bool) -> Facts {
        if is_there { self.with(word, "") } else { self }
    }

    /// How long something took that each hand-over takes, where an answer may take as long as the limit. `quicker` says how it gets quicker.
    pub fn of_times(times: Vec<Duration>, limit: Duration, quicker: &str) -> Facts {
        let (facts, longest) = spread(times);
        let facts = facts.when("late", longest > limit / 2).with("limit", Finding::shown(limit));
        facts.with("quicker", quicker)
    }

    /// What a server's clock says. With a `skew` two servers' clocks may differ by this.
    ///
    /// # Errors
    /// Those of `ask`.
    pub fn of_clock<E>(
        skew: Option<Duration>,
        ask: impl FnOnce() -> Result<Duration, E>,
    ) -> Result<Facts, E> {
        let sent = SystemTime::now();
        let theirs = ask()?;
        let trip = sent.elapsed().unwrap_or_default();
        let ours = sent.duration_since(UNIX_EPOCH).unwrap_or_default() + trip / 2;
        Ok(of_clocks(ours, theirs, trip, skew))
    }

    fn answer(&self, question: &str) -> bool {
        let fact = |word| self.0.get(word).map(|fact| &**fact);
        match (question.split_once("!="), question.split_once('='), question.strip_prefix('!')) {
            (Some((word, value)), ..) => fact(word).is_some_and(|fact| fact != value),
            (_, Some((word, value)), _) => fact(word) == Some(value),
            (.., Some(word)) => fact(word).is_none(),
            _ => question == "-" || fact(question).is_some(),
        }
    }
}

/// The text, and the setting in parentheses.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_text(f, &self.text, self.setting)
    }
}

/// A longer round trip is worth a note: it adds to every hand-over.
const SLOW: Duration = Duration::from_millis(50);
/// A server's clock may be off by this much without a note.
const OFF: Duration = Duration::from_secs(1);

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
}

/// After a round trip in whose middle our clock said `ours`.
fn of_clocks(ours: Duration, theirs: Duration, trip: Duration, skew: Option<Duration>) -> Facts {
    let off = ours.abs_diff(theirs);
    let facts = Facts::default().known("skew", skew.map(Finding::shown));
    let facts = facts.when("far", off > skew.unwrap_or(OFF) + trip).when("off", off > trip / 2);
    let facts = facts.when("ahead", theirs > ours).with("by", Finding::shown(off));
    facts.with("trip", Finding::shown(trip / 2))
}

/// How long something took: half of the times, and all; and the longest time.
fn spread(mut times: Vec<Duration>) -> (Facts, Duration) {
    times.sort_unstable();
    let middle = times.get(times.len() / 2).copied().unwrap_or_default();
    let longest = times.last().copied().unwrap_or_default();
    let facts = Facts::default().shown("n", times.len()).when("slow", middle > SLOW);
    (facts.with("half", Finding::shown(middle)).with("all", Finding::shown(longest)), longest)
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
    let token = granted(ask(backend, place)?)?;
    only(backend.release(&[Hold::new(lock, &owner, request, token)])).map(drop)
}

fn ask(backend: &dyn Backend, place: Place<'_>) -> Result<Acquired, BackendError> {
    let lease = Duration::from_secs(5).min(backend.longest_lease().unwrap_or(Duration::MAX));
    only(backend.acquire(&[Acquire::new(place, lease)]))
}

fn granted(answer: Acquired) -> Result<FencingToken, BackendError> {
    match answer {
        Acquired::Granted { token, .. } => Ok(token),
        _ => Err(refused("a lock that nobody has was not granted")),
    }
}

fn refused(what: &'static str) -> BackendError {
    BackendError::new(BackendErrorKind::Unavailable, what)
}

/// Tries a lock that no other client knows: takes and releases the lock, and then hands the lock over ten times, or fewer where a hand-over
/// takes seconds, between a client of one backend and a client of the other. A wake-up has to go through the store, so the backends must not share their
/// clients. `without` says what to do where wake-ups don't arrive; `forget` deletes what is left of the lock.
#[doc(hidden)] // for stores
pub fn trial(
    server: &str,
    backends: [&dyn Backend; 2],
    lock: &LockId,
    without: impl Into<Text>,
    forget: impl FnOnce() -> Result<(), BackendError>,
) -> Vec<Finding> {
    let why = |error| Facts::of("why", &error);
    let tried = try_out(backends[0], lock);
    let handed = tried.is_ok().then(|| hand_overs(backends, lock).unwrap_or_else(why));
    let tried = tried.and(forget()).map_or_else(why, |()| Facts::default());
    let handed = handed.map(|handed| ("hand-overs", handed.with("without", without)));
    let all = [("trial", tried)].into_iter().chain(handed);
    all.flat_map(|(topic, facts)| Table("").findings(server, topic, &facts)).collect()
}

/// How many hand-overs are timed.
const HAND_OVERS: u64 = 10;
/// No further hand-over begins after this time: without wake-ups each takes 1.7 s.
const ENOUGH: Duration = Duration::from_secs(5);
/// When a waiter looks that hears nothing: a client does at its heartbeat, after a third of the place TTL.
const HEARTBEAT: Duration = Duration::from_millis(5000 / 3);
/// No hand-over takes so long.
const LONGEST: Duration = Duration::from_secs(10);

/// A client of the trial: its backend, its owner, and the wake-ups that it hears.
struct Party<'a> {
    backend: &'a dyn Backend,
    owner: OwnerId,
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
        Ok(Party { backend, owner: OwnerId::new(&format!("{client}:1")), heard, _subscription })
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
            match ask(self.backend, place)? {
                Acquired::Granted { token, .. } => return Ok((token, is_told)),
                Acquired::Queued { recheck_in, .. } | Acquired::Busy { recheck_in } => look_in = recheck_in,
                Acquired::Declined(_) => return Err(BackendError::senseless()),
            }
        }
        Err(refused("a lock was not handed over within 10 s"))
    }
}

fn hand_overs([one, other]: [&dyn Backend; 2], lock: &LockId) -> Result<Facts, BackendError> {
    let [mut holder, mut next] = [Party::new(one)?, Party::new(other)?];
    let (begin, mut times, mut n_polled) = (Instant::now(), Vec::new(), 0);
    let mut request = RequestId::new(1);
    let mut token = granted(ask(one, Place::new(lock, &holder.owner, request))?)?;
    for number in 2..2 + HAND_OVERS {
        let place = Place::new(lock, &next.owner, RequestId::new(number));
        let Acquired::Queued { recheck_in, ticket, .. } = ask(next.backend, place)? else {
            return Err(refused("a lock that is held did not make a waiter wait"));
        };
        let place = Place { ticket, ..place };
        while next.heard.try_recv().is_ok() {} // of an earlier turn
        let released = Instant::now();
        only(holder.backend.release(&[Hold::new(lock, &holder.owner, request, token)]))?;
        let (granted, is_told) = next.wait(place, recheck_in)?;
        times.push(released.elapsed());
        n_polled += usize::from(!is_told);
        (request, token) = (place.request, granted);
        (holder, next) = (next, holder);
        if begin.elapsed() > ENOUGH {
            break;
        }
    }
    only(holder.backend.release(&[Hold::new(lock, &holder.owner, request, token)]))?;
    Ok(spread(times).0.known("polled", (n_polled > 0).then(|| n_polled.to_string())))
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
            let facts = Facts::of_times(trips, Duration::from_secs(1), "that is nearer");
            Table("").say("round trip", &facts).remove(0)
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
        for (theirs, words) in [
            (10_000, "as ours, give or take 2ms"),
            (10_002, "as ours, give or take 2ms"),
            (10_500, "500ms ahead of ours, give or take 2ms"),
            (9_997, "3ms behind ours, give or take 2ms"),
            (11_004, "1s ahead of ours, give or take 2ms"),
        ] {
            let [ours, theirs, trip] = [10_000, theirs, 4].map(Duration::from_millis);
            let said = Table("").say("clock", &of_clocks(ours, theirs, trip, None));
            assert_eq!(said, [(Verdict::Good, words.into())]);
        }
    }

    #[test]
    fn a_clock_may_be_off_by_a_second_or_by_the_skew() {
        for (off, skew, verdict, words) in [
            (1_005, None, Verdict::Note, "locks go by the server's clock alone"),
            (504, Some(500), Verdict::Good, "less than the skew of 500ms"),
            (505, Some(500), Verdict::Note, "more than the skew of 500ms"),
        ] {
            let [ours, theirs, trip] = [10_000, 10_000 + off, 4].map(Duration::from_millis);
            let facts = of_clocks(ours, theirs, trip, skew.map(Duration::from_millis));
            let [(said, text)] = &Table("").say("clock", &facts)[..] else { panic!("one") };
            assert!(*said == verdict && text.contains(words), "{text}");
        }
    }

    const SAMPLE: Table = Table(
        "| topic | questions | verdict | text |
| --- | --- | --- | --- |
| a | x | note; unsafe if y=2 | {x}, {y}{z}{b} [lease] |
| a | !x y=1 | good | 1 \\| {y} |
| a | y!=1 | note | not 1 |
| a | else | unknown | nothing |
| b | y | note | , b |
",
    );

    #[test]
    fn a_row_is_said_if_all_of_its_questions_have_a_yes() {
        let said = |facts: Facts| -> Vec<String> {
            let said = SAMPLE.say("a", &facts).into_iter();
            said.map(|(verdict, text)| format!("{verdict:?}: {text}")).collect()
        };
        let none = Facts::default;
        assert_eq!(said(none()), ["Unknown: nothing"]);
        assert_eq!(said(none().shown("y", 1)), ["Good: 1 | 1"]);
        assert_eq!(said(none().with("x", "X")), ["Note: X,  (lease)"]);
        assert_eq!(said(none().when("x", true).shown("y", 2)), ["Unsafe: , 2, b (lease)", "Note: not 1"]);
        assert_eq!(said(none().when("x", false)), ["Unknown: nothing"]);
    }

    #[test]
    fn a_text_is_about_the_setting_of_its_fact() {
        let fact = Text::from("late").about_setting("response_timeout");
        let said = SAMPLE.say("a", &Facts::default().with("y", fact.clone()));
        assert_eq!(said, [(Verdict::Note, "not 1".into())]);
        let [(_, text)] = &SAMPLE.say("a", &Facts::default().with("x", fact))[..] else { panic!() };
        assert_eq!(text.setting(), Some("lease"), "the row's own comes first");
        let table = Table("| a | - | note | so {x} |");
        let fact = Text::from("late").about_setting("response_timeout");
        let [finding] = &table.findings("here", "a", &Facts::default().with("x", fact))[..] else { panic!() };
        assert_eq!(finding.to_string(), "so late (response_timeout)");
    }
}
