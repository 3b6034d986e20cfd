//! A statement with its values, in the binary form of the protocol.

use bytes::{BufMut, BytesMut};
use postgres_protocol::{IsNull, Oid};

const BYTEA: Oid = 17;
const INT8: Oid = 20;
const INT4: Oid = 23;
const TEXT: Oid = 25;

/// One value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    /// `bytea`.
    Bytes(&'a [u8]),
    /// `text`; without a NUL.
    Text(&'a str),
    /// `bigint`.
    Number(i64),
    /// `bigint`, or null.
    MaybeNumber(Option<i64>),
    /// `text`, or null.
    MaybeText(Option<&'a str>),
    /// `int`, or null.
    MaybeCount(Option<i32>),
    /// `bytea[]`.
    ManyBytes(&'a [&'a [u8]]),
    /// `text[]`.
    Texts(&'a [&'a str]),
    /// `bigint[]`.
    Numbers(&'a [i64]),
    /// `int[]`.
    Counts(&'a [i32]),
}

/// The text of a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sql<'a> {
    /// One of a few, which sessions keep prepared.
    Fixed(&'static str),
    /// One that was made up, and is parsed each time.
    MadeUp(&'a str),
}

/// One statement.
#[derive(Clone, Debug)]
pub(crate) struct Statement<'a> {
    pub(super) sql: Sql<'a>,
    pub(super) values: Vec<Value<'a>>,
}

impl<'a> Statement<'a> {
    pub(crate) fn new(sql: &'static str, values: impl Into<Vec<Value<'a>>>) -> Statement<'a> {
        Statement { sql: Sql::Fixed(sql), values: values.into() }
    }

    /// A text that was made up, without values.
    pub(crate) fn made_up(sql: &'a str) -> Statement<'a> {
        Statement { sql: Sql::MadeUp(sql), values: Vec::new() }
    }
}

impl<'a> Sql<'a> {
    pub(super) fn text(&self) -> &'a str {
        match self {
            Sql::Fixed(text) | Sql::MadeUp(text) => text,
        }
    }
}

impl Value<'_> {
    pub(super) fn oid(&self) -> Oid {
        match self {
            Value::Bytes(_) => BYTEA,
            Value::Text(_) | Value::MaybeText(_) => TEXT,
            Value::Number(_) | Value::MaybeNumber(_) => INT8,
            Value::MaybeCount(_) => INT4,
            Value::ManyBytes(_) => 1001,
            Value::Texts(_) => 1009,
            Value::Numbers(_) => 1016,
            Value::Counts(_) => 1007,
        }
    }

    pub(super) fn write(&self, out: &mut BytesMut) -> IsNull {
        match *self {
            Value::Bytes(bytes) => out.put_slice(bytes),
            Value::Text(text) | Value::MaybeText(Some(text)) => out.put_slice(text.as_bytes()),
            Value::Number(number) | Value::MaybeNumber(Some(number)) => out.put_i64(number),
            Value::MaybeCount(Some(count)) => out.put_i32(count),
            Value::MaybeText(None) | Value::MaybeNumber(None) | Value::MaybeCount(None) => {
                return IsNull::Yes;
            }
            Value::ManyBytes(all) => write_array(BYTEA, all, out, |bytes, out| out.put_slice(bytes)),
            Value::Texts(all) => write_array(TEXT, all, out, |text, out| out.put_slice(text.as_bytes())),
            Value::Numbers(all) => write_array(INT8, all, out, |number, out| out.put_i64(*number)),
            Value::Counts(all) => write_array(INT4, all, out, |count, out| out.put_i32(*count)),
        }
        IsNull::No
    }
}

/// One dimension without nulls, which begins at 1.
fn write_array<T>(oid: Oid, all: &[T], out: &mut BytesMut, write: impl Fn(&T, &mut BytesMut)) {
    out.put_i32(i32::from(!all.is_empty()));
    out.put_i32(0);
    out.put_u32(oid);
    if all.is_empty() {
        return;
    }
    out.put_i32(length(all.len()));
    out.put_i32(1);
    for one in all {
        let at = out.len();
        out.put_i32(0);
        write(one, out);
        let bytes = length(out.len() - at - 4);
        out[at..at + 4].copy_from_slice(&bytes.to_be_bytes());
    }
}

/// No call has as many as would not fit.
fn length(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}
