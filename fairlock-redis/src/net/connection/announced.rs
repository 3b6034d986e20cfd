//! Addresses that servers announce of others, and how a program reaches those servers.
//!
//! The function is the program's. A thread of its own makes each call, without any of our mutexes, and the connection that opens waits for
//! the call until its deadline. A panic is a failure to connect. Calls that don't return keep a few threads, no more.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Instant;

use fairlock_net::Endpoint;

use super::failure::Failure;

/// How many calls of the function are under way, at most.
const MOST_CALLS: usize = 16;

/// Leads from an announced host and port to those that reach the server.
#[derive(Clone)]
pub(crate) struct AddressMap(Arc<Map>);

type MapFn = dyn Fn(&str, u16) -> (String, u16) + Send + Sync;

struct Map {
    function: Box<MapFn>,
    /// How many calls are under way.
    calls: AtomicUsize,
}

impl AddressMap {
    pub(crate) fn new(function: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static) -> AddressMap {
        AddressMap(Arc::new(Map { function: Box::new(function), calls: AtomicUsize::new(0) }))
    }

    /// The host and port to connect to for this announced server.
    ///
    /// # Errors
    /// `NotSent` if the program's function panics, or has not returned by then.
    pub(super) fn lead(&self, host: &str, port: u16, until: Instant) -> Result<Endpoint, Failure> {
        let failed = |why: &str| Err(Failure::NotSent(format!("the function of `map_address` {why}").into()));
        let (map, host, (tells, told)) = (Arc::clone(&self.0), host.to_owned(), sync_channel(1));
        if map.calls.fetch_add(1, Ordering::Relaxed) >= MOST_CALLS {
            map.calls.fetch_sub(1, Ordering::Relaxed);
            return failed("has not returned from earlier calls");
        }
        let call = move || {
            let mapped = catch_unwind(AssertUnwindSafe(|| (map.function)(&host, port)));
            map.calls.fetch_sub(1, Ordering::Relaxed);
            // The connection may wait no longer. The drop of a panic may panic as well.
            let _ = tells.send(mapped.map_err(std::mem::forget));
        };
        if let Err(error) = thread::Builder::new().name("fairlock-map".to_owned()).spawn(call) {
            self.0.calls.fetch_sub(1, Ordering::Relaxed);
            return failed(&format!("got no thread ({error})"));
        }
        match told.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Ok((host, port))) => Ok(Endpoint::Tcp { host, port }),
            Ok(Err(())) => failed("has panicked"),
            Err(_) => failed("has not returned in time"),
        }
    }
}

/// The failure to reach a server that `by` announces, where the connection went to `led_to` instead of the announced address.
pub(super) fn not_reached(failure: Failure, by: &str, led_to: Option<&Endpoint>) -> Failure {
    let led = led_to.map(|to| format!(", and `map_address` leads to {to}")).unwrap_or_default();
    match failure.before_sending() {
        Failure::NotSent(cause) => Failure::NotSent(cause.reworded(|cause| {
            format!("{cause} ({by} announces this address{led}; if it can't be reached from here, set `map_address`)")
        })),
        refused => refused,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use parking_lot::Mutex;

    use super::*;

    /// Each call waits for the test. A few threads stay, and no connection waits longer than its time.
    #[test]
    fn a_function_that_hangs_keeps_a_few_threads() {
        let (release, released) = channel::<()>();
        let released = Mutex::new(released);
        let map = AddressMap::new(move |host, port| {
            let _ = released.lock().recv();
            (host.to_owned(), port)
        });
        let leads = |until| map.lead("node", 7, until).map_err(|failure| format!("{failure:?}"));
        for calls in 1..=MOST_CALLS {
            assert!(leads(Instant::now()).unwrap_err().contains("has not returned in time"), "{calls}");
        }
        let soon = || Instant::now() + Duration::from_secs(20);
        assert!(leads(soon()).unwrap_err().contains("has not returned from earlier calls"));
        drop(release);
        while map.0.calls.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
        assert_eq!(leads(soon()), Ok(Endpoint::Tcp { host: "node".to_owned(), port: 7 }));
    }
}
