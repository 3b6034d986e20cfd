//! Checks that the server keeps nothing of fairlock's. After every test only keys that expire may be.
//!
//! Once all is released, only `fairlock_record:{name}` and `fairlock_record_raw:name` may remain. They hold the last
//! token of a lock, so that the next one is greater, and have a TTL. The lock, queues, places, ends and time-outs must be
//! gone. With `durable`, the key of the server's life stays, or of each hash slot's.

use std::time::Duration;

use redis::{Cmd, Connection};

use crate::{RedisServer, look_until};

/// The keys that may remain, with a TTL.
const TOKENS: [&str; 2] = ["fairlock_record:", "fairlock_record_raw:"];
/// The key of the server's life, with `durable`; in a cluster the prefix of those of its slots. It belongs to no lock.
const LIFE: &str = "fairlock_life";
/// The prefix of our keys. They must have a TTL even where the caller allows them.
const OURS: &str = "fairlock_";

/// One key of the server.
#[derive(Debug)]
struct Key {
    db: i64,
    name: String,
    /// Milliseconds; `None` without TTL.
    ttl: Option<i64>,
    /// A record that has a place.
    has_place: bool,
}

impl Key {
    fn report(&self) -> String {
        let db = if self.db == 0 { String::new() } else { format!(" in database {}", self.db) };
        let ttl = self.ttl.map_or("no TTL".to_owned(), |ms| format!("TTL {ms} ms"));
        let place = if self.has_place { ", with a place" } else { "" };
        format!("`{}`{db} ({ttl}{place})", self.name.escape_debug())
    }
}

/// Panics with every key, of all databases, that should be gone.
///
/// A token with a TTL may remain. So may a key that matches one of `allow` (`*` stands for any text), but it needs a
/// TTL if its name starts with `fairlock_`.
#[track_caller]
pub fn assert_no_residue(server: &RedisServer, allow: &[&str]) {
    assert_none(&residue(server, allow));
}

#[track_caller]
fn assert_none(left: &[String]) {
    assert!(left.is_empty(), "left behind: {}", left.join(", "));
}

fn residue(server: &RedisServer, allow: &[&str]) -> Vec<String> {
    let may_remain = |key: &Key| {
        let token = !key.has_place && TOKENS.iter().any(|prefix| key.name.starts_with(prefix));
        let allowed = allow.iter().any(|pattern| matches(pattern, &key.name));
        let ends_by_itself = key.ttl.is_some() || !key.name.starts_with(OURS);
        (token || allowed) && ends_by_itself || key.name.starts_with(LIFE)
    };
    keys(server).iter().filter(|key| !may_remain(key)).map(Key::report).collect()
}

/// The same, after a wait: a client that is gone withdraws its last requests in the background. A request that arrives late may still
/// be granted after the last look, until its withdrawal.
#[track_caller]
pub fn wait_until_no_residue(server: &RedisServer) {
    let mut left = Vec::new();
    look_until(Duration::from_secs(60), || {
        left = residue(server, &[]);
        left.is_empty().then_some(())
    });
    assert_none(&left);
}

/// The names of all keys without TTL, of all databases, sorted.
pub fn keys_without_ttl(server: &RedisServer) -> Vec<String> {
    let mut names: Vec<String> = keys(server)
        .into_iter()
        .filter(|key| key.ttl.is_none() && !key.name.starts_with(LIFE))
        .map(|key| key.name)
        .collect();
    names.sort();
    names
}

fn keys(server: &RedisServer) -> Vec<Key> {
    let keyspace: String = server.query(&["INFO", "keyspace"]);
    // Lines like `db0:keys=3,expires=1,avg_ttl=0`, one per database with keys.
    let dbs = keyspace.lines().filter_map(|line| line.strip_prefix("db")?.split(':').next()?.parse().ok());
    dbs.flat_map(|db| keys_of(&mut server.con_to_db(db), db)).collect()
}

fn keys_of(con: &mut Connection, db: i64) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut cursor = 0_u64;
    loop {
        let mut scan = Cmd::new();
        scan.arg("SCAN").arg(cursor).arg("COUNT").arg(1000);
        let (next, names): (u64, Vec<Vec<u8>>) = scan.query(con).expect("SCAN is answered");
        for name in names {
            let mut pttl = Cmd::new();
            pttl.arg("PTTL").arg(&name);
            let ttl = match pttl.query::<i64>(con).expect("PTTL is answered") {
                -2 => continue, // the key expired between the two queries
                -1 => None,
                ms => Some(ms),
            };
            let name = String::from_utf8_lossy(&name).into_owned();
            let is_record = TOKENS.iter().any(|prefix| name.starts_with(prefix));
            let fields = is_record.then(|| Cmd::hkeys(&name).query::<Vec<String>>(con).unwrap_or_default());
            let has_place = fields.is_some_and(|fields| fields.iter().any(|field| field.contains(':')));
            keys.push(Key { db, name, ttl, has_place });
        }
        cursor = next;
        if cursor == 0 {
            // SCAN may return a key twice.
            keys.sort_by(|a, b| a.name.cmp(&b.name));
            keys.dedup_by(|a, b| a.name == b.name);
            return keys;
        }
    }
}

/// Whether `text` matches `pattern`, where `*` stands for any text, even none.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            let cuts = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
            cuts.into_iter().any(|at| matches(after, &rest[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text) in
            [("a", "a"), ("*", ""), ("a*", "abc"), ("a*c", "abcc"), ("*{x}", "q:{x}"), ("é*", "éé")]
        {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("a", "ab"), ("a*c", "abd"), ("", "a"), ("b*", "ab")] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}
