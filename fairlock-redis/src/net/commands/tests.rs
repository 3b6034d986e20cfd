//! How threads share connections: each caller gets its own answer, and on time.

mod broken;
mod logins;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use redis::Value;

use super::*;
use crate::net::Timeouts;
use crate::net::test_server::{Act, FakeServer, SECOND, TIMEOUTS, TestServer, polite};

fn echo(word: &str) -> Vec<u8> {
    cmd("ECHO").arg(word).get_packed_command()
}

fn bulk(word: &str) -> Result<Value, Failure> {
    Ok(Value::BulkString(word.as_bytes().to_vec()))
}

/// Time-outs short enough for a test to wait for.
fn short() -> Timeouts {
    Timeouts { connect: SECOND, response: SECOND / 2 }
}

fn waiting(pool: &Pool) -> usize {
    pool.state.lock().waiting.len()
}

fn until(what: impl Fn() -> bool) {
    let end = Instant::now() + 10 * SECOND;
    while !what() {
        assert!(Instant::now() < end, "it does not come to that");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Time-outs that no slow machine runs into.
const PATIENT: Timeouts = Timeouts { connect: Duration::from_secs(60), response: Duration::from_secs(60) };

/// An outage that lasts longer than the test.
fn outage() -> Option<PoolOutage> {
    let cause = Failure::NotSent("gone".into());
    Some(PoolOutage { cause, until: Instant::now() + 100 * SECOND, failures: 2 })
}

/// Where a server stops until the test lets it go on, ten seconds at most.
#[derive(Default)]
struct Gate {
    reached: AtomicBool,
    is_open: Mutex<bool>,
    opened: parking_lot::Condvar,
}

impl Gate {
    fn pass(&self) {
        self.reached.store(true, Ordering::SeqCst);
        let mut is_open = self.is_open.lock();
        if !*is_open {
            self.opened.wait_for(&mut is_open, 10 * SECOND);
        }
    }

    /// Whether the server has stopped there: then the leader has written its batch, which takes no more calls.
    fn is_reached(&self) -> bool {
        self.reached.load(Ordering::SeqCst)
    }

    fn open(&self) {
        *self.is_open.lock() = true;
        self.opened.notify_all();
    }
}

/// A server that stops before it answers `first`.
fn gated(act: impl Fn(usize, &[String]) -> Act + Send + Sync + 'static) -> (Arc<Gate>, FakeServer) {
    let gate = Arc::new(Gate::default());
    let at_server = Arc::clone(&gate);
    let server = FakeServer::start(move |connection, words| {
        if words.get(1).is_some_and(|word| word == "first") {
            at_server.pass();
        }
        act(connection, words)
    });
    (gate, server)
}

/// The answers to `first` and to others that wait while it is answered, perhaps in an outage.
fn answers(
    pool: &Pool,
    gate: &Gate,
    outage: Option<PoolOutage>,
    others: usize,
) -> Vec<Result<Value, Failure>> {
    std::thread::scope(|scope| {
        let first = scope.spawn(|| pool.call(echo("first")));
        until(|| gate.is_reached());
        pool.state.lock().outage = outage;
        let others: Vec<_> = (0..others).map(|_| scope.spawn(|| pool.call(echo("x")))).collect();
        until(|| waiting(pool) == others.len());
        gate.open();
        std::iter::once(first).chain(others).map(|call| call.join().expect("an answer")).collect()
    })
}

/// Many commands are answered in order, and a refusal is only for its own command.
#[test]
fn many_commands_are_answered_in_order() {
    let server = TestServer::start();
    let pool = Pool::new(server.address(), &Settings::new(TIMEOUTS, 2));
    let nested = cmd("EVAL").arg("return {1, redis.error_reply('OWN word')}").arg(0).get_packed_command();
    let command = |number: usize| match number {
        7 => cmd("NOSUCH").get_packed_command(),
        8 => nested.clone(),
        number => echo(&number.to_string()),
    };
    let packed: Vec<_> = (0..3 * TURN + 5).map(command).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let answers = pool.call_many(&packed);
                assert_eq!(answers.len(), packed.len());
                for (number, answer) in answers.into_iter().enumerate() {
                    match number {
                        7 => assert_eq!(answer.expect_err("a refusal").code(), Some("ERR")),
                        8 => assert_eq!(answer.expect_err("a refusal").code(), Some("OWN")),
                        number => assert_eq!(answer, bulk(&number.to_string())),
                    }
                }
            });
        }
    });
    assert!(pool.call_many::<Vec<u8>>(&[]).is_empty());
    assert!(pool.check().is_ok());
}

