//! Addresses: `postgres://user:password@host1:port,host2/database?option=value`.
//!
//! A host that begins with `/` (as `%2F`, or in `host=`) is the directory of a Unix socket. Options: `host`, `port`, `user`,
//! `password`, `dbname`, `options`, `application_name`, `target_session_attrs`, `sslmode`, `sslrootcert`, `sslcert`, `sslkey`.
//! Further options of libpq, sqlx and poolers have no effect, and the log says so: one address serves a program and its locks.
//! Unknown options are refused: a typing error must not go unnoticed.

use std::path::PathBuf;
use std::time::Instant;

use fairlock_core::backend::{Logins, log_safely};
use fairlock_net::{Endpoint, Secrets, TlsSettings, bare_delimiter, percent_decoded};

use super::failure::Failure;
use super::tls::{Mode, Options, Tls, TlsConfig};

const PORT: u16 = 5432;

/// Options of other clients that can be left out here without harm: of libpq, of sqlx, and of programs behind PgBouncer.
const IGNORED: &str = "connect_timeout keepalives keepalives_idle keepalives_interval keepalives_count tcp_user_timeout client_encoding \
    fallback_application_name load_balance_hosts gssdelegation krbsrvname gsslib sslcompression sslsni sslnegotiation sslcrl sslcrldir \
    ssl_min_protocol_version ssl_max_protocol_version passfile statement-cache-capacity pgbouncer connection_limit pool_timeout \
    statement_cache_size schema";

/// A host, and its port if the address has one.
type Host = (String, Option<u16>);

/// The parts of an address, until all options are read.
struct Apart {
    hosts: Vec<Host>,
    tls: Options,
}

/// One or several servers, of which one takes writes, and the login.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) user: String,
    pub(crate) password: Option<String>,
    pub(crate) database: String,
    pub(crate) options: Option<String>,
    pub(crate) application_name: String,
    pub(crate) tls: Tls,
    pub(crate) secrets: Secrets,
    /// Gives each connection its login, in place of the password above, and of the user if it names one.
    pub(crate) logins: Option<Logins>,
}

