//! What the replies of scripts mean, and the messages in them, which the client has to send. Replies are read strictly: anything but the
//! expected words and numbers is an error.

use std::borrow::Cow;
use std::str::Utf8Chunk;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fairlock_core::FencingToken;
use fairlock_core::backend::{
    Acquired, BackendError, BackendErrorKind, Declined, ForceReleased, Released, Renewal, Withdrawn,
    log_safely,
};
use redis::{Value, cmd};

use crate::net::{Order, Refusal, Route, ServerFailure, Servers};
pub(crate) use crate::net::{items, number, text, unintelligible};

pub(crate) fn acquired(row: &Row<'_>) -> Result<Acquired, BackendError> {
    match row.word {
        "granted" => Ok(Acquired::Granted { token: row.at(0, token)?, lease: row.at(1, lease)? }),
        "queued" => {
            let (at, recheck_in, ticket) = (row.at(0, rank)?, row.at(1, recheck_in)?, row.at(2, rank)?);
            // Redisson's queue has no tickets, and sends no message about a grant.
            let latest = if ticket == 0 { 0 } else { row.at(3, rank)? };
            Ok(Acquired::Queued { rank: at, recheck_in, ticket, latest })
        }
        "busy" => Ok(Acquired::Busy { recheck_in: row.at(0, recheck_in)? }),
        "declined" => {
            let number = row.at(1, rank)?;
            let declined = match row.at(0, text)? {
                "granted" => Declined::Granted(Duration::from_micros(number)),
                "ahead" => Declined::Ahead(number),
                _ => return Err(row.unexpected()),
            };
            Ok(Acquired::Declined(declined))
        }
        _ => Err(row.unexpected()),
    }
}

pub(crate) fn released(row: &Row<'_>) -> Result<Released, BackendError> {
    one_of(row, [("released", Released::Released), ("not_held", Released::NotHeld)])
}

pub(crate) fn adopted(row: &Row<'_>) -> Result<Renewal, BackendError> {
    one_of(row, [("renewed", Renewal::Renewed), ("lost", Renewal::Lost)])
}

pub(crate) fn force_released(row: &Row<'_>) -> Result<ForceReleased, BackendError> {
    one_of(row, [("taken", ForceReleased::Taken), ("not_held", ForceReleased::NotHeld)])
}

/// The answer that the row's word stands for.
fn one_of<T>(row: &Row<'_>, words: [(&str, T); 2]) -> Result<T, BackendError> {
    let found = words.into_iter().find(|(word, _)| *word == row.word);
    found.map(|(_, answer)| answer).ok_or_else(|| row.unexpected())
}

/// The rows of a renewal of `n` places, one each; with several holders, also those of holds.
pub(crate) fn renewed(
    reply: &Value,
    n: usize,
) -> Result<Vec<Option<Result<Renewal, BackendError>>>, BackendError> {
    let rows = items(reply)?;
    if rows.len() != n {
        return Err(unintelligible(reply));
    }
    Ok(rows.iter().map(|row| Some(renewal(row))).collect())
}

fn renewal(reply: &Value) -> Result<Renewal, BackendError> {
    let row = Row::of(reply)?;
    match row.word {
        "granted" => Ok(Renewal::Granted { token: row.at(0, token)?, lease: row.at(1, lease)? }),
        "waiting" => Ok(Renewal::Waiting {
            rank: row.at(0, rank)?,
            recheck_in: row.at(1, recheck_in)?,
            latest: row.at(2, rank)?,
        }),
        "renewed" => Ok(Renewal::Renewed),
        "lost" => Ok(Renewal::Lost),
        _ => Err(row.unexpected()),
    }
}

/// The answers to a renewal of `n` holds; none for a hold whose renewal was refused. The reply has the positions of lost holds, counted
/// from 1, and of refused ones, with a minus.
pub(crate) fn renewed_holds(
    reply: &Value,
    n: usize,
) -> Result<Vec<Option<Result<Renewal, BackendError>>>, BackendError> {
    let row = Row::of(reply)?;
    if row.word != "renewed" {
        return Err(row.unexpected());
    }
    let mut answers: Vec<_> = (0..n).map(|_| Some(Ok(Renewal::Renewed))).collect();
    for position in row.numbers() {
        let position = position?;
        let index = usize::try_from(position.unsigned_abs()).ok().and_then(|number| number.checked_sub(1));
        let answer = index.and_then(|index| answers.get_mut(index)).ok_or_else(|| row.unexpected())?;
        *answer = (position > 0).then_some(Ok(Renewal::Lost));
    }
    Ok(answers)
}

