//! Lists the locks that exist: a scan of the keys of all servers.

use std::collections::{BTreeMap, BTreeSet};

use fairlock_core::backend::{BackendError, BackendErrorKind, LockId, LockState, MOST_INSPECTED};
use fairlock_core::{Error, LockKind, LockName};
use redis::cmd;

use crate::backend::{RedisBackend, Rules, by_rules};
use crate::net::{Order, Pool, ServerFailure};
use crate::script::reply::{items, number, text, unintelligible};
use crate::script::scripts::{Keys, name_of_queue};
use crate::script::{Kinds, Look};

/// How many keys the server scans in one call: this bounds how long the call blocks the server.
const PAGE: &str = "500";

impl RedisBackend {
    /// Lists all locks that are held or waited for, of all servers, by name: each with its holder, its first waiter and the number of waiters
    /// ([`inspect`](fairlock_core::Admin::inspect) reads the others). `pattern` is as in Redis: `*` for any text, `?` for one
    /// character, `[ab]` for `a` or `b`.
    ///
    /// It scans all keys with SCAN: that never blocks the server for long, but takes a while where there are many. The list
    /// is not a snapshot. Hashes of other programs are left out, and so are locks whose key has another type. For a lock
    /// without waiters in the queue of this backend's discipline, the queue of the other discipline counts, if the user may
    /// read it.
    ///
    /// # Errors
    /// `Unsupported` if a newer version of fairlock keeps one of the locks; `Unavailable` when a server can't be reached; `Denied`
    /// without the rights to SCAN and HLEN, and to the keys.
    pub fn locks(&self, pattern: Option<&str>) -> fairlock_core::Result<Vec<(LockName, LockState)>> {
        let pattern = pattern.unwrap_or("*");
        let (ours, theirs) = (&self.0.fair, self.0.other.as_ref());
        let (mut names, mut others) = (BTreeSet::new(), BTreeSet::new());
        let servers = &self.0.scripts.servers;
        for server in servers.servers().map_err(|failure| failure.explain(servers, "SCAN"))? {
            let pool = &server.pool;
            names.extend(in_queue(pool, pattern, ours)?);
            if let Some(theirs) = theirs {
                others.extend(in_queue(pool, pattern, theirs)?);
            }
            let hashes = scan(pool, pattern, "hash")?;
            names.extend(small(pool, hashes)?);
        }
        let mut found = BTreeMap::new();
        self.inspect_all(&names, ours, true, &mut found)?;
        others.retain(|name| {
            LockName::new(name).is_ok_and(|name| found.get(&name).is_none_or(|state| state.waiting() == 0))
        });
        if let Some(theirs) = theirs {
            self.inspect_all(&others, theirs, false, &mut found)?;
        }
        Ok(found.into_iter().collect())
    }

    /// Adds the names that are locks by these rules.
    fn inspect_all(
        &self,
        names: &BTreeSet<String>,
        rules: &Rules,
        is_own: bool,
        found: &mut BTreeMap<LockName, LockState>,
    ) -> fairlock_core::Result<()> {
        // The script for one lock names the ends of holds, too.
        let kind = if rules.have_shared() { LockKind::ReadWrite } else { LockKind::Fair };
        let locks: Vec<LockId> = names
            .iter()
            .filter_map(|name| LockName::new(name).ok())
            .map(|name| LockId::new(name, kind))
            .filter(|lock| Keys::of(lock).is_ok())
            .collect();
        let is_passed_over = |kind| match kind {
            BackendErrorKind::Corrupt | BackendErrorKind::InvalidName | BackendErrorKind::Mismatch => true,
            // A user with rights to the keys of one kind of lock may lack rights to those of another.
            BackendErrorKind::Denied => !is_own,
            _ => false,
        };
        // The first waiter, the length of the queue, and how many waiters are absent: there may be many.
        let at = Look { from: 0, many: 1, examined: MOST_INSPECTED, kinds: Kinds::Any };
        for page in locks.chunks(100) {
            let calls =
                page.iter().map(|lock| by_rules!(rules, look(lock, &at))).collect::<Result<Vec<_>, _>>()?;
            let replies = self.0.scripts.run_all(&calls, Order::AtOnce);
            for (lock, reply) in page.iter().zip(replies) {
                let reply = reply.map_err(|failure| failure.error);
                match reply.and_then(|reply| by_rules!(rules, seen(LockKind::Fair, &reply))) {
                    Ok(state) if is_a_lock(&state) => drop(found.insert(lock.name.clone(), state)),
                    Err(error) if !is_passed_over(error.kind()) => {
                        return Err(Error::about(&lock.name, error));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// The names of the locks with a queue by these rules, or several holders.
fn in_queue(pool: &Pool, pattern: &str, rules: &Rules) -> Result<Vec<String>, BackendError> {
    let (patterns, kind) = by_rules!(rules, keys_like(pattern));
    let mut names = Vec::new();
    for pattern in &patterns {
        names.extend(
            scan(pool, pattern, kind)?.iter().filter_map(|key| name_of_queue(key)).map(str::to_owned),
        );
    }
    Ok(names)
}

/// All keys of this type that match, and are text.
fn scan(pool: &Pool, pattern: &str, kind: &str) -> Result<Vec<String>, BackendError> {
    let (mut keys, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        let mut command = cmd("SCAN");
        command.arg(&cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(PAGE).arg("TYPE").arg(kind);
        let reply = pool
            .call(command.get_packed_command())
            .map_err(|failure| ServerFailure::at(pool, failure).explain("SCAN"))?;
        let [next, page] = items(&reply)? else { return Err(unintelligible(&reply)) };
        // A key that is not UTF-8 cannot be a lock of fairlock.
        keys.extend(items(page)?.iter().filter_map(|key| text(key).ok()).map(str::to_owned));
        cursor = text(next)?.to_owned();
        if cursor == "0" {
            return Ok(keys);
        }
    }
}

/// The hashes with no more fields than a lock: an owner, and the hand-off's own field.
fn small(pool: &Pool, hashes: Vec<String>) -> Result<Vec<String>, BackendError> {
    let question = |key: &String| cmd("HLEN").arg(key).get_packed_command();
    let packed: Vec<Vec<u8>> = hashes.iter().map(question).collect();
    let mut found = Vec::new();
    for (key, answer) in hashes.into_iter().zip(pool.call_many(&packed)) {
        match answer {
            Ok(length) if number(&length)? <= 2 => found.push(key),
            // The key may have changed its type meanwhile.
            Ok(_) => {}
            Err(failure) if failure.code() == Some("WRONGTYPE") => {}
            Err(failure) => return Err(ServerFailure::at(pool, failure).explain("HLEN")),
        }
    }
    Ok(found)
}

/// Whether the holder has an owner's name as fairlock and Redisson write it, or there are waiters.
fn is_a_lock(state: &LockState) -> bool {
    let is_owner = |owner: &str| {
        let client = owner.split_once(':').map_or("", |(client, _)| client);
        client.len() == 36 && client.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
    };
    state.holder().is_some_and(|holder| is_owner(holder.owner.as_str())) || state.waiting() > 0
}
