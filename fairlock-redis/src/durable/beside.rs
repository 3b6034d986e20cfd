//! Whether other clients of the servers are durable: a client that is not must not use locks with a line beside them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use fairlock_core::LockName;
use fairlock_core::backend::BackendError;
use redis::{Cmd, Value, cmd};

use super::lives::{LIFE, key_of_slot};
use crate::checks::invalid;
use crate::net::{Failure, Greeting};
use crate::script::reply::text;

/// What the connections of a backend have seen of durable clients.
///
/// Each connection looks with its greeting, so it costs nothing where a lock is used. What was seen once counts for good: a flush
/// takes the key away when it matters most.
#[derive(Debug)]
pub(crate) struct Beside {
    question: Cmd,
    /// Their grace, in milliseconds.
    grace: OnceLock<String>,
    /// The user may not look: each further look would be an entry in the ACL LOG.
    is_refused: AtomicBool,
}

impl Beside {
    pub(super) fn looking(of_slots: bool) -> Beside {
        Beside { question: question(of_slots), grace: OnceLock::new(), is_refused: AtomicBool::new(false) }
    }

    pub(super) fn heard(&self, reply: &Value) {
        let Ok(grace) = text(reply) else { return };
        if self.grace.set(grace.to_owned()).is_ok() {
            log::warn!(
                target: "fairlock::net",
                event = "durable clients beside", grace_ms = grace;
                "other clients of these servers are durable and this one is not: it may use no lock with a line any more"
            );
        }
    }

    /// # Errors
    /// `InvalidConfig` once a durable client was seen.
    pub(super) fn check(&self, lock: &LockName) -> Result<(), BackendError> {
        let Some(grace) = self.grace.get() else { return Ok(()) };
        Err(invalid(format!(
            "lock {lock} is refused: other clients of the server are durable, with a grace of {grace} ms, and this one is \
             not, so it would get the lock beside a holder that the server has forgotten; set `RedisBuilder::durable` (`fairlock`: \
             `--durable`) as they have it"
        )))
    }
}

impl Greeting for Beside {
    fn question(&self) -> Option<Cmd> {
        let is_open = self.grace.get().is_none() && !self.is_refused.load(Ordering::Relaxed);
        is_open.then(|| self.question.clone())
    }

    /// A refusal tells nothing: the user may have no right to the key, and in a cluster one node keeps it.
    fn answered(&self, reply: Result<Value, Failure>) {
        match reply {
            Ok(reply) => self.heard(&reply),
            Err(failure) if failure.code() == Some("NOPERM") => {
                self.is_refused.store(true, Ordering::Relaxed)
            }
            Err(_) => {}
        }
    }
}

/// For the field that each life has. In a cluster, where each hash slot has a life, that of the first slot: durable clients see to
/// it that it has the field.
pub(super) fn question(of_slots: bool) -> Cmd {
    let life = if of_slots { key_of_slot(0) } else { LIFE.to_owned() };
    cmd("HGET").arg(life).arg("grace").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlock_core::backend::BackendErrorKind;

    fn grace() -> Value {
        Value::BulkString(b"10602".to_vec())
    }

    fn asked(beside: &Beside) -> Option<Vec<u8>> {
        beside.question().map(|command| command.get_packed_command())
    }

    #[test]
    fn a_client_that_has_seen_a_durable_one_looks_no_more_and_asks_for_no_lock() {
        let (beside, lock) = (Beside::looking(false), LockName::new("a").unwrap());
        beside.answered(Ok(Value::Nil));
        assert_eq!(asked(&beside), Some(cmd("HGET").arg("fairlock_life").arg("grace").get_packed_command()));
        assert!(beside.check(&lock).is_ok());
        beside.answered(Ok(grace()));
        assert_eq!(asked(&beside), None);
        let error = beside.check(&lock).unwrap_err();
        assert!(error.kind() == BackendErrorKind::InvalidConfig && error.to_string().contains("10602 ms"));
    }

    #[test]
    fn a_look_without_the_right_to_it_is_not_repeated() {
        let beside = Beside::looking(true);
        let first = cmd("HGET").arg(key_of_slot(0)).arg("grace").get_packed_command();
        beside.answered(Err(Failure::refused("MOVED", "0 127.0.0.1:2")));
        assert_eq!(asked(&beside), Some(first));
        beside.answered(Err(Failure::refused("NOPERM", "no right to it")));
        assert_eq!(asked(&beside), None);
        assert!(beside.check(&LockName::new("a").unwrap()).is_ok());
    }
}