pub(crate) fn withdrawn(row: &Row<'_>) -> Result<Withdrawn, BackendError> {
    match row.word {
        "left" => Ok(Withdrawn::Left),
        "was_granted" => Ok(Withdrawn::WasGranted { token: row.at(0, token)?, lease: row.at(1, lease)? }),
        _ => Err(row.unexpected()),
    }
}

type Read<T> = Result<T, BackendError>;

/// One row of a reply: its first word, and the items after it.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    pub(crate) word: &'a str,
    rest: &'a [Value],
    whole: &'a Value,
}

impl<'a> Row<'a> {
    pub(crate) fn of(reply: &'a Value) -> Result<Row<'a>, BackendError> {
        match items(reply)?.split_first() {
            Some((word, rest)) => Ok(Row { word: text(word)?, rest, whole: reply }),
            None => Err(unintelligible(reply)),
        }
    }

    /// The item at this index after the word.
    pub(crate) fn at<T>(&self, index: usize, read: impl FnOnce(&'a Value) -> Read<T>) -> Read<T> {
        self.if_any(index, read)?.ok_or_else(|| self.unexpected())
    }

    /// The item at this index, which the row may lack.
    pub(crate) fn if_any<T>(&self, index: usize, read: impl FnOnce(&'a Value) -> Read<T>) -> Read<Option<T>> {
        self.rest.get(index).map(read).transpose()
    }

    /// All items after the word.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = Read<i64>> {
        self.rest.iter().map(number)
    }

    pub(crate) fn unexpected(&self) -> BackendError {
        unintelligible(self.whole)
    }
}

/// An owner or a label, perhaps written by another program. Bytes that are not UTF-8 are shown as `\xff`: a foreign entry does
/// not hide the others.
pub(crate) fn written(value: &Value) -> Result<Cow<'_, str>, BackendError> {
    let Value::BulkString(bytes) = value else { return text(value).map(Cow::Borrowed) };
    let shown = |chunk: Utf8Chunk<'_>| format!("{}{}", chunk.valid(), chunk.invalid().escape_ascii());
    Ok(match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(bytes.utf8_chunks().map(shown).collect()),
    })
}

/// A time in milliseconds; a negative number stands for none.
pub(crate) fn time(value: &Value) -> Result<Option<Duration>, BackendError> {
    Ok(u64::try_from(number(value)?).ok().map(Duration::from_millis))
}

/// A time in milliseconds, which is not negative.
pub(crate) fn lease(value: &Value) -> Result<Duration, BackendError> {
    rank(value).map(Duration::from_millis)
}

/// Milliseconds until the next attempt; a negative number stands for "at the next heartbeat".
pub(crate) fn recheck_in(value: &Value) -> Result<Duration, BackendError> {
    Ok(time(value)?.unwrap_or(Duration::MAX))
}

/// A number that is not negative.
pub(crate) fn rank(value: &Value) -> Result<u64, BackendError> {
    u64::try_from(number(value)?).map_err(|_| unintelligible(value))
}

pub(crate) fn token(value: &Value) -> Result<FencingToken, BackendError> {
    let number = number(value)?;
    u64::try_from(number).map(FencingToken::new).map_err(|_| unintelligible(value))
}

/// The error for an item without a row in the reply.
pub(crate) fn missing() -> BackendError {
    BackendError::new(BackendErrorKind::Unavailable, "the server's reply has no row for this item")
}

/// How often the first waiter of a client that may not publish looks. The second waiter looks half as often, and so on: the waiters
/// ahead have their turns first. PostgreSQL's waiters poll by the same rule.
const POLL_EVERY: Duration = Duration::from_millis(20);

