//! Whose certificates are trusted.

use std::path::PathBuf;

/// Whose certificates a connection trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trust {
    /// Those for this host that an authority of the system has signed, or one that `SSL_CERT_FILE` names.
    #[default]
    System,
    /// Those for this host that an authority has signed whose certificate is in this file (PEM).
    File(PathBuf),
    /// The same, for any host.
    FileForAnyHost(PathBuf),
    /// Anyone's: what is sent can't be read on the way, but who is at the other end is not known.
    Anyone,
}
