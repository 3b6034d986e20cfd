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
    let fields = server.try_query::<BTreeMap<String, String>>(&["HGETALL", lock]).unwrap_or_default();
    let Some(capacity) = fields.get("mode") else { return BTreeMap::new() };
    let holds = fields.iter().filter(|(field, _)| field.contains(':'));
    let holds = holds.map(|(member, hold)| (member.clone(), hold.split(' ').next() == Some(capacity)));
    if capacity == "1" {
        // Its lease is the key's.
        let left = server.try_query::<i64>(&["PTTL", lock]).unwrap_or_default();
        return holds.map(|(member, takes_all)| (member, Kept { left: after(left), takes_all })).collect();
    }
    let ends = format!("fairlock_ends:{{{lock}}}");
    let ends = server.try_query::<BTreeMap<String, i64>>(&["ZRANGE", &ends, "0", "-1", "WITHSCORES"]);
    let (Ok(ends), Ok((seconds, micros))) = (ends, server.try_query::<(i64, i64)>(&["TIME"])) else {
        return BTreeMap::new();
    };
    let now = 1000 * seconds + micros / 1000;
    let kept = |(member, takes_all)| {
        let left = after(ends.get(&member)? - now);
        Some((member, Kept { left, takes_all }))
    };
    holds.filter_map(kept).collect()
}

/// Whether the member is a request of this owner.
pub(crate) fn is_of(member: &str, owner: &str) -> bool {
    member.strip_prefix(owner).is_some_and(|request| request.starts_with(':'))
}
