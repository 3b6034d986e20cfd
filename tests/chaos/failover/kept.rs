//! What a server knows of a lock's holds.

use std::collections::BTreeMap;
use std::time::Duration;

use fairlock_tests::RedisServer;

/// A hold that a server knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    /// How long the server keeps it.
    pub(crate) left: Duration,
    /// Of the lock's units.
    pub(crate) takes_all: bool,
}

/// The holds by their members, `<owner>:<request>`. None while the server does not answer.
pub(crate) fn kept(server: &RedisServer, lock: &str) -> BTreeMap<String, Kept> {
    let after = |left: i64| Duration::from_millis(u64::try_from(left).unwrap_or_default());
    let mode: String = server.try_query(&["HGET", lock, "mode"]).unwrap_or_default();
    // `<capacity> <member> …` for a hold of all units: its lease is the key's. Else `of <capacity> <used>`.
    match mode.split(' ').collect::<Vec<_>>()[..] {
        ["of", ..] => {
            let ends = format!("fairlock_ends:{{{lock}}}");
            let ends = server.try_query::<Vec<(String, i64)>>(&["ZRANGE", &ends, "0", "-1", "WITHSCORES"]);
            let Ok((seconds, micros)) = server.try_query::<(i64, i64)>(&["TIME"]) else {
                return BTreeMap::new();
            };
            let now = 1000 * seconds + micros / 1000;
            let kept = |end: i64| Kept { left: after(end - now), takes_all: false };
            ends.into_iter().flatten().map(|(member, end)| (member, kept(end))).collect()
        }
        [_, member, ..] => {
            let left = server.try_query::<i64>(&["PTTL", lock]).unwrap_or_default();
            BTreeMap::from([(member.to_owned(), Kept { left: after(left), takes_all: true })])
        }
        _ => BTreeMap::new(),
    }
}

/// Whether the member is a request of this owner.
pub(crate) fn is_of(member: &str, owner: &str) -> bool {
    member.strip_prefix(owner).is_some_and(|request| request.starts_with(':'))
}
