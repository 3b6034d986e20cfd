//! Addresses: `postgres://user:password@host1:port,host2/database?option=value`.
//!
//! A host that begins with `/` (as `%2F`, or in `host=`) is the directory of a Unix socket. Options: `host`, `port`, `user`,
//! `password`, `dbname`, `options`, `application_name`, `target_session_attrs`, `sslmode`, `sslrootcert`, `sslcert`, `sslkey`.
//! Further options of libpq, sqlx and poolers have no effect, and the log says so: one address serves a program and its locks.
//! Unknown options are refused: a typing error must not go unnoticed.
//!
//! Whether a session has TLS, and whose certificate is trusted, say `sslmode` and `sslrootcert`, as in libpq. But where TLS is required a
//! certificate is always checked, by default for the host and with the authorities of the system.
//!
//! | `sslmode` | first | then | whose certificate, with `sslrootcert=FILE` | else |
//! | --- | --- | --- | --- | --- |
//! | none, `disable` | without | | | |
//! | `allow` | without | with, if the server refuses the session | signed by one in the file | anyone's |
//! | `prefer` | with | without, if the server has none, refuses the session, or the handshake fails | signed by one in the file | anyone's |
//! | `require`, `verify-ca` | with | | signed by one in the file | for the host, by one of the system |
//! | `verify-full` | with | | for the host, by one in the file | for the host, by one of the system |
//!
//! `sslrootcert=system` names the authorities of the system. Without `sslmode` it asks for `verify-full`, and a file for `prefer`, as
//! does `sslcert`, the client's certificate for a server that asks. A configuration of the program's own stands in place of all files.

use std::path::PathBuf;
#[cfg(feature = "tls")]
use std::sync::Arc;
use std::time::Instant;

use fairlock_core::backend::{Logins, log_safely};
use fairlock_net::{
    Changeover, Endpoint, Identity, Secrets, TlsSettings, Trust, bare_delimiter, percent_decoded,
};

use super::failure::Failure;

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
        let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"));
        let rest = rest.ok_or_else(|| Failure::invalid("PostgreSQL's address begins with postgres://"))?;
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
            "target_session_attrs" | "channel_binding" | "gssencmode" => {
                return Err(Failure::invalid(format!("the address has an unsupported {name}")));
            }
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

/// When a session has TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Never,
    /// If the server wants it.
    Allow,
    /// If it is to be had.
    Prefer,
    Always,
}

#[derive(Clone, Debug)]
pub(crate) struct Tls {
    pub(super) mode: Mode,
    pub(super) settings: TlsSettings,
    pub(super) changeover: Changeover,
}

/// The program's own configuration, if it has one.
#[cfg(feature = "tls")]
pub(crate) type TlsConfig = Option<Arc<fairlock_net::rustls::ClientConfig>>;
#[cfg(not(feature = "tls"))]
pub(crate) type TlsConfig = Option<std::convert::Infallible>;

/// What an address says of TLS.
#[derive(Default)]
struct Options {
    mode: Option<String>,
    authorities: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
}

impl Tls {
    fn new(mode: Mode, settings: TlsSettings) -> Tls {
        Tls { mode, settings, changeover: Changeover::default() }
    }

    /// # Errors
    /// `InvalidConfig` for an unknown mode, a key without a certificate, or a configuration beside options that say otherwise.
    fn of(options: Options, config: &TlsConfig) -> Result<Tls, Failure> {
        #[cfg(feature = "tls")]
        if let Some(config) = config {
            return Tls::by(Arc::clone(config), options);
        }
        #[cfg(not(feature = "tls"))]
        let _ = config;
        let Options { mode, authorities, certificate, key } = options;
        let authorities = authorities.as_deref();
        let identity = Identity::of(certificate, key).map_err(Failure::invalid)?;
        let (mode, is_full) = match mode.as_deref() {
            None if authorities == Some("system") => (Mode::Always, true),
            None if authorities.is_some() || identity.is_some() => (Mode::Prefer, false),
            None | Some("disable") => (Mode::Never, false),
            Some("allow") => (Mode::Allow, false),
            Some("prefer") => (Mode::Prefer, false),
            Some("require" | "verify-ca") => (Mode::Always, false),
            Some("verify-full") => (Mode::Always, true),
            Some(_) => return Err(Failure::invalid("the address has an unsupported sslmode")),
        };
        if mode == Mode::Always && cfg!(not(feature = "tls")) {
            return Err(Failure::invalid("a TLS connection needs the feature tls"));
        }
        let trust = match authorities {
            None if matches!(mode, Mode::Allow | Mode::Prefer) => Trust::Anyone,
            None | Some("system") => Trust::System,
            Some(file) if is_full => Trust::File(file.into()),
            Some(file) => Trust::FileForAnyHost(file.into()),
        };
        // Where nothing can have it, nothing is asked for it in vain.
        let mode = if cfg!(feature = "tls") { mode } else { Mode::Never };
        Ok(Tls::new(mode, TlsSettings::Files { trust, identity }))
    }

    #[cfg(feature = "tls")]
    fn by(config: Arc<fairlock_net::rustls::ClientConfig>, options: Options) -> Result<Tls, Failure> {
        let Options { mode, authorities, certificate, key } = options;
        if authorities.or(certificate).or(key).is_some() {
            let what = "`tls` is set, and the address has sslrootcert, sslcert or sslkey as well: leave out one or the other";
            return Err(Failure::invalid(what));
        }
        let mode = match mode.as_deref() {
            Some("disable") => {
                return Err(Failure::invalid("`tls` is set, and the address has sslmode=disable"));
            }
            None => Mode::Always,
            mode => Tls::of(Options { mode: mode.map(str::to_owned), ..Options::default() }, &None)?.mode,
        };
        Ok(Tls::new(mode, TlsSettings::Config(config)))
    }

    /// When a session at this server has it: over a Unix socket never.
    pub(super) fn mode_at(&self, endpoint: &Endpoint) -> Mode {
        endpoint.host().map_or(Mode::Never, |_| self.mode)
    }
}

#[cfg(test)]
mod tests;
