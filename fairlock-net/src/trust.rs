//! What TLS is made with, and why there is none: whose certificates are trusted, which one is shown, and whether a failure may pass:
//! certificates and keys may be replaced at one end before the other.
//!
//! | so far | a failure of TLS is |
//! | --- | --- |
//! | no connection has had TLS | an error at once: a setting is wrong |
//! | one had TLS, and the first failure since then was less than two minutes ago | an outage |
//! | all have failed for two minutes | an error |

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{error, fmt, io};

use parking_lot::Mutex;

use crate::endpoint::in_words;

/// Whose certificates a connection trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trust {
    /// Certificates for this host, signed by an authority of the system or of the file `SSL_CERT_FILE`.
    #[default]
    System,
    /// Certificates for this host, signed by an authority in this file (PEM).
    File(PathBuf),
    /// Certificates for any host, signed by an authority in this file (PEM).
    FileForAnyHost(PathBuf),
    /// Anyone's: what is sent can't be read on the way, but who is at the other end is not known.
    Anyone,
}

/// The certificate that a connection shows to a server that asks for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The file (PEM) of the certificate. Behind the certificate stand the authorities that lead to one the server knows.
    pub certificate: PathBuf,
    /// The file (PEM) of its private key, which is not encrypted.
    pub key: PathBuf,
}

impl Identity {
    /// By the settings `sslcert` and `sslkey`. Without `sslkey` one file has both.
    ///
    /// # Errors
    /// A key without a certificate, in words.
    pub fn of(certificate: Option<String>, key: Option<String>) -> Result<Option<Identity>, &'static str> {
        match (certificate, key) {
            (None, None) => Ok(None),
            (None, Some(_)) => Err("sslkey is set without sslcert, the file of the key's certificate"),
            (Some(both), None) => Ok(Some(Identity { certificate: both.clone().into(), key: both.into() })),
            (Some(certificate), Some(key)) => {
                Ok(Some(Identity { certificate: certificate.into(), key: key.into() }))
            }
        }
    }
}

/// What TLS is made with.
#[derive(Clone)]
#[non_exhaustive]
pub enum TlsSettings {
    /// Files, which are read for each connection: they may have been renewed.
    Files {
        /// Whose certificates are trusted.
        trust: Trust,
        /// What is shown, if the server asks.
        identity: Option<Identity>,
    },
    /// A configuration of the program's own, as it is.
    #[cfg(feature = "tls")]
    Config(Arc<rustls::ClientConfig>),
}

impl TlsSettings {
    /// Whether no file of the settings can be at fault.
    pub fn names_no_file(&self) -> bool {
        matches!(self, TlsSettings::Files { trust: Trust::System | Trust::Anyone, identity: None })
    }
}

impl Default for TlsSettings {
    fn default() -> TlsSettings {
        TlsSettings::Files { trust: Trust::System, identity: None }
    }
}

impl fmt::Debug for TlsSettings {
    /// Without the key of a configuration.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsSettings::Files { trust, identity } => {
                f.debug_struct("Files").field("trust", trust).field("identity", identity).finish()
            }
            #[cfg(feature = "tls")]
            TlsSettings::Config(_) => f.write_str("Config"),
        }
    }
}

/// Why a connection has no TLS.
#[derive(Debug)]
pub enum TlsFailure {
    /// The client can't begin TLS: a file can't be read, no certificate can be for this host, or the feature `tls` is missing.
    NotBegun(String),
    /// The server's certificate is not trusted.
    Certificate(String),
    /// The server does not trust the client's certificate, or asked for one and got none.
    Refused(String),
    /// The server speaks no TLS or another version, closed, or did not answer until the deadline.
    Handshake(io::Error),
}