/// A caller that finds no connection leaves on time, and leaves nothing behind.
#[test]
fn a_caller_that_finds_no_connection_leaves_on_time() {
    let server = FakeServer::start(|_, words| polite(words));
    let pool = Pool::new(server.address(), &Settings::new(short(), 1));
    let connection = pool.state.lock().idle.pop().expect("a connection");
    let asked = Instant::now();
    assert!(matches!(pool.call(echo("x")), Err(Failure::NotSent(_))));
    assert!(asked.elapsed() >= short().response && asked.elapsed() < 2 * SECOND, "{:?}", asked.elapsed());
    assert_eq!(waiting(&pool), 0);
    pool.put_back(connection, false);
    assert_eq!(pool.call(echo("y")), bulk("y"));
    assert_eq!(server.connections(), 1);
}

/// A caller that waits for a connection is taken by a leader, who does this with it. Returns the caller's answer.
fn taken_by(leader: impl FnOnce(VecDeque<Arc<WaitingCall>>)) -> Result<Value, Failure> {
    let server = FakeServer::start(|_, words| polite(words));
    let pool = Pool::new(server.address(), &Settings::new(short(), 1));
    let connection = pool.state.lock().idle.pop().expect("a connection");
    let answer = std::thread::scope(|scope| {
        let caller = scope.spawn(|| pool.call(echo("x")));
        until(|| waiting(&pool) == 1);
        leader(pool.share(0, 0));
        caller.join().expect("an answer")
    });
    pool.put_back(connection, false);
    assert!(pool.check().is_ok());
    answer
}

/// A caller that was taken and forgotten leaves at last, while the leader still has it in hand.
#[test]
fn a_caller_taken_and_forgotten_leaves() {
    let mut forgotten = VecDeque::new();
    assert!(matches!(taken_by(|taken| forgotten = taken), Err(Failure::Broken(_))));
    drop(forgotten);
}

/// It may have been taken just before its time was over: then its answer comes later.
#[test]
fn a_caller_that_was_taken_waits_for_its_answer() {
    let answer = taken_by(|taken| {
        std::thread::sleep(short().response + short().response / 5);
        taken[0].answer(smallvec::smallvec![bulk("x")]);
    });
    assert_eq!(answer, bulk("x"));
}

/// Two leaders whose attempts fail together are one failure of the server.
#[test]
fn leaders_that_fail_together_raise_the_back_off_once() {
    let server = FakeServer::start(|_, words| polite(words));
    let pool = Pool::new(server.address(), &Settings::new(TIMEOUTS, 1));
    let (mut state, cause) = (pool.state.lock(), Failure::NotSent("gone".into()));
    (0..8).for_each(|_| state.failed_to_connect(&cause));
    assert_eq!(state.outage.as_ref().map(|outage| outage.failures), Some(2));
    let later = Failure::NotSent("gone by now".into());
    state.failed_to_connect(&later);
    assert_eq!(state.down(), Some(later));
    // After the back-off it is another failure.
    let before = Instant::now();
    state.outage = Some(PoolOutage { until: before, ..outage().expect("an outage") });
    state.failed_to_connect(&cause);
    assert!(state.outage.as_ref().is_some_and(|outage| outage.failures == 3 && outage.until > before));
}

