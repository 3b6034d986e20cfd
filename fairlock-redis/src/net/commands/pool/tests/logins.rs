//! Logins that change: those of new connections, of open ones, and those that are refused.

use fairlock_core::backend::{BackendErrorKind, Login, Logins};

use super::*;

/// A pool whose connections log in by this function, which counts its calls.
fn pool(
    server: &FakeServer,
    login: impl Fn(usize) -> Result<Login, String> + Send + Sync + 'static,
) -> (Pool, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let calls = Arc::clone(&asked);
    let mut address = server.address();
    address.set_logins(&Logins::new(move || login(calls.fetch_add(1, Ordering::SeqCst))));
    (Pool::new(address, &Settings::new(short(), 1)), asked)
}

fn token(number: usize) -> Login {
    Login::new(format!("canary-{number}")).with_user("ann")
}

fn logins(server: &FakeServer) -> Vec<String> {
    server.asked("AUTH").iter().map(|words| words[1..].join(" ")).collect()
}

/// Each new connection has a login of its own, and an open one logs in again before its login ends, while nobody waits for the function.
#[test]
fn an_open_connection_logs_in_again_before_its_login_ends() {
    let server = FakeServer::start(|_, words| polite(words));
    // The first is to be renewed at once, and the second never.
    let (pool, asked) = pool(&server, |call| {
        let ends = if call == 0 { Duration::ZERO } else { Duration::from_secs(3600) };
        Ok(token(call).valid_for(ends))
    });
    until(|| pool.call(echo("x")) == bulk("x") && logins(&server).len() > 1);
    for _ in 0..100 {
        assert_eq!(pool.call(echo("x")), bulk("x"));
    }
    assert_eq!(logins(&server), ["ann canary-0", "ann canary-1"]);
    assert_eq!((server.connections(), asked.load(Ordering::SeqCst)), (1, 2));
}

/// A connection that can't log in again goes on with the login that it has.
#[test]
fn a_login_that_is_not_renewed_serves_on() {
    let server = FakeServer::start(|_, words| match words {
        [auth, _, password] if auth == "AUTH" && password != "canary-0" => {
            Act::Say("-WRONGPASS no canary-1\r\n".to_owned())
        }
        words => polite(words),
    });
    let (pool, asked) = pool(&server, |call| match call {
        0 => Ok(token(0).valid_for(Duration::ZERO)),
        1 => Err("no token".to_owned()),
        _ => Ok(token(call)),
    });
    until(|| {
        assert_eq!(pool.call(echo("x")), bulk("x"));
        logins(&server).len() > 2
    });
    assert_eq!(server.connections(), 1);
    assert!(asked.load(Ordering::SeqCst) <= 5, "it is asked once a second");
}

/// The call has not been sent then, and goes over a new connection.
#[test]
fn a_cut_while_a_connection_logs_in_again_costs_no_call() {
    let server = FakeServer::start(|connection, words| match words {
        [auth, _, password] if auth == "AUTH" && connection == 0 && password != "canary-0" => Act::HangUp,
        words => polite(words),
    });
    let (mut pool, _) = pool(&server, |call| match call {
        0 => Ok(token(0).valid_for(Duration::ZERO)),
        _ => Ok(token(call)),
    });
    pool.settings.timeouts = PATIENT;
    until(|| {
        assert_eq!(pool.call(echo("x")), bulk("x"));
        server.connections() > 1
    });
}

/// A login of an open connection ends the two minutes of refused ones, as that of a new connection does.
#[test]
fn a_login_of_an_open_connection_counts_as_accepted() {
    let server = FakeServer::start(|_, words| polite(words));
    let (mut pool, _) = pool(&server, |_| Ok(token(0).valid_for(Duration::ZERO)));
    assert_eq!(pool.call(echo("x")), bulk("x"));
    let others = Logins::new(|| Ok::<_, String>(token(1)));
    pool.address.set_logins(&others);
    until(|| pool.call(echo("x")) == bulk("x") && logins(&server).len() > 1);
    assert!(others.refused(), "none was accepted");
}