impl Address {
    /// Reads it; a configuration is the program's own.
    ///
    /// # Errors
    /// `InvalidConfig`, with the part that can't be read, and without a password.
    pub(crate) fn parse(url: &str, config: &TlsConfig) -> Result<Address, Failure> {
        let url = url.trim_end_matches(['\n', '\r']); // of a file
        let rest = url
            .strip_prefix("postgres://")
            .or_else(|| url.strip_prefix("postgresql://"))
            .ok_or_else(|| Failure::invalid("an address begins with postgres://"))?;
        if let Some(what) = bare_delimiter(rest) {
            return Err(Failure::invalid(what));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(decoded("password", password)?)),
            None => (login, None),
        };
        let mut address = Address {
            endpoints: Vec::new(),
            user: decoded("user", user)?,
            password,
            database: decoded("database", database)?,
            options: None,
            application_name: "fairlock".to_owned(),
            tls: Tls::new(Mode::Never, TlsSettings::default()),
            secrets: Secrets::default(),
            logins: None,
        };
        let hosts = hosts.split(',').map(host_and_port).collect::<Result<_, _>>()?;
        let (mut apart, mut ignored) = (Apart { hosts, tls: Options::default() }, Vec::new());
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let name = decoded("options", name)?;
            match IGNORED.split(' ').find(|known| *known == name) {
                Some(known) => ignored.push(known),
                None => address.set(&mut apart, &name, decoded("options", value)?)?,
            }
        }
        if !ignored.is_empty() {
            let ignored = ignored.join(", ");
            log_safely(
                || log::info!(target: "fairlock::net", "options of the address without effect on locks: {ignored}"),
            );
        }
        address.completed(apart, config)
    }

    /// The address with the login of a connection that opens.
    ///
    /// # Errors
    /// `Unavailable` if there is no login until then.
    pub(super) fn logged_in(&self, until: Instant) -> Result<Address, Failure> {
        let mut address = self.clone();
        if let Some(logins) = &self.logins {
            let login = logins.get(until).map_err(|cause| Failure::broken(format!("no login: {cause}")))?;
            address.user = login.user().unwrap_or(&self.user).to_owned();
            address.password = Some(login.password().to_owned());
            address.secrets = Secrets::of(login.password());
        }
        Ok(address)
    }

    /// The failure of a login, with advice: if the server has refused the login, an outage while the password may be about to change.
    pub(super) fn refused(&self, failure: Failure, has_tls: bool) -> Failure {
        if !failure.has_code(&["28P01", "28000"]) {
            return failure;
        }
        let is_of_line = failure.says("pg_hba.conf");
        match &self.logins {
            Some(logins) if logins.refused() => {
                let advice =
                    "if the password is being changed, the next connection asks `login` for it again";
                failure.advising(advice).passing()
            }
            _ if has_tls && failure.has_code(&["28000"]) && !is_of_line => failure.advising(format!(
                "if the server asks for a client's certificate, sslcert=FILE and sslkey=FILE name the one of user {}",
                self.user
            )),
            _ if is_of_line => failure,
            _ => failure.advising("check the password; the address or `login` has it"),
        }
    }

    fn set(&mut self, apart: &mut Apart, name: &str, value: String) -> Result<(), Failure> {
        let given = Some(value.clone()).filter(|value| !value.is_empty());
        if let Some(setting) = name.strip_prefix("options[").and_then(|name| name.strip_suffix(']')) {
            // As sqlx writes a single one.
            let value = value.replace('\\', "\\\\").replace(' ', "\\ ");
            self.add_options(&format!("-c {setting}={value}"));
            return Ok(());
        }
        match name {
            "host" | "hostaddr" => {
                apart.hosts = value.split(',').map(|host| (host.to_owned(), None)).collect()
            }
            "port" => {
                let port = port_of(&value)?;
                apart.hosts.iter_mut().for_each(|(_, of_host)| *of_host = Some(port));
            }
            "user" => self.user = value,
            "password" => self.password = Some(value),
            "dbname" => self.database = value,
            "options" => self.add_options(&value),
            "application_name" => self.application_name = value,
            "sslmode" | "ssl-mode" => apart.tls.mode = given,
            "sslrootcert" | "ssl-root-cert" | "ssl-ca" => apart.tls.authorities = given,
            "sslcert" | "ssl-cert" => apart.tls.certificate = given,
            "sslkey" | "ssl-key" => apart.tls.key = given,
            // Locks are always written, so a server that takes no writes is passed over whatever this says.
            "target_session_attrs" if matches!(value.as_str(), "any" | "read-write" | "primary") => {}
            // These values ask for no more than fairlock has.
            "channel_binding" | "gssencmode" if matches!(value.as_str(), "disable" | "prefer") => {}
            "target_session_attrs" | "channel_binding" | "gssencmode" => return Err(unsupported(name)),
            _ => {
                // What follows a & in a password that is not encoded is not repeated.
                let is_name =
                    name.len() <= 30 && name.chars().all(|c| c.is_ascii_lowercase() || "_-".contains(c));
                let named =
                    if is_name && self.password.is_none() { format!(" {name}") } else { String::new() };
                return Err(Failure::invalid(format!(
                    "the address has an unknown option{named}: there are host, port, user, password, dbname, options, \
                     application_name, sslmode, sslrootcert, sslcert, sslkey and target_session_attrs; others of libpq and sqlx have no effect"
                )));
            }
        }
        Ok(())
    }

    fn add_options(&mut self, more: &str) {
        let before = self.options.take().map_or_else(String::new, |before| before + " ");
        self.options = Some(before + more);
    }

    /// Checks what was read, and adds what follows from it.
    fn completed(mut self, apart: Apart, config: &TlsConfig) -> Result<Address, Failure> {
        let Apart { hosts, tls } = apart;
        self.tls = Tls::of(tls, config)?;
        if self.user.is_empty() {
            self.user = user_here(|name| std::env::var(name).ok()).ok_or_else(|| {
                Failure::invalid("the address names no user, and neither does PGUSER or USER")
            })?;
        }
        if self.database.is_empty() {
            self.database.clone_from(&self.user);
        }
        self.endpoints = hosts.into_iter().map(endpoint).collect();
        self.secrets = Secrets::of(self.password.as_deref().unwrap_or_default());
        Ok(self)
    }
}

