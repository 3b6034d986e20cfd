//! From a lock and an operation to the bytes of a script, and from a reply to its meaning.
//!
//! `scripts.rs` has the Lua, the keys of a lock and the arguments; `reply.rs` says what a reply means, and sends the messages that a script
//! could not. Here: writes the command, runs scripts on the servers that keep their locks, one or many in a round trip, loads scripts that
//! are missing, and puts refusals into words.

pub(crate) mod reply;
pub(crate) mod scripts;

use std::borrow::Borrow;
use std::sync::Arc;

use fairlock_core::backend::{BackendError, BackendErrorKind, LockId};
use redis::{Cmd, Value, cmd};
use smallvec::SmallVec;

use reply::{Untold, missing, text};
use scripts::{Argument, KeyCache, Keys, KeysOfScript, Known, Script, Text};

use crate::net::{Failure, Hears, Listeners, Meaning, Order, Pool, Route, ServerFailure, Servers};

/// The scripts of a backend, and the servers that run them.
pub(crate) struct Scripts {
    pub(crate) servers: Servers,
    pub(crate) keys: KeyCache,
    pub(crate) untold: Untold,
    wrapper: Option<Arc<dyn Wrapper>>,
}

/// A script, the locks that it is for, and its arguments.
pub(crate) struct ScriptCall<'a> {
    script: &'static Script,
    /// At least one lock, all on one server: the name of the first lock decides which.
    locks: SmallVec<[Arc<Keys>; 1]>,
    arguments: Vec<Argument<'a>>,
    wrapper: Option<Arc<dyn Wrapper>>,
}

/// What may stand around a script.
pub(crate) trait Wrapper: Send + Sync {
    /// The script with its wrapper.
    fn text(&self, script: &'static Script) -> &'static Text;

    /// The key behind the keys of a script for locks of which this is the first.
    fn key(&self, first: &Keys) -> String;

    /// Follow the arguments of the script. The last arguments are the proof that a majority has named the server: an epoch, and the
    /// voters.
    fn arguments(&self) -> [u64; 2];

    /// Whether a call shows that proof; otherwise the proof is empty.
    fn shows_proof(&self) -> bool;

    /// Sees what a server answers before the caller does.
    fn heard(&self, server: &Pool, lock: &str, answer: Result<Value, Failure>) -> Result<Value, Failure>;

    /// What a refusal with this code means, if the wrapper has its own meaning for it.
    fn meaning(&self, code: &str) -> Option<Meaning>;
}

/// Which part of a lock's state an operator wants to see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// The first rank in the queue, and how many are listed.
    pub(crate) from: u64,
    pub(crate) many: u64,
    /// How many waiters are examined for absent ones.
    pub(crate) examined: u64,
    pub(crate) kinds: Kinds,
}

/// Whether a name in use as another kind of lock is refused, or shown as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kinds {
    This,
    Any,
}

impl ScriptCall<'_> {
    /// The keys of the first lock.
    fn keys(&self) -> &Keys {
        &self.locks[0]
    }

    fn text(&self) -> &'static Text {
        self.wrapper.as_ref().map_or(&self.script.text, |wrapper| wrapper.text(self.script))
    }

    fn heard(&self, pool: &Pool, answer: Result<Value, Failure>) -> Result<Value, Failure> {
        match &self.wrapper {
            Some(wrapper) => wrapper.heard(pool, self.keys().lock(), answer),
            None => answer,
        }
    }

    /// The command for the server that this route leads to.
    fn packed_for(&self, servers: &Servers, route: &Route) -> Vec<u8> {
        /// Enough bytes for nearly every word: the command is written without a second allocation.
        const ROOM: usize = 48;
        let known = KnownNow { servers, pool: &route.pool };
        let key = self.wrapper.as_ref().map(|wrapper| wrapper.key(self.keys()));
        let mut keys: KeysOfScript<'_> =
            self.locks.iter().flat_map(|lock| (self.script.keys)(lock)).collect();
        keys.extend(key.as_deref());
        let words = 3 + keys.len() + self.arguments.len() + 4;
        let mut command = Cmd::with_capacity(words, ROOM * words);
        command.arg("EVALSHA").arg(&self.text().sha).arg(keys.len()).arg(&keys[..]);
        self.arguments.iter().for_each(|argument| argument.add_to(&mut command, self.keys(), &known));
        if let Some(wrapper) = &self.wrapper {
            let voters = route.voters.as_deref().unwrap_or_default();
            let (epoch, voters) = if wrapper.shows_proof() { (route.epoch, voters) } else { (0, "") };
            command.arg(&wrapper.arguments()).arg(epoch).arg(voters);
        }
        command.get_packed_command()
    }

    fn explain(&self, failed: &ServerFailure, asked: &str) -> BackendError {
        if let Some(found) = other_capacity(&failed.failure) {
            return BackendError::mismatch(found, self.keys().kind());
        }
        let of_wrapper = |code: &str| self.wrapper.as_ref().and_then(|wrapper| wrapper.meaning(code));
        let meaning = failed.failure.code().and_then(of_wrapper).or_else(|| meaning(&failed.failure));
        failed.failure.explain_as(meaning, &failed.at, asked)
    }
}

