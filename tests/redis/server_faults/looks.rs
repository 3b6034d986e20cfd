//! Queries about a server and about this process.

use fairlock_tests::RedisServer;

/// The members in the queue, the first one first, including those that are not UTF-8.
pub(crate) fn queue_bytes(server: &RedisServer, name: &str) -> Vec<Vec<u8>> {
    server.query(&["ZRANGE", &format!("fairlock_queue:{{{name}}}"), "0", "-1"])
}

/// A number from INFO: `info(server, "stats", "rejected_connections:")`.
pub(crate) fn info(server: &RedisServer, section: &str, name: &str) -> u64 {
    let info: String = server.query(&["INFO", section]);
    let rest = info.lines().find_map(|line| line.split_once(name)).map(|(_, rest)| rest.to_owned());
    let digits: String = rest.unwrap_or_default().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

/// The memory of this process, in kB.
pub(crate) fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
