//! TLS over a socket, with a peer whose certificate is trusted.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme, StreamOwned,
};

use crate::failure::TlsFailure;
use crate::socket::Socket;
use crate::trust::Trust;
use crate::words::one_line;

pub(crate) type Tls = StreamOwned<ClientConnection, Socket>;

/// What is wrong with some of the authorities' certificates, if anything is.
pub(crate) struct Unread(Option<String>);

/// Prepares TLS over a connected socket.
pub(crate) fn over(socket: Socket, host: &str, trust: &Trust) -> Result<(Tls, Unread), TlsFailure> {
    let name = ServerName::try_from(host.to_owned()).map_err(not_begun)?;
    let provider = crypto();
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(not_begun)?;
    // Read for each connection, since they may have been renewed.
    let (authorities, unread) = match trust {
        Trust::System => of_the_system()?,
        Trust::File(path) | Trust::FileForAnyHost(path) => (in_file(path)?, None),
        Trust::Anyone => (RootCertStore::empty(), None),
    };
    let config = match trust {
        Trust::System | Trust::File(_) => config.with_root_certificates(authorities),
        Trust::FileForAnyHost(_) => {
            let signed =
                WebPkiServerVerifier::builder_with_provider(Arc::new(authorities), Arc::clone(&provider));
            let verifier = OfAnyHost { signed: Some(signed.build().map_err(not_begun)?), provider };
            config.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
        Trust::Anyone => {
            let verifier = OfAnyHost { signed: None, provider };
            config.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
    };
    let config = Arc::new(config.with_no_client_auth());
    let connection = ClientConnection::new(config, name).map_err(not_begun)?;
    Ok((StreamOwned::new(connection, socket), Unread(unread)))
}

/// The authorities, and what is wrong with some, if anything is.
fn of_the_system() -> Result<(RootCertStore, Option<String>), TlsFailure> {
    let found = rustls_native_certs::load_native_certs();
    let mut authorities = RootCertStore::empty();
    // A certificate that can't be read takes nothing from the others: only what it alone vouches for is not trusted.
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
    Ok((authorities, unread))
}

/// All of a file that names authorities has to be of use.
fn in_file(path: &Path) -> Result<RootCertStore, TlsFailure> {
    let wrong = |cause: &dyn Display| {
        let cause = one_line(&cause.to_string());
        not_begun(format!("the certificates of authorities in `{}` can't be read: {cause}", path.display()))
    };
    let mut authorities = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
        authorities.add(certificate.map_err(|error| wrong(&error))?).map_err(|error| wrong(&error))?;
    }
    if authorities.is_empty() {
        return Err(wrong(&"it has none in PEM"));
    }
    Ok(authorities)
}

/// Takes a certificate for whichever host, if one of these has signed it, or anybody. That the peer has its key is checked.
#[derive(Debug)]
struct OfAnyHost {
    signed: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for OfAnyHost {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(signed) = &self.signed else { return Ok(ServerCertVerified::assertion()) };
        match signed.verify_server_cert(certificate, between, name, ocsp, now) {
            // The name is looked at last, when all else was found good.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
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