impl Scripts {
    pub(crate) fn new(servers: Servers, wrapper: Option<Arc<dyn Wrapper>>) -> Scripts {
        Scripts { untold: Untold::new(&servers), servers, keys: KeyCache::default(), wrapper }
    }

    /// A script for locks of one server: the keys of one lock follow those of another.
    ///
    /// # Errors
    /// As [`Keys::of`]; there is no lock.
    pub(crate) fn call<'l, 'a>(
        &self,
        script: &'static Script,
        locks: impl IntoIterator<Item = &'l LockId>,
        arguments: impl Into<Vec<Argument<'a>>>,
    ) -> Result<ScriptCall<'a>, BackendError> {
        let locks = locks.into_iter().map(|lock| self.keys.of(lock)).collect::<Result<SmallVec<_>, _>>()?;
        if locks.is_empty() {
            return Err(missing());
        }
        let wrapper = self.wrapper.clone().filter(|_| script.is_wrapped);
        Ok(ScriptCall { script, locks, arguments: arguments.into(), wrapper })
    }

    /// Runs one script, and sends the messages that the script could not.
    pub(crate) fn run(&self, call: &ScriptCall<'_>) -> Result<Value, BackendError> {
        let lock = call.keys().lock();
        let answer = self.servers.call(lock, |route| self.run_there(route, call));
        let mut reply = answer.map_err(|failed| {
            match key_at_fault(&self.servers, call.script, call.keys(), &failed) {
                Some(key) => call.explain(&failed, &format!("{} on {key}", call.script.asked())),
                None => call.explain(&failed, &call.script.asked()),
            }
        })?;
        self.untold.send([(lock, &mut reply)]);
        Ok(reply)
    }

    fn run_there(&self, route: &Route, call: &ScriptCall<'_>) -> Result<Value, Failure> {
        let pack = || call.packed_for(&self.servers, route);
        // In a cluster nothing is known of the listeners.
        let ask = || if route.is_asking { route.call(&pack()) } else { route.pool.call_as_known(pack) };
        let answer = match ask() {
            // After a restart, a fail-over or SCRIPT FLUSH the server does not know the script, and has run nothing.
            Err(failure) if failure.code() == Some("NOSCRIPT") => {
                let load = cmd("SCRIPT").arg("LOAD").arg(&call.text().source).get_packed_command();
                route.pool.call(load).and_then(|_| ask())
            }
            answer => answer,
        };
        let answer = match answer {
            // The server's clock was not known, or was stepped forward. The server has run nothing, and its clock is known now.
            Err(failure) if route.pool.refused_late(&failure) => ask(),
            answer => answer,
        };
        call.heard(&route.pool, answer)
    }

    /// Runs many scripts, in few round trips to each server, and sends the messages that the scripts could not; one answer each, in
    /// order.
    pub(crate) fn run_all<'a, C: Borrow<ScriptCall<'a>> + Sync>(
        &self,
        calls: &[C],
        order: Order,
    ) -> Vec<Result<Value, CallFailure>> {
        let locks: Vec<&str> = calls.iter().map(|call| call.borrow().keys().lock()).collect();
        let pack = |at: usize, route: &Route| calls[at].borrow().packed_for(&self.servers, route);
        let heard = |at: usize, pool: &Pool, answer| calls[at].borrow().heard(pool, answer);
        let again = |at: usize, route: &Route| self.run_there(route, calls[at].borrow());
        let mut answers = self.servers.call_all(&locks, pack, order, heard, again);
        let replies = locks.iter().zip(&mut answers);
        self.untold.send(replies.filter_map(|(lock, answer)| Some((*lock, answer.as_mut().ok()?))));
        let failed = |(answer, call): (Result<Value, ServerFailure>, &C)| {
            answer.map_err(|failed| CallFailure {
                is_refusal: failed.failure.code().is_some(),
                error: call.borrow().explain(&failed, &call.borrow().script.asked()),
            })
        };
        answers.into_iter().zip(calls).map(failed).collect()
    }
}

