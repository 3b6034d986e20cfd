//! A server's clock that is stepped forward: what was sent by the old one is over when it arrives.

use std::time::Duration;

use fairlock_tests::server_state::scripts_run;
use fairlock_tests::{Alone, Proxy, RedisServer, assert_no_residue};

use super::support::Kind;

/// F1: the client has read the clock when it connected. One trip tells it of the step, and the repeat is granted.
#[test]
fn a_clock_that_was_stepped_forward_costs_one_trip() {
    let _alone = Alone::here();
    for kind in Kind::ALL {
        let server = RedisServer::start();
        kind.warm(&server);
        let proxy = Proxy::start(server.port());
        proxy.set_clock_behind(Duration::from_secs(3600));
        let ours = kind.client(&proxy.url());
        let refused = || {
            let errors: String = server.query(&["INFO", "errorstats"]);
            let late = errors.lines().find_map(|line| line.strip_prefix("errorstat_LATE:count="));
            late.map_or(0, |count| count.parse::<u64>().unwrap())
        };
        let trips = || (scripts_run(&server), refused());
        let (scripts, _) = trips();
        let guard = kind.take(&ours, "stepped");
        assert_eq!(trips(), (scripts + 2, 1), "{kind:?}: one trip more");
        proxy.set_clock_behind(Duration::ZERO);
        guard.unlock().unwrap();
        kind.take(&ours, "stepped").unlock().unwrap();
        assert_eq!(trips(), (scripts + 5, 1), "{kind:?}: and none later");
        assert_no_residue(&server, &[]);
    }
}
