//! One address, and what a refusal by a replica means where no other server is known.
//!
//! The address may belong to one server, or lead to whichever is the master now: a DNS name, a Kubernetes Service, a proxy that
//! checks roles. So when a server turns out to be a replica, all connections are closed ([`Pool`]), the next connections go where
//! the address leads now, and until then there is an outage. Only an address that has never led to a master is a mistake of the
//! configuration.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use redis::{Value, cmd};

use super::{Arrangement, Failed, Route, Topology};
use crate::net::commands::{ALL_ARE_BACK, Listeners, Pool};
use crate::net::connection::{Address, Failure, REPLICA};
use crate::net::settings::Settings;
use crate::net::subscription::Endpoints;
use crate::net::value::{items, number, text};

/// One address.
pub(crate) struct Single {
    pub(crate) pool: Arc<Pool>,
    pub(crate) settings: Settings,
}

impl Topology for Single {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn arrangement(&self) -> Arrangement {
        Arrangement::Single
    }

    fn route(&self, _: &str) -> Result<Route, Failure> {
        Ok(Route::to(&self.pool))
    }

    /// One more attempt only: it connects anew, and reaches the new master or does not.
    fn next_route(&self, failed: &Failed<'_>) -> Option<Route> {
        let is_unexecuted = failed.failure.code().is_some_and(|code| self.was_not_executed(code));
        let may_try = failed.tried == 1 && Instant::now() <= failed.until;
        (is_unexecuted && may_try).then(|| Route::to(&self.pool))
    }

    /// Where the address may be wrong, another attempt is vain.
    fn was_not_executed(&self, code: &str) -> bool {
        matches!(code, "READONLY" | "MASTERDOWN") && !self.pool.may_be_wrong()
    }

    /// Decides whether waiting can help a call that a replica has refused, where there never was a master.
    ///
    /// While its master is well, the server stays a replica, so the call ends at once, and says where the master is. While its master is
    /// away, the server may be about to be promoted, as by a script that has moved an address to it: then the call goes on, as in an
    /// outage, and so it does if the server is a master by now.
    fn explored(&self, failure: Failure) -> Failure {
        if failure.code() != Some("READONLY") || !self.pool.may_be_wrong() {
            return failure;
        }
        let master = self.pool.call(cmd("ROLE").get_packed_command()).ok().and_then(|role| master_of(&role));
        master.map_or(failure, |master| Failure::refused(REPLICA, &format!("of {master}")))
    }

    /// As behind sentinels: after a fail-over the subscribers arrive one by one.
    fn listeners(&self) -> Listeners {
        let has_moved = self.pool.left_since().is_some_and(|since| since <= ALL_ARE_BACK);
        if has_moved { Listeners::Unknown } else { self.pool.listeners() }
    }
}

/// Reads the reply to ROLE of a replica, as far as its master is well: `slave`, host, port, the state of the link, an offset.
fn master_of(role: &Value) -> Option<String> {
    let [role, host, port, link, ..] = items(role).ok()? else { return None };
    let is_well = text(role).ok()? == "slave" && text(link).ok()? == "connected";
    is_well.then_some(format!("{}:{}", text(host).ok()?, number(port).ok()?))
}

impl Endpoints for Single {
    fn next(&self) -> Result<Address, Failure> {
        Ok(self.pool.address_in_charge())
    }

    /// A replica hears what is published at its master, but the scripts there count its own subscribers only.
    fn era(&self) -> u64 {
        self.pool.era()
    }
}

impl fmt::Display for Single {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.address().fmt(f)
    }
}

