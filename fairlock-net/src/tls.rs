//! TLS over a socket. Certificates are always checked against the system's authorities, or those that `SSL_CERT_FILE` names.

use std::{error, fmt, io};

use crate::words::in_words;

/// Why a connection has no TLS.
#[derive(Debug)]
pub enum TlsFailure {
    /// It can't be begun from here: the authorities can't be read, no certificate can be for this host, or the feature `tls-rustls` is
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

#[cfg(feature = "tls-rustls")]
pub(crate) use with_rustls::{Tls, over, shake_hands};

#[cfg(feature = "tls-rustls")]
mod with_rustls {
    use std::sync::Arc;

    use rustls::crypto::{CryptoProvider, ring};
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, Error, RootCertStore, StreamOwned};

    use super::TlsFailure;
    use crate::socket::Socket;
    use crate::words::one_line;

    pub(crate) type Tls = StreamOwned<ClientConnection, Socket>;

    /// Prepares TLS over a connected socket.
    pub(crate) fn over(socket: Socket, host: &str) -> Result<Tls, TlsFailure> {
        let name = ServerName::try_from(host.to_owned()).map_err(not_begun)?;
        // Read for each connection, since they may have been renewed.
        let mut found = rustls_native_certs::load_native_certs();
        if let Some(error) = found.errors.pop() {
            return Err(not_begun(error));
        }
        let mut authorities = RootCertStore::empty();
        for certificate in found.certs {
            authorities.add(certificate).map_err(not_begun)?;
        }
        let config = ClientConfig::builder_with_provider(crypto())
            .with_safe_default_protocol_versions()
            .map_err(not_begun)?
            .with_root_certificates(authorities)
            .with_no_client_auth();
        let connection = ClientConnection::new(Arc::new(config), name).map_err(not_begun)?;
        Ok(StreamOwned::new(connection, socket))
    }

    /// Shakes hands, within the socket's deadline.
    pub(crate) fn shake_hands(tls: &mut Tls) -> Result<(), TlsFailure> {
        tls.conn.complete_io(&mut tls.sock).map(drop).map_err(|error| {
            match error.get_ref().and_then(|cause| cause.downcast_ref::<Error>()) {
                Some(refused @ Error::InvalidCertificate(_)) => {
                    TlsFailure::Certificate(one_line(&refused.to_string()))
                }
                _ => TlsFailure::Handshake(error),
            }
        })
    }

    fn not_begun(error: impl std::fmt::Display) -> TlsFailure {
        TlsFailure::NotBegun(one_line(&error.to_string()))
    }

    /// The provider that the program chose, else the one that is always linked.
    fn crypto() -> Arc<CryptoProvider> {
        CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()))
    }
}
