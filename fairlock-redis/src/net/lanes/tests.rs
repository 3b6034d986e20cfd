use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::net::test_server::{Act, FakeServer, SECOND, TIMEOUTS, TestServer, polite};

fn echo(word: &str) -> Vec<u8> {
    cmd("ECHO").arg(word).get_packed_command()
}

fn bulk(word: &str) -> Result<Value, Failure> {
    Ok(Value::BulkString(word.as_bytes().to_vec()))
}

/// Time-outs that a test can wait for.
fn short() -> Timeouts {
    Timeouts { connect: SECOND, response: SECOND / 2 }
}

fn queued(lanes: &Lanes) -> usize {
    lanes.state.lock().queue.len()
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
fn outage() -> Option<Outage> {
    let cause = Failure::NotSent("gone".to_owned());
    Some(Outage { cause, until: Instant::now() + 100 * SECOND, backoff: Backoff::new() })
}

#[test]
fn each_of_many_threads_gets_its_own_answers() {
    let server = TestServer::start();
    for count in [1, 2, 4] {
        let lanes = Lanes::new(server.address(), TIMEOUTS, count);
        std::thread::scope(|scope| {
            for thread in 0..16 {
                let lanes = &lanes;
                scope.spawn(move || {
                    for call in 0..500 {
                        let word = format!("{thread}-{call}");
                        assert_eq!(lanes.call(echo(&word)), bulk(&word));
                    }
                });
            }
        });
        let state = lanes.state.lock();
        assert_eq!((state.idle.len(), state.queue.len()), (count, 0));
        assert_eq!(state.connected, state.idle.iter().filter(|lane| lane.is_connected()).count());
    }
}

#[test]
fn whatever_is_cut_nobody_gets_the_answer_of_another() {
    let server = TestServer::start();
    let lanes = Lanes::new(server.address(), TIMEOUTS, 2);
    let (done, cut) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (lanes, done, cut) = (&lanes, &done, &cut);
            scope.spawn(move || {
                let mut call = 0;
                while !done.load(Ordering::SeqCst) {
                    call += 1;
                    let words = [format!("{thread}-{call}-a"), format!("{thread}-{call}-b")];
                    let answers = lanes.call_many(&words.clone().map(|word| echo(&word)));
                    for (answer, word) in answers.into_iter().zip(words) {
                        match answer {
                            Err(Failure::Broken(_) | Failure::NotSent(_)) => {
                                _ = cut.fetch_add(1, Ordering::SeqCst)
                            }
                            answer => assert_eq!(answer, bulk(&word)),
                        }
                    }
                }
            });
        }
        for _ in 0..50 {
            server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        }
        done.store(true, Ordering::SeqCst);
    });
    assert!(cut.load(Ordering::SeqCst) > 0);
    let state = lanes.state.lock();
    assert_eq!((state.idle.len(), state.queue.len()), (2, 0));
}

#[test]
fn many_commands_are_answered_in_order_and_a_refusal_is_only_for_its_own() {
    let server = TestServer::start();
    let lanes = Lanes::new(server.address(), TIMEOUTS, 2);
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
                let answers = lanes.call_many(&packed);
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
    assert!(lanes.call_many(&[]).is_empty());
    assert!(lanes.check().is_ok());
}

#[test]
fn after_half_an_answer_the_next_call_gets_its_own() {
    for hangs_up in [false, true] {
        let server = FakeServer::start(move |connection, words| match words[0].as_str() {
            "ECHO" if connection == 0 && hangs_up => Act::SayAndHangUp("$5\r\nhel".to_owned()),
            "ECHO" if connection == 0 => Act::Say("$5\r\nhel".to_owned()),
            _ => polite(words),
        });
        let lanes = Lanes::new(server.address(), short(), 1);
        let failure = lanes.call(echo("hello")).expect_err("no whole answer");
        assert!(matches!(failure, Failure::Broken(_)), "{failure:?}");
        assert_eq!(lanes.call(echo("other")), bulk("other"));
        assert_eq!(server.connections(), 2);
    }
}

#[test]
fn when_a_batch_breaks_nothing_is_sent_again_and_the_unanswered_are_unknown() {
    let (gate, at_server) = Gate::new();
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    let server = FakeServer::start(move |_, words| match words.get(1).map(String::as_str) {
        Some("first") => {
            at_server.pass();
            polite(words)
        }
        Some("x") => match count.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => polite(words),
            2 => Act::HangUp,
            _ => panic!("sent again, or after the link broke"),
        },
        _ => polite(words),
    });
    let lanes = Lanes::new(server.address(), PATIENT, 1);
    let answers: Vec<_> = std::thread::scope(|scope| {
        let first = scope.spawn(|| lanes.call(echo("first")));
        until(|| gate.is_reached());
        let others: Vec<_> = (0..5).map(|_| scope.spawn(|| lanes.call(echo("x")))).collect();
        until(|| queued(&lanes) == 5);
        gate.open();
        assert_eq!(first.join().expect("an answer"), bulk("first"));
        others.into_iter().map(|other| other.join().expect("an answer")).collect()
    });
    let broken = answers.iter().filter(|answer| matches!(answer, Err(Failure::Broken(_)))).count();
    assert_eq!((answers.iter().filter(|answer| answer.is_ok()).count(), broken), (2, 3), "{answers:?}");
    assert_eq!(lanes.call(echo("y")), bulk("y"));
}

