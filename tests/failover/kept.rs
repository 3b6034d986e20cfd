//! What a server knows of a lock's holds.

use std::collections::BTreeMap;
use std::time::Duration;

use fairlock_tests::RedisServer;

/// The holds by their members (`<owner>:<request>`), and how long the server keeps each. None while it does not answer.
pub(crate) fn kept(server: &RedisServer, lock: &str) -> BTreeMap<String, Duration> {
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
            ends.into_iter().flatten().map(|(member, end)| (member, after(end - now))).collect()
        }
        [_, member, ..] => {
            let left = server.try_query::<i64>(&["PTTL", lock]).unwrap_or_default();
            BTreeMap::from([(member.to_owned(), after(left))])
        }
        _ => BTreeMap::new(),
    }
}