impl TlsFailure {
    /// The failure in an error of a connection whose handshake has ended here: the server checks the client's certificate afterwards.
    pub fn of(error: &io::Error) -> Option<TlsFailure> {
        match error.get_ref()?.downcast_ref()? {
            TlsFailure::Refused(cause) => Some(TlsFailure::Refused(cause.clone())),
            _ => None,
        }
    }
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsFailure::NotBegun(cause) => f.write_str(cause),
            TlsFailure::Certificate(cause) => write!(f, "the server's certificate is not trusted: {cause}"),
            TlsFailure::Refused(cause) => write!(f, "the server refuses the connection: {cause}"),
            TlsFailure::Handshake(error) => write!(f, "the TLS handshake failed: {}", in_words(error)),
        }
    }
}

impl error::Error for TlsFailure {}

/// How long after the first failure the certificates may still be about to change: as for a password, see `fairlock_core::backend::Logins`.
const CHANGES_WITHIN: Duration = Duration::from_secs(120);

/// Tells a certificate that is being replaced from a wrong one. Clones are for servers whose certificates are replaced together: one that
/// connects ends the two minutes of all.
#[derive(Clone, Debug, Default)]
pub struct Changeover(Arc<Mutex<Failing>>);

#[derive(Debug, Default)]
struct Failing {
    had_tls: bool,
    failing_since: Option<Instant>,
}

impl Changeover {
    /// A server has answered by TLS.
    pub fn accepted(&self) {
        *self.0.lock() = Failing { had_tls: true, failing_since: None };
    }

    /// There is no TLS. Returns whether that may pass.
    pub fn may_pass(&self) -> bool {
        self.may_pass_at(Instant::now())
    }

    fn may_pass_at(&self, now: Instant) -> bool {
        let mut state = self.0.lock();
        let since = *state.failing_since.get_or_insert(now);
        state.had_tls && now.saturating_duration_since(since) < CHANGES_WITHIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_needs_its_certificate_which_may_have_the_key() {
        let of = |certificate: Option<&str>, key: Option<&str>| {
            Identity::of(certificate.map(str::to_owned), key.map(str::to_owned))
        };
        let pair =
            |certificate: &str, key: &str| Identity { certificate: certificate.into(), key: key.into() };
        assert_eq!(of(None, None), Ok(None));
        assert!(of(None, Some("k")).is_err_and(|what| what.contains("without sslcert")));
        assert_eq!(of(Some("c"), None), Ok(Some(pair("c", "c"))));
        assert_eq!(of(Some("c"), Some("k")), Ok(Some(pair("c", "k"))));
    }

    #[test]
    fn settings_show_and_say_which_files_they_name() {
        let (files, identity) =
            (|trust, identity| TlsSettings::Files { trust, identity }, Identity::of(Some("c".into()), None));
        assert!(TlsSettings::default().names_no_file() && files(Trust::Anyone, None).names_no_file());
        let named = files(Trust::System, identity.expect("a certificate"));
        assert!(!named.names_no_file() && !files(Trust::File("a".into()), None).names_no_file());
        assert!(format!("{named:?}").contains("certificate: \"c\""), "{named:?}");
    }

    #[test]
    fn only_a_refusal_comes_after_the_handshake() {
        let of = |failure| TlsFailure::of(&io::Error::other(failure));
        let refused = of(TlsFailure::Refused("bad".to_owned())).expect("the refusal");
        assert_eq!(refused.to_string(), "the server refuses the connection: bad");
        assert!(of(TlsFailure::Certificate("bad".to_owned())).is_none());
        assert!(TlsFailure::of(&io::Error::other("bad")).is_none());
    }

    #[test]
    fn a_failure_passes_for_two_minutes_after_a_connection() {
        let (changeover, start) = (Changeover::default(), Instant::now());
        assert!(!changeover.may_pass_at(start), "no connection so far");
        changeover.accepted();
        let other = changeover.clone();
        let passes = |seconds| changeover.may_pass_at(start + Duration::from_secs(seconds));
        assert_eq!([0, 119, 120, 500].map(passes), [true, true, false, false]);
        other.accepted();
        assert_eq!([500, 619, 620].map(passes), [true, true, false]);
    }
}
