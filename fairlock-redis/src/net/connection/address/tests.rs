//! Addresses in each form, and what is refused in them.

use super::*;
use parking_lot::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

fn refused(url: &str) -> String {
    let error = Address::parse(url).expect_err(url);
    assert_eq!(error.kind(), BackendErrorKind::InvalidConfig, "{url}");
    error.message().to_owned()
}

#[test]
fn addresses_are_read_and_shown_without_user_and_password() {
    for (url, shown, credentials) in [
        ("redis://127.0.0.1", "127.0.0.1:6379", None),
        ("redis://h:1/", "h:1", None),
        ("valkey://h:1/0", "h:1", None),
        ("redis://[::1]:7/3", "[::1]:7/3", None),
        ("redis://:p%2Fq%40@h:1/2", "h:1/2", Some((None, "p/q@"))),
        ("redis://m%C3%BCller:canary@h:1", "h:1", Some((Some("müller"), "canary"))),
        ("redis://canary@h:1", "h:1", Some((Some("canary"), ""))),
        ("unix:///run/redis%20a.sock", "/run/redis a.sock", None),
        ("redis+unix:///r.sock?db=2&user=u&pass=canary", "/r.sock/2", Some((Some("u"), "canary"))),
    ] {
        let address = Address::parse(url).expect(url);
        assert_eq!(address.to_string(), shown, "{url}");
        assert_eq!(format!("{address:?}"), format!("Address({shown})"), "{url}");
        assert_eq!(address.credentials(), credentials, "{url}");
    }
    assert_eq!(Address::parse("redis://h/5").expect("read").db, 5);
    assert_eq!(Address::parse("unix:///s?db=7").expect("read").db, 7);
}

#[test]
fn the_wrong_part_is_named() {
    for (url, part) in [
        ("", "can't be read: it is empty"),
        ("localhost:6379", "scheme"),
        ("http://h", "scheme"),
        ("redis://", "host"),
        ("redis://u:p@", "the host is missing"),
        ("redis://:a/b@h:1", "there is a / before the @"),
        ("redis://:6379", "the host is missing"),
        ("redis://h h", "the host is not valid"),
        ("redis://h h:1", "the host is not valid"),
        ("redis://[::g]", "the host is not valid"),
        ("redis://0.0.0.0:1", "wildcard"),
        ("redis://h:70000", "port"),
        ("redis:h", "://"),
        ("redis://h/abc", "the database \"abc\" is not a number"),
        ("redis://h/-1", "there is no database -1, most servers have 0 to 15"),
        ("redis://h/99999999999", "there is no database 99999999999"),
        ("redis://h/?db=2", "?"),
        ("redis://h?sslrootcert=a", "write rediss for redis"),
        ("redis://h?protocol=resp3", "?"),
        ("redis://h/#insecure", "#insecure"),
        ("unix://h/p", "three slashes"),
        ("unix://", "path"),
        ("unix:///p?dbb=1", "db, user and pass"),
        ("unix:///p?db=x", "the database \"x\" is not a number"),
    ] {
        let message = refused(url);
        assert!(message.contains(part), "{url}: {message}");
    }
    #[cfg(not(feature = "tls"))]
    assert!(refused("rediss://h").contains("needs the feature tls"));
    #[cfg(feature = "tls")]
    {
        assert_eq!(Address::parse("rediss://h:1/2").expect("read").to_string(), "h:1/2");
        assert!(refused("rediss://h/#insecure").contains("#insecure"));
        assert!(refused("rediss://h?sslkey=k").contains("sslkey is set without sslcert"));
        assert!(refused("rediss://h?sslcert=%zz").contains("invalid %"));
        for (options, trust, identity) in [
            ("", Trust::System, None),
            ("?sslrootcert=system&sslcert=", Trust::System, None),
            ("/3?sslrootcert=a%20+b.crt", Trust::File("a +b.crt".into()), None),
            ("?sslcert=/c&sslkey=/k", Trust::System, Some(("/c", "/k"))),
            ("?sslcert=both.pem", Trust::System, Some(("both.pem", "both.pem"))),
        ] {
            let address = Address::parse(&format!("rediss://h:1{options}")).expect(options);
            let Some(TlsSettings::Files { trust: found, identity: shown }) = &address.tls else {
                panic!("{options}")
            };
            let shown = shown.as_ref().map(|own| (own.certificate.clone(), own.key.clone()));
            assert_eq!((found, shown), (&trust, identity.map(|(c, k)| (c.into(), k.into()))), "{options}");
        }
    }
}

#[test]
fn only_a_user_before_a_host_may_be_a_password() {
    for (url, may_be) in [
        ("redis://canary@h", true),
        ("redis://u:canary@h", false),
        ("redis://:canary@h", false),
        ("redis://h", false),
        ("unix:///s?user=u", false),
    ] {
        assert_eq!(Address::parse(url).expect(url).has_only_a_user(), may_be, "{url}");
    }
}

#[cfg(all(feature = "tls", feature = "redis-1"))]
#[test]
fn a_client_with_tls_keeps_its_host_and_tells_what_it_hides() {
    for (insecure, hidden) in [(false, None), (true, Some("it does not check certificates"))] {
        let at = ConnectionAddr::TcpTls { host: "h".to_owned(), port: 1, insecure, tls_params: None };
        let address = Address::of(&at.into_connection_info().expect("a client")).expect("an address");
        assert_eq!((address.to_string(), address.hidden_tls), ("h:1".to_owned(), hidden));
        assert!(matches!(address.tls, Some(TlsSettings::Files { trust: Trust::System, identity: None })));
    }
}

#[test]
fn a_refusal_never_repeats_a_password_that_was_not_encoded() {
    for url in [
        "redis://user:canary@",
        "redis://:canary/x@h:1",
        "redis://:1/canary@h:1",
        "redis://:can#canary@h:1",
        "redis://u:1#canary@h:1",
        "redis://:1?canary@h:1",
        "redis://:canary:x@h:port",
        "canary@h:1",
        "canary://h:1",
        "redis://:canary%FF@h:1",
        "unix://u:canary@/p",
        "unix:///p?canary=1",
        "rediss://:canary@h/#canary",
    ] {
        assert!(!refused(url).contains("canary"), "{url}: {}", refused(url));
    }
}

/// Each call waits for the test. A few threads stay, and no connection waits longer than its time.
#[test]
fn a_function_that_hangs_keeps_a_few_threads() {
    let (release, released) = channel::<()>();
    let released = Mutex::new(released);
    let map = AddressMap::new(move |host, port| {
        let _ = released.lock().recv();
        (host.to_owned(), port)
    });
    let leads = |until| map.lead("node", 7, until).map_err(|failure| format!("{failure:?}"));
    for calls in 1..=MOST_CALLS {
        assert!(leads(Instant::now()).unwrap_err().contains("has not returned in time"), "{calls}");
    }
    let soon = || Instant::now() + Duration::from_secs(20);
    assert!(leads(soon()).unwrap_err().contains("has not returned from earlier calls"));
    drop(release);
    while map.0.calls.load(Ordering::Relaxed) > 0 {
        thread::yield_now();
    }
    assert_eq!(leads(soon()), Ok(Endpoint::Tcp { host: "node".to_owned(), port: 7 }));
}