/// What the client knows about its right to publish. It sends the messages that a script could not send; if the client may not publish
/// either, its waiters poll.
///
/// A right may be missing, or the service may refuse PUBLISH in scripts. The script says so in its reply, and has written what it
/// decided by then. Nothing depends on a message, so these interleavings are harmless:
///
/// - **The client dies between script and message, or the message is lost**: the waiter finds its grant by its heartbeat, within a
///   third of the place TTL, or when it polls. The same holds after a reply that was lost: the repeat has nothing to tell.
/// - **The message comes late, or twice**: a message names request and token, so no later claim believes it.
/// - **Another server has taken over since**: as with a message of the former server. A client that could believe it asks first
///   (`confirms`).
/// - **The client waits while its right ends**: its next answer makes it poll.
/// - **The right comes back**: the client tests it once a minute, by an ask of a waiter, and polls no longer.
pub(crate) struct Untold {
    servers: Servers,
    /// Why scripts may not publish, once one was refused; and when the last one was.
    of_scripts: OnceLock<String>,
    scripts: Refusal,
    /// Whether the client may not publish either: probably its peers may not, since they log in as the same user. And when it was refused
    /// last.
    polls: AtomicBool,
    client: Refusal,
    is_tested: AtomicBool,
}

/// The server's reason, and the channels and messages.
type Messages = (String, Vec<[String; 2]>);

/// Takes the messages that a script leaves to the client out of its reply.
fn take(reply: &mut Value) -> Option<Messages> {
    let read = |untold: &Value| {
        let mut words = items(untold).ok()?.iter().map(|word| text(word).map(str::to_owned));
        let why = words.next()?.ok()?;
        let words = words.collect::<Result<Vec<_>, _>>().ok()?;
        let pairs = words.chunks_exact(2).map(|pair| [pair[0].clone(), pair[1].clone()]);
        Some((why, pairs.collect()))
    };
    let Value::Array(items) = reply else { return None };
    let [word, untold, answer] = &mut items[..] else { return None };
    let messages = if text(word).is_ok_and(|word| word == "untold") { read(untold)? } else { return None };
    *reply = std::mem::replace(answer, Value::Nil);
    Some(messages)
}

impl Untold {
    pub(super) fn new(servers: &Servers) -> Untold {
        let (of_scripts, scripts, polls, client, is_tested) = Default::default();
        Untold { servers: servers.clone(), of_scripts, scripts, polls, client, is_tested }
    }

