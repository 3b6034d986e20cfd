//! Wake-ups without LISTEN: all locks for which a client waits are looked at by one statement, time and again.
//!
//! A look returns only the rows that were written since the last one. It reads what is, so it misses nothing: a grant that stands in
//! the row is found, however many looks were late or failed.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use fairlock_core::backend::{BackendError, LineLimit, Wake, log_safely, pause};

use crate::clients::Client;
use crate::link::{Phase, Waiting};
use crate::listener::Listener;
use crate::net::{BYTEA, Failure, INT8, Statement, Value};
use crate::row::{AFTER, COLUMNS, Loaded};
use crate::step::{HAS_STANDBY, Store};

/// The rows that have changed since they were seen.
static LOOK: LazyLock<String> = LazyLock::new(|| {
    format!(
        "select {COLUMNS}, l.name, l.rev, {HAS_STANDBY} from unnest($1::bytea[], $2::bigint[]) a(name, rev) join fairlock.lock l \
         on l.name = a.name and l.rev <> a.rev"
    )
});

/// The lines about polls that failed after one that had not.
static FAILED: LineLimit = LineLimit::new();

impl Listener {
    /// Polls until the thread has to end, or for a while. Whether it has to end.
    pub(crate) fn poll(&self, every: Duration, until: Option<Instant>) -> bool {
        let mut failures = 0_u32;
        if !self.link.set(Phase::Polling) {
            return true;
        }
        while until.is_none_or(|until| Instant::now() < until) {
            self.link.rest(every.max(pause(failures)));
            if self.link.has_to_end() {
                return true;
            }
            let (Some(store), Some(client)) = (self.store.upgrade(), self.client.upgrade()) else {
                return true;
            };
            match store.look_for(&client) {
                Ok(()) => failures = 0,
                Err(failure) => {
                    failures = failures.saturating_add(1);
                    if failures == 1
                        && let Some(count) = FAILED.count(1, Instant::now())
                    {
                        let error = BackendError::from(failure);
                        log_safely(|| {
                            log::warn!(
                                target: "fairlock::net",
                                "polling for wake-ups failed {count} time(s), trying again: {error}"
                            );
                        });
                    }
                }
            }
        }
        false
    }
}

impl Store {
    /// Tells the client what stands in the rows of the locks that it waits for.
    pub(crate) fn look_for(&self, client: &Client) -> Result<(), Failure> {
        let waiting = client.link.waiting();
        let mut revs = BTreeMap::new();
        for (Waiting { lock, .. }, seen) in &waiting {
            let first_seen = revs.entry(lock.as_str().as_bytes()).or_insert(*seen);
            *first_seen = (*first_seen).min(*seen);
        }
        if revs.is_empty() {
            return Ok(());
        }
        let (names, revs): (Vec<_>, Vec<_>) = revs.into_iter().unzip();
        let look = Statement::new(
            &LOOK,
            [Value::array(BYTEA, names.into_iter()), Value::array(INT8, revs.into_iter())],
        );
        for row in &self.pool.ask(look, self.pool.deadline())? {
            let (name, rev, has_standby) = (row.bytes(AFTER)?, row.number(AFTER + 1)?, row.flag(AFTER + 2)?);
            let of_lock = waiting.iter().map(|(one, _)| one);
            let mut of_lock = of_lock.filter(|one| one.lock.as_str().as_bytes() == name).peekable();
            let Some(lock) = of_lock.peek().map(|one| &one.lock) else { continue };
            let loaded = Loaded::read(row).ok(); // the next heartbeat says why it can't be read
            if loaded.as_ref().is_some_and(|loaded| loaded.entry.is_free_for_plain(loaded.now)) {
                client.sink.wake(Wake::Recheck { lock: lock.as_str(), owner: None });
            }
            for one in of_lock {
                client.link.saw(one, rev);
                let Waiting { lock, owner, request } = one;
                let token = loaded.as_ref().and_then(|is| is.entry.token_of(owner, *request, is.now));
                if token.is_some() && has_standby {
                    // It may be that no standby knows of it. The answer to the next ask is a commit.
                    let (lock, owner) = (lock.as_str(), Some(owner.as_str()));
                    client.sink.wake(Wake::Recheck { lock, owner });
                    continue;
                }
                // The client may know it by now, by an answer or from a step of this process.
                if let Some(token) = token.filter(|_| client.link.waits_no_longer(one)) {
                    let (lock, owner, request) = (lock.as_str(), owner.as_str(), *request);
                    client.sink.wake(Wake::Granted { lock, owner, request, token });
                }
            }
        }
        Ok(())
    }
}
