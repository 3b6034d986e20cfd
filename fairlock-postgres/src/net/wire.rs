//! The bytes of a session: sends messages, and takes what comes apart into messages. After a failure no more can be read: an answer
//! may still be under way.

use std::io::{self, ErrorKind, Read};
use std::time::Instant;

use bytes::BytesMut;
use fairlock_net::{Endpoint, Stream};
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{
    ErrorResponseBody, Header, Message as Received, NoticeResponseBody,
};

use super::address::Address;
use super::failure::Failure;

/// The most bytes of all answers to what was sent together: a queue of some thousands of waiters is below 1 MB. Few in tests, which
/// reach the end.
const LONGEST: usize = if cfg!(test) { 4 } else { 256 } << 20;

pub(crate) struct Wire {
    pub(super) stream: Stream,
    incoming: BytesMut,
    /// How many bytes may still come for what was sent last.
    left: usize,
    /// What other sessions have sent by NOTIFY, and was not asked for yet.
    messages: Vec<String>,
    /// Nothing more will come.
    pub(super) is_over: bool,
    /// Where the server is, and who has logged in, to which database.
    pub(super) endpoint: Endpoint,
    pub(crate) address: Address,
    /// How many round trips there were.
    pub(crate) trips: u64,
}

impl Wire {
    pub(super) fn new(stream: Stream, endpoint: &Endpoint, address: &Address) -> Wire {
        Wire {
            stream,
            incoming: BytesMut::new(),
            left: LONGEST,
            messages: Vec::new(),
            is_over: false,
            endpoint: endpoint.clone(),
            address: address.clone(),
            trips: 0,
        }
    }

    /// Sends what this writes.
    pub(super) fn say(
        &mut self,
        deadline: Instant,
        write: impl FnOnce(&mut BytesMut) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let mut out = BytesMut::new();
        write(&mut out)?;
        self.send(&out, deadline)
    }

    pub(super) fn send(&mut self, bytes: &[u8], deadline: Instant) -> Result<(), Failure> {
        self.trips += 1;
        self.left = LONGEST;
        self.stream.send(bytes, deadline).inspect_err(|_| self.is_over = true)?; // what has arrived of it has no end
        Ok(())
    }

    /// The next message, except those that may come at any time.
    pub(super) fn receive(&mut self) -> Result<Received, Failure> {
        loop {
            let message = self.next()?;
            if let Some(message) = self.sift(message)? {
                return Ok(message);
            }
        }
    }

    /// The next message; a refusal is an error.
    pub(super) fn accept(&mut self) -> Result<Received, Failure> {
        match self.receive()? {
            Received::ErrorResponse(body) => Err(self.refused(&body)),
            message => Ok(message),
        }
    }

    /// Keeps messages of NOTIFY, and drops all else that may come at any time.
    fn sift(&mut self, message: Received) -> Result<Option<Received>, Failure> {
        match message {
            Received::NoticeResponse(body) if is_unconfirmed(&body) => {
                return Err(Failure::broken("the wait for the synchronous standby was cancelled"));
            }
            Received::NoticeResponse(_) | Received::ParameterStatus(_) => {}
            Received::NotificationResponse(body) => self.messages.push(body.message()?.to_owned()),
            message => return Ok(Some(message)),
        }
        Ok(None)
    }

    /// A part of a message stays for the next call.
    pub(super) fn next(&mut self) -> io::Result<Received> {
        loop {
            // Only a whole message is parsed: `parse` reserves the length that the first bytes claim.
            let head = Header::parse(&self.incoming)?;
            if head.is_some_and(|head| self.incoming.len() as u64 > head.len() as u64) {
                return Received::parse(&mut self.incoming)?.ok_or_else(|| ErrorKind::InvalidData.into());
            }
            let mut chunk = [0; 8192];
            match self.stream.read(&mut chunk) {
                Ok(n) if n > 0 => {
                    let too_long = || io::Error::other("the server's answer has no end");
                    self.left = self.left.checked_sub(n).ok_or_else(too_long)?;
                    self.incoming.extend_from_slice(&chunk[..n]);
                }
                Err(error) if error.kind() == ErrorKind::TimedOut => return Err(error),
                failed => {
                    self.is_over = true;
                    return Err(failed.err().unwrap_or_else(|| ErrorKind::UnexpectedEof.into()));
                }
            }
        }
    }

    /// Messages of NOTIFY, at least one unless the time is over.
    pub(crate) fn listen(&mut self, until: Instant) -> Result<Vec<String>, Failure> {
        self.stream.until(until);
        self.left = LONGEST;
        while self.messages.is_empty() {
            let message = match self.next() {
                Err(error) if error.kind() == ErrorKind::TimedOut => break,
                message => message?,
            };
            match self.sift(message)? {
                None => {}
                Some(Received::ErrorResponse(body)) => return Err(self.refused(&body)),
                Some(_) => return Err(Failure::senseless()),
            }
        }
        Ok(std::mem::take(&mut self.messages))
    }

    /// Drops messages that came between answers: a pooler may lend a session that listens for another client.
    pub(super) fn forget_messages(&mut self) {
        self.messages.clear();
    }

    /// The server's words, without a password.
    pub(super) fn refused(&self, body: &ErrorResponseBody) -> Failure {
        let (mut code, mut message) = (String::new(), String::new());
        for field in body.fields().iterator().map_while(Result::ok) {
            let value = || String::from_utf8_lossy(field.value_bytes()).into_owned();
            match field.type_() {
                b'C' => code = value(),
                b'M' => message = self.address.secrets.hide(&value()),
                _ => {}
            }
        }
        let place = format!("database `{}` on {}", self.address.database, self.endpoint);
        Failure::refused_to(&self.address.user, &place, code, message)
    }
}

/// Whether a commit is said to be done here, and perhaps nowhere else. The words depend on the server's language, and the code is that
/// of any warning; the name of the server's function is neither.
fn is_unconfirmed(body: &NoticeResponseBody) -> bool {
    let mut fields = body.fields().iterator().map_while(Result::ok);
    fields.any(|field| field.type_() == b'R' && field.value_bytes() == b"SyncRepWaitForLSN")
}

#[cfg(test)]
mod tests;
