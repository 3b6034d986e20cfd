//! Addresses that servers announce of others, and how a program reaches those servers.
//!
//! The function is the program's: it runs where a connection is opened, without any of our mutexes, and a panic is a failure to connect.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use fairlock_net::Endpoint;

use super::failure::Failure;

/// Leads from an announced host and port to those that reach the server.
#[derive(Clone)]
pub(crate) struct AddressMap(pub(crate) Arc<MapFn>);

type MapFn = dyn Fn(&str, u16) -> (String, u16) + Send + Sync;

impl AddressMap {
    /// The host and port to connect to for this announced server.
    ///
    /// # Errors
    /// `NotSent` after a panic of the program's function.
    pub(super) fn lead(&self, host: &str, port: u16) -> Result<Endpoint, Failure> {
        let mapped = catch_unwind(AssertUnwindSafe(|| (self.0)(host, port))).map_err(|panic| {
            std::mem::forget(panic); // its drop may panic as well
            Failure::NotSent("the function of `map_address` has panicked".to_owned())
        });
        mapped.map(|(host, port)| Endpoint::Tcp { host, port })
    }
}

/// The failure to reach a server that `by` announces, where the connection went to `led_to` instead of the announced address.
pub(super) fn not_reached(failure: Failure, by: &str, led_to: Option<&Endpoint>) -> Failure {
    let led = led_to.map(|to| format!(", and `map_address` leads to {to}")).unwrap_or_default();
    match failure.before_sending() {
        Failure::NotSent(cause) => Failure::NotSent(format!(
            "{cause} ({by} announces this address{led}; if it can't be reached from here, set `map_address`)"
        )),
        refused => refused,
    }
}
