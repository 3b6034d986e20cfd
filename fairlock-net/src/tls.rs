//! TLS over a socket. Certificates are always checked against the system's authorities, or those that `SSL_CERT_FILE` names.

use std::fmt::Display;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Error, RootCertStore, StreamOwned};

use crate::failure::TlsFailure;
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

fn not_begun(error: impl Display) -> TlsFailure {
    TlsFailure::NotBegun(one_line(&error.to_string()))
}

/// The provider that the program chose, else the one that is always linked.
fn crypto() -> Arc<CryptoProvider> {
    CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()))
}
