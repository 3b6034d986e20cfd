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
//! `sslrootcert=system` names the authorities of the system. Without `sslmode` it asks for `verify-full`, and a file for `prefer`.

use std::io::Read;
use std::time::Instant;

use bytes::BytesMut;
use fairlock_net::{Endpoint, Stream, TlsFailure, Trust};
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(super) mode: Mode,
    pub(super) trust: Trust,
}

/// What a server answers to a request for TLS.
pub(super) enum Asked {
    Secured(Stream),
    /// The server has no TLS, and goes on without it.
    HasNone(Stream),
}

impl Tls {
    /// The mode of this name; none if there is no such mode.
    pub(super) fn of(mode: Option<&str>, authorities: Option<&str>) -> Option<Tls> {
        let (mode, is_full) = match mode {
            None if authorities == Some("system") => (Mode::Always, true),
            None if authorities.is_some() => (Mode::Prefer, false),
            None | Some("disable") => (Mode::Never, false),
            Some("allow") => (Mode::Allow, false),
            Some("prefer") => (Mode::Prefer, false),
            Some("require" | "verify-ca") => (Mode::Always, false),
            Some("verify-full") => (Mode::Always, true),
            Some(_) => return None,
        };
        let trust = match authorities {
            None if matches!(mode, Mode::Allow | Mode::Prefer) => Trust::Anyone,
            None | Some("system") => Trust::System,
            Some(file) if is_full => Trust::File(file.into()),
            Some(file) => Trust::FileForAnyHost(file.into()),
        };
        // Where nothing can have it, nothing is asked for it in vain.
        let is_needed = mode == Mode::Always || cfg!(feature = "tls-rustls");
        Some(Tls { mode: if is_needed { mode } else { Mode::Never }, trust })
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
    trust: &Trust,
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
        b"S" => Ok(stream.secure_with(host, trust).map(Asked::Secured)),
        b"N" => Ok(Ok(Asked::HasNone(stream))),
        _ => Err(Failure::invalid("the server has no TLS")),
    }
}

/// Whether the certificates that are trusted can't be read, which no other way to connect mends.
pub(super) fn is_of_the_file(failure: &TlsFailure, trust: &Trust) -> bool {
    matches!(failure, TlsFailure::NotBegun(_)) && matches!(trust, Trust::File(_) | Trust::FileForAnyHost(_))
}
