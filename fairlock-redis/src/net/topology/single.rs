//! One server, and what a refusal by a replica means where no other server is known.

use std::fmt;
use std::sync::Arc;

use redis::{Value, cmd};

use super::route::Route;
use super::{Arrangement, Topology};
use crate::net::commands::Pool;
use crate::net::connection::{Address, Failure, REPLICA};
use crate::net::settings::Settings;
use crate::net::subscription::Endpoints;
use crate::net::value::{items, number, text};

/// One server.
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

    /// Decides whether waiting can help a call that a replica has refused.
    ///
    /// Behind sentinels, and in a cluster, READONLY is a sign of a fail-over: the call goes to the new master as soon as that is
    /// known, and to wait for it is right. One address leads to this server and no other. While its master is well, the server stays
    /// a replica, so the call ends at once, and says where the master is. While its master is away, the server may be about to
    /// be promoted, as by a script that has moved an address to it: then the call goes on, as in an outage, and so it does if the
    /// server is a master by now. A user without the right to ROLE learns at once: a wrong address is the likelier cause.
    fn explored(&self, failure: Failure) -> Failure {
        if failure.code() != Some("READONLY") {
            return failure;
        }
        match self.pool.call(cmd("ROLE").get_packed_command()) {
            Ok(role) => match master_of(&role) {
                Some(master) => Failure::refused(REPLICA, &format!("of {master}")),
                None => failure,
            },
            Err(refused) if refused.code().is_some() => {
                Failure::refused(REPLICA, "that does not tell its master")
            }
            Err(_) => failure,
        }
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
        Ok(self.pool.address().clone())
    }
}

impl fmt::Display for Single {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.address().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::net::test_server::{Act, FakeServer, TIMEOUTS, polite};
    use crate::net::topology::{Order, ServerFailure, Servers};

    /// What a call says that is refused by a server with this reply to ROLE.
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
        let pool = Arc::new(Pool::new(server.address(), &settings));
        let servers: Servers = Arc::new(Single { pool, settings });
        let set = cmd("SET").arg("k").arg("v").get_packed_command();
        let failed = servers.call("k", |route| route.call(&set)).expect_err("refused");
        let says = |failed: &ServerFailure| {
            failed.explain("asking").message().replace(&server.address().to_string(), "h:1")
        };
        let asked = asked_for_role.load(Ordering::SeqCst);
        let pack = |_, _: &Route| Cow::Borrowed(set.as_slice());
        let heard = |_, _: &Pool, answer| answer;
        let again = |_, route: &Route| route.call(&set);
        let all = servers.call_all(&["k", "l", "m"], pack, Order::InTurn, heard, again);
        assert_eq!(asked_for_role.load(Ordering::SeqCst), asked + 1, "once for all of them");
        assert!(all.iter().all(|answer| answer.as_ref().is_err_and(|other| says(other) == says(&failed))));
        says(&failed)
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
            ("-NOPERM no permissions", &*format!("{is} (REPLICA that does not tell its master); {then}")),
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
}
