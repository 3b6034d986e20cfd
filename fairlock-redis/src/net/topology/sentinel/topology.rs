//! How a master that sentinels name answers as the servers of a backend.

use std::sync::Arc;
use std::time::Instant;

use super::{Sentinel, Surveyed};
use crate::net::commands::{ALL_ARE_BACK, Listeners, Pool};
use crate::net::connection::{Address, Failure};
use crate::net::settings::Settings;
use crate::net::subscription::Endpoints;
use crate::net::topology::route::Route;
use crate::net::topology::{Arrangement, Failed, Topology};

impl Topology for Sentinel {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn arrangement(&self) -> Arrangement {
        Arrangement::Sentinels
    }

    fn route(&self, _: &str) -> Result<Route, Failure> {
        self.find()
    }

    /// One more attempt only: the sentinels are asked, and name another master or do not.
    fn next_route(&self, failed: &Failed<'_>) -> Option<Route> {
        let is_unexecuted = match failed.failure {
            Failure::NotSent(_) => true,
            Failure::Refused { code, .. } => self.was_not_executed(code),
            Failure::Broken(_) => false,
        };
        let may_try = failed.tried == 1 && Instant::now() <= failed.until;
        if is_unexecuted && may_try { self.find().ok() } else { None }
    }

    /// Codes that prove that the command did not run on this server: a replica takes no writes, and a script that is refused for
    /// its epoch does none.
    fn was_not_executed(&self, code: &str) -> bool {
        matches!(code, "READONLY" | "OLDEPOCH")
    }

    /// The next caller asks the sentinels again.
    fn doubt(&self, pool: &Arc<Pool>) {
        let mut state = self.state.lock();
        // A late failure concerns a master that was left already.
        if state.master.as_ref().is_some_and(|master| Arc::ptr_eq(master, pool)) {
            state.doubt();
        }
    }

    /// After a fail-over the clients' subscribers move to the new master one by one. A waiter whose client has not moved
    /// yet must not be passed over by one behind it. The same master may have restarted.
    fn listeners(&self) -> Listeners {
        let state = self.state.lock();
        let has_long = state.since.is_some_and(|since| since.elapsed() > ALL_ARE_BACK);
        let master = state.master.clone().filter(|_| has_long);
        drop(state);
        master.map_or(Listeners::Unknown, |master| master.listeners())
    }

    fn survey(&self) -> Vec<Surveyed> {
        self.ask_each()
    }

    fn commands(&self) -> &'static [&'static [&'static str]] {
        &[&["ROLE"]]
    }
}

/// A client subscribes at the master, whose scripts check the subscribers before they hand a lock on.
impl Endpoints for Sentinel {
    fn next(&self) -> Result<Address, Failure> {
        Ok(self.master()?.address().clone())
    }

    fn serves(&self, at: &Address) -> bool {
        self.state.lock().master.as_ref().is_some_and(|master| master.address().is_same_server(at))
    }
}
