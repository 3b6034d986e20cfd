//! What each failure means, and how it is said.

use super::*;
use crate::net::connection::Address;
use BackendErrorKind::*;

/// The failure for an error reply on the wire.
fn from_wire(reply: &str) -> Failure {
    let value = redis::parse_redis_value(format!("-{reply}\r\n").as_bytes()).expect("a reply");
    Failure::hiding(&Secrets::default(), &value.extract_error().expect_err("an error"))
}

#[test]
fn refusals_get_their_kind_by_the_code_even_where_it_is_wrapped() {
    for (reply, kind) in [
        ("OOM command not allowed when used memory > 'maxmemory'.", Refused),
        ("MISCONF Redis is configured to save RDB snapshots", Refused),
        ("READONLY You can't write against a read only replica.", Unavailable),
        ("LOADING Redis is loading the dataset in memory", Unavailable),
        ("BUSY Valkey is busy running a script", Unavailable),
        ("TRYAGAIN Multiple keys request during rehashing of slot", Unavailable),
        ("CLUSTERDOWN Hash slot not served", Unavailable),
        ("MASTERDOWN Link with MASTER is down", Unavailable),
        ("NOREPLICAS Not enough good replicas to write.", Unavailable),
        ("ERR max number of clients reached", Unavailable),
        ("SOMETHING new", Unavailable),
        ("ONEWORD", Unavailable),
        ("NOAUTH Authentication required.", Denied),
        ("WRONGPASS invalid username-password pair or user is disabled.", Denied),
        ("NOPERM this user has no permissions to run the 'ping' command", Denied),
        ("ERR AUTH <password> called without any password configured for the default user.", Denied),
        ("ERR invalid password", Denied),
        ("DENIED Redis is running in protected mode", Denied),
        (
            "ERR The user executing the script can't run this command or subcommand script: 5f, on @user_script:1.",
            Denied,
        ),
        ("@user_script: 38: The user executing the script can't run this command or subcommand", Denied),
        ("ERR ACL failure in script: User x has no permissions to run the 'set' command", Denied),
        (
            "ERR Error running script (call to f_1): @user_script:1: The user executing the script can't run this command or subcommand",
            Denied,
        ),
        (
            "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY You can't write",
            Unavailable,
        ),
        (
            "ERR Error running script (call to f_1): @user_script:1: WRONGTYPE Operation against a key",
            Corrupt,
        ),
        ("ERR Error running script (call to f_1): @user_script:1: -OOM command not allowed", Refused),
        ("ERR Error running script (call to f_1): @user_script:1: DB index is out of range", InvalidConfig),
        (
            "WRONGTYPE Operation against a key holding the wrong kind of value script: 1, on @user_script:2.",
            Corrupt,
        ),
        ("CROSSSLOT Keys in request don't hash to the same slot", InvalidName),
        ("MOVED 3999 127.0.0.1:6381", InvalidConfig),
        ("ERR DB index is out of range", InvalidConfig),
        ("ERR unknown command 'EVALSHA', with args beginning with: 'x'", InvalidConfig),
        ("ERR unsupported command 'SUBSCRIBE'", InvalidConfig),
        ("ERR unknown command `SENTINEL`, with args beginning with: `x`", InvalidConfig),
        ("ERR No such master with that name", InvalidConfig),
        ("NOMASTER x", InvalidConfig),
        ("LATE 7", Unavailable),
        ("OLDEPOCH 7", Unavailable),
        ("LAYOUT 2", Unsupported),
        ("POSTGRESQL answers", InvalidConfig),
        ("TLS answers", InvalidConfig),
    ] {
        let address = Address::parse("redis://u:canary@h:1").expect("an address");
        let error = from_wire(reply).explain(&address, "acquire");
        assert_eq!((error.kind(), error.is_unsent()), (kind, false), "{reply}: {error}");
        let has_no_meaning = ["ERR max", "SOMETHING", "ONEWORD"].iter().any(|known| reply.starts_with(known));
        assert_eq!(error.message().contains(REFUSED), has_no_meaning, "{error}");
        assert!(error.message().starts_with("Redis at h:1, acquire: "), "{error}");
    }
    for (reply, to_do) in [
        ("NOPERM this user has no permissions to run the 'ping' command", "lacks a right (NOPERM"),
        ("NOPERM this user has no permissions to run the 'set' command", "`fairlock doctor NAME` lists"),
        ("WRONGPASS invalid username-password pair", "ACL LIST at the server"),
        ("ERR unknown command 'EVALSHA', with args", "the server lacks a command"),
        ("ERR unknown command `SENTINEL`, with args", "name the sentinels' port"),
        ("ERR wrong number of arguments for 'SENTINEL'", REFUSED),
    ] {
        assert!(from_wire(reply).explain(&"h:1", "acquire").message().contains(to_do), "{reply}");
    }
    let of_ping =
        from_wire("NOPERM this user has no permissions to run the 'ping' command").explain(&"h:1", "a");
    assert!(!of_ping.message().contains("doctor"), "{of_ping}");
    let hidden =
        from_wire("ERR Error running script (call to f_1): @user_script:1: -READONLY You can't write");
    assert_eq!(hidden.code(), Some("READONLY"));
    assert_eq!(from_wire("ERR of a proxy: -READONLY You can't write").code(), Some("ERR"));
    assert_eq!(from_wire("NOSCRIPT No matching script.").code(), Some("NOSCRIPT"));
}

