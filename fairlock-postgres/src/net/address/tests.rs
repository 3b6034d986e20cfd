//! Which addresses are read, and as what.

use fairlock_core::backend::{BackendError, BackendErrorKind};

use super::*;

fn parse(url: &str) -> Result<Address, Failure> {
    Address::parse(url, &TlsConfig::default())
}

#[test]
fn all_parts_are_read() {
    let url = "postgres://ann:p%40ss@one,two:6432,[::1]:7000/locks?target_session_attrs=read-write&options=-c%20x%3D1";
    let address = parse(url).unwrap();
    let tcp = |host: &str, port| Endpoint::Tcp { host: host.to_owned(), port };
    assert_eq!(address.endpoints, [tcp("one", 5432), tcp("two", 6432), tcp("::1", 7000)]);
    assert_eq!((address.user.as_str(), address.password.as_deref()), ("ann", Some("p@ss")));
    assert_eq!((address.database.as_str(), address.options.as_deref()), ("locks", Some("-c x=1")));
    let socket = Endpoint::Unix("/run/pg/.s.PGSQL.5433".into());
    for url in ["postgres://ann@%2Frun%2Fpg:5433/db", "postgresql:///db?host=/run/pg&port=5433&user=ann"] {
        assert_eq!(parse(url).unwrap().endpoints.first(), Some(&socket));
    }
    assert_eq!(parse("postgres://ann@h").unwrap().database, "ann");
}

#[test]
fn an_address_of_another_client_serves_here_too() {
    for options in ["connect_timeout=10&keepalives=1", "channel_binding=prefer", "pgbouncer=true", "sslsni=1"]
    {
        let address = parse(&format!("postgres://a@h/db?{options}&sslmode=require\n")).unwrap();
        assert!(address.tls.mode == Mode::Always && address.database == "db", "{options}");
    }
    assert_eq!(parse("postgresql://a@h/db\n").unwrap().database, "db");
    let options = "options=-c%20a%3D1&options[search_path]=x%20y&options%5Bb%5D=2&hostaddr=127.0.0.1";
    let address = parse(&format!("postgres://a@h/db?{options}")).unwrap();
    assert_eq!(address.options.as_deref(), Some("-c a=1 -c search_path=x\\ y -c b=2"));
    assert_eq!(address.endpoints, [Endpoint::Tcp { host: "127.0.0.1".to_owned(), port: 5432 }]);
    let user = |of: [&str; 2]| user_here(|name| (name == of[0]).then(|| of[1].to_owned()));
    assert_eq!([["PGUSER", "a"], ["LOGNAME", "b"]].map(user), [Some("a".to_owned()), Some("b".to_owned())]);
    assert_eq!(user(["USER", ""]), None);
    let refused = |url: &str| BackendError::from(parse(url).err().unwrap()).to_string();
    let said = refused("postgres://a@h/db?aplication_name=x");
    assert!(said.contains("option aplication_name: there are host,"), "{said}");
    assert!(refused("postgres://a@h/db?channel_binding=require").contains("unsupported channel_binding"));
}

