//! Sentinels that are far, silent, young, or of another mind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::sleep;

use super::*;
use crate::net::settings::Settings;
use crate::net::test_server::{Act, FakeServer, TIMEOUTS, bulk, confirmed, polite};

const TERMS: MajorityTerms =
    MajorityTerms { proof_age: Duration::from_secs(60), least_uptime: Duration::from_secs(10) };
/// What a far sentinel takes for its answer: more than it once had.
const FAR: Duration = Duration::from_millis(300);
const NEAR: Duration = Duration::ZERO;
/// A sentinel this far says nothing.
const SILENT: Duration = Duration::MAX;

/// A sentinel that answers after this time, is up for so many seconds, and names this port as the master; all under one epoch.
fn voter(id: char, far: Duration, up: i64, names: &Arc<AtomicU16>) -> FakeServer {
    let names = Arc::clone(names);
    FakeServer::start(move |_, words| match words.get(1).map(String::as_str) {
        Some(channel) if words[0] == "subscribe" => Act::Say(confirmed(channel)),
        Some("get-master-addr-by-name") if far == SILENT => Act::Nothing,
        Some("get-master-addr-by-name") => {
            sleep(far);
            let port = names.load(Ordering::SeqCst).to_string();
            Act::Say(format!("*2\r\n{}{}", bulk("127.0.0.1"), bulk(&port)))
        }
        Some("master") => Act::Say(format!("*2\r\n{}{}", bulk("config-epoch"), bulk("1"))),
        Some("myid") => Act::Say(bulk(&id.to_string())),
        Some("server") => {
            let run: String = [id; 12].iter().collect();
            Act::Say(bulk(&format!("run_id:{run}\r\nuptime_in_seconds:{up}\r\n")))
        }
        _ => polite(words),
    })
}

fn master() -> (FakeServer, Arc<AtomicU16>) {
    let role = format!("*3\r\n{}:0\r\n*0\r\n", bulk("master"));
    let master = FakeServer::answering("ROLE", role);
    let port = Arc::new(AtomicU16::new(master.port()));
    (master, port)
}

fn connect(voters: &[FakeServer]) -> Arc<Sentinel> {
    let settings = Settings { majority: Some(TERMS), ..Settings::new(TIMEOUTS, 1) };
    let addresses: Vec<Address> = voters.iter().map(FakeServer::address).collect();
    Sentinel::connect(addresses.clone(), addresses[0].clone(), "m", &settings).expect("a majority")
}

fn unlinked(voters: &[Address]) -> Sentinel {
    crate::net::topology::sentinel::tests::unlinked(voters.to_vec(), Some(TERMS))
}

fn named_by(sentinel: &Sentinel) -> String {
    let route = sentinel.find().expect("a majority");
    let short: Vec<&str> = route.voters.as_deref().expect("voters").split(' ').map(|run| &run[..1]).collect();
    short.join(" ")
}

/// A far sentinel is waited for while the near ones do not decide.
#[test]
fn a_far_sentinel_is_awaited_if_near_ones_do_not_decide() {
    let (_master, port) = master();
    let elsewhere = Arc::new(AtomicU16::new(1));
    for (up, other) in [(3, &port), (60, &elsewhere)] {
        let voters = [voter('a', NEAR, 60, &port), voter('b', NEAR, up, other), voter('c', FAR, 60, &port)];
        assert_eq!(named_by(&connect(&voters)), "2 a c", "{up}");
    }
}