#[test]
fn a_function_that_fails_panics_or_is_late_is_an_outage() {
    let server = FakeServer::start(|_, words| polite(words));
    let (mut pool, _) = pool(&server, |call| match call {
        0 => Err("the vault is sealed".to_owned()),
        1 => panic!("planned"),
        2 => {
            std::thread::sleep(SECOND + SECOND / 4);
            Ok(token(2))
        }
        _ => panic!("the late answer was not used"),
    });
    // A panic takes its time on a busy machine: it prints a backtrace.
    for (cause, timeouts) in [
        ("the vault is sealed", PATIENT),
        ("the function of `login` panicked", PATIENT),
        ("none within 1s (connect_timeout)", short()),
    ] {
        pool.settings.timeouts = timeouts;
        pool.state.lock().outage = None;
        let error = pool.call(echo("x")).expect_err("no login").explain(pool.address(), "asking");
        assert_eq!((error.kind(), error.is_unsent()), (BackendErrorKind::Unavailable, true));
        assert!(error.message().contains("no login: ") && error.message().contains(cause), "{error}");
    }
    until(|| pool.call(echo("x")) == bulk("x"));
    assert_eq!(logins(&server), ["ann canary-2"]);
}

/// The password changes at the server and in the function, one after the other. Before any was accepted, a refused one is a mistake.
#[test]
fn a_refused_login_is_an_outage_while_it_changes() {
    let right = Arc::new(AtomicUsize::new(7));
    let at_server = Arc::clone(&right);
    let server = FakeServer::start(move |_, words| match words {
        [auth, _, password] if auth == "AUTH" => {
            if *password == format!("canary-{}", at_server.load(Ordering::SeqCst)) {
                return Act::Say("+OK\r\n".to_owned());
            }
            Act::Say(format!("-WRONGPASS invalid username-password pair {password}\r\n"))
        }
        [ping] if ping == "PING" => polite(words),
        words => polite(words),
    });
    let given = Arc::new(AtomicUsize::new(0));
    let of_function = Arc::clone(&given);
    let (pool, _) = pool(&server, move |_| Ok(token(of_function.load(Ordering::SeqCst))));
    let refused = || {
        // As if the server had cut off the connection, and the pause were over.
        let mut state = pool.state.lock();
        drop(state.take_idle(|_| true));
        state.outage = None;
        drop(state);
        let error = pool.call(echo("x")).expect_err("refused").explain(pool.address(), "asking");
        assert!(error.message().contains("wrong user or password (WRONGPASS"), "{error}");
        assert!(error.message().contains(", user `ann`)") && !error.message().contains("canary"), "{error}");
        error
    };
    assert_eq!(refused().kind(), BackendErrorKind::Denied);
    pool.state.lock().outage = None;
    given.store(7, Ordering::SeqCst);
    assert_eq!(pool.call(echo("x")), bulk("x"));
    right.store(8, Ordering::SeqCst);
    assert_eq!(pool.call(echo("x")), bulk("x"), "an open connection stays logged in");
    let error = refused();
    assert_eq!((error.kind(), error.is_unsent()), (BackendErrorKind::Unavailable, true));
    assert!(error.message().contains("if the password is being changed"), "{error}");
    given.store(8, Ordering::SeqCst);
    pool.state.lock().outage = None;
    assert_eq!(pool.call(echo("x")), bulk("x"));
}

/// A server may end a login and leave the connection open.
#[test]
fn a_command_after_the_end_of_a_login_costs_the_connection() {
    let server = FakeServer::start(|connection, words| match words[0].as_str() {
        "ECHO" if connection == 0 => Act::Say("-NOAUTH Authentication required.\r\n".to_owned()),
        _ => polite(words),
    });
    let (pool, _) = pool(&server, |call| Ok(token(call)));
    let failure = pool.call(echo("x")).expect_err("refused");
    assert!(matches!(&failure, Failure::NotSent(cause) if cause.contains("ended the login")), "{failure:?}");
    assert_eq!(pool.call(echo("x")), bulk("x"));
    assert_eq!(logins(&server), ["ann canary-0", "ann canary-1"]);
}
