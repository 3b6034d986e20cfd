//! TLS over a socket, with a peer whose certificate is trusted.

use std::fmt::Display;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error,
    InconsistentKeys, RootCertStore, SignatureScheme, StreamOwned,
};

use super::Socket;
use crate::endpoint::one_line;
use crate::trust::{Identity, TlsFailure, TlsSettings, Trust};

/// TLS over a connected socket, and what an error says of both sides' certificates.
pub(super) struct Tls {
    stream: StreamOwned<ClientConnection, Socket>,
    settings: TlsSettings,
    /// What is wrong with some of the system's authorities, if anything is.
    unread: Option<String>,
}

impl Tls {
    /// Prepares TLS over a connected socket.
    pub(super) fn over(socket: Socket, host: &str, settings: &TlsSettings) -> Result<Tls, TlsFailure> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| not_begun(format!("no certificate can be for the host {host}: {error}")))?;
        let (config, unread) = match settings {
            TlsSettings::Config(config) => (Arc::clone(config), None),
            // Read for each connection, since they may have been renewed.
            TlsSettings::Files { trust, identity } => configured(trust, identity.as_ref())?,
        };
        let connection = ClientConnection::new(config, name).map_err(not_begun)?;
        Ok(Tls { stream: StreamOwned::new(connection, socket), settings: settings.clone(), unread })
    }

    /// Shakes hands, within the socket's deadline.
    pub(super) fn shake_hands(&mut self) -> Result<(), TlsFailure> {
        self.stream.conn.complete_io(&mut self.stream.sock).map(drop).map_err(|error| {
            match cause_of(&error) {
                Some(Error::InvalidCertificate(cause)) => TlsFailure::Certificate(self.not_trusted(cause)),
                Some(Error::AlertReceived(alert)) => {
                    self.refused(*alert).map_or(TlsFailure::Handshake(error), TlsFailure::Refused)
                }
                _ => TlsFailure::Handshake(error),
            }
        })
    }

    pub(super) fn socket(&mut self) -> &mut Socket {
        self.stream.get_mut()
    }

    /// Why the server's certificate is not trusted, and what to do.
    fn not_trusted(&self, cause: &CertificateError) -> String {
        let error = one_line(&Error::InvalidCertificate(cause.clone()).to_string());
        match cause {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                format!("{error}; it has to be renewed at the server")
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                format!("{error}; are the clocks right, here and where it was made?")
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("{error}; the address has to name a host that the certificate names")
            }
            _ => {
                let by = match &self.settings {
                    TlsSettings::Files { trust: Trust::File(file) | Trust::FileForAnyHost(file), .. } => {
                        format!("no authority in `{}` has signed it", file.display())
                    }
                    TlsSettings::Files { .. } => "no authority of this system has signed it".to_owned(),
                    TlsSettings::Config(_) => {
                        return format!("{error}, by the configuration that the program set with `tls`");
                    }
                };
                let unread = self.unread.as_ref().map(|unread| {
                    format!("; not all certificates of the authorities here can be read ({unread})")
                });
                let to_do = "sslrootcert=FILE names the certificate (PEM) of the authority that signed it";
                format!("{error}; {by}{}; {to_do}", unread.unwrap_or_default())
            }
        }
    }

    /// Why the server refuses the client, if the alert says so, and what to do.
    fn refused(&self, alert: AlertDescription) -> Option<String> {
        use AlertDescription::{
            AccessDenied, BadCertificate, CertificateExpired, CertificateRequired, CertificateRevoked,
            CertificateUnknown, DecryptError, HandshakeFailure, UnknownCA, UnsupportedCertificate,
        };
        let shown = match &self.settings {
            TlsSettings::Files { identity, .. } => {
                identity.as_ref().map(|own| format!("the certificate in `{}`", own.certificate.display()))
            }
            TlsSettings::Config(_) => Some("the certificate of the configuration in `tls`".to_owned()),
        };
        let why = match (alert, &shown) {
            // By this alert servers with TLS 1.2 ask for a certificate; other faults have it, too.
            (HandshakeFailure, None) => {
                return Some(format!(
                    "{alert:?}; if it asks for a client's certificate, name one (PEM) by sslcert=FILE and sslkey=FILE"
                ));
            }
            (CertificateRequired, Some(shown)) => {
                return Some(format!(
                    "it asks for a client's certificate, and {shown} is not of a kind that it takes"
                ));
            }
            (CertificateRequired | BadCertificate | CertificateUnknown | AccessDenied, None) => {
                return Some(
                    "it asks for a client's certificate; name one (PEM) by sslcert=FILE and sslkey=FILE"
                        .to_owned(),
                );
            }
            (UnknownCA, _) => "it does not know the authority that signed",
            (CertificateExpired, _) => "its clock is past the end of",
            (CertificateRevoked, _) => "its list of revoked certificates has",
            (
                BadCertificate | CertificateUnknown | UnsupportedCertificate | AccessDenied | DecryptError,
                _,
            ) => "it does not take",
            _ => return None,
        };
        Some(format!("{why} {} ({alert:?}); its log may say more", shown?))
    }

    /// The error; in words, if the server refuses the client.
    fn explained(&self, error: io::Error) -> io::Error {
        match cause_of(&error) {
            Some(Error::AlertReceived(alert)) => match self.refused(*alert) {
                Some(cause) => io::Error::other(TlsFailure::Refused(cause)),
                None => error,
            },
            _ => error,
        }
    }
}

