//! Logins that change: those of new connections, of open ones, and those that are refused.

use fairlock_core::backend::{Login, Logins};

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
