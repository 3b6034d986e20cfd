//! The one server of a test, at which nothing may be left when the test ends.

use std::ops::Deref;

use crate::redis_server::{RedisServer, RedisServerBuilder};
use crate::residue::assert_no_residue;
use crate::threads::{Alone, wait_until_no_clients};

/// A server for a test that runs [`Alone`]. What is declared after it (clients, guards) is dropped before it, and then it checks that
/// nothing is left.
#[derive(Debug)]
pub struct CleanServer {
    server: RedisServer,
    allow: &'static [&'static str],
    _alone: Alone,
}

impl CleanServer {
    /// A server without password, persistence or TLS.
    pub fn start() -> CleanServer {
        CleanServer::of(RedisServer::builder())
    }

    /// A server with these settings.
    pub fn of(builder: RedisServerBuilder) -> CleanServer {
        let alone = Alone::here(); // first: the other test's server goes before this one comes
        CleanServer { server: builder.start(), allow: &[], _alone: alone }
    }

    /// These keys may be left, as [`assert_no_residue`] says.
    pub fn allow(mut self, allow: &'static [&'static str]) -> CleanServer {
        self.allow = allow;
        self
    }
}

impl Deref for CleanServer {
    type Target = RedisServer;

    fn deref(&self) -> &RedisServer {
        &self.server
    }
}

impl Drop for CleanServer {
    fn drop(&mut self) {
        // A server that was killed keeps nothing.
        if !std::thread::panicking() && self.server.is_running() {
            wait_until_no_clients();
            assert_no_residue(&self.server, self.allow);
        }
    }
}
