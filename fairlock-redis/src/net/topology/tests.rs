//! How calls find their server, one address, what is said of a replica, and how several servers are asked. The servers are fake ones.

use std::sync::atomic::{AtomicUsize, Ordering};

use redis::cmd;

use super::*;
use crate::net::connection::Address;
use crate::net::test_server::{Act, FakeServer, SECOND, TIMEOUTS, polite};

/// Each server answers when both are asked, or after a moment.
#[test]
fn servers_are_asked_at_once_or_in_turn() {
    for (order, most) in [(Order::AtOnce, 2), (Order::InTurn, 1)] {
        let asked = Arc::new(AtomicUsize::new(0));
        let seen = Arc::new(AtomicUsize::new(0));
        let servers = [(); 2].map(|()| {
            let (asked, seen) = (Arc::clone(&asked), Arc::clone(&seen));
            FakeServer::start(move |_, words| {
                if words[0] == "ECHO" {
                    asked.fetch_add(1, Ordering::SeqCst);
                    let end = Instant::now() + SECOND / 5;
                    while asked.load(Ordering::SeqCst) < 2 && Instant::now() < end {
                        thread::yield_now();
                    }
                    seen.fetch_max(asked.fetch_sub(1, Ordering::SeqCst), Ordering::SeqCst);
                }
                polite(words)
            })
        });
        let part = |server: &FakeServer| {
            let pool = Arc::new(Pool::new(server.address(), &Settings::new(TIMEOUTS, 1)));
            (Arc::clone(&pool), vec![(0, Route::to(&pool))])
        };
        let echo = |_: usize, _: &Route| cmd("ECHO").arg("x").get_packed_command();
        let replies = ask_each(&servers.each_ref().map(part), &echo, order);
        assert!(replies.iter().all(|replies| replies.len() == 1 && replies[0].is_ok()), "{replies:?}");
        assert_eq!(seen.load(Ordering::SeqCst), most, "{order:?}");
    }
}

/// A server that is asked for the reason of each failure.
struct Explains {
    at: Single,
    explored: AtomicUsize,
}

impl Endpoints for Explains {
    fn next(&self) -> Result<Address, Failure> {
        self.at.next()
    }
}

impl fmt::Display for Explains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.at.fmt(f)
    }
}

impl Topology for Explains {
    fn settings(&self) -> &Settings {
        &self.at.settings
    }

    fn arrangement(&self) -> Arrangement {
        self.at.arrangement()
    }

    fn route(&self, key: &str) -> Result<Route, Failure> {
        self.at.route(key)
    }

    fn was_not_executed(&self, _: &str) -> bool {
        false
    }

    fn explored(&self, failure: Failure) -> Failure {
        self.explored.fetch_add(1, Ordering::SeqCst);
        Failure::refused("WHY", failure.code().unwrap_or_default())
    }

    fn listeners(&self) -> Listeners {
        self.at.listeners()
    }
}

#[test]
fn one_reason_for_many_failures_is_asked_for_once() {
    let server = FakeServer::start(|_, words| match words {
        [word, code] if word == "GET" => Act::Say(format!("-{code} x\r\n")),
        _ => polite(words),
    });
    let settings = Settings::new(TIMEOUTS, 1);
    let pool = Arc::new(Pool::new(server.address(), &settings));
    let topology = Explains { at: Single { pool, settings }, explored: AtomicUsize::new(0) };
    let servers: &dyn Topology = &topology;
    let get = |at: usize, _: &Route| cmd("GET").arg(["ONE", "ONE", "TWO"][at]).get_packed_command();
    let again = |_: usize, _: &Route| Err(Failure::no_answer());
    let answers = servers.call_all(&["k", "l", "m"], get, Order::InTurn, |_, _, reply| reply, again);
    let why = answers.into_iter().map(|answer| answer.expect_err("refused").failure);
    let reasons = ["ONE", "ONE", "TWO"].map(|code| Failure::refused("WHY", code));
    assert_eq!(why.collect::<Vec<_>>(), reasons);
    assert_eq!(topology.explored.load(Ordering::SeqCst), 2);
    assert_eq!(servers.era(), 0);
}

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
        ("-NOPERM no permissions", &*format!("{is} (READONLY You can't write against a read only replica)")),
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

#[test]
fn a_silent_server_does_not_delay_the_others() {
    let good = FakeServer::start(|_, words| polite(words));
    let frozen = FakeServer::start(|_, _| Act::Nothing);
    let asked = Instant::now();
    let question = [cmd("ECHO").arg("a").to_owned(), cmd("ECHO").arg("b").to_owned()];
    let answers = fan_out(&[frozen.address(), good.address()], TIMEOUTS, &question, 1);
    assert!((LONGER..TIMEOUTS.connect).contains(&asked.elapsed()), "{:?}", asked.elapsed());
    let [(address, Ok(replies))] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((address.to_string(), replies.len()), (good.address().to_string(), 2));
}

#[test]
fn without_any_answer_it_ends_on_time() {
    let frozen = FakeServer::start(|_, _| Act::Nothing);
    let asked = Instant::now();
    let answers = fan_out(&[frozen.address(), frozen.address()], TIMEOUTS, &[cmd("PING")], 1);
    assert!(asked.elapsed() < 3 * TIMEOUTS.connect, "{:?}", asked.elapsed());
    assert!(answers.iter().all(|(_, answer)| answer.is_err()), "{answers:?}");
}