#[test]
fn many_commands_stop_at_the_first_break_and_say_what_was_not_sent() {
    let server = FakeServer::start(|_, words| match words.get(1).map(String::as_str) {
        Some("3") => Act::HangUp,
        _ => polite(words),
    });
    let lanes = Lanes::new(server.address(), TIMEOUTS, 2);
    let packed: Vec<_> = (0..2 * TURN).map(|number| echo(&number.to_string())).collect();
    let answers = lanes.call_many(&packed);
    assert!(answers[..3].iter().all(Result::is_ok));
    assert!(answers[3..TURN].iter().all(|answer| matches!(answer, Err(Failure::Broken(_)))));
    assert!(answers[TURN..].iter().all(|answer| matches!(answer, Err(Failure::NotSent(_)))));
}

#[test]
fn replies_that_come_in_slowly_have_one_deadline_together() {
    let server = FakeServer::start(|_, words| {
        if words[0] == "ECHO" {
            std::thread::sleep(SECOND / 10);
        }
        polite(words)
    });
    let lanes = Lanes::new(server.address(), short(), 1);
    let asked = Instant::now();
    let answers = lanes.call_many(&vec![echo("x"); 20]);
    assert!(asked.elapsed() < SECOND, "{:?}", asked.elapsed());
    assert!(answers[0].is_ok() && matches!(answers[19], Err(Failure::Broken(_))), "{answers:?}");
}

#[test]
fn a_caller_who_finds_no_lane_goes_away_on_time_and_leaves_nothing_behind() {
    let server = FakeServer::start(|_, words| polite(words));
    let lanes = Lanes::new(server.address(), short(), 1);
    let lane = lanes.state.lock().idle.pop().expect("a lane");
    let asked = Instant::now();
    assert!(matches!(lanes.call(echo("x")), Err(Failure::NotSent(_))));
    assert!(asked.elapsed() >= short().response && asked.elapsed() < 2 * SECOND, "{:?}", asked.elapsed());
    assert_eq!(queued(&lanes), 0);
    lanes.give_back(lane, false);
    assert_eq!(lanes.call(echo("y")), bulk("y"));
    assert_eq!(server.connections(), 1);
}

#[test]
fn a_caller_that_was_taken_from_the_queue_and_forgotten_goes_away_at_last() {
    let server = FakeServer::start(|_, words| polite(words));
    let lanes = Lanes::new(server.address(), short(), 1);
    let lane = lanes.state.lock().idle.pop().expect("a lane");
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| lanes.call(echo("x")));
        until(|| queued(&lanes) == 1);
        let taken = lanes.share(0);
        assert!(matches!(caller.join().expect("an answer"), Err(Failure::Broken(_))));
        drop(taken);
    });
    lanes.give_back(lane, false);
    assert!(lanes.check().is_ok());
}

#[test]
fn a_lane_offered_to_one_who_has_just_gone_goes_to_the_next() {
    let server = FakeServer::start(|_, words| polite(words));
    let lanes = Lanes::new(server.address(), PATIENT, 1);
    let lane = lanes.state.lock().idle.pop().expect("a lane");
    let gone = Arc::new(Slot::new(Work { packed: echo("gone"), commands: 1 }));
    assert!(matches!(gone.leave(), Met::TimeOut));
    lanes.state.lock().queue.push_back(gone);
    std::thread::scope(|scope| {
        let next = scope.spawn(|| lanes.call(echo("next")));
        until(|| queued(&lanes) == 2);
        lanes.give_back(lane, false);
        assert_eq!(next.join().expect("an answer"), bulk("next"));
    });
    assert_eq!(lanes.state.lock().idle.len(), 1);
}

#[test]
fn a_leader_that_panics_gives_its_lane_back() {
    let server = FakeServer::start(|_, words| polite(words));
    let lanes = Lanes::new(server.address(), TIMEOUTS, 1);
    assert!(lanes.check().is_ok());
    let lane = lanes.state.lock().idle.pop().expect("a lane");
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut held = Held { lanes: &lanes, connected: true, lane };
        let _ = held.lane.exchange(&echo("x"), 1, SECOND, |_| panic!("on purpose"));
    }));
    assert!(panicked.is_err());
    assert_eq!(lanes.state.lock().connected, 0);
    assert_eq!(lanes.call(echo("y")), bulk("y"));
    assert_eq!(server.connections(), 2);
}

#[test]
fn while_the_server_is_down_calls_fail_at_once_and_few_try_to_connect() {
    let up = Arc::new(AtomicBool::new(false));
    let is_up = Arc::clone(&up);
    let server = FakeServer::start(
        move |_, words| if is_up.load(Ordering::SeqCst) { polite(words) } else { Act::HangUp },
    );
    let lanes = Lanes::new(server.address(), TIMEOUTS, 2);
    for _ in 0..200 {
        assert!(matches!(lanes.call(echo("x")), Err(Failure::NotSent(_))));
    }
    assert!(server.connections() < 10, "{}", server.connections());
    up.store(true, Ordering::SeqCst);
    until(|| lanes.call(echo("y")) == bulk("y"));
    assert!(lanes.state.lock().outage.is_none());
}

