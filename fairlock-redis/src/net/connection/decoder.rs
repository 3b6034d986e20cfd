//! Replies out of bytes (RESP 2), read as they arrive, each within a size.
//!
//! Own code, since no crate is good enough: the parser of `redis` zeroes a fresh buffer at each read and took half of a cycle's
//! instructions; `redis-protocol` begins a partial reply anew at each read, and an endless nesting overflows its stack.
//! Error replies are rare and have many forms, so they are left to `redis`.

use std::io::{self, BufRead, BufReader, ErrorKind, Read};

use redis::Value;

use super::failure::Failure;

/// The longest reply. The longest useful one has some megabytes: the slots of a big cluster, in thousands of pieces.
pub(super) const BYTES: usize = 16 << 20;
/// The most lines of a reply. Each item has one, and four bytes on the wire may take more than fifty in memory.
const LINES: usize = 1 << 20;
/// How deep arrays may be nested, as in `redis`.
const DEPTH: usize = 99;
/// For how many bytes or items memory is reserved before they have arrived: a length may be a lie.
const RESERVED: usize = 256;

/// Reads replies from a stream, one after the other. After an error it can't be used: the rest of a reply would be read as the
/// next reply.
pub(super) struct Decoder<S> {
    input: BufReader<S>,
    /// The line that was read last, with its end.
    line: Vec<u8>,
    /// How much of the limits is left for this reply.
    bytes_left: usize,
    lines_left: usize,
}

impl<S: Read> Decoder<S> {
    pub(super) fn new(stream: S) -> Decoder<S> {
        Decoder { input: BufReader::new(stream), line: Vec::new(), bytes_left: 0, lines_left: 0 }
    }

    pub(super) fn stream(&mut self) -> &mut S {
        self.input.get_mut()
    }

    /// Waits for the first byte of a reply, or for the end of the stream.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        self.input.fill_buf().map(drop)
    }

    /// Reads one reply; an error reply counts as one.
    pub(super) fn reply(&mut self) -> Result<Value, Failure> {
        (self.bytes_left, self.lines_left) = (BYTES, LINES);
        self.value(DEPTH)
    }

    fn value(&mut self, depth: usize) -> Result<Value, Failure> {
        self.read_line()?;
        let Some((kind, text)) = self.line[..self.line.len() - 2].split_first() else {
            return Err(Failure::garbled("an empty line"));
        };
        match kind {
            b':' => Ok(Value::Int(number(text)?)),
            b'+' if text == b"OK" => Ok(Value::Okay),
            b'+' => Ok(Value::SimpleString(characters(text)?.to_owned())),
            b'-' => {
                characters(text)?;
                redis::parse_redis_value(&self.line).map_err(|_| Failure::garbled("an error has no form"))
            }
            b'$' => match length(text)? {
                Some(length) => Ok(Value::BulkString(self.bulk(length)?)),
                None => Ok(Value::Nil),
            },
            b'*' => match length(text)? {
                Some(length) => self.array(length, depth),
                None => Ok(Value::Nil),
            },
            _ => Err(Failure::garbled("no reply begins so")),
        }
    }

    /// Reads a line. A bare LF is a part of the line, as in `redis`.
    fn read_line(&mut self) -> Result<(), Failure> {
        self.lines_left = self.lines_left.checked_sub(1).ok_or_else(too_many_lines)?;
        self.line.clear();
        while !self.line.ends_with(b"\r\n") {
            let arrived = self.input.fill_buf()?;
            let end = arrived.iter().position(|byte| *byte == b'\n').map_or(arrived.len(), |at| at + 1);
            self.line.extend_from_slice(&arrived[..end]);
            self.input.consume(end);
            self.read(end)?;
        }
        Ok(())
    }

    fn bulk(&mut self, length: usize) -> Result<Vec<u8>, Failure> {
        let whole = length.saturating_add(2);
        let mut bytes = Vec::with_capacity(whole.min(RESERVED));
        // One more than is allowed shows that there are too many.
        let most = whole.min(self.bytes_left + 1);
        let read = (&mut self.input).take(most as u64).read_to_end(&mut bytes)?;
        self.read(read)?;
        if read < whole {
            return Err(io::Error::from(ErrorKind::UnexpectedEof).into());
        }
        if !bytes.ends_with(b"\r\n") {
            return Err(Failure::garbled("a text has another length"));
        }
        bytes.truncate(length);
        Ok(bytes)
    }

    fn array(&mut self, length: usize, depth: usize) -> Result<Value, Failure> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(Failure::garbled("too many arrays within arrays"));
        };
        let mut items = Vec::with_capacity(length.min(RESERVED));
        for _ in 0..length {
            items.push(self.value(depth)?);
        }
        Ok(Value::Array(items))
    }

    /// Counts what was read; nothing is read at the stream's end only.
    fn read(&mut self, bytes: usize) -> Result<(), Failure> {
        if bytes == 0 {
            return Err(io::Error::from(ErrorKind::UnexpectedEof).into());
        }
        let too_long = || Failure::Broken(format!("an answer is longer than {BYTES} bytes").into());
        self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or_else(too_long)?;
        Ok(())
    }
}

fn too_many_lines() -> Failure {
    Failure::Broken(format!("an answer has more than {LINES} lines").into())
}

fn characters(text: &[u8]) -> Result<&str, Failure> {
    std::str::from_utf8(text).map_err(|_| Failure::garbled("a line is no text"))
}

fn number(text: &[u8]) -> Result<i64, Failure> {
    match text {
        // Quicker than a text's `parse`, and exact: these are less than 10 to the 18th.
        [b'0'..=b'9', rest @ ..] if rest.len() < 18 && rest.iter().all(u8::is_ascii_digit) => {
            Ok(text.iter().fold(0, |number, digit| 10 * number + i64::from(digit - b'0')))
        }
        _ => characters(text)?.parse().map_err(|_| Failure::garbled("a number was expected")),
    }
}

/// A length; none if there is no value.
fn length(text: &[u8]) -> Result<Option<usize>, Failure> {
    number(text).map(|length| usize::try_from(length).ok())
}

#[cfg(test)]
mod tests;
