//! What is said in a session: statements with their values, in the binary form of the protocol; the rows that come back; and which texts
//! a database can hold. Each statement is a text in `sql/`, with its condition and its reasons, which are not sent.

use std::borrow::Cow;
use std::sync::LazyLock;

use bytes::{BufMut, BytesMut};
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::DataRowBody;
use postgres_protocol::{IsNull, Oid};

use super::failure::Failure;

macro_rules! texts {
    ($($name:ident $file:literal)*) => {$(
        pub(crate) static $name: LazyLock<String> =
            LazyLock::new(|| without_comments(include_str!(concat!("../../sql/", $file, ".sql"))));
    )*};
}

texts! {
    INSERT "insert"
    SWAP "swap"
    READ_ROW "read"
    LOCK "lock"
    CHANGED "look/changed"
    LIST "look/list"
    SWEEP "sweep"
    LIMITS "session/limits"
    OWN "session/own"
    OPENED "session/opened"
    SERVER "session/server"
}

/// Sends a message to those who listen on a channel.
pub(crate) const NOTIFY: &str = "select pg_notify($1, $2)";
/// The same, if a swap before it in the session was done.
pub(crate) const NOTIFY_IF: &str = "select pg_notify($1, $2) where current_setting($3, true) = $4";

fn without_comments(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.starts_with("--")).collect();
    lines.join(" ")
}

/// Types of what stands in arrays.
pub(crate) const BYTEA: Oid = 17;
pub(crate) const INT8: Oid = 20;

/// One value, or null. It has the type that the statement has at its place: `bytea`, `text` (without a NUL), `bigint`, or an array of
/// one of these.
#[derive(Clone, Debug)]
pub(crate) struct Value(Option<Vec<u8>>);

/// One statement: text and values. The text is borrowed for the few statements that sessions keep prepared.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub(super) sql: Cow<'static, str>,
    pub(super) values: Vec<Value>,
}

impl Statement {
    pub(crate) fn new(sql: &'static str, values: impl Into<Vec<Value>>) -> Statement {
        Statement { sql: Cow::Borrowed(sql), values: values.into() }
    }

    /// A text that was made up, and is parsed each time; without values.
    pub(crate) fn made_up(sql: impl Into<String>) -> Statement {
        Statement { sql: Cow::Owned(sql.into()), values: Vec::new() }
    }
}

impl Value {
    /// One dimension, which begins at 1.
    pub(crate) fn array<T: Into<Value>>(oid: Oid, items: impl ExactSizeIterator<Item = T>) -> Value {
        let mut out = Vec::new();
        out.put_i32(i32::from(items.len() > 0));
        out.put_i32(1); // there may be nulls
        out.put_u32(oid);
        if items.len() > 0 {
            out.put_i32(length(items.len()));
            out.put_i32(1);
        }
        for item in items {
            let bytes = item.into().0;
            out.put_i32(bytes.as_ref().map_or(-1, |bytes| length(bytes.len())));
            out.put_slice(&bytes.unwrap_or_default());
        }
        Value(Some(out))
    }

    pub(super) fn write(&self, out: &mut BytesMut) -> IsNull {
        let Some(bytes) = &self.0 else { return IsNull::Yes };
        out.put_slice(bytes);
        IsNull::No
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Value {
        Value(Some(bytes.to_vec()))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        text.as_bytes().into()
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        number.to_be_bytes().as_slice().into()
    }
}

impl From<bool> for Value {
    fn from(is: bool) -> Value {
        [u8::from(is)].as_slice().into()
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value(None), Into::into)
    }
}

