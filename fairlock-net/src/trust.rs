//! What TLS is made with: whose certificates are trusted, and which certificate is shown.

use std::fmt;
use std::path::PathBuf;
#[cfg(feature = "tls-rustls")]
use std::sync::Arc;

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
    #[cfg(feature = "tls-rustls")]
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
            #[cfg(feature = "tls-rustls")]
            TlsSettings::Config(_) => f.write_str("Config"),
        }
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
}