#[test]
fn tls_is_asked_for_by_its_mode_and_its_authorities() {
    let can = |mode| if cfg!(feature = "tls") { mode } else { Mode::Never };
    let (file, any) = (Trust::File("/a b.crt".into()), Trust::FileForAnyHost("/a b.crt".into()));
    let own = |certificate: &str, key: &str| Identity { certificate: certificate.into(), key: key.into() };
    for (options, mode, trust, identity) in [
        ("", Mode::Never, Trust::System, None),
        ("sslmode=disable&sslrootcert=/a%20b.crt", Mode::Never, any.clone(), None),
        ("sslmode=allow", can(Mode::Allow), Trust::Anyone, None),
        ("sslmode=prefer", can(Mode::Prefer), Trust::Anyone, None),
        ("sslmode=prefer&sslrootcert=/a%20b.crt", can(Mode::Prefer), any.clone(), None),
        ("sslrootcert=/a%20b.crt", can(Mode::Prefer), any.clone(), None),
        ("sslrootcert=system", Mode::Always, Trust::System, None),
        ("sslmode=require", Mode::Always, Trust::System, None),
        ("sslmode=verify-ca&sslrootcert=", Mode::Always, Trust::System, None),
        ("ssl-mode=require&ssl-ca=/a%20b.crt&sslcert=", Mode::Always, any.clone(), None),
        ("sslrootcert=/a%20b.crt&sslmode=verify-ca", Mode::Always, any, None),
        ("sslrootcert=/a%20b.crt&sslmode=verify-full", Mode::Always, file, None),
        ("sslrootcert=system&sslmode=verify-full", Mode::Always, Trust::System, None),
        ("sslcert=c.pem", can(Mode::Prefer), Trust::Anyone, Some(own("c.pem", "c.pem"))),
        ("sslmode=require&ssl-cert=c&ssl-key=k", Mode::Always, Trust::System, Some(own("c", "k"))),
    ] {
        let address = parse(&format!("postgres://a@h/db?{options}")).unwrap();
        let TlsSettings::Files { trust: found, identity: shown } = &address.tls.settings else {
            panic!("{options}")
        };
        assert_eq!((address.tls.mode, found, shown), (mode, &trust, &identity), "{options}");
    }
}

/// A configuration of the program's own asks for TLS, and the address neither forbids TLS nor names files.
#[cfg(feature = "tls")]
#[test]
fn a_configuration_has_to_fit_its_address() {
    let roots = fairlock_net::rustls::RootCertStore::empty();
    let config = fairlock_net::rustls::ClientConfig::builder_with_provider(std::sync::Arc::new(
        fairlock_net::rustls::crypto::ring::default_provider(),
    ));
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = Some(std::sync::Arc::new(config.with_root_certificates(roots).with_no_client_auth()));
    let read = |options: &str| Address::parse(&format!("postgres://a@h/db?{options}"), &config);
    for (options, mode) in
        [("", Mode::Always), ("sslmode=prefer", Mode::Prefer), ("sslmode=verify-ca", Mode::Always)]
    {
        let tls = read(options).unwrap().tls;
        assert!(tls.mode == mode && matches!(tls.settings, TlsSettings::Config(_)), "{options}");
    }
    for (options, part) in [
        ("sslmode=disable", "sslmode=disable"),
        ("sslrootcert=system", "leave"),
        ("sslcert=c&sslkey=k", "leave"),
    ] {
        let said = BackendError::from(read(options).err().unwrap()).to_string();
        assert!(said.contains("`tls` is set") && said.contains(part), "{said}");
    }
}

#[test]
fn what_can_not_work_is_refused_in_words_without_the_password() {
    for (url, cause) in [
        ("redis://h", "PostgreSQL's address begins with postgres://"),
        ("postgres://a:secret@h:0/db", "an invalid port"),
        ("postgres://a:secret%4@h/db", "an invalid % in its password"),
        ("postgres://a:secret%+4@h/db", "an invalid % in its password"),
        ("postgres://a:secret%FF@h/db", "an invalid % in its password"),
        ("postgres://a:secret@h/db?sslmode=secret", "an unsupported sslmode"),
        ("postgres://a:secret@h/db?ssl=on", "an unknown option"),
        ("postgres://a:secret@h/db?sslkey=k", "sslkey is set without sslcert"),
        ("postgres://a:sec/secret@h/db", "%2F"),
        ("postgres://a:secret%00@h/db", "has a NUL"),
    ] {
        let Err(failure) = parse(url) else { panic!("{url}") };
        let error = BackendError::from(failure);
        let (kind, message) = (error.kind(), error.message());
        assert_eq!(kind, BackendErrorKind::InvalidConfig, "{url}");
        assert!(message.contains(cause) && !message.contains("secret"), "{message}");
    }
}