/// No call has as many as would not fit.
fn length(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// One row of an answer: the values of its columns, in order; none for null.
#[derive(Debug)]
pub(crate) struct Row(Vec<Option<Vec<u8>>>);

impl Row {
    pub(super) fn read(body: &DataRowBody) -> Result<Row, Failure> {
        let buffer = body.buffer();
        let ranges: Vec<_> = body.ranges().collect()?;
        let value = |range: Option<std::ops::Range<usize>>| match range {
            None => Ok(None),
            Some(range) => buffer.get(range).map(|value| Some(value.to_vec())).ok_or_else(Failure::senseless),
        };
        Ok(Row(ranges.into_iter().map(value).collect::<Result<_, _>>()?))
    }

    #[cfg(test)]
    pub(crate) fn of(values: Vec<Option<Vec<u8>>>) -> Row {
        Row(values)
    }

    /// How many bytes it takes in memory, about.
    pub(crate) fn size(&self) -> usize {
        self.0.iter().map(|value| size_of_val(value) + value.as_ref().map_or(0, Vec::len)).sum()
    }

    pub(crate) fn maybe_bytes(&self, at: usize) -> Option<&[u8]> {
        self.0.get(at).and_then(Option::as_deref)
    }

    pub(crate) fn bytes(&self, at: usize) -> Result<&[u8], Failure> {
        self.maybe_bytes(at).ok_or_else(Failure::senseless)
    }

    pub(crate) fn text(&self, at: usize) -> Result<&str, Failure> {
        std::str::from_utf8(self.bytes(at)?).map_err(|_| Failure::senseless())
    }

    /// A `bigint`.
    pub(crate) fn number(&self, at: usize) -> Result<i64, Failure> {
        self.bytes(at)?.try_into().map(i64::from_be_bytes).map_err(|_| Failure::senseless())
    }

    /// An `int`.
    pub(crate) fn count(&self, at: usize) -> Result<i32, Failure> {
        self.bytes(at)?.try_into().map(i32::from_be_bytes).map_err(|_| Failure::senseless())
    }

    pub(crate) fn flag(&self, at: usize) -> Result<bool, Failure> {
        Ok(self.bytes(at)? == [1])
    }

    /// A `bigint[]` without nulls.
    pub(crate) fn numbers(&self, at: usize) -> Result<Vec<i64>, Failure> {
        // Dimensions, nulls and type; then, unless it is empty, the length and the first index.
        let bytes = self.bytes(at)?;
        let items = bytes.get(20..).unwrap_or_default();
        let number = |item: &[u8]| match item.split_at_checked(4) {
            Some((_, number)) => number.try_into().map(i64::from_be_bytes).map_err(|_| Failure::senseless()),
            None => Err(Failure::senseless()),
        };
        items.chunks(12).map(number).collect()
    }
}

/// The encoding of a database, which never changes. All of a session's texts are UTF-8, and the server converts them; it refuses a text with
/// a character that is not in its encoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// Each text but those with a NUL.
    #[default]
    Utf8,
    /// The first 256 characters of Unicode.
    Latin1,
    /// What all encodings have. Others have more, and which characters that are is the server's knowledge.
    Ascii,
}

impl Encoding {
    /// By the server's name for it. SQL_ASCII converts nothing, so it holds what was sent.
    pub(super) fn of(name: &str) -> Encoding {
        match name {
            "UTF8" | "SQL_ASCII" => Encoding::Utf8,
            "LATIN1" => Encoding::Latin1,
            _ => Encoding::Ascii,
        }
    }

    /// Whether a column can have this text as it is.
    pub(crate) fn holds(self, text: &str) -> bool {
        !text.contains('\0') && text.chars().all(|c| self.has(c))
    }

    /// A text for people, with `?` for each character that the encoding may not have. A NUL stays.
    pub(crate) fn replaced(self, text: &str) -> Cow<'_, str> {
        if text.chars().all(|c| self.has(c)) {
            return Cow::Borrowed(text);
        }
        Cow::Owned(text.chars().map(|c| if self.has(c) { c } else { '?' }).collect())
    }

    fn has(self, c: char) -> bool {
        match self {
            Encoding::Utf8 => true,
            Encoding::Latin1 => u32::from(c) < 0x100,
            Encoding::Ascii => c.is_ascii(),
        }
    }
}