#[test]
fn a_refusal_to_let_us_in_is_told_to_everybody_meanwhile() {
    let server = FakeServer::start(|_, _| Act::Say("-NOAUTH Authentication required.\r\n".to_owned()));
    let lanes = Lanes::new(server.address(), TIMEOUTS, 2);
    for _ in 0..3 {
        assert_eq!(lanes.call(echo("x")).expect_err("refused").code(), Some("NOAUTH"));
        assert_eq!(
            lanes.check().expect_err("refused").kind(),
            fairlock_core::backend::BackendErrorKind::Denied
        );
    }
}

#[test]
fn a_server_that_takes_no_second_connection_still_serves_over_the_first() {
    let (gate, at_server) = Gate::new();
    let server = FakeServer::start(move |connection, words| match words.get(1).map(String::as_str) {
        _ if connection > 0 => Act::SayAndHangUp("-ERR max number of clients reached\r\n".to_owned()),
        Some("first") => {
            at_server.pass();
            polite(words)
        }
        _ => polite(words),
    });
    let lanes = Lanes::new(server.address(), PATIENT, 2);
    assert!(lanes.check().is_ok());
    std::thread::scope(|scope| {
        let first = scope.spawn(|| lanes.call(echo("first")));
        until(|| gate.is_reached());
        lanes.state.lock().outage = outage();
        let second = scope.spawn(|| lanes.call(echo("second")));
        until(|| queued(&lanes) == 1);
        gate.open();
        assert_eq!(first.join().expect("an answer"), bulk("first"));
        assert_eq!(second.join().expect("an answer"), bulk("second"));
    });
    assert_eq!(server.connections(), 1);
}

#[test]
fn when_the_last_connection_breaks_and_none_can_be_made_nobody_is_left_in_the_queue() {
    let (gate, at_server) = Gate::new();
    let server = FakeServer::start(move |_, words| match words.get(1).map(String::as_str) {
        Some("first") => {
            at_server.pass();
            Act::HangUp
        }
        _ => polite(words),
    });
    let lanes = Lanes::new(server.address(), PATIENT, 1);
    assert!(lanes.check().is_ok());
    std::thread::scope(|scope| {
        let first = scope.spawn(|| lanes.call(echo("first")));
        until(|| gate.is_reached());
        let others: Vec<_> = (0..3).map(|_| scope.spawn(|| lanes.call(echo("x")))).collect();
        until(|| queued(&lanes) == 3);
        lanes.state.lock().outage = outage();
        gate.open();
        assert!(matches!(first.join().expect("an answer"), Err(Failure::Broken(_))));
        for other in others {
            assert!(matches!(other.join().expect("an answer"), Err(Failure::NotSent(_))));
        }
    });
}

#[test]
fn a_connection_that_was_closed_while_it_lay_idle_is_replaced_unnoticed() {
    let server = TestServer::start();
    let lanes = Lanes::new(server.address(), TIMEOUTS, 1);
    assert!(lanes.check().is_ok());
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    lanes.state.lock().idle[0].age();
    assert_eq!(lanes.call(echo("x")), bulk("x"));
    // One that was used a moment ago is not asked first: the caller has to ask again.
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    assert!(matches!(lanes.call(echo("y")), Err(Failure::Broken(_))));
    assert_eq!(lanes.call(echo("z")), bulk("z"));
}

#[test]
fn a_frozen_server_is_noticed_on_time_and_everything_goes_on_when_it_does() {
    let server = TestServer::start();
    let lanes = Lanes::new(server.address(), short(), 2);
    assert!(lanes.check().is_ok());
    server.signal("STOP");
    let bound = short().connect + 2 * short().response + SECOND / 2;
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let asked = Instant::now();
                assert!(lanes.call(echo("x")).is_err());
                assert!(asked.elapsed() < bound, "{:?}", asked.elapsed());
            });
        }
    });
    server.signal("CONT");
    until(|| lanes.call(echo("y")) == bulk("y"));
}

/// Where a server stands still until the test lets it go on, ten seconds at most.
#[derive(Default)]
struct Gate {
    reached: AtomicBool,
    is_open: Mutex<bool>,
    opened: parking_lot::Condvar,
}

impl Gate {
    fn new() -> (Arc<Gate>, Arc<Gate>) {
        let gate = Arc::new(Gate::default());
        (Arc::clone(&gate), gate)
    }

    fn pass(&self) {
        self.reached.store(true, Ordering::SeqCst);
        let mut is_open = self.is_open.lock();
        if !*is_open {
            self.opened.wait_for(&mut is_open, 10 * SECOND);
        }
    }

    /// Whether the server stands there: then the leader has written his batch, and takes no more into it.
    fn is_reached(&self) -> bool {
        self.reached.load(Ordering::SeqCst)
    }

    fn open(&self) {
        *self.is_open.lock() = true;
        self.opened.notify_all();
    }
}
