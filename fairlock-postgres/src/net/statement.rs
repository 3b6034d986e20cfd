//! A statement with its values, in the binary form of the protocol.

use std::borrow::Cow;

use bytes::{BufMut, BytesMut};
use postgres_protocol::{IsNull, Oid};

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