    /// Takes what the scripts for these locks could not send out of their replies, and sends it.
    pub(crate) fn send<'a>(&self, replies: impl IntoIterator<Item = (&'a str, &'a mut Value)>) {
        let (mut locks, mut packed, mut reason) = (Vec::new(), Vec::new(), None);
        for (lock, reply) in replies {
            let Some((why, messages)) = take(reply) else { continue };
            reason.get_or_insert((lock, why));
            locks.extend(messages.iter().map(|_| lock));
            packed.extend(messages.iter().map(|words| cmd("PUBLISH").arg(words).get_packed_command()));
        }
        let Some((lock, why)) = reason else { return };
        self.scripts.heard();
        if let Err(Some(refused)) = self.publish(&locks, &packed) {
            self.poll(lock, &refused);
        } else if self.of_scripts.set(why.clone()).is_ok() {
            log_safely(|| {
                log::warn!(
                    target: "fairlock::wake",
                    event = "untold", lock, why = why.as_str();
                    "a script for the lock {lock} may not publish ({why}): this client sends the messages itself, which costs each \
                     hand-over a round trip; give its user the right to PUBLISH on fairlock:* and redisson_*, unless the service \
                     refuses PUBLISH in scripts"
                );
            });
        }
    }

    /// A message that is lost is not sent again.
    ///
    /// # Errors
    /// The server's reason, if it refuses one of the messages and would refuse the next as well; none if a message is lost otherwise.
    fn publish(&self, locks: &[&str], packed: &[Vec<u8>]) -> Result<(), Option<ServerFailure>> {
        let pack = |at: usize, _: &Route| packed[at].clone();
        let again = |at: usize, route: &Route| route.pool.call(packed[at].as_slice());
        let sent = self.servers.call_all(locks, pack, Order::InTurn, |_, _, answer| answer, again);
        let mut lost = sent.into_iter().filter_map(Result::err).peekable();
        if lost.peek().is_none() {
            return Ok(());
        }
        Err(lost.find(|failed| failed.failure.is_lasting_refusal()))
    }

    fn poll(&self, lock: &str, refused: &ServerFailure) {
        let why = refused.failure.to_string();
        self.client.heard();
        if self.polls.swap(true, Ordering::Relaxed) {
            return;
        }
        log_safely(|| {
            log::warn!(
                target: "fairlock::wake",
                event = "mute", lock, why = why.as_str();
                "this client has to publish messages for the lock {lock}, and may not publish ({why}): its waiters look for their \
                 turns every 20 ms, and waiters of other clients learn of their turns by heartbeats; give its user the right to \
                 PUBLISH on fairlock:* and redisson_*"
            );
        });
    }

    /// A request waits. The first such request tests whether the client may publish on its own channel: a client that only waits would not
    /// learn that otherwise. While the client may not, one request a minute tests the right again.
    pub(crate) fn waits(&self, lock: &str, own_channel: impl FnOnce() -> String) {
        let is_first = !self.is_tested.swap(true, Ordering::Relaxed);
        if !is_first && !self.client.is_doubted() {
            return;
        }
        let test = cmd("PUBLISH").arg(own_channel()).arg("nudge").get_packed_command();
        match self.publish(&[lock], &[test]) {
            // The refusal is kept, to be doubted again: another thread's message may be refused at this moment.
            Ok(()) if self.polls.swap(false, Ordering::Relaxed) => log_safely(|| {
                log::info!(
                    target: "fairlock::wake",
                    event = "not mute", lock;
                    "this client may publish messages again: its waiters look for their turns no longer"
                );
            }),
            Err(Some(refused)) => self.poll(lock, &refused),
            _ => {}
        }
    }

    /// Whether waiters look for their turns.
    fn polls(&self) -> bool {
        self.polls.load(Ordering::Relaxed)
    }

    /// Why scripts may not publish, if one was refused within the last minute, while the client may.
    pub(crate) fn refusal_of_scripts(&self) -> Option<&str> {
        self.of_scripts.get().filter(|_| self.scripts.is_believed()).map(String::as_str)
    }

    /// When a waiter of this rank looks by itself, if the server has told it to after `recheck_in`.
    pub(crate) fn look_in(&self, rank: u64, recheck_in: Duration) -> Duration {
        if !self.polls() {
            return recheck_in;
        }
        recheck_in.min(POLL_EVERY.saturating_mul(u32::try_from(rank.saturating_add(1)).unwrap_or(u32::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::backend::RedisBackend;
    use crate::fake_backend::bulk;
    use crate::net::test_server::{Act, FakeServer, polite};

    const TOKEN: FencingToken = FencingToken::new(7);
    const LEASE: Duration = Duration::from_secs(30);

    fn reply(word: &str, numbers: &[i64]) -> Value {
        let word = Value::BulkString(word.as_bytes().to_vec());
        Value::Array(std::iter::once(word).chain(numbers.iter().copied().map(Value::Int)).collect())
    }

    /// None for an error.
    fn read<T>(meaning: fn(&Row<'_>) -> Result<T, BackendError>, word: &str, numbers: &[i64]) -> Option<T> {
        meaning(&Row::of(&reply(word, numbers)).unwrap()).ok()
    }

    #[test]
    fn a_request_is_granted_or_queued_or_finds_the_lock_busy() {
        let read = |word, numbers: &[i64]| read(acquired, word, numbers);
        let recheck_in = Duration::from_millis(500);
        assert_eq!(read("granted", &[7, 30_000]), Some(Acquired::Granted { token: TOKEN, lease: LEASE }));
        let queued = Acquired::Queued { rank: 2, recheck_in, ticket: 4, latest: 9 };
        assert_eq!(read("queued", &[2, 500, 4, 9]), Some(queued));
        let without_ticket = Acquired::Queued { rank: 2, recheck_in, ticket: 0, latest: 0 };
        assert_eq!(read("queued", &[2, 500, 0]), Some(without_ticket));
        assert_eq!(read("busy", &[500]), Some(Acquired::Busy { recheck_in }));
        assert_eq!([read("queued", &[2, 500, 4]), read("left", &[]), read("granted", &[])], [None; 3]);
    }

    #[test]
    fn an_answer_with_another_word_is_an_error() {
        assert_eq!(read(released, "released", &[0]), Some(Released::Released));
        assert_eq!(read(released, "not_held", &[0]), Some(Released::NotHeld));
        assert_eq!(read(released, "taken", &[]), None);
        let was_granted = Withdrawn::WasGranted { token: TOKEN, lease: LEASE };
        assert_eq!(read(withdrawn, "left", &[]), Some(Withdrawn::Left));
        assert_eq!(read(withdrawn, "was_granted", &[7, 30_000]), Some(was_granted));
        assert_eq!(read(withdrawn, "granted", &[7, 30_000]), None);
        assert_eq!(read(force_released, "taken", &[]), Some(ForceReleased::Taken));
        assert_eq!(read(force_released, "not_held", &[]), Some(ForceReleased::NotHeld));
        assert_eq!(read(force_released, "released", &[]), None);
    }

    #[test]
    fn a_renewal_has_a_row_for_each_item() {
        let rows = [
            reply("granted", &[7, 30_000]),
            reply("waiting", &[2, -1, 9]),
            reply("renewed", &[]),
            reply("lost", &[]),
            reply("busy", &[]),
        ];
        let many = Value::Array(rows.to_vec());
        let read: Vec<_> = renewed(&many, 5).unwrap().into_iter().map(|row| row?.ok()).collect();
        let waiting = Renewal::Waiting { rank: 2, recheck_in: Duration::MAX, latest: 9 };
        let granted = Renewal::Granted { token: TOKEN, lease: LEASE };
        assert_eq!(read, [Some(granted), Some(waiting), Some(Renewal::Renewed), Some(Renewal::Lost), None]);
        assert!(renewed(&many, 4).is_err() && renewed(&many, 6).is_err());
    }

    #[test]
    fn a_reply_with_a_position_that_was_not_asked_for_says_nothing() {
        let read = |word, positions: &[i64]| {
            let rows = renewed_holds(&reply(word, positions), 3).ok()?.into_iter();
            Some(rows.map(|row| row.map(Result::unwrap)).collect::<Vec<_>>())
        };
        let (renewed, lost) = (Some(Renewal::Renewed), Some(Renewal::Lost));
        assert_eq!(read("renewed", &[]), Some(vec![renewed; 3]));
        assert_eq!(read("renewed", &[1, -3]), Some(vec![lost, renewed, None]));
        for (word, positions) in [("renewed", &[4][..]), ("renewed", &[0]), ("renewed", &[-4]), ("lost", &[])]
        {
            assert_eq!(read(word, positions), None, "{word} {positions:?}");
        }
    }

    #[test]
    fn only_the_expected_shapes_are_read() {
        let reply = Value::Array(vec![bulk("granted"), Value::Int(7), Value::Int(30_000)]);
        let row = Row::of(&reply).unwrap();
        assert_eq!((row.word, row.at(0, token).unwrap().get()), ("granted", 7));
        assert_eq!(row.at(1, lease).unwrap(), Duration::from_secs(30));
        assert!(row.at(2, number).is_err());
        for reply in [Value::Nil, Value::Array(vec![]), Value::Array(vec![Value::Nil]), Value::Int(1)] {
            assert_eq!(Row::of(&reply).unwrap_err().kind(), BackendErrorKind::Unavailable);
        }
    }

    /// A negative time means the next heartbeat, and is an error for a lease.
    #[test]
    fn a_negative_time_means_the_next_heartbeat() {
        let reply = Value::Array(vec![bulk("busy"), Value::Int(-1)]);
        let row = Row::of(&reply).unwrap();
        assert_eq!(row.at(0, recheck_in).unwrap(), Duration::MAX);
        assert!(row.at(0, lease).is_err());
    }

    #[test]
    fn bytes_that_are_not_text_are_shown_but_refused_as_a_word() {
        let bytes = Value::BulkString(b"a\xff\xfe:\xc3\xa9".to_vec());
        assert_eq!(written(&bytes).unwrap(), "a\\xff\\xfe:é");
        assert_eq!(written(&bulk("é:1")).unwrap(), "é:1");
        assert!(text(&bytes).is_err() && written(&Value::Nil).is_err());
    }

    #[test]
    fn numbers_are_read_one_by_one_or_all() {
        let reply = Value::Array(vec![bulk("word"), Value::Int(3), bulk("12"), Value::Int(-1)]);
        let row = Row::of(&reply).unwrap();
        assert_eq!(row.numbers().map(Result::unwrap).collect::<Vec<_>>(), [3, 12, -1]);
        assert_eq!([1, 2].map(|at| row.at(at, number).unwrap()), [12, -1]);
        assert_eq!([1, 9].map(|at| row.if_any(at, number).unwrap()), [Some(12), None]);
        assert_eq!(
            (row.at(0, rank).unwrap(), row.at(1, recheck_in).unwrap()),
            (3, Duration::from_millis(12))
        );
        assert!(row.at(2, rank).is_err() && number(&bulk("x")).is_err());
        assert_eq!(
            (time(&bulk("12")).unwrap(), time(&Value::Int(-1)).unwrap()),
            (Some(Duration::from_millis(12)), None)
        );
    }

    #[test]
    fn an_error_shows_the_reply() {
        let reply = Value::Array(vec![bulk("new")]);
        let error = Row::of(&reply).unwrap().unexpected();
        assert_eq!(error.kind(), BackendErrorKind::Unavailable);
        assert!(error.message().contains("makes no sense: array([bulk-string('\"new\"')])"), "{error}");
        assert_eq!(text(&Value::SimpleString("OK".into())).unwrap(), "OK");
    }

    #[test]
    fn tokens_up_to_two_to_the_53rd_are_exact() {
        assert_eq!(token(&bulk("9007199254740991")).unwrap().get(), 9_007_199_254_740_991);
        assert!(token(&Value::Int(-1)).is_err());
    }

    /// A server that is busy refuses whatever it is asked.
    #[test]
    fn only_a_refusal_that_lasts_makes_a_client_poll() {
        for (said, polls) in [
            ("BUSY Redis is busy running a script.", false),
            ("LOADING Redis is loading the dataset in memory", false),
            ("NOPERM this user has no permissions to run the 'publish' command", true),
            ("ERR unknown command 'PUBLISH'", true),
            ("SOMETHING new", true),
        ] {
            let server = FakeServer::start(move |_, words| match words[0].as_str() {
                "PUBLISH" => Act::Say(format!("-{said}\r\n")),
                _ => polite(words),
            });
            let backend = RedisBackend::builder(&format!("redis://{}", server.address())).connect().unwrap();
            let untold = &backend.0.scripts.untold;
            untold.waits("a", || "fairlock:u".to_owned());
            assert_eq!(untold.polls(), polls, "{said}");
        }
    }

    #[test]
    fn a_client_that_may_publish_again_polls_no_longer() {
        let is_refused = Arc::new(AtomicBool::new(true));
        let refuses = Arc::clone(&is_refused);
        let server = FakeServer::start(move |_, words| match words[0].as_str() {
            "PUBLISH" if refuses.load(Ordering::SeqCst) => Act::Say("-NOPERM no\r\n".to_owned()),
            "PUBLISH" => Act::Say(":1\r\n".to_owned()),
            _ => polite(words),
        });
        let backend = RedisBackend::builder(&format!("redis://{}", server.address())).connect().unwrap();
        let untold = &backend.0.scripts.untold;
        let polls_after_a_wait = || {
            untold.waits("a", || "fairlock:u".to_owned());
            (untold.polls(), server.asked("PUBLISH").len())
        };
        assert_eq!([(); 2].map(|()| polls_after_a_wait()), [(true, 1); 2]);
        untold.client.grow_old();
        assert_eq!([(); 2].map(|()| polls_after_a_wait()), [(true, 2); 2], "it is still refused");
        is_refused.store(false, Ordering::SeqCst);
        untold.client.grow_old();
        assert_eq!([(); 2].map(|()| polls_after_a_wait()), [(false, 3); 2]);
    }

    /// Only a reply in its very shape has messages; any other reply stays as it is.
    #[test]
    fn messages_are_taken_out_of_a_reply_that_has_some() {
        let of = |word: &str, untold: &[&str]| {
            let untold = Value::Array(untold.iter().map(|word| bulk(word)).collect());
            Value::Array(vec![bulk(word), untold, Value::Int(0)])
        };
        let mut reply = of("untold", &["NOPERM", "fairlock:u", "look 1 a", "c", "0"]);
        let pairs = [["fairlock:u", "look 1 a"], ["c", "0"]].map(|pair| pair.map(str::to_owned));
        assert_eq!(take(&mut reply), Some(("NOPERM".to_owned(), pairs.to_vec())));
        assert_eq!(reply, Value::Int(0));
        let others =
            [Value::Int(0), of("busy", &["x"]), of("untold", &[]), Value::Array(vec![bulk("untold")])];
        for other in others {
            let mut reply = other.clone();
            assert_eq!((take(&mut reply), reply), (None, other));
        }
    }
}
