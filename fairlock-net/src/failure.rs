//! Why there is no TLS.

use std::{error, fmt, io};

use crate::words::in_words;

/// Why a connection has no TLS.
#[derive(Debug)]
pub enum TlsFailure {
    /// It can't be begun from here: no authority's certificate can be read, none can be for this host, or the feature `tls-rustls` is
    /// missing.
    NotBegun(String),
    /// The server's certificate is not trusted.
    Certificate(String),
    /// The server speaks no TLS or another one, closed, or did not answer until the deadline.
    Handshake(io::Error),
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsFailure::NotBegun(cause) | TlsFailure::Certificate(cause) => f.write_str(cause),
            TlsFailure::Handshake(error) => write!(f, "the TLS handshake failed: {}", in_words(error)),
        }
    }
}

impl error::Error for TlsFailure {}
