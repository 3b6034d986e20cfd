//! Polling, in place of LISTEN: again and again one statement looks at all locks for which a client waits.
//!
//! A look returns only the rows that were written since the last look. It misses nothing: the grant stands in the row, and is found
//! however many looks were late or failed.

use std::collections::BTreeMap;

use fairlock_core::backend::Wake;

use crate::clients::Client;
use crate::link::Waiting;
use crate::net::Failure;
use crate::row::{AFTER, Loaded, changed};
use crate::store::Store;

/// Tells the client what stands in the rows of the locks that it waits for.
pub(crate) fn look_for(store: &Store, client: &Client) -> Result<(), Failure> {
    let waiting = client.link.waiting();
    let mut revs = BTreeMap::new();
    for (Waiting { lock, .. }, seen) in &waiting {
        let first_seen = revs.entry(lock.as_str().as_bytes()).or_insert(*seen);
        *first_seen = (*first_seen).min(*seen);
    }
    if revs.is_empty() {
        return Ok(());
    }
    for row in &store.pool.ask(changed(revs), store.pool.deadline())? {
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
                // Perhaps no standby has the grant. The answer to the next ask is a commit.
                let (lock, owner) = (lock.as_str(), Some(owner.as_str()));
                client.sink.wake(Wake::Recheck { lock, owner });
                continue;
            }
            // The client may know of the grant by now, from an answer or a step of this process.
            if let Some(token) = token.filter(|_| client.link.waits_no_longer(one)) {
                let (lock, owner, request) = (lock.as_str(), owner.as_str(), *request);
                client.sink.wake(Wake::Granted { lock, owner, request, token });
            }
        }
    }
    Ok(())
}
