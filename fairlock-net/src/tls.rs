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

/// What is wrong with some of the authorities' certificates, if anything is.
pub(crate) struct Unread(Option<String>);

/// Prepares TLS over a connected socket.
pub(crate) fn over(socket: Socket, host: &str) -> Result<(Tls, Unread), TlsFailure> {
    let name = ServerName::try_from(host.to_owned()).map_err(not_begun)?;
    // Read for each connection, since they may have been renewed.
    let found = rustls_native_certs::load_native_certs();
    let mut authorities = RootCertStore::empty();
    // One that can't be read takes nothing from the others: what it alone vouches for is not trusted.
    let (added, malformed) = authorities.add_parsable_certificates(found.certs);
    let unread = match found.errors.first() {
        Some(error) => Some(one_line(&error.to_string())),
        None if malformed > 0 => Some(format!("{malformed} malformed")),
        None => None,
    };
    if added == 0 {
        let cause = unread.unwrap_or_else(|| "there is none".to_owned());
        return Err(not_begun(format!("no certificate of an authority can be read ({cause})")));
    }
    let config = ClientConfig::builder_with_provider(crypto())
        .with_safe_default_protocol_versions()
        .map_err(not_begun)?
        .with_root_certificates(authorities)
        .with_no_client_auth();
    let connection = ClientConnection::new(Arc::new(config), name).map_err(not_begun)?;
    Ok((StreamOwned::new(connection, socket), Unread(unread)))
}

/// Shakes hands, within the socket's deadline.
pub(crate) fn shake_hands(tls: &mut Tls, unread: &Unread) -> Result<(), TlsFailure> {
    tls.conn.complete_io(&mut tls.sock).map(drop).map_err(|error| {
        match error.get_ref().and_then(|cause| cause.downcast_ref::<Error>()) {
            Some(refused @ Error::InvalidCertificate(_)) => {
                let unread = unread.0.as_ref().map(|unread| {
                    format!("; not all certificates of the authorities here can be read ({unread})")
                });
                TlsFailure::Certificate(one_line(&refused.to_string()) + &unread.unwrap_or_default())
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