/// The user that libpq takes, and sqlx, where the address names none.
fn user_here(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    ["PGUSER", "USER", "LOGNAME"].into_iter().filter_map(variable).find(|user| !user.is_empty())
}

fn unsupported(option: &str) -> Failure {
    Failure::invalid(format!("the address has an unsupported {option}"))
}

fn endpoint((host, port): Host) -> Endpoint {
    let port = port.unwrap_or(PORT);
    match host.as_str() {
        "" => Endpoint::Tcp { host: "localhost".to_owned(), port },
        directory if directory.starts_with('/') => {
            Endpoint::Unix(PathBuf::from(format!("{directory}/.s.PGSQL.{port}")))
        }
        _ => Endpoint::Tcp { host, port },
    }
}

fn host_and_port(part: &str) -> Result<Host, Failure> {
    let (host, port) = match part.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((ip, rest)) => (ip, rest.strip_prefix(':')),
        None => part.rsplit_once(':').map_or((part, None), |(host, port)| (host, Some(port))),
    };
    Ok((decoded("host", host)?, port.map(port_of).transpose()?))
}

fn port_of(text: &str) -> Result<u16, Failure> {
    text.parse()
        .ok()
        .filter(|port| *port > 0)
        .ok_or_else(|| Failure::invalid("the address has an invalid port"))
}

fn decoded(what: &str, text: &str) -> Result<String, Failure> {
    let wrong = || Failure::invalid(format!("the address has an invalid % in its {what}"));
    let part = percent_decoded(text).ok_or_else(wrong)?;
    if part.contains('\0') {
        return Err(Failure::invalid("a part of the address has a NUL"));
    }
    Ok(part)
}

#[cfg(test)]
mod tests {
    use fairlock_core::backend::{BackendError, BackendErrorKind};

    use fairlock_net::{Identity, Trust};

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
        for url in ["postgres://ann@%2Frun%2Fpg:5433/db", "postgresql:///db?host=/run/pg&port=5433&user=ann"]
        {
            assert_eq!(parse(url).unwrap().endpoints.first(), Some(&socket));
        }
        assert_eq!(parse("postgres://ann@h").unwrap().database, "ann");
    }

    #[test]
    fn an_address_of_another_client_serves_here_too() {
        for options in
            ["connect_timeout=10&keepalives=1", "channel_binding=prefer", "pgbouncer=true", "sslsni=1"]
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
        assert_eq!(
            [["PGUSER", "a"], ["LOGNAME", "b"]].map(user),
            [Some("a".to_owned()), Some("b".to_owned())]
        );
        assert_eq!(user(["USER", ""]), None);
        let refused = |url: &str| BackendError::from(parse(url).err().unwrap()).to_string();
        let said = refused("postgres://a@h/db?aplication_name=x");
        assert!(said.contains("option aplication_name: there are host,"), "{said}");
        assert!(refused("postgres://a@h/db?channel_binding=require").contains("unsupported channel_binding"));
    }

    #[test]
    fn tls_is_asked_for_by_its_mode_and_its_authorities() {
        let can = |mode| if cfg!(feature = "tls-rustls") { mode } else { Mode::Never };
        let (file, any) = (Trust::File("/a b.crt".into()), Trust::FileForAnyHost("/a b.crt".into()));
        let own =
            |certificate: &str, key: &str| Identity { certificate: certificate.into(), key: key.into() };
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
    #[cfg(feature = "tls-rustls")]
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
            ("redis://h", "begins with postgres://"),
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
}