impl Read for Tls {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buf).map_err(|error| self.explained(error))
    }
}

impl Write for Tls {
    /// By TLS 1.3 a client's handshake ends before the server has checked the client's certificate. If the server refuses the
    /// certificate then, a write fails, and what the server sent last tells the reason.
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.write(buf).map_err(|error| {
            let StreamOwned { conn, sock } = &mut self.stream;
            while conn.read_tls(sock).is_ok_and(|read| read > 0) {
                if let Err(said) = conn.process_new_packets() {
                    return self.explained(io::Error::other(said));
                }
            }
            self.explained(error)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn cause_of(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

/// The configuration of these files, and what is wrong with some of the system's authorities, if anything is.
fn configured(
    trust: &Trust,
    identity: Option<&Identity>,
) -> Result<(Arc<ClientConfig>, Option<String>), TlsFailure> {
    let provider = crypto();
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(not_begun)?;
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
    let Some(identity) = identity else { return Ok((Arc::new(config.with_no_client_auth()), unread)) };
    let (certificates, key) = (chain(&identity.certificate)?, key(&identity.key)?);
    let config = config.with_client_auth_cert(certificates, key).map_err(|error| {
        let (certificate, key) = (identity.certificate.display(), identity.key.display());
        not_begun(match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => format!(
                "the key in `{key}` is not that of the certificate in `{certificate}`: sslcert and sslkey have to name a pair, and the \
                 certificate stands before those of authorities"
            ),
            error => {
                let cause = one_line(&error.to_string());
                format!("the certificate in `{certificate}` and the key in `{key}` can't be used: {cause}")
            }
        })
    })?;
    Ok((Arc::new(config), unread))
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
    let to_do = "sslrootcert has to name a file of certificates in PEM, or `system`";
    let wrong = |cause: &dyn Display| unreadable("certificates of authorities", path, cause, to_do);
    let mut authorities = RootCertStore::empty();
    for certificate in certificates(path).map_err(|cause| wrong(&cause))? {
        authorities.add(certificate).map_err(|error| wrong(&error))?;
    }
    Ok(authorities)
}

/// The client's certificate, and behind it those of the authorities in between.
fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFailure> {
    let to_do = "sslcert has to name a file of certificates in PEM";
    certificates(path).map_err(|cause| unreadable("client's certificate", path, &cause, to_do))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match found.map_err(|error| in_words(&error)) {
        Ok(none) if none.is_empty() => Err("it has none in PEM".to_owned()),
        found => found,
    }
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsFailure> {
    let to_do = "sslkey has to name a file with a private key in PEM; without it, that of sslcert has the key as well";
    let wrong = |cause: &dyn Display| unreadable("key of the client's certificate", path, cause, to_do);
    let text = fs::read(path).map_err(|error| wrong(&error))?;
    // As `BEGIN ENCRYPTED PRIVATE KEY`, or as `Proc-Type: 4,ENCRYPTED` in the older form.
    if text.windows(9).any(|word| word == b"ENCRYPTED") {
        let path = path.display();
        return Err(not_begun(format!(
            "the key in `{path}` is encrypted, and nobody is asked for its passphrase: `openssl pkey -in {path} -out FILE` writes it \
             without one, for sslkey=FILE"
        )));
    }
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| wrong(&in_words(&error)))
}

fn in_words(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => "it has none in PEM".to_owned(),
        _ => "it is no valid PEM".to_owned(), // the error has lines of the file
    }
}

fn unreadable(what: &str, path: &Path, cause: &dyn Display, to_do: &str) -> TlsFailure {
    not_begun(format!(
        "the {what} in `{}` can't be read: {}; {to_do}",
        path.display(),
        one_line(&cause.to_string())
    ))
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

fn not_begun(error: impl Display) -> TlsFailure {
    TlsFailure::NotBegun(error.to_string().replace(char::is_control, " "))
}

/// The provider that the program chose, else the one that is always linked.
fn crypto() -> Arc<CryptoProvider> {
    CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()))
}
