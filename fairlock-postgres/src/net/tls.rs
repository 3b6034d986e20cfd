//! Whether a session has TLS, and whose certificate is trusted: `sslmode` and `sslrootcert`, as libpq has them. But where it
//! is required a certificate is always checked, by default for the host and with the authorities of the system.
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

use std::io::Read;
use std::time::Instant;

use bytes::BytesMut;
use fairlock_net::{Changeover, Endpoint, Identity, Stream, TlsFailure, TlsSettings, Trust};
use postgres_protocol::message::frontend;

use super::failure::Failure;

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
#[cfg(feature = "tls-rustls")]
pub(crate) type TlsConfig = Option<std::sync::Arc<fairlock_net::rustls::ClientConfig>>;
#[cfg(not(feature = "tls-rustls"))]
pub(crate) type TlsConfig = Option<std::convert::Infallible>;

/// What an address says of TLS.
#[derive(Default)]
pub(super) struct Options {
    pub(super) mode: Option<String>,
    pub(super) authorities: Option<String>,
    pub(super) certificate: Option<String>,
    pub(super) key: Option<String>,
}

/// What a server answers to a request for TLS.
pub(super) enum Asked {
    Secured(Stream),
    /// The server has no TLS, and goes on without it.
    HasNone(Stream),
}

impl Tls {
    pub(super) fn new(mode: Mode, settings: TlsSettings) -> Tls {
        Tls { mode, settings, changeover: Changeover::default() }
    }

    /// # Errors
    /// `InvalidConfig` for an unknown mode, a key without a certificate, or a configuration beside options that say otherwise.
    pub(super) fn of(options: Options, config: &TlsConfig) -> Result<Tls, Failure> {
        #[cfg(feature = "tls-rustls")]
        if let Some(config) = config {
            return Tls::by(std::sync::Arc::clone(config), options);
        }
        #[cfg(not(feature = "tls-rustls"))]
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
        if mode == Mode::Always && cfg!(not(feature = "tls-rustls")) {
            return Err(Failure::invalid("a TLS connection needs the feature tls-rustls"));
        }
        let trust = match authorities {
            None if matches!(mode, Mode::Allow | Mode::Prefer) => Trust::Anyone,
            None | Some("system") => Trust::System,
            Some(file) if is_full => Trust::File(file.into()),
            Some(file) => Trust::FileForAnyHost(file.into()),
        };
        // Where nothing can have it, nothing is asked for it in vain.
        let mode = if cfg!(feature = "tls-rustls") { mode } else { Mode::Never };
        Ok(Tls::new(mode, TlsSettings::Files { trust, identity }))
    }

    #[cfg(feature = "tls-rustls")]
    fn by(
        config: std::sync::Arc<fairlock_net::rustls::ClientConfig>,
        options: Options,
    ) -> Result<Tls, Failure> {
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

/// Asks the server for TLS, and shakes hands.
///
/// # Errors
/// `TlsFailure` if the handshake fails, or can't begin.
pub(super) fn ask(
    mut stream: Stream,
    endpoint: &Endpoint,
    settings: &TlsSettings,
    deadline: Instant,
) -> Result<Result<Asked, TlsFailure>, Failure> {
    let Some(host) = endpoint.host() else { return Ok(Ok(Asked::HasNone(stream))) };
    let mut out = BytesMut::new();
    frontend::ssl_request(&mut out);
    stream.send(&out, deadline)?;
    // One byte and no more: what came behind it in cleartext would be taken for the server's.
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    stream.all_answered();
    match &answer {
        b"S" => Ok(stream.secure_with(host, settings).map(Asked::Secured)),
        b"N" => Ok(Ok(Asked::HasNone(stream))),
        _ => Err(Failure::of_tls("the server has no TLS")),
    }
}

/// Whether a file of the settings is at fault, which no other way to connect mends.
pub(super) fn is_of_a_file(failure: &TlsFailure, settings: &TlsSettings) -> bool {
    matches!(failure, TlsFailure::NotBegun(_)) && !settings.names_no_file()
}