#[test]
fn a_connection_is_opened_again_only_after_a_loss() {
    let server = FakeServer::start(|connection, words| match words[0].as_str() {
        _ if connection == 0 => Act::HangUp,
        "ECHO" if words[1] == "bad" => Act::HangUp,
        _ => polite(words),
    });
    let settings = Settings::new(TIMEOUTS, 2);
    let pool = Pool::new(server.address(), &settings);
    let counts = || {
        let state = pool.state.lock();
        (state.connected, state.lost, settings.reconnects())
    };
    assert!(pool.check().is_err());
    assert_eq!(counts(), (0, 0, 0), "none was open");
    pool.state.lock().outage = None;
    assert!(pool.check().is_ok());
    assert_eq!(counts(), (1, 0, 0), "the other was never open");
    // The open one answers; a second caller opens the other.
    let first = pool.state.lock().idle.pop().expect("a connection");
    assert!(pool.check().is_ok());
    pool.put_back(first, true);
    assert_eq!(counts(), (2, 0, 0));
    assert!(matches!(pool.call(echo("bad")), Err(Failure::Broken(_))));
    assert_eq!(counts(), (1, 1, 0), "a failure that was no silence concerns no other connection");
    pool.fell_silent(Instant::now());
    assert_eq!(counts(), (0, 2, 0));
    assert!(pool.check().is_ok());
    assert_eq!(counts(), (1, 1, 1));
    let first = pool.state.lock().idle.pop().expect("a connection");
    assert!(pool.check().is_ok());
    assert_eq!(counts(), (2, 0, 2));
    drop(first);
}

#[test]
fn idle_connections_to_a_replica_are_closed_at_once() {
    let server = FakeServer::start(|_, words| polite(words));
    let pool = Pool::new(server.address(), &Settings::new(TIMEOUTS, 1));
    assert!(pool.check().is_ok());
    pool.leave(pool.era(), &Failure::refused("READONLY", "x"));
    assert_eq!(pool.state.lock().connected, 0);
}

#[test]
fn a_connection_is_pinged_after_a_pause_only() {
    let server = FakeServer::start(|_, words| polite(words));
    let (pool, before) = (Pool::new(server.address(), &Settings::new(TIMEOUTS, 1)), Instant::now());
    assert!(pool.check().is_ok());
    let connection = pool.state.lock().idle.pop().expect("a connection");
    assert!(!connection.is_to_be_pinged(before, &pool.clock));
    assert!(connection.is_to_be_pinged(Instant::now() + server::FRESH, &pool.clock));
}

/// What has to be known for a call is asked when a connection opens.
#[test]
fn a_pool_connects_for_the_clock_and_the_listeners() {
    let server = FakeServer::answering("TIME", "*2\r\n+1000\r\n+7\r\n");
    let pool = || Pool::new(server.address(), &Settings::new(TIMEOUTS, 1));
    assert_eq!(pool().listeners(), Listeners::Known);
    let pool = pool();
    assert!(pool.attempt_end() > 1_000_000_007);
    assert!(pool.refused_late(&Failure::refused("LATE", "7")));
    assert!(!pool.refused_late(&Failure::refused("READONLY", "7")));
    let nowhere =
        Pool::new(Address::parse("redis://127.0.0.1:1").expect("an address"), &Settings::new(TIMEOUTS, 1));
    assert_eq!(nowhere.listeners(), Listeners::Unknown);
}

/// The calls wait for the connection of `first` when it breaks. The one that opens another connection for itself, and the one that it
/// would have sent along, were packed before the fault.
#[test]
fn what_waits_while_a_connection_breaks_is_packed_anew() {
    let (gate, server) = gated(|_, words| match words {
        [_, word] if word == "first" => Act::HangUp,
        _ => polite(words),
    });
    let pool = Pool::new(server.address(), &Settings::new(PATIENT, 1));
    let tell = || pool.call_as_known(|| echo(&format!("{:?}", pool.listeners())));
    assert_eq!(tell(), bulk("Known"));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| pool.call(echo("first")));
        until(|| gate.is_reached());
        let others = [(); 2].map(|()| scope.spawn(tell));
        until(|| waiting(&pool) == 2);
        gate.open();
        assert!(first.join().expect("an answer").is_err());
        for other in others {
            let said = other.join().expect("an answer");
            assert!(said != bulk("Known") && said.is_ok(), "{said:?}");
        }
    });
    assert_eq!(server.connections(), 2);
}

/// Another leader's attempt has failed since a leader took its connection.
#[test]
fn a_leader_does_not_connect_to_a_server_that_is_down_by_now() {
    let server = FakeServer::start(|_, words| polite(words));
    let pool = Pool::new(server.address(), &Settings::new(TIMEOUTS, 1));
    let mut connection = pool.state.lock().idle.pop().expect("a connection");
    pool.state.lock().outage = outage();
    assert!(pool.ready(&mut connection).is_err());
    assert_eq!(server.connections(), 0);
}

