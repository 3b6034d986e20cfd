//! What a fairlock backend needs to talk to a server, whatever the protocol: a connection on which every wait ends at one deadline.
//! This crate speaks no protocol, and knows no store and no lock.
//!
//! ```text
//! stream      Stream: looks the name up, connects, sends, reads, closes; each wait of its TCP or Unix socket ends at the deadline
//!   tls       over the socket (feature tls)
//! trust       TlsSettings: whose certificates are trusted, and which one is shown; TlsFailure: why there is no TLS
//! endpoint    Endpoint: host and port, or a path; the parts of a URL, and the password that no error shows; an error in one short line;
//!             Timeouts, and what says in an error which of them was over
//! ```
//!
//! Each module imports only those below it. A store's connection goes like this:
//!
//! ```no_run
//! use std::io::Read;
//! use std::time::{Duration, Instant};
//! use fairlock_net::{Endpoint, Stream};
//!
//! let deadline = Instant::now() + Duration::from_secs(5);
//! let endpoint = Endpoint::Tcp { host: "db.internal".to_owned(), port: 5432 };
//! let mut stream = Stream::connect(&endpoint, deadline)?; // looks the name up, tries each address
//! stream.send(b"may I use TLS?", deadline)?;
//! let mut answer = [0];
//! stream.read_exact(&mut answer)?; // by the same deadline; nothing is read ahead
//! stream.all_answered();
//! let mut stream = stream.secure("db.internal")?; // the handshake too
//! stream.send(b"a request", Instant::now() + Duration::from_secs(1))?;
//! drop(stream); // a reset, since the request is unanswered: the system does not go on sending it
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The pause before the next attempt to connect is `fairlock_core::backend::pause`: core pauses by it too.

mod endpoint;
mod stream;
mod trust;

pub use endpoint::{
    Endpoint, NO_ANSWER, Secrets, Timeouts, bare_delimiter, in_words, one_line, percent_decoded, within,
};
#[cfg(feature = "tls")]
pub use rustls;
pub use stream::Stream;
pub use trust::{Changeover, Identity, TlsFailure, TlsSettings, Trust};