#[test]
fn the_setting_is_named_whose_time_was_over() {
    let second = Duration::from_secs(1);
    let late = Failure::no_answer().within_response(second).to_string();
    assert_eq!(late, "no answer within 1s; whether it was carried out is not known (response_timeout)");
    let late = Failure::no_answer().before_sending().within_connect(second).to_string();
    assert_eq!(late, "no answer within 1s (connect_timeout)");
    assert_eq!(from_wire("BUSY in time").within_connect(second), from_wire("BUSY in time"));
}

/// What is no Redis server is an error of the configuration at the first connection, and is waited for later.
#[test]
fn no_redis_server_is_an_error_first_and_an_outage_later() {
    let address = Address::parse("redis://h:1").expect("an address");
    let no_redis = Failure::garbled("x").before_sending();
    let no_tls = Failure::NotSent("the TLS handshake failed: received corrupt message".into());
    for lasting in [no_redis, no_tls] {
        let [first, later] = [lasting.explain_first(&address, "a"), lasting.explain(&address, "a")];
        assert_eq!([first.kind(), later.kind()], [InvalidConfig, Unavailable], "{first}");
        assert_eq!(first.message(), later.message());
    }
    let refused = Failure::from(io::Error::from(io::ErrorKind::ConnectionRefused)).before_sending();
    let said = refused.explain_first(&address, "connecting");
    assert_eq!(said.message(), "Redis at h:1, connecting: connection refused; is Redis running there?");
    assert_eq!(said.kind(), Unavailable);
}

#[test]
fn messages_are_one_short_line_without_what_was_sent() {
    let long = Failure::refused("ERR", &format!("two\nlines {}", "x".repeat(1000)));
    assert!(long.to_string().len() < 300 && !long.to_string().contains('\n'), "{long}");
    assert!(format!("{long:?}").contains("two lines xxx"), "{long:?}");
    let in_script = "Operation against a key script: 5f, on @user_script:1.";
    let of_6_2 = "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -WRONGTYPE";
    for reply in [format!("WRONGTYPE {in_script}"), format!("{of_6_2} Operation against a key")] {
        let shown = "a key has another type (WRONGTYPE Operation against a key)";
        assert_eq!(from_wire(&reply).to_string(), shown);
    }
    assert!(from_wire(&format!("ERR {in_script}")).to_string().contains("@user_script:1"), "it shows where");
    let auth = from_wire("ERR unknown command `AUTH`, with args beginning with: `canary`, ");
    assert!(!format!("{auth:?}").contains("canary"), "{auth:?}");
}

/// Without a reply the outcome is unknown, unless nothing was sent.
#[test]
fn without_a_reply_the_outcome_is_unknown_if_sent() {
    let late = Failure::from(io::Error::from(io::ErrorKind::WouldBlock));
    assert_eq!(late, Failure::Broken("no answer in time".into()));
    assert_eq!(Failure::Broken("x".into()).before_sending(), Failure::NotSent("x".into()));
    assert!(matches!(from_wire("NOAUTH x").before_sending(), Failure::Refused { .. }));
    let address = Address::parse("redis://h:1").expect("an address");
    for (failure, words) in [
        (TlsFailure::Certificate("x".to_owned()), "the server's certificate is not trusted: x"),
        (TlsFailure::Refused("x".to_owned()), "the server refuses the connection: x"),
    ] {
        let error = Failure::from(failure).explain(&address, "connecting");
        assert_eq!((error.kind(), error.is_unsent()), (InvalidConfig, true));
        assert!(error.message().ends_with(words), "{error}");
    }
}

#[test]
fn a_refusal_lasts_unless_the_server_is_busy() {
    for (failure, lasts) in [
        (from_wire("NOPERM x"), true),
        (from_wire("SOMETHING new"), true),
        (from_wire("BUSY x"), false),
        (from_wire("NOPERM x").before_sending(), false),
        (Failure::no_answer(), false),
    ] {
        assert_eq!(failure.is_lasting_refusal(), lasts, "{failure}");
    }
}

#[test]
fn a_refused_login_names_its_user_and_a_missing_password() {
    let refused =
        |reply| Address::parse("redis://:pw@h").expect("read").refused(from_wire(reply)).to_string();
    assert!(refused("WRONGPASS x").contains("x, user `default`"));
    let of_user = Address::parse("redis://canary:pw@h").expect("read").refused(from_wire("WRONGPASS x"));
    assert_eq!(of_user, from_wire("WRONGPASS x"), "it may be the beginning of a password");
    for reply in ["NOAUTH x", "NOPERM x", "ERR x"] {
        assert_eq!(refused(reply), from_wire(reply).to_string());
    }
    let told = from_wire("WRONGPASS x").without_password().explain(&"h", "connecting");
    assert!(told.message().ends_with("a password without a user is written :PASSWORD@HOST"), "{told}");
    assert_eq!(from_wire("NOAUTH x").without_password(), from_wire("NOAUTH x"));
}

#[test]
fn of_several_failures_the_last_refusal_or_the_last_is_told() {
    let [refused, late_refusal] = ["-ERR one\r\n", "-ERR two\r\n"].map(from_wire);
    let [silent, later] = ["one", "two"].map(|cause| Failure::NotSent(cause.into()));
    for (before, after, told) in [
        (&refused, &late_refusal, &late_refusal),
        (&refused, &silent, &refused),
        (&silent, &refused, &refused),
        (&silent, &later, &later),
    ] {
        assert_eq!(before.clone().or(after.clone()), *told);
    }
}
