//! TLS over a socket. Certificates are always checked against the system's authorities, or those that `SSL_CERT_FILE` names.

use std::io;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::socket::Socket;

pub(super) type Tls = StreamOwned<ClientConnection, Socket>;

/// Prepares TLS over a connected socket.
///
/// # Errors
/// The authorities can't be read, or no certificate can be for this host.
pub(super) fn over(socket: Socket, host: &str) -> io::Result<Tls> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    // Read for each connection, since they may have been renewed.
    let mut found = rustls_native_certs::load_native_certs();
    if let Some(error) = found.errors.pop() {
        return Err(io::Error::other(error));
    }
    let mut authorities = RootCertStore::empty();
    for certificate in found.certs {
        authorities.add(certificate).map_err(io::Error::other)?;
    }
    let config = ClientConfig::builder_with_provider(crypto())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(authorities)
        .with_no_client_auth();
    let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    Ok(StreamOwned::new(connection, socket))
}

/// The provider that the program chose, else the one that is always linked.
fn crypto() -> Arc<CryptoProvider> {
    CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()))
}
