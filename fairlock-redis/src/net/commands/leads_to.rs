//! What an address leads to. If nothing else tells which server is in charge, the address does: a DNS name, a Kubernetes Service or a
//! proxy that checks roles leads to the master, and after a fail-over to another master.
//!
//! | known | moves to | by |
//! | --- | --- | --- |
//! | nothing | master | a server that says so; from then on a replica is an outage, and never used |
//! | nothing | untold | a server that refuses ROLE; from then on it is asked once a minute |
//! | untold | master | a server that says so |
//!
//! Until then a replica is used: if the address is wrong, a call's error says so, and calls that only read work.

use std::sync::atomic::{AtomicU8, Ordering};

use redis::{Cmd, Value, cmd};

use crate::net::connection::{Failure, Role};
use crate::net::refusal::Refusal;

/// What is known of the servers that were reached so far.
#[derive(Debug)]
pub(super) struct LeadsTo {
    known: AtomicU8,
    untold: Refusal,
}

/// Sentinels or a cluster tell which server is in charge.
const ANYWHERE: u8 = 0;
const NOTHING_KNOWN: u8 = 1;
const MASTER: u8 = 2;
const UNTOLD: u8 = 3;

impl LeadsTo {
    /// For a server that sentinels or a cluster name.
    pub(super) fn anywhere() -> LeadsTo {
        LeadsTo { known: AtomicU8::new(ANYWHERE), untold: Refusal::default() }
    }

    pub(super) fn nothing_known() -> LeadsTo {
        LeadsTo { known: AtomicU8::new(NOTHING_KNOWN), untold: Refusal::default() }
    }

    fn known(&self) -> u8 {
        self.known.load(Ordering::Relaxed)
    }

    /// Asked when a connection opens, and with each ping: without the question, a connection that only reads would stay at the
    /// former master for as long as that server is up.
    pub(super) fn question(&self) -> Option<Cmd> {
        let is_asked = match self.known() {
            NOTHING_KNOWN | MASTER => true,
            UNTOLD => !self.untold.is_believed(),
            _ => false,
        };
        is_asked.then(|| cmd("ROLE"))
    }

    /// # Errors
    /// `READONLY` of a replica, if the address led to a master before.
    pub(super) fn heard(&self, reply: Result<Value, Failure>) -> Result<(), Failure> {
        match reply.map(|reply| Role::read(&reply)) {
            Ok(Role::Replica) if self.known() == MASTER => return Err(Role::refused()),
            Ok(Role::Master) => self.known.store(MASTER, Ordering::Relaxed),
            // The next answer would most likely be the same, and the server notes each refusal (ACL LOG).
            Err(Failure::Refused { .. }) | Ok(Role::Other) if self.known() != MASTER => {
                self.untold.heard();
                self.known.store(UNTOLD, Ordering::Relaxed);
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn led_to_master(&self) -> bool {
        self.known() == MASTER
    }

    /// Whether all servers so far were replicas by their own word.
    pub(super) fn may_be_wrong(&self) -> bool {
        self.known() == NOTHING_KNOWN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(word: &str) -> Result<Value, Failure> {
        Ok(Value::Array(vec![Value::BulkString(word.into()), Value::Int(1)]))
    }

    #[test]
    fn a_replica_is_refused_once_there_was_a_master() {
        let leads_to = LeadsTo::nothing_known();
        assert_eq!(leads_to.heard(role("slave")), Ok(()));
        assert!(leads_to.may_be_wrong() && leads_to.question().is_some());
        assert_eq!(leads_to.heard(role("master")), Ok(()));
        assert_eq!(leads_to.heard(role("slave")), Err(Role::refused()));
        // The user has lost the right.
        assert_eq!(leads_to.heard(Err(Failure::refused("NOPERM", "x"))), Ok(()));
        assert!(leads_to.led_to_master() && !leads_to.may_be_wrong() && leads_to.question().is_some());
    }

    #[test]
    fn a_server_that_does_not_tell_is_asked_once_a_minute() {
        for untold in [Err(Failure::refused("NOPERM", "x")), Ok(Value::Okay)] {
            let leads_to = LeadsTo::nothing_known();
            assert_eq!(leads_to.heard(untold), Ok(()));
            assert!(leads_to.question().is_none() && !leads_to.may_be_wrong() && !leads_to.led_to_master());
            leads_to.untold.grow_old();
            assert!(leads_to.question().is_some());
            // The user has the right again.
            assert_eq!(leads_to.heard(role("master")), Ok(()));
            assert!(leads_to.led_to_master() && leads_to.heard(role("slave")).is_err());
        }
        // No answer tells nothing.
        let leads_to = LeadsTo::nothing_known();
        assert_eq!(leads_to.heard(Err(Failure::no_answer())), Ok(()));
        assert!(leads_to.question().is_some());
        assert!(LeadsTo::anywhere().question().is_none());
    }
}
