//! Why there is no TLS.

use std::{error, fmt, io};

use crate::words::in_words;

/// Why a connection has no TLS.
#[derive(Debug)]
pub enum TlsFailure {
    /// The client can't begin TLS: a file can't be read, no certificate can be for this host, or the feature `tls-rustls` is missing.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_comes_after_the_handshake() {
        let of = |failure| TlsFailure::of(&io::Error::other(failure));
        let refused = of(TlsFailure::Refused("bad".to_owned())).expect("the refusal");
        assert_eq!(refused.to_string(), "the server refuses the connection: bad");
        assert!(of(TlsFailure::Certificate("bad".to_owned())).is_none());
        assert!(TlsFailure::of(&io::Error::other("bad")).is_none());
    }
}
