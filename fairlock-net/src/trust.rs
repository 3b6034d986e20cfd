//! Whose certificates are trusted.

use std::path::PathBuf;

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