/// Else the life of the server would be a new one as soon as it is needed.
#[test]
fn a_far_sentinel_delays_nobody_and_is_one_of_the_voters() {
    let (_master, port) = master();
    let voters = [voter('a', NEAR, 60, &port), voter('b', NEAR, 60, &port), voter('c', FAR, 60, &port)];
    let sentinel = connect(&voters);
    // The machine may be busy during some of these votes.
    let is_quick = |_| {
        sentinel.state.lock().doubt();
        let asked = Instant::now();
        named_by(&sentinel) == "2 a b" && asked.elapsed() < FAR
    };
    assert!((0..20).any(is_quick));
    let asked = Instant::now();
    while named_by(&sentinel) != "2 a b c" {
        assert!(asked.elapsed() < 30 * FAR, "it does not become a voter");
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_sentinel_whose_clock_was_set_back_counts_after_its_time() {
    let (_master, port) = master();
    let voters = [voter('a', NEAR, 60, &port), voter('b', NEAR, -3600, &port)];
    let addresses: Vec<Address> = voters.iter().map(FakeServer::address).collect();
    let (sentinel, asked) = (unlinked(&addresses), Instant::now());
    let terms = MajorityTerms { least_uptime: Duration::from_millis(300), ..TERMS };
    let vote = || sentinel.vote(&addresses, terms);
    assert!(vote().expect_err("it may have forgotten").to_string().contains("1 may have forgotten"));
    while vote().is_err() {
        assert!(asked.elapsed() < 30 * TIMEOUTS.response, "it does not count");
    }
    assert!(asked.elapsed() > terms.least_uptime, "{:?}", asked.elapsed());
}

#[test]
fn a_vote_ends_when_no_answer_can_change_it() {
    let (_master, port) = master();
    let [near, young] = [60, 3].map(|up| move |id| (id, NEAR, up));
    let voters = [near('a'), young('b'), young('c'), ('d', SILENT, 60)];
    let voters = voters.map(|(id, far, up)| voter(id, far, up, &port));
    let addresses: Vec<Address> = voters.iter().map(FakeServer::address).collect();
    // The young ones decide. The other one is heard in time unless the machine is busy.
    let ends = |_| {
        let asked = Instant::now();
        let failure = unlinked(&addresses).vote(&addresses, TERMS).expect_err("no majority").to_string();
        let says = "no majority: 1 of 4 sentinels named it, and 2 may have forgotten";
        failure.contains(says) && asked.elapsed() < AGAIN
    };
    assert!((0..20).any(ends));
}

/// Sentinels that change their minds need not wait for a silent sentinel, as after a fail-over, which they hear of one after
/// another, while the sentinel beside the old master is dead.
#[test]
fn sentinels_that_change_their_minds_await_no_silent_one() {
    let (_master, port) = master();
    let late = Arc::new(AtomicU16::new(1));
    let voters = [voter('a', NEAR, 60, &port), voter('b', NEAR, 60, &late), voter('c', SILENT, 60, &port)];
    let addresses: Vec<Address> = voters.iter().map(FakeServer::address).collect();
    let asked = Instant::now();
    let sentinel = unlinked(&addresses);
    std::thread::scope(|scope| {
        let vote = scope.spawn(|| sentinel.vote(&addresses, TERMS).map(|named| named.address.to_string()));
        while voters[1].asked("INFO").is_empty() {
            std::thread::yield_now();
        }
        late.store(port.load(Ordering::SeqCst), Ordering::SeqCst);
        assert!(vote.join().expect("no panic").is_ok());
    });
    assert!(asked.elapsed() < TIMEOUTS.connect + TIMEOUTS.response, "{:?}", asked.elapsed());
}

#[test]
fn a_late_answer_counts_in_its_own_round_only() {
    let at = Address::parse("redis://h:1").expect("an address");
    let sentinel = unlinked(std::slice::from_ref(&at));
    let run = format!("run_id:{}\r\nuptime_in_seconds:60\r\n", "a".repeat(12));
    for (of, counts) in [(0, true), (1, false)] {
        let (sender, answers) = channel();
        let reply = |wire: &str| redis::parse_redis_value(wire.as_bytes()).map_err(|_| Failure::no_answer());
        let replies = ["*2\r\n+h\r\n+7\r\n", "*0\r\n", "+a\r\n", &bulk(&run)].map(reply);
        sender.send((of, (at.clone(), Ok(replies.into())))).expect("it is heard");
        let mut state = sentinel.state.lock();
        state.voters = None;
        state.late = Some(Late { answers, number: 0, round: Round::new(1) });
        sentinel.hear_late(&mut state);
        assert_eq!(state.voters.is_some(), counts, "{of}");
    }
}
