//! Servers that refuse what a server of one's own does not, as managed ones do: locks work, and what is missing is said once.

use std::thread;
use std::time::{Duration, Instant};

use fairlock::settings::{Discipline, RedisBuilder};
use fairlock::{Client, RedisBackend};
use fairlock_tests::log_lines::{keep_log_lines, log_lines};
use fairlock_tests::{Alone, Managed, RedisServer, eventually};

/// Far longer than anything here takes on a busy machine.
const BOUND: Duration = Duration::from_secs(30);

/// A lock of each kind that one owner holds at a time, by its name.
const KINDS: [&str; 5] = ["fair", "plain", "permits", "write", "redisson"];

fn client(builder: RedisBuilder, kind: &str) -> Client {
    let discipline = if kind == "redisson" { Discipline::Redisson } else { Discipline::HandOff };
    Client::builder(builder.discipline(discipline).connect().unwrap()).build().unwrap()
}

/// Takes the lock of this kind, works, and gives it back.
fn cycle(client: &Client, kind: &str, name: &str, work: impl FnOnce()) {
    match kind {
        "fair" | "redisson" => client.fair_lock(name).unwrap().with(|_| work()).unwrap(),
        "plain" => client.plain_lock(name).unwrap().with(|_| work()).unwrap(),
        "permits" => {
            let permits = client.semaphore(name, 3).unwrap().acquire_many(2).unwrap();
            work();
            permits.unlock().unwrap();
        }
        _ => client.rw_lock(name).unwrap().writer().with(|_| work()).unwrap(),
    }
}

/// How long two clients take for so many cycles each of one lock, which goes from one to the other. This happens while the first one
/// holds the lock and the other one waits.
fn hand_overs(
    builder: impl Fn() -> RedisBuilder,
    (kind, name): (&str, &str),
    rounds: usize,
    meanwhile: impl FnOnce(),
) -> Duration {
    let [first, second] = &[client(builder(), kind), client(builder(), kind)];
    let start = Instant::now();
    let cycles = |client: &Client, rounds: usize| {
        (0..rounds).for_each(|_| cycle(client, kind, name, || thread::sleep(Duration::from_millis(1))));
    };
    thread::scope(|scope| {
        cycle(first, kind, name, || {
            scope.spawn(move || cycles(second, rounds));
            eventually("the other one waits", || second.waiting().len() == 1);
            meanwhile();
        });
        cycles(first, rounds - 1);
    });
    start.elapsed()
}

/// What the clients say of this lock's messages, which they may not publish: once for each client.
fn said_once(name: &str) -> Vec<String> {
    let mut said = log_lines(name);
    said.retain(|line| line.contains("may not publish"));
    assert!((1..=2).contains(&said.len()), "{said:?}");
    said
}

/// A client whose scripts can't publish sends their messages, and says so once.
#[test]
fn a_client_sends_what_its_scripts_cannot_publish() {
    let _alone = Alone::here();
    keep_log_lines(log::LevelFilter::Info);
    let managed = Managed::start();
    for kind in KINDS {
        let name = format!("sends:{kind}");
        let took = hand_overs(|| managed.builder(), (kind, &name), 100, || ());
        assert!(took < BOUND, "{kind}: {took:?}"); // by heartbeats: minutes
        said_once(&name);
    }
}

/// A serverless cluster: one node for all slots, no INFO, CONFIG, CLIENT, no PUBLISH in scripts; and it cuts connections.
#[test]
fn locks_of_each_kind_work_on_a_serverless_cluster() {
    let _alone = Alone::here();
    keep_log_lines(log::LevelFilter::Info);
    let managed = Managed::serverless();
    for kind in KINDS {
        let name = format!("serverless:{kind}");
        let took = hand_overs(|| managed.builder(), (kind, &name), 100, || managed.proxy.cut());
        assert!(took < BOUND, "{kind}: {took:?}");
        said_once(&name);
    }
}

/// Waiters of a client that may not publish look for their turns.
#[test]
fn waiters_poll_where_the_client_may_not_publish() {
    let _alone = Alone::here();
    keep_log_lines(log::LevelFilter::Info);
    let server = RedisServer::builder().acl("user mute on >canary ~* &* +@all -publish").start();
    let url = server.url_as("mute", "canary");
    for kind in KINDS {
        let name = format!("polls:{kind}");
        // In Redisson's queue a waiter is told on its own channel; to subscribe takes a while where no message hurries the thread.
        let rounds = if kind == "redisson" { 5 } else { 25 };
        let took = hand_overs(|| RedisBackend::builder(&url), (kind, &name), rounds, || ());
        assert!(took < Duration::from_secs(10), "{kind}: {took:?}"); // by heartbeats: more than a minute
        let said = said_once(&name);
        assert!(
            said.iter().all(|line| line.contains("+publish") || line.contains("every 20 ms")),
            "{said:?}"
        );
    }
}
