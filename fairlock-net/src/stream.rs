//! A connection to a server: bytes go out and come in until one deadline, in cleartext or by TLS.

use std::io::{self, ErrorKind, Read, Write};
use std::time::Instant;

use crate::endpoint::Endpoint;
use crate::failure::TlsFailure;
use crate::resolver::Resolver;
use crate::socket::Socket;
#[cfg(feature = "tls-rustls")]
use crate::tls::Tls;
use crate::trust::TlsSettings;

/// A connection to a server. Every wait ends at the deadline, however slowly the peer sends or reads, with the error `TimedOut`.
/// A deadline stays until the next one is set. Reads are unbuffered.
///
/// If what was sent is unanswered when it is dropped, it is closed by a reset: after a plain close the system would go on sending a
/// request for minutes, and the server would carry it out long after its repeat on another connection. (A Unix socket has handed
/// everything over by then, and is just closed.)
pub struct Stream(Carrier);

enum Carrier {
    Cleartext(Socket),
    #[cfg(feature = "tls-rustls")]
    Tls(Box<Tls>),
}

impl Stream {
    /// Connects until `deadline`: looks the host's name up and tries its addresses, each for a fair part of the time that is left.
    ///
    /// # Errors
    /// The error of the last address, the error of the look-up (kind `Other`, in words), or `TimedOut`.
    pub fn connect(endpoint: &Endpoint, deadline: Instant) -> io::Result<Stream> {
        let socket = match endpoint {
            Endpoint::Unix(path) => Socket::unix(path, deadline)?,
            Endpoint::Tcp { host, port } => dial(Resolver::system(), host, *port, deadline)?,
        };
        Ok(Stream(Carrier::Cleartext(socket)))
    }

    /// Goes on by TLS, from the next byte on in both directions. The handshake is done within the deadline. The certificate has to be for
    /// `host`, and signed by an authority of the system, or by one that `SSL_CERT_FILE` names.
    ///
    /// # Errors
    /// See [`TlsFailure`]. Without the feature `tls-rustls` it is always `NotBegun`.
    pub fn secure(self, host: &str) -> Result<Stream, TlsFailure> {
        self.secure_with(host, &TlsSettings::default())
    }

    /// Goes on by TLS with these settings.
    ///
    /// # Errors
    /// See [`TlsFailure`]. Without the feature `tls-rustls` it is always `NotBegun`.
    #[cfg(feature = "tls-rustls")]
    pub fn secure_with(self, host: &str, settings: &TlsSettings) -> Result<Stream, TlsFailure> {
        let socket = match self.0 {
            Carrier::Cleartext(socket) => socket,
            Carrier::Tls(_) => return Err(TlsFailure::NotBegun("the connection has TLS".to_owned())),
        };
        let mut tls = Tls::over(socket, host, settings)?;
        tls.shake_hands()?;
        Ok(Stream(Carrier::Tls(Box::new(tls))))
    }

    /// Goes on by TLS, which needs the feature `tls-rustls`.
    ///
    /// # Errors
    /// Always `NotBegun`, without the feature.
    #[cfg(not(feature = "tls-rustls"))]
    pub fn secure_with(self, _host: &str, _settings: &TlsSettings) -> Result<Stream, TlsFailure> {
        Err(TlsFailure::NotBegun("a TLS connection needs the feature tls-rustls".to_owned()))
    }

    /// Sets the deadline for what is read from now on.
    pub fn until(&mut self, deadline: Instant) {
        self.socket().until(deadline);
    }

    /// Sends all of it until `deadline`, which holds for the answers too, until another one is set. From now on a reply may come;
    /// [`all_answered`](Stream::all_answered) follows the last one.
    ///
    /// # Errors
    /// How much was sent is not known. The stream is of no more use.
    pub fn send(&mut self, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        self.socket().expects_answers(true);
        self.until(deadline);
        match &mut self.0 {
            Carrier::Cleartext(socket) => socket.write_all(bytes),
            #[cfg(feature = "tls-rustls")]
            Carrier::Tls(tls) => {
                tls.write_all(bytes)?;
                // It may still buffer some of it.
                tls.flush()
            }
        }
    }

    /// All replies to what was sent have been read.
    pub fn all_answered(&mut self) {
        self.socket().expects_answers(false);
    }

    fn socket(&mut self) -> &mut Socket {
        match &mut self.0 {
            Carrier::Cleartext(socket) => socket,
            #[cfg(feature = "tls-rustls")]
            Carrier::Tls(tls) => tls.socket(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Carrier::Cleartext(socket) => socket.read(buf),
            #[cfg(feature = "tls-rustls")]
            Carrier::Tls(tls) => tls.read(buf),
        }
    }
}

fn dial(resolver: &'static Resolver, host: &str, port: u16, deadline: Instant) -> io::Result<Socket> {
    let found = resolver.addresses(host, port, deadline)?;
    let mut last = ErrorKind::TimedOut.into();
    for (tried, addr) in found.iter().enumerate() {
        // A server that does not know its own address may announce 0.0.0.0. For a client, 0.0.0.0 is the client's own machine.
        if addr.ip().is_unspecified() {
            last = io::Error::other(format!("{} is no address of a server", addr.ip()));
            continue;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(found.len() - tried).unwrap_or(1);
        match Socket::tcp(addr, Instant::now() + share) {
            Ok(mut socket) => {
                socket.until(deadline);
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests;
