//! What a fairlock backend needs to talk to a server, whatever the protocol: a connection on which every wait ends at one deadline.
//! This crate speaks no protocol, and knows no store and no lock.
//!
//! ```text
//! secrets     what an error must not show
//! url         what is wrong with a URL; never repeats any of it
//! stream      Stream: connect, secure (TLS), send, read, close: each wait has the deadline
//! tls         over a socket (feature tls-rustls)
//! trust       TlsSettings: whose certificates are trusted, and which one is shown
//! socket      TCP or Unix, with the deadline
//! resolver    looks up names, also by the deadline
//! endpoint    Endpoint: host and port, or a path
//! failure     TlsFailure: why there is no TLS
//! timeouts    Timeouts, and what says in an error which of them was over
//! words       an error in one short line
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

mod changeover;
mod endpoint;
mod failure;
mod resolver;
mod secrets;
mod socket;
mod stream;
mod timeouts;
#[cfg(feature = "tls-rustls")]
mod tls;
mod trust;
mod url;
mod words;

pub use changeover::Changeover;
pub use endpoint::Endpoint;
pub use failure::TlsFailure;
#[cfg(feature = "tls-rustls")]
pub use rustls;
pub use secrets::Secrets;
pub use stream::Stream;
pub use timeouts::{Timeouts, within};
pub use trust::{Identity, TlsSettings, Trust};
pub use url::{bare_delimiter, percent_decoded};
pub use words::{NO_ANSWER, in_words, one_line};
