//! Links that break, and servers that are down, full or frozen.

use super::*;

#[test]
fn whatever_is_cut_no_caller_gets_the_answer_of_another() {
    let server = TestServer::start();
    let pool = Pool::new(server.address(), &Settings::new(TIMEOUTS, 2));
    let (done, cut) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (pool, done, cut) = (&pool, &done, &cut);
            scope.spawn(move || {
                let mut call = 0;
                while !done.load(Ordering::SeqCst) {
                    call += 1;
                    let words = [format!("{thread}-{call}-a"), format!("{thread}-{call}-b")];
                    let answers = pool.call_many(&words.clone().map(|word| echo(&word)));
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
    let state = pool.state.lock();
    assert_eq!((state.idle.len(), state.waiting.len()), (2, 0));
}

#[test]
fn after_half_an_answer_the_next_call_gets_its_own() {
    for hangs_up in [false, true] {
        let server = FakeServer::start(move |connection, words| match words[0].as_str() {
            "ECHO" if connection == 0 && hangs_up => Act::SayAndHangUp("$5\r\nhel".to_owned()),
            "ECHO" if connection == 0 => Act::Say("$5\r\nhel".to_owned()),
            _ => polite(words),
        });
        let pool = Pool::new(server.address(), &Settings::new(short(), 1));
        let failure = pool.call(echo("hello")).expect_err("no whole answer");
        assert!(matches!(failure, Failure::Broken(_)), "{failure:?}");
        assert_eq!(pool.call(echo("other")), bulk("other"));
        assert_eq!(server.connections(), 2);
    }
}

/// When a batch breaks, nothing is sent again, and the outcome of the unanswered commands is unknown.
#[test]
fn a_broken_batch_is_not_sent_again() {
    let seen = AtomicUsize::new(0);
    let (gate, server) = gated(move |_, words| match words.get(1).map(String::as_str) {
        Some("x") => match seen.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => polite(words),
            2 => Act::HangUp,
            _ => panic!("sent again, or after the link broke"),
        },
        _ => polite(words),
    });
    let pool = Pool::new(server.address(), &Settings::new(PATIENT, 1));
    let answers = answers(&pool, &gate, None, 5);
    assert_eq!(answers[0], bulk("first"));
    let broken = answers.iter().filter(|answer| matches!(answer, Err(Failure::Broken(_)))).count();
    assert_eq!((answers.iter().filter(|answer| answer.is_ok()).count(), broken), (3, 3), "{answers:?}");
    assert_eq!(pool.call(echo("y")), bulk("y"));
}

/// Many commands stop at the first break, and say which of them were not sent.
#[test]
fn many_commands_stop_at_a_break_and_tell_the_unsent() {
    let server = FakeServer::start(|_, words| match words.get(1).map(String::as_str) {
        Some("3") => Act::HangUp,
        _ => polite(words),
    });
    let pool = Pool::new(server.address(), &Settings::new(TIMEOUTS, 2));
    let packed: Vec<_> = (0..2 * TURN).map(|number| echo(&number.to_string())).collect();
    let answers = pool.call_many(&packed);
    assert!(answers[..3].iter().all(Result::is_ok));
    assert!(answers[3..TURN].iter().all(|answer| matches!(answer, Err(Failure::Broken(_)))));
    assert!(answers[TURN..].iter().all(|answer| matches!(answer, Err(Failure::NotSent(_)))));
}

/// While the server is down, calls fail at once and few try to connect.
#[test]
fn while_the_server_is_down_calls_fail_at_once() {
    let up = Arc::new(AtomicBool::new(false));
    let is_up = Arc::clone(&up);
    let server = FakeServer::start(
        move |_, words| if is_up.load(Ordering::SeqCst) { polite(words) } else { Act::HangUp },
    );
    let pool = Pool::new(server.address(), &Settings::new(TIMEOUTS, 2));
    for _ in 0..200 {
        assert!(matches!(pool.call(echo("x")), Err(Failure::NotSent(_))));
    }
    assert!(server.connections() < 10, "{}", server.connections());
    up.store(true, Ordering::SeqCst);
    until(|| pool.call(echo("y")) == bulk("y"));
    assert!(pool.state.lock().outage.is_none());
}

#[test]
fn all_callers_hear_of_a_refused_login_meanwhile() {
    let server = FakeServer::start(|_, _| Act::Say("-NOAUTH Authentication required.\r\n".to_owned()));
    let pool = Pool::new(server.address(), &Settings::new(TIMEOUTS, 2));
    for _ in 0..3 {
        assert_eq!(pool.call(echo("x")).expect_err("refused").code(), Some("NOAUTH"));
        assert_eq!(
            pool.check().expect_err("refused").kind(),
            fairlock_core::backend::BackendErrorKind::Denied
        );
    }
}

/// A server that takes no second connection still serves over the first.
#[test]
fn a_server_that_takes_one_connection_serves_over_it() {
    let (gate, server) = gated(|connection, words| match connection {
        0 => polite(words),
        _ => Act::SayAndHangUp("-ERR max number of clients reached\r\n".to_owned()),
    });
    let pool = Pool::new(server.address(), &Settings::new(PATIENT, 2));
    assert!(pool.check().is_ok());
    assert_eq!(answers(&pool, &gate, outage(), 1), [bulk("first"), bulk("x")]);
    assert_eq!(server.connections(), 1);
}

/// When the last connection breaks and none can be made, waiting calls fail.
#[test]
fn when_no_connection_can_be_made_waiting_calls_fail() {
    let (gate, server) = gated(|_, words| match words.get(1).map(String::as_str) {
        Some("first") => Act::HangUp,
        _ => polite(words),
    });
    let pool = Pool::new(server.address(), &Settings::new(PATIENT, 1));
    assert!(pool.check().is_ok());
    let answers = answers(&pool, &gate, outage(), 3);
    assert!(matches!(answers[0], Err(Failure::Broken(_))), "{answers:?}");
    assert!(answers[1..].iter().all(|answer| matches!(answer, Err(Failure::NotSent(_)))), "{answers:?}");
}

/// A connection that was answered meanwhile outlives the time-out of another connection.
#[test]
fn an_answered_connection_outlives_anothers_time_out() {
    let server = FakeServer::start(|_, words| match words.get(1).map(String::as_str) {
        Some("silent") => Act::Nothing,
        _ => polite(words),
    });
    let pool = Pool::new(server.address(), &Settings::new(short(), 2));
    std::thread::scope(|scope| {
        let silent = scope.spawn(|| pool.call(echo("silent")));
        until(|| !server.asked("ECHO silent").is_empty());
        while !silent.is_finished() {
            assert_eq!(pool.call(echo("x")), bulk("x"));
            std::thread::sleep(SECOND / 100);
        }
        assert!(matches!(silent.join(), Ok(Err(Failure::Broken(_)))));
    });
    assert_eq!((pool.call(echo("x")), server.connections()), (bulk("x"), 2));
}