#[cfg(feature = "night")]
#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::net::test_server::{Act, FakeServer, TIMEOUTS, polite};
    use crate::net::topology::{Order, ServerFailure, Servers};

    /// The failure of a call that was refused by a server with this reply to ROLE.
    fn said(role: &'static str) -> String {
        let asked_for_role = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked_for_role);
        let server = FakeServer::start(move |_, words| match words[0].as_str() {
            "SET" => Act::Say("-READONLY You can't write against a read only replica.\r\n".to_owned()),
            "ROLE" => {
                count.fetch_add(1, Ordering::SeqCst);
                Act::Say(format!("{role}\r\n"))
            }
            _ => polite(words),
        });
        let settings = Settings::new(TIMEOUTS, 1);
        let pool = Arc::new(Pool::of_one_address(server.address(), &settings));
        let servers: Servers = Arc::new(Single { pool, settings });
        let set = cmd("SET").arg("k").arg("v").get_packed_command();
        let failed = servers.call("k", |route| route.call(&set)).expect_err("refused");
        let says = |failed: &ServerFailure| {
            failed.explain("asking").message().replace(&server.address().to_string(), "h:1")
        };
        let asked = asked_for_role.load(Ordering::SeqCst);
        let pack = |_, _: &Route| set.clone();
        let heard = |_, _: &Pool, answer| answer;
        let again = |_, route: &Route| route.call(&set);
        let all = servers.call_all(&["k", "l", "m"], pack, Order::InTurn, heard, again);
        let asked = asked_for_role.load(Ordering::SeqCst) - asked;
        assert!(asked <= 4, "for all of them once, and by the new connections: {asked}");
        assert!(all.iter().all(|answer| answer.as_ref().is_err_and(|other| says(other) == says(&failed))));
        says(&failed)
    }

    /// Connections from this one on lead to a master, earlier ones to a replica.
    fn behind_one_address() -> (Arc<AtomicUsize>, FakeServer, Arc<Pool>, Servers) {
        let first = Arc::new(AtomicUsize::new(0));
        let of_master = Arc::clone(&first);
        let server = FakeServer::start(move |connection, words| {
            let is_master = connection >= of_master.load(Ordering::SeqCst);
            match words[0].as_str() {
                "SET" if !is_master => Act::Say("-READONLY You can't write.\r\n".to_owned()),
                "ROLE" => {
                    let role = if is_master { "master" } else { "slave" };
                    Act::Say(format!("*2\r\n${}\r\n{role}\r\n:7\r\n", role.len()))
                }
                _ => polite(words),
            }
        });
        let settings = Settings::new(TIMEOUTS, 2);
        let pool = Arc::new(Pool::of_one_address(server.address(), &settings));
        let servers: Servers = Arc::new(Single { pool: Arc::clone(&pool), settings });
        (first, server, pool, servers)
    }

    fn set(servers: &Servers) -> Result<Value, ServerFailure> {
        let set = cmd("SET").arg("k").arg("v").get_packed_command();
        servers.call("k", |route| route.call(&set))
    }

    /// A master that became a replica costs its connections and no call.
    #[test]
    fn a_master_turned_replica_costs_connections_and_no_call() {
        let (first, server, _, servers) = behind_one_address();
        // Both connections are used, and lead to the same server.
        std::thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(|| set(&servers).expect("done")))));
        let before = server.connections();
        first.store(before, Ordering::SeqCst);
        assert_eq!((servers.era(), servers.listeners()), (0, Listeners::Known));
        set(&servers).expect("the call goes to the new master");
        assert_eq!((servers.era(), servers.listeners()), (1, Listeners::Unknown), "subscribers move");
        let refused = server.asked("SET").len();
        std::thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(|| set(&servers).expect("done")))));
        assert_eq!(server.asked("SET").len(), refused + 8, "none goes to the old one");
        assert!(server.connections() <= before + 2, "{} after {before}", server.connections());
    }

    /// A replica after a master is an outage that ends with the next master.
    #[test]
    fn a_replica_after_a_master_is_an_outage_until_the_next() {
        let (first, server, pool, servers) = behind_one_address();
        set(&servers).expect("a master");
        first.store(usize::MAX, Ordering::SeqCst);
        let before = server.connections();
        for _ in 0..200 {
            let failed = set(&servers).expect_err("a replica").explain("asking");
            assert_eq!(failed.kind(), fairlock_core::backend::BackendErrorKind::Unavailable, "{failed}");
            assert!(failed.message().contains("is a replica"), "{failed}");
        }
        assert!(server.connections() < before + 10, "{} after {before}", server.connections());
        let at = Endpoints::next(&*servers).expect("the address");
        assert!(crate::net::connection::open(&at, &TIMEOUTS).is_err(), "nor does a subscriber connect");
        first.store(0, Ordering::SeqCst);
        let end = Instant::now() + 10 * TIMEOUTS.connect;
        while set(&servers).is_err() {
            assert!(Instant::now() < end, "it is not noticed");
            std::thread::sleep(TIMEOUTS.connect / 100);
        }
        assert!(!pool.may_be_wrong());
    }

    #[test]
    fn one_address_is_all_servers() {
        let (_, server, _, servers) = behind_one_address();
        assert!(servers.is_one_server() && servers.survey().is_empty() && servers.commands().is_empty());
        assert_eq!((servers.to_string(), servers.count()), (server.address().to_string(), 1));
        let [route] = &servers.servers().expect("a server")[..] else { panic!("not one") };
        assert!(servers.slots_of(&route.pool).is_empty());
        let [(at, Ok(echoed))] = &servers.each(cmd("ECHO").arg("x"))[..] else { panic!("not one") };
        assert_eq!((at.to_string(), text(echoed).ok()), (server.address().to_string(), Some("x")));
    }

    /// What only reads is not refused by a replica.
    #[test]
    fn a_replica_that_is_only_read_is_left_at_the_next_ping() {
        let (first, server, pool, servers) = behind_one_address();
        let echo = cmd("ECHO").arg("x").get_packed_command();
        servers.call("k", |route| route.call(&echo)).expect("a master");
        first.store(server.connections(), Ordering::SeqCst);
        std::thread::sleep(TIMEOUTS.response + TIMEOUTS.response / 10); // idle for so long that it is pinged
        servers.call("k", |route| route.call(&echo)).expect("the new master");
        assert_eq!((pool.era(), server.connections()), (1, 2));
    }

    #[test]
    fn a_replica_is_lasting_only_while_its_master_is_well() {
        let then = "connect to its master, or name the sentinels (redis+sentinel://HOSTS/MASTER)";
        let is = "Redis at h:1, asking: the server is a replica, it takes no writes";
        for (role, says) in [
            (
                "*5\r\n+slave\r\n+10.0.0.1\r\n:7001\r\n+connected\r\n:7",
                &*format!("{is} (REPLICA of 10.0.0.1:7001); {then}"),
            ),
            (
                "-NOPERM no permissions",
                &*format!("{is} (READONLY You can't write against a read only replica)"),
            ),
            (
                "*5\r\n+slave\r\n+10.0.0.1\r\n:7001\r\n+connecting\r\n:7",
                &*format!("{is} (READONLY You can't write against a read only replica)"),
            ),
            (
                "*3\r\n+master\r\n:7\r\n*0",
                &*format!("{is} (READONLY You can't write against a read only replica)"),
            ),
            (":1", &*format!("{is} (READONLY You can't write against a read only replica)")),
        ] {
            assert_eq!(said(role), says);
        }
    }

    #[test]
    fn only_a_refusal_by_a_replica_is_explored() {
        let role = "*5\r\n+slave\r\n+10.0.0.1\r\n:7001\r\n+connected\r\n:7\r\n";
        let (server, settings) = (FakeServer::answering("ROLE", role), Settings::new(TIMEOUTS, 1));
        let pool = Arc::new(Pool::of_one_address(server.address(), &settings));
        let single = Single { pool, settings };
        let says = |code| single.explored(Failure::refused(code, "x")).code().map(str::to_owned);
        assert_eq!([says("NOPERM"), says("READONLY")], ["NOPERM", REPLICA].map(|code| Some(code.to_owned())));
    }
}