/// Why one of many scripts has no reply.
#[derive(Debug)]
pub(crate) struct CallFailure {
    /// The server answered, and refused it.
    pub(crate) is_refusal: bool,
    pub(crate) error: BackendError,
}

/// What is known of a server at this moment.
struct KnownNow<'a> {
    servers: &'a Servers,
    pool: &'a Pool,
}

impl Known for KnownNow<'_> {
    fn attempt_end(&self) -> u64 {
        self.pool.attempt_end()
    }

    fn listeners(&self) -> Listeners {
        self.servers.listeners()
    }

    /// If the connections for commands broke after the subscription was last heard, it may be broken too, and its thread not have noticed.
    fn is_deaf(&self, hears: Option<Hears>) -> bool {
        match hears {
            None => false,
            Some(Hears::Nothing) => true,
            Some(Hears::At(then)) => self.pool.has_lost_since(then),
        }
    }
}

/// What a refusal means that comes from a script.
fn meaning(failure: &Failure) -> Option<Meaning> {
    let Failure::Refused { code, message, .. } = failure else { return None };
    match code.as_str() {
        "WRONGTYPE" | "FOREIGN" => Some(FOREIGN),
        "ERR" if message.contains("hash value is not an integer") => Some(FOREIGN),
        _ => None,
    }
}

/// The capacity that the name is in use with, after a refusal for that.
fn other_capacity(failure: &Failure) -> Option<u32> {
    let Failure::Refused { code, message, .. } = failure else { return None };
    message.parse().ok().filter(|_| code == "MISMATCH")
}

const FOREIGN: Meaning = (
    BackendErrorKind::Corrupt,
    "something that is not ours lies under the key",
    "give the lock another name, or delete that key if no program needs it",
);

/// The error for a lock whose holder can't be read.
#[cfg(feature = "redisson")]
pub(crate) fn foreign(servers: &Servers, message: &str, asked: &str) -> BackendError {
    Failure::refused("WRONGTYPE", message).explain_as(Some(FOREIGN), servers, asked)
}

/// The digest of no script.
const NO_SCRIPT: &str = "0000000000000000000000000000000000000000";

/// Names the key, after a refusal for a missing right or for a key's type; with the type of the value there. The refusal does not name the
/// key, so the server is asked: one more round trip. None if the server does not tell.
fn key_at_fault(servers: &Servers, script: &Script, keys: &Keys, failed: &ServerFailure) -> Option<String> {
    let lock = keys.lock();
    match failed.failure.code()? {
        "NOPERM" => {
            // A script that does not exist is refused for its keys first. The first question is without a key: if that
            // is refused too, the right to EVALSHA is missing.
            let names = (script.keys)(keys);
            let ask = |key: Option<&str>| {
                cmd("EVALSHA").arg(NO_SCRIPT).arg(usize::from(key.is_some())).arg(key).to_owned()
            };
            let each = names.iter().map(|name| Some(*name));
            let questions: Vec<Cmd> = std::iter::once(None).chain(each).map(ask).collect();
            let answers = answers(servers, lock, &questions)?;
            let is_refused = |answer: &Result<Value, Failure>| {
                answer.as_ref().is_err_and(|why| why.code() == Some("NOPERM"))
            };
            let refused = answers.iter().position(is_refused)?.checked_sub(1)?;
            Some(format!("key {}", shown(names[refused])))
        }
        // A hash without a holder, under the lock's own name.
        "FOREIGN" => Some(format!("key {} of type hash", shown(lock))),
        "WRONGTYPE" => {
            let typed = keys.typed();
            let questions: Vec<Cmd> = typed.iter().map(|(key, _)| cmd("TYPE").arg(key).to_owned()).collect();
            let answers = answers(servers, lock, &questions)?;
            typed.iter().zip(&answers).find_map(|((key, ours), answer)| {
                let kind = text(answer.as_ref().ok()?).ok().filter(|kind| kind != &"none" && kind != ours)?;
                Some(format!("key {} of type {kind}", shown(key)))
            })
        }
        _ => None,
    }
}

