//! Nodes that redirect callers in circles, and slots that migrate.

use std::sync::atomic::AtomicUsize;

use redis::{Value, cmd};

use super::*;
use crate::net::settings::Settings;
use crate::net::test_server::{Act, FakeServer, TIMEOUTS, polite};
use crate::net::topology::{Failed, Order, Servers};

/// A node that names `owner` as the owner of all slots, and answers GET by `act`, which gets the number of the connection.
fn node(
    owner: impl Fn() -> u16 + Send + Sync + 'static,
    act: impl Fn(usize, &[String]) -> Act + Send + Sync + 'static,
) -> FakeServer {
    FakeServer::start(move |number, words| match words[0].as_str() {
        "CLUSTER" => {
            Act::Say(format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{}\r\n", owner()))
        }
        "GET" | "ASKING" => act(number, words),
        _ => polite(words),
    })
}

fn say(text: &str) -> Act {
    Act::Say(format!("{text}\r\n"))
}

/// A node that owns all slots itself.
fn owner(act: impl Fn(usize, &[String]) -> Act + Send + Sync + 'static) -> FakeServer {
    let own = Arc::new(AtomicUsize::new(0));
    let known = Arc::clone(&own);
    let node = node(move || u16::try_from(known.load(Ordering::SeqCst)).expect("a port"), act);
    own.store(usize::from(node.port()), Ordering::SeqCst);
    node
}

fn cluster(seeds: &[&FakeServer]) -> Servers {
    let seeds = seeds.iter().map(|seed| seed.address()).collect();
    let settings = Settings::new(TIMEOUTS, 1);
    Cluster::connect(seeds, &settings).expect("a cluster")
}

fn get(topology: &Servers) -> Result<Value, Failure> {
    let packed = cmd("GET").arg("k").get_packed_command();
    topology.call("k", |route| route.call(&packed)).map_err(|trouble| trouble.failure)
}

fn code(answer: Result<Value, Failure>) -> String {
    answer.expect_err("a refusal").code().expect("a refusal").to_owned()
}

fn text(answer: &str) -> Result<Value, Failure> {
    Ok(Value::SimpleString(answer.to_owned()))
}

/// Two nodes; the second keeps all slots but two.
fn two_nodes() -> ([FakeServer; 2], Arc<Cluster>) {
    let second = FakeServer::start(|_, words| polite(words));
    let (own, to) = (Arc::new(AtomicUsize::new(0)), second.port());
    let known = Arc::clone(&own);
    let first = FakeServer::start(move |_, words| match words[0].as_str() {
        "CLUSTER" => {
            let range = |first, last, port| {
                format!("*3\r\n:{first}\r\n:{last}\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n")
            };
            let own = known.load(Ordering::SeqCst);
            Act::Say(format!("*2\r\n{}{}", range(0, 1, own), range(2, 16383, to.into())))
        }
        _ => polite(words),
    });
    own.store(usize::from(first.port()), Ordering::SeqCst);
    let cluster = Cluster::connect(vec![first.address()], &Settings::new(TIMEOUTS, 1)).expect("a cluster");
    ([first, second], cluster)
}

#[test]
fn each_node_keeps_its_slots_and_is_asked() {
    let ([first, second], cluster) = two_nodes();
    let servers: Servers = cluster;
    assert!(!servers.is_one_server());
    assert_eq!(servers.to_string(), format!("cluster of {}", first.address()));
    let routes = servers.servers().expect("nodes");
    let slots: Vec<usize> = routes.iter().map(|route| servers.slots_of(&route.pool).len()).collect();
    assert_eq!(slots, [2, 16382]);
    let said = servers.each(cmd("ECHO").arg("x")); // a slow one may be missing
    assert!(!said.is_empty() && said.iter().all(|(_, reply)| *reply == Ok(Value::BulkString("x".into()))));
    assert_eq!(servers.commands(), [&["CLUSTER", "SLOTS"][..], &["ASKING"]]);
    assert_eq!(servers.count(), 2);
    let tried: Vec<String> = (0..4).map(|_| servers.next().expect("a node").to_string()).collect();
    for node in [first, second] {
        assert!(servers.serves(&node.address()) && tried.contains(&node.address().to_string()), "{tried:?}");
    }
    assert!(!servers.serves(&Address::parse("redis://elsewhere").expect("an address")));
}

#[test]
fn a_call_goes_on_to_another_node_as_often_as_may_be() {
    let ([first, _second], cluster) = two_nodes();
    let (here, until) = (cluster.route("k").expect("a node"), Instant::now() + 60 * TIMEOUTS.response);
    let there = Route::to(&cluster.node(&first.address()));
    let goes_on = |route, failure: &Failure, tried| {
        let failed = Failed { key: "k", route, failure, tried, until };
        cluster.next_route(&failed).is_some()
    };
    let asked = Instant::now();
    assert!(cluster.after_pause("k", 3, until).is_some() && asked.elapsed() >= 8 * MIGRATION_PAUSE);
    let unsent = Failure::NotSent("x".into());
    assert!(!goes_on(&here, &unsent, 1), "there is no other");
    assert!(goes_on(&there, &unsent, MOST_HOPS - 1) && !goes_on(&there, &unsent, MOST_HOPS));
    let moved = Failure::refused("MOVED", "7629 127.0.0.1:1");
    assert!(goes_on(&here, &moved, MOST_HOPS) && !goes_on(&here, &moved, MOST_HOPS + 1));
    let said = |code| cluster.settled(Failure::refused(code, "x")).code().map(str::to_owned);
    assert_eq!((said("ASK").as_deref(), said("NOPERM").as_deref()), (Some("TRYAGAIN"), Some("NOPERM")));
    let codes = ["MOVED", "ASK", "TRYAGAIN"].map(|code| cluster.was_not_executed(code));
    assert_eq!(codes, [true, true, false]);
}

#[test]
fn a_map_in_doubt_is_refreshed_after_a_pause() {
    let (_nodes, cluster) = two_nodes();
    let mut map = cluster.map.lock();
    for (doubted, refreshed, is_due) in [
        (true, Some(Instant::now() + PAUSE), false),
        (true, Some(Instant::now() - PAUSE), true),
        (true, None, true),
        (false, None, false),
    ] {
        (map.doubted, map.refreshed) = (doubted, refreshed);
        assert_eq!(map.is_due(), is_due);
    }
}

/// Nothing of it can be at a server.
#[test]
fn a_command_for_a_slot_that_no_node_keeps_is_unsent() {
    let own = Arc::new(AtomicUsize::new(0));
    let known = Arc::clone(&own);
    let node = FakeServer::start(move |_, words| match words[0].as_str() {
        "CLUSTER" => {
            let port = known.load(Ordering::SeqCst);
            Act::Say(format!("*1\r\n*3\r\n:0\r\n:100\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n"))
        }
        _ => polite(words),
    });
    own.store(usize::from(node.port()), Ordering::SeqCst);
    let (cluster, packed) = (cluster(&[&node]), cmd("GET").arg("k").get_packed_command());
    let failed = cluster.call("k", |route| route.call(&packed)).expect_err("slot 7629 has no keeper");
    assert_eq!(failed.failure.code(), Some("CLUSTERDOWN"));
    assert!(failed.explain("asking").is_unsent());
    assert!(node.asked("GET").is_empty());
}

#[test]
fn nodes_that_redirect_in_circles_are_left() {
    let there = Arc::new(AtomicUsize::new(0));
    let to = Arc::clone(&there);
    let one = owner(move |_, _| say(&format!("-MOVED 7629 127.0.0.1:{}", to.load(Ordering::SeqCst))));
    let back = one.port();
    let other = owner(move |_, _| say(&format!("-ASK 7629 127.0.0.1:{back}")));
    there.store(usize::from(other.port()), Ordering::SeqCst);
    // Not that they are of a cluster, which the client knows.
    assert_eq!(code(get(&cluster(&[&one]))), "TRYAGAIN");
    let asked = [&one, &other].map(|node| node.asked("GET").len() + node.asked("ASKING").len());
    // ASKING is answered in the same way and counted, hence more than one for each hop.
    assert!(asked[0] + asked[1] <= 2 * MOST_HOPS as usize + 2, "{asked:?}");
}

#[test]
fn migrating_keys_are_waited_for_but_not_for_long() {
    let again = "-TRYAGAIN Multiple keys request during rehashing of slot";
    let asked = AtomicUsize::new(0);
    let moving =
        owner(move |_, _| say(if asked.fetch_add(1, Ordering::SeqCst) < 3 { again } else { "+there" }));
    assert_eq!(get(&cluster(&[&moving])), text("there"));
    let stuck = owner(move |_, _| say(again));
    let start = Instant::now();
    assert_eq!(code(get(&cluster(&[&stuck]))), "TRYAGAIN");
    assert!(start.elapsed() < 3 * TIMEOUTS.response, "{:?}", start.elapsed());
}

#[test]
fn a_request_that_may_have_been_executed_is_not_repeated() {
    let node = owner(|_, _| Act::HangUp);
    assert!(matches!(get(&cluster(&[&node])), Err(Failure::Broken(_))));
    assert_eq!(node.asked("GET").len(), 1);
}

/// Garbage, and servers without cluster mode, are refused at connect.
#[test]
fn garbage_and_no_cluster_mode_are_refused_at_connect() {
    let connect = |reply: &'static str| {
        let server = FakeServer::answering("CLUSTER", format!("{reply}\r\n"));
        Cluster::connect(vec![server.address()], &Settings::new(TIMEOUTS, 1)).err().expect(reply)
    };
    use fairlock_core::backend::BackendErrorKind::{InvalidConfig, Unavailable};
    assert_eq!(connect("-ERR This instance has cluster support disabled").kind(), InvalidConfig);
    for garbage in ["+OK", "*0", "*1\r\n*0", ":5"] {
        assert_eq!(connect(garbage).kind(), Unavailable, "{garbage}");
    }
}

