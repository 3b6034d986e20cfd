//! Wake-ups without LISTEN: all locks for which a client waits are looked at by one statement, time and again.
//!
//! A look returns only the rows that were written since the last one. It reads what is, so it misses nothing: a grant that stands in
//! the row is found, however many looks were late or failed.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use fairlock_core::backend::{BackendError, Wake, pause};
use fairlock_core::{FencingToken, LockName};

use crate::link::{Phase, Waiting};
use crate::listener::Listener;
use crate::net::{Failure, Statement, Value};
use crate::row::{AFTER, COLUMNS, Loaded};
use crate::step::{HAS_STANDBY, Store};

/// The rows that have changed since they were seen.
static LOOK: LazyLock<String> = LazyLock::new(|| {
    format!(
        "select {COLUMNS}, a.at, l.rev, {HAS_STANDBY} from unnest($1::bytea[], $2::bigint[]) with ordinality a(name, rev, at) join \
         fairlock.lock l on l.name = a.name and l.rev <> a.rev"
    )
});

/// What the client is told.
enum Found<'a> {
    Granted(&'a Waiting, FencingToken),
    /// The same, and it may be that no standby knows of it: the answer to the next ask is a commit.
    Unconfirmed(&'a Waiting),
    /// A plain lock is free.
    Free(&'a Waiting),
}

impl Listener {
    /// Polls until the thread has to end.
    pub(crate) fn poll(&self, every: Duration) {
        let (mut seen, mut failures) = (HashMap::new(), 0_u32);
        if !self.link.set(Phase::Polling) {
            return;
        }
        loop {
            self.link.rest(every.max(pause(failures)));
            if self.link.has_to_end() {
                return;
            }
            let (Some(store), Some(client)) = (self.store.upgrade(), self.client.upgrade()) else { return };
            let waiting = self.link.waiting();
            match store.look_at(&waiting, &mut seen) {
                Ok(all) => {
                    failures = 0;
                    for found in all {
                        match found {
                            // It may be known meanwhile: by an answer, or from a step of this process.
                            Found::Granted(Waiting { lock, owner, request }, token) => {
                                let of =
                                    Waiting { lock: lock.clone(), owner: owner.clone(), request: *request };
                                if self.link.waits_no_longer(&of) {
                                    let (lock, owner) = (lock.as_str(), owner.as_str());
                                    client.sink.wake(Wake::Granted { lock, owner, request: *request, token });
                                }
                            }
                            Found::Unconfirmed(Waiting { lock, owner, .. }) => {
                                let (lock, owner) = (lock.as_str(), Some(owner.as_str()));
                                client.sink.wake(Wake::Recheck { lock, owner });
                            }
                            Found::Free(Waiting { lock, .. }) => {
                                client.sink.wake(Wake::Recheck { lock: lock.as_str(), owner: None });
                            }
                        }
                    }
                }
                Err(failure) => {
                    failures = failures.saturating_add(1);
                    if failures == 1 {
                        let error = BackendError::from(failure);
                        log::warn!(target: "fairlock::net", "polling for wake-ups fails, and is tried again: {error}");
                    }
                }
            }
        }
    }
}

impl Store {
    /// What has happened to these requests in rows that were written since they were `seen`.
    fn look_at<'a>(
        &self,
        waiting: &'a [Waiting],
        seen: &mut HashMap<Waiting, i64>,
    ) -> Result<Vec<Found<'a>>, Failure> {
        let mut by_lock: HashMap<&LockName, Vec<&'a Waiting>> = HashMap::new();
        for one in waiting {
            by_lock.entry(&one.lock).or_default().push(one);
        }
        seen.retain(|one, _| by_lock.get(&one.lock).is_some_and(|of_lock| of_lock.contains(&one)));
        if by_lock.is_empty() {
            return Ok(Vec::new());
        }
        let locks: Vec<_> = by_lock.into_iter().collect();
        let names: Vec<_> = locks.iter().map(|(lock, _)| lock.as_str().as_bytes()).collect();
        let revs: Vec<_> = locks.iter().map(|(_, of_lock)| revision_seen_by_all(of_lock, seen)).collect();
        let look = [Statement::new(&LOOK, [Value::ManyBytes(&names), Value::Numbers(&revs)])];
        let deadline = Instant::now() + self.pool.timeouts().response;
        let rows = self.pool.lend(deadline, |con| con.flight(&look, deadline))?;
        let mut all = Vec::new();
        for row in rows.iter().flatten() {
            let at = usize::try_from(row.number(AFTER)? - 1).map_err(|_| Failure::senseless())?;
            let (lock, of_lock) = locks.get(at).ok_or_else(Failure::senseless)?;
            let (rev, has_standby) = (row.number(AFTER + 1)?, row.flag(AFTER + 2)?);
            seen.extend(of_lock.iter().map(|one| ((*one).clone(), rev)));
            // Who asks is told of a state that can't be read.
            let Ok(Loaded { entry, now, .. }) = Loaded::read(lock, row)? else { continue };
            let granted = |one: &&'a Waiting| {
                let token = entry.token_of(&one.owner, one.request, now)?;
                Some(if has_standby { Found::Unconfirmed(one) } else { Found::Granted(one, token) })
            };
            all.extend(of_lock.iter().filter_map(granted));
            let free = of_lock.first().filter(|_| entry.is_free_for_plain(now));
            all.extend(free.map(|one| Found::Free(one)));
        }
        Ok(all)
    }
}

/// A request may have been granted before it was known to wait, in a row that was looked at for others: then the row is read again.
fn revision_seen_by_all(of_lock: &[&Waiting], seen: &HashMap<Waiting, i64>) -> i64 {
    let mut revs = of_lock.iter().map(|one| seen.get(*one).copied().unwrap_or(-1));
    let first = revs.next().unwrap_or(-1);
    if revs.all(|rev| rev == first) { first } else { -1 }
}