/// A connection that is offered to a caller that has just left goes to the next caller.
#[test]
fn a_connection_for_a_caller_that_left_goes_to_the_next() {
    let server = FakeServer::start(|_, words| polite(words));
    let pool = Pool::new(server.address(), &Settings::new(PATIENT, 1));
    let connection = pool.state.lock().idle.pop().expect("a connection");
    let gone = Arc::new(WaitingCall::new(Work { packed: &echo("gone"), commands: 1, knows: 0 }));
    assert!(matches!(gone.leave(), CallOutcome::TimedOut));
    pool.state.lock().waiting.push_back(gone);
    std::thread::scope(|scope| {
        let next = scope.spawn(|| pool.call(echo("next")));
        until(|| waiting(&pool) == 2);
        pool.put_back(connection, false);
        assert_eq!(next.join().expect("an answer"), bulk("next"));
    });
    assert_eq!(pool.state.lock().idle.len(), 1);
}

#[test]
fn a_server_that_is_far_away_gets_more_connections() {
    let together = std::sync::Barrier::new(4);
    let server = FakeServer::start(move |_, words| {
        match words[0].as_str() {
            "PING" => std::thread::sleep(Duration::from_millis(2)), // the way
            "ECHO" => _ = together.wait(),
            _ => {}
        }
        polite(words)
    });
    let settings = Settings { connections_if_far: 4, ..Settings::new(PATIENT, 1) };
    let pool = Pool::new(server.address(), &settings);
    let idle = || pool.state.lock().idle.len();
    assert!((0..15).all(|_| pool.check().is_ok() && idle() == 1));
    assert!(pool.check().is_ok());
    assert_eq!((idle(), server.connections()), (4, 1));
    std::thread::scope(|scope| {
        let callers = ["a", "b", "c", "d"].map(|word| (word, scope.spawn(|| pool.call(echo(word)))));
        callers
            .into_iter()
            .for_each(|(word, caller)| assert_eq!(caller.join().expect("an answer"), bulk(word)));
    });
    assert_eq!((pool.state.lock().connected, server.connections()), (4, 4));
}

/// A leader takes a fair part of the waiting calls, and all of them for a server that is far away.
#[test]
fn a_leader_takes_a_fair_part_and_all_for_a_far_server() {
    let pool = Pool::new(Address::parse("redis://nowhere").expect("an address"), &Settings::new(TIMEOUTS, 2));
    let waiting = || Arc::new(WaitingCall::new(Work { packed: &echo("x"), commands: 1, knows: 0 }));
    pool.state.lock().waiting.extend((0..100).map(|_| waiting()));
    assert_eq!(pool.share(1, 0).len(), 50);
    let long_ago = Instant::now() - SECOND;
    assert!((0..16).any(|_| pool.distance.is_found_far(long_ago, 1)));
    assert_eq!(pool.share(1, 0).len(), 50, "all that wait");
    pool.state.lock().waiting.extend((0..TURN).map(|_| waiting()));
    assert_eq!(pool.share(1, 0).len(), TURN - 1);
}

#[test]
fn connections_are_only_added() {
    let pool = Pool::new(Address::parse("redis://nowhere").expect("an address"), &Settings::new(TIMEOUTS, 2));
    let mut state = pool.state.lock();
    for (wanted, count) in [(2, 2), (1, 2), (8, 8), (8, 8)] {
        state.grow(wanted);
        assert_eq!((state.count, state.idle.len()), (count, count));
    }
    drop(state);
    assert_eq!(format!("{pool:?}"), "Pool { address: Address(nowhere:6379), count: 8 }");
}

#[test]
fn a_leader_that_panics_returns_its_connection() {
    let server = FakeServer::start(|_, words| polite(words));
    let pool = Pool::new(server.address(), &Settings::new(TIMEOUTS, 1));
    assert!(pool.check().is_ok());
    let connection = pool.state.lock().idle.pop().expect("a connection");
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut held = Held { pool: &pool, connected: true, connection };
        let _ = held.connection.exchange(&echo("x"), 1, Instant::now(), SECOND, |_| panic!("on purpose"));
    }));
    assert!(panicked.is_err());
    assert_eq!(pool.state.lock().connected, 0);
    assert_eq!(pool.call(echo("y")), bulk("y"));
    assert_eq!(server.connections(), 2);
}