/// Many calls at once get their answers in order, whichever node they are for.
#[test]
fn many_calls_to_several_nodes_are_answered_in_order() {
    let one = owner(|_, words| say(&format!("+one-{}", words[1])));
    let to = one.port();
    let two = owner(move |_, words| match words[1].as_str() {
        "c" => say(&format!("-MOVED 7365 127.0.0.1:{to}")),
        lock => say(&format!("+two-{lock}")),
    });
    let cluster = cluster(&[&two]);
    let locks = ["a", "b", "c", "}", "d"];
    let packed: Vec<Vec<u8>> = locks.iter().map(|lock| cmd("GET").arg(lock).get_packed_command()).collect();
    let packed: Vec<&[u8]> = packed.iter().map(Vec::as_slice).collect();
    let answers = cluster.call_all(
        &locks,
        |at, _| packed[at].into(),
        Order::AtOnce,
        |_, _, reply| reply,
        |at, route| route.call(packed[at]),
    );
    let shown: Vec<String> = answers
        .into_iter()
        .map(|answer| match answer {
            Ok(Value::SimpleString(text)) => text,
            other => other.expect_err("a text or a refusal").failure.code().unwrap_or_default().to_owned(),
        })
        .collect();
    assert_eq!(shown, ["two-a", "two-b", "one-c", "CROSSSLOT", "two-d"]);
}
