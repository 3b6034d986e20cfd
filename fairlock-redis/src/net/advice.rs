//! Checks the servers when a backend connects: what they are, and whether locks are safe there. It refuses a sentinel, and
//! else only warns: what cannot work shows at the first call, and a user may lack the right to INFO.

use fairlock_core::backend::{BackendError, BackendErrorKind};
use redis::cmd;

use super::topology::Topology;
use crate::reply::{field, text};

/// The oldest version that is tested.
const OLDEST: (u32, u32) = (6, 2);

/// Reads INFO from each server and logs what should be changed.
///
/// # Errors
/// `InvalidConfig` if the only server is a sentinel.
pub(crate) fn check(servers: &Topology) -> Result<(), BackendError> {
    for (address, answer) in servers.describe(&cmd("INFO")) {
        match answer.as_ref().map(text) {
            Ok(Ok(info)) if mode(info) == Some("sentinel") => {
                let message = format!(
                    "Redis at {address}, connecting: it is a sentinel, which keeps no locks; \
                     write redis+sentinel://{address}/MASTER, or call RedisBackend::connect_sentinel"
                );
                return Err(BackendError::new(BackendErrorKind::InvalidConfig, message));
            }
            Ok(Ok(info)) => {
                for Advice { text, .. } in advice(info, servers) {
                    log::warn!(
                        target: "fairlock::net",
                        event = "advice", server:% = address;
                        "Redis at {address}: {text}"
                    );
                }
            }
            Ok(Err(_)) => {
                log::debug!(
                    target: "fairlock::net",
                    event = "no advice", server:% = address;
                    "Redis at {address}: INFO can't be read"
                );
            }
            Err(failure) => {
                log::debug!(
                    target: "fairlock::net",
                    event = "no advice", server:% = address, error:% = failure;
                    "Redis at {address}: no INFO: {failure}"
                );
            }
        }
    }
    Ok(())
}

/// Something that makes locks unsafe.
#[derive(Clone, Debug)]
pub(crate) struct Advice {
    pub(crate) topic: Topic,
    pub(crate) text: String,
}

/// What an advice is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    Version,
    Eviction,
    Role,
}

/// Standalone, sentinel or cluster. Valkey has another name for it.
fn mode(info: &str) -> Option<&str> {
    field(info, "redis_mode").or_else(|| field(info, "server_mode"))
}

pub(crate) fn advice(info: &str, servers: &Topology) -> Vec<Advice> {
    let field = |name: &str| field(info, name);
    let mut advice = Vec::new();
    let mut say = |topic, text| advice.push(Advice { topic, text });
    if let Some(version) = field("redis_version")
        && numbers(version).is_some_and(|version| version < OLDEST)
    {
        let (major, minor) = OLDEST;
        say(Topic::Version, format!("its version is {version}; update it to {major}.{minor} or later"));
    }
    if let Some(policy) = field("maxmemory_policy")
        && policy != "noeviction"
    {
        let text =
            format!("maxmemory-policy is {policy}: an evicted lock is a lost one; set it to noeviction");
        say(Topic::Eviction, text);
    }
    if let Topology::Single(_) = servers {
        if field("role") == Some("slave") {
            say(Topic::Role, "it is a replica, which takes no writes; connect to its master".to_owned());
        }
        if mode(info) == Some("cluster") {
            say(
                Topic::Role,
                "it is a node of a cluster; connect with RedisBackend::connect_cluster".to_owned(),
            );
        }
    }
    advice
}

fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::net::commands::Pool;
    use crate::net::test_server::{TIMEOUTS, TestServer};

    fn single(server: &TestServer) -> Topology {
        Topology::Single(Arc::new(Pool::new(server.address(), TIMEOUTS, 1)))
    }

    fn said(server: &TestServer) -> Vec<String> {
        let servers = single(server);
        let described = servers.describe(&cmd("INFO"));
        let [(_, Ok(info))] = &described[..] else { panic!("{described:?}") };
        advice(text(info).expect("a text"), &servers).into_iter().map(|advice| advice.text).collect()
    }

    #[test]
    fn a_well_configured_server_gets_no_advice() {
        assert_eq!(said(&TestServer::start()), [""; 0]);
    }

    #[test]
    fn what_should_be_changed_is_said() {
        let server = TestServer::start_with(&["--maxmemory-policy", "allkeys-lru"]);
        let advice = said(&server);
        assert!(advice.len() == 1 && advice[0].contains("set it to noeviction"), "{advice:?}");
        server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
        server.command(&["REPLICAOF", "127.0.0.1", "1"]);
        assert!(said(&server)[0].contains("connect to its master"), "{:?}", said(&server));
        let node = TestServer::start_with(&["--cluster-enabled", "yes"]);
        assert!(said(&node)[0].contains("RedisBackend::connect_cluster"), "{:?}", said(&node));
    }

    #[test]
    fn only_old_versions_get_advice() {
        let server = TestServer::start();
        let servers = single(&server);
        let of = |version: &str| advice(&format!("# Server\r\nredis_version:{version}\r\n"), &servers).len();
        for (version, count) in
            [("6.0.16", 1), ("5.0.3", 1), ("6.2.0", 0), ("7.0", 0), ("10.0.1", 0), ("x", 0), ("", 0)]
        {
            assert_eq!(of(version), count, "{version}");
        }
    }

    #[test]
    fn a_user_without_the_right_to_info_is_not_refused() {
        let server = TestServer::start();
        server.command(&["ACL", "SETUSER", "blind", "on", ">pw", "~*", "&*", "+@all", "-info"]);
        let pool = Pool::new(server.address_as("blind:pw@"), TIMEOUTS, 1);
        check(&Topology::Single(Arc::new(pool))).expect("no sentinel");
    }
}
