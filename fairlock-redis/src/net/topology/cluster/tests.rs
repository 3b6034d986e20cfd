//! Nodes that redirect callers in circles, and slots that migrate.

use std::sync::atomic::AtomicUsize;

use redis::Value;

use super::*;
use crate::net::settings::Settings;
use crate::net::test_server::{Act, FakeServer, TIMEOUTS, polite};
use crate::net::topology::{Order, Servers};

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

#[test]
fn moved_is_followed_and_remembered() {
    let right = owner(|_, _| say("+right"));
    let (to, asked) = (right.port(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&asked);
    let wrong = owner(move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        say(&format!("-MOVED 7629 127.0.0.1:{to}"))
    });
    let cluster = cluster(&[&wrong]);
    for _ in 0..3 {
        assert_eq!(get(&cluster), Ok(Value::SimpleString("right".to_owned())));
    }
    // Once; and perhaps once more, after the map was refreshed from the nodes, one of which is wrong.
    assert!(asked.load(Ordering::SeqCst) <= 2, "{asked:?}");
}

#[test]
fn nodes_that_redirect_in_circles_are_left() {
    let (there, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (to, count) = (Arc::clone(&there), Arc::clone(&asked));
    let one = owner(move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        say(&format!("-MOVED 7629 127.0.0.1:{}", to.load(Ordering::SeqCst)))
    });
    let (back, count) = (one.port(), Arc::clone(&asked));
    let other = owner(move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        say(&format!("-ASK 7629 127.0.0.1:{back}"))
    });
    there.store(usize::from(other.port()), Ordering::SeqCst);
    let code = code(get(&cluster(&[&one])));
    assert!(code == "MOVED" || code == "ASK", "{code}");
    // ASKING is answered in the same way and counted, hence more than one for each hop.
    assert!(asked.load(Ordering::SeqCst) <= 2 * MOST_HOPS as usize + 2, "{asked:?}");
}

#[test]
fn ask_is_followed_with_asking_on_the_same_connection_and_not_remembered() {
    let asking = Arc::new(Mutex::new(None));
    let new = owner(move |number, words| {
        let mut asking = asking.lock();
        if words[0] == "ASKING" {
            *asking = Some(number);
            return say("+OK");
        }
        if asking.take() == Some(number) { say("+new") } else { say("-MOVED 7629 127.0.0.1:1") }
    });
    let (to, asked) = (new.port(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&asked);
    let old = owner(move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        say(&format!("-ASK 7629 127.0.0.1:{to}"))
    });
    let cluster = cluster(&[&old]);
    for _ in 0..3 {
        assert_eq!(get(&cluster), Ok(Value::SimpleString("new".to_owned())));
    }
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

#[test]
fn migrating_keys_are_waited_for_but_not_for_long() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let moving = owner(move |_, _| match count.fetch_add(1, Ordering::SeqCst) {
        0..3 => say("-TRYAGAIN Multiple keys request during rehashing of slot"),
        _ => say("+there"),
    });
    assert_eq!(get(&cluster(&[&moving])), Ok(Value::SimpleString("there".to_owned())));
    let stuck = owner(|_, _| say("-TRYAGAIN Multiple keys request during rehashing of slot"));
    let start = Instant::now();
    assert_eq!(code(get(&cluster(&[&stuck]))), "TRYAGAIN");
    assert!(start.elapsed() < 3 * TIMEOUTS.response, "{:?}", start.elapsed());
}

#[test]
fn a_request_that_may_have_been_executed_is_not_repeated() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let node = owner(move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        Act::HangUp
    });
    let cluster = cluster(&[&node]);
    assert!(matches!(get(&cluster), Err(Failure::Broken(_))));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[test]
fn a_dead_node_is_left_when_the_others_name_another_one() {
    let (new, dead) = (owner(|_, _| say("+new")), FakeServer::start(|_, _| Act::HangUp));
    let (dead, heir) = (dead.port(), new.port());
    let turn = Arc::new(AtomicUsize::new(0));
    let of = Arc::clone(&turn);
    // Its first answer still names the dead node.
    let voter =
        node(move || if of.fetch_add(1, Ordering::SeqCst) == 0 { dead } else { heir }, |_, _| Act::HangUp);
    let cluster = cluster(&[&voter]);
    // It was asked just now, and is not asked again at once, so the first call may fail.
    let end = Instant::now() + 10 * TIMEOUTS.response;
    let answer =
        std::iter::repeat_with(|| get(&cluster)).find(|answer| answer.is_ok() || Instant::now() > end);
    assert_eq!(answer, Some(Ok(Value::SimpleString("new".to_owned()))));
}

#[test]
fn garbage_and_servers_without_cluster_mode_are_refused_at_connect() {
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

#[test]
fn many_calls_at_once_get_their_answers_in_order_whichever_node_they_are_for() {
    let one = owner(|_, words| say(&format!("+one-{}", words[1])));
    let to = one.port();
    let half = move |words: &[String]| {
        if words[1] == "c" {
            say(&format!("-MOVED 7365 127.0.0.1:{to}"))
        } else {
            say(&format!("+two-{}", words[1]))
        }
    };
    let two = owner(move |_, words| half(words));
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