fn answers(servers: &Servers, lock: &str, questions: &[Cmd]) -> Option<Vec<Result<Value, Failure>>> {
    let packed: Vec<Vec<u8>> = questions.iter().map(Cmd::get_packed_command).collect();
    servers.call(lock, |route| Ok(route.pool.call_many(&packed))).ok()
}

/// As the names of locks are shown.
fn shown(key: &str) -> String {
    format!("`{}`", key.escape_debug())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    use fairlock_core::LockKind;
    use fairlock_core::backend::{Acquire, Backend, Place, RequestId, only};

    use super::*;
    use crate::backend::RedisBackend;
    use crate::builder::Discipline;
    use crate::fake_backend::{hold, id, named, owner, with};
    use crate::net::test_server::{Act, FakeServer, polite};
    use crate::script::scripts::HAND_OFF_RELEASE;

    /// The result of a release when the server gives these answers in turn; and the number of calls.
    fn released(said: &[&'static str]) -> (Result<(), BackendError>, usize) {
        let (next, said) = (AtomicUsize::new(0), said.to_vec());
        let (backend, ran) = with(Discipline::HandOff, move |_, _| {
            format!("{}\r\n", said[next.fetch_add(1, Ordering::Relaxed).min(said.len() - 1)])
        });
        let answer = only(backend.release(&[hold(&id(LockKind::Fair), &owner())]));
        let asked = ran.lock().len();
        (answer.map(drop), asked)
    }

    #[test]
    fn a_script_that_is_missing_or_was_late_is_sent_once_more() {
        for said in [&["-NOSCRIPT no", ":0"][..], &["-LATE 7", ":0"], &["-NOSCRIPT no", "-LATE 7", ":0"]] {
            let (answer, asked) = released(said);
            assert!(answer.is_ok(), "{said:?}: {answer:?}");
            assert_eq!(asked, said.len(), "{said:?}");
        }
        for said in [&["-NOSCRIPT no"][..], &["-LATE 7"]] {
            let (answer, asked) = released(said);
            assert!(answer.is_err() && asked == 2, "{said:?}: {answer:?}");
        }
    }

    /// Only a request that was never sent leaves nothing: one that a script refused may be half executed, and one without a reply
    /// executed.
    #[test]
    fn what_was_sent_is_never_called_unsent() {
        for said in ["-NOPERM no right", "-READONLY no", "-OOM full", ""] {
            let server = FakeServer::start(move |_, words| match words[0].as_str() {
                "EVALSHA" if said.is_empty() => Act::HangUp,
                "EVALSHA" => Act::Say(format!("{said}\r\n")),
                _ => polite(words),
            });
            let backend = RedisBackend::builder(&format!("redis://{}", server.address())).connect().unwrap();
            let (lock, owner) = (id(LockKind::Fair), owner());
            let ask = Acquire::new(Place::new(&lock, &owner, RequestId::new(7)), Duration::from_secs(30));
            for answer in [vec![only(backend.acquire(&[ask]))], backend.acquire(&[ask; 2])].concat() {
                assert!(!answer.unwrap_err().is_unsent(), "{said}");
            }
        }
    }

    /// The greeting is refused, or nobody is there.
    #[test]
    fn what_has_no_connection_is_unsent() {
        for said in ["-WRONGPASS no", "-LOADING wait", "-ERR max number of clients reached"] {
            let is_refusing = Arc::new(AtomicBool::new(false));
            let refuses = Arc::clone(&is_refusing);
            let server = FakeServer::start(move |_, words| match words[0].as_str() {
                "EVALSHA" => Act::HangUp,
                _ if refuses.load(Ordering::SeqCst) => Act::Say(format!("{said}\r\n")),
                _ => polite(words),
            });
            let builder = RedisBackend::builder(&format!("redis://{}", server.address()));
            let backend = builder.connections(1).connect().unwrap();
            is_refusing.store(true, Ordering::SeqCst);
            let (lock, owner) = (id(LockKind::Fair), owner());
            let place = Place::new(&lock, &owner, RequestId::new(7));
            let ask = Acquire::new(place, Duration::from_secs(30));
            assert!(!only(backend.acquire(&[ask])).unwrap_err().is_unsent(), "the connection was open");
            let refused = only(backend.acquire(&[ask])).unwrap_err();
            assert!(refused.is_unsent(), "{refused}");
            assert!(backend.acquire(&[ask; 2]).iter().all(|answer| answer.as_ref().unwrap_err().is_unsent()));
            assert!(only(backend.withdraw(&[place])).unwrap_err().is_unsent());
        }
    }

    #[test]
    fn the_refusals_of_scripts_have_meanings() {
        let cases = [
            (
                "-MISMATCH 5",
                BackendErrorKind::Mismatch,
                "it is a semaphore of 5 permits, and you asked for an ",
            ),
            ("-FOREIGN no holder", BackendErrorKind::Corrupt, "under the key"),
            ("-WRONGTYPE a list", BackendErrorKind::Corrupt, "under the key"),
            ("-ERR hash value is not an integer", BackendErrorKind::Corrupt, "under the key"),
        ];
        for (said, kind, words) in cases {
            let error = released(&[said]).0.unwrap_err();
            assert!(error.kind() == kind && error.to_string().contains(words), "{said}: {error}");
        }
        let (other, asked) = released(&["-ERR the script is wrong"]);
        assert_eq!((other.unwrap_err().kind() == BackendErrorKind::Corrupt, asked), (false, 1));
    }

    #[test]
    fn a_script_that_is_missing_is_loaded() {
        let is_loaded = AtomicBool::new(false);
        let server = FakeServer::start(move |_, words| match words[0].as_str() {
            "EVALSHA" if is_loaded.load(Ordering::SeqCst) => Act::Say(":7\r\n".to_owned()),
            "EVALSHA" => Act::Say("-NOSCRIPT no\r\n".to_owned()),
            "SCRIPT" => {
                is_loaded.store(words[1..] == ["LOAD", &HAND_OFF_RELEASE.text.source], Ordering::SeqCst);
                polite(words)
            }
            _ => polite(words),
        });
        let backend = RedisBackend::builder(&format!("redis://{}", server.address())).connect().unwrap();
        let scripts = &backend.0.scripts;
        let call = scripts.call(&HAND_OFF_RELEASE, [&id(LockKind::Fair)], []).unwrap();
        assert_eq!(scripts.run(&call).unwrap(), Value::Int(7));
    }

    #[test]
    fn the_name_of_the_first_lock_decides_the_server() {
        let (backend, _) = with(Discipline::HandOff, |_, _| String::new());
        let scripts = &backend.0.scripts;
        let locks = ["b", "a"].map(|name| named(name, LockKind::Fair));
        assert_eq!(scripts.call(&HAND_OFF_RELEASE, [&locks[1]], []).unwrap().keys().lock(), "a");
        assert_eq!(scripts.call(&HAND_OFF_RELEASE, &locks, []).unwrap().keys().lock(), "b");
        assert!(scripts.call(&HAND_OFF_RELEASE, [], []).is_err());
    }

    #[test]
    fn each_of_many_scripts_has_its_reply() {
        let (backend, _) = with(Discipline::HandOff, |_, keys| match keys[0].as_str() {
            "b" => "-MISMATCH 5\r\n".to_owned(),
            _ => ":7\r\n".to_owned(),
        });
        let scripts = &backend.0.scripts;
        let call = |name| scripts.call(&HAND_OFF_RELEASE, [&named(name, LockKind::Fair)], []).unwrap();
        let answers = scripts.run_all(&["a", "b", "c"].map(call), Order::AtOnce);
        let [Ok(Value::Int(7)), Err(refused), Ok(Value::Int(7))] = &answers[..] else {
            panic!("{answers:?}")
        };
        assert!(refused.is_refusal && refused.error.kind() == BackendErrorKind::Mismatch);
    }
}
