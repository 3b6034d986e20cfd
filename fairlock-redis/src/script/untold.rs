//! Messages that a script could not send: the client sends them. If the client may not publish either, its waiters poll.
//!
//! A right may be missing, or the service may refuse PUBLISH in scripts. The script says so in its reply, and has written what it
//! decided by then. Nothing depends on a message, so these interleavings are harmless:
//!
//! - **The client dies between script and message, or the message is lost**: the waiter finds its grant by its heartbeat, within a
//!   third of the place TTL, or when it polls. The same holds after a reply that was lost: the repeat has nothing to tell.
//! - **The message comes late, or twice**: a message names request and token, so no later claim believes it.
//! - **Another server has taken over since**: as with a message of the former server. A client that could believe it asks first
//!   (`confirms`).
//! - **The client waits while its right ends**: its next answer makes it poll.
//! - **The right comes back**: the client tests it once a minute, by an ask of a waiter, and polls no longer.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fairlock_core::backend::log_safely;
use redis::{Value, cmd};

use crate::net::{Order, Refusal, Route, ServerFailure, Servers};
use crate::script::reply::{items, text};

/// How often the first waiter of a client that may not publish looks. The second waiter looks half as often, and so on: the waiters
/// ahead have their turns first. PostgreSQL's waiters poll by the same rule.
const POLL_EVERY: Duration = Duration::from_millis(20);

/// What the client knows about its right to publish.
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
