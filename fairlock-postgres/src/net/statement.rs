//! A statement with its values, in the binary form of the protocol.

use std::borrow::Cow;

use bytes::{BufMut, BytesMut};
use postgres_protocol::{IsNull, Oid};

/// Types of what stands in arrays.
pub(crate) const BYTEA: Oid = 17;
pub(crate) const INT8: Oid = 20;
pub(crate) const INT4: Oid = 23;
pub(crate) const TEXT: Oid = 25;

/// One value, or null. It has the type that the statement has at its place: `bytea`, `text` (without a NUL), `bigint`, `int`, or an
/// array of one of these.
#[derive(Clone, Debug)]
pub(crate) struct Value(Option<Vec<u8>>);

/// One statement: its text, which is borrowed if it is one of a few that sessions keep prepared, and its values.
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
    /// One dimension without nulls, which begins at 1.
    pub(crate) fn array(oid: Oid, items: impl IntoIterator<Item: Into<Value>>) -> Value {
        let (mut out, mut n) = (Vec::new(), 0);
        for item in items {
            let bytes = item.into().0.unwrap_or_default();
            out.put_i32(length(bytes.len()));
            out.put_slice(&bytes);
            n += 1;
        }
        let mut array = Vec::new();
        array.put_i32(i32::from(n > 0));
        array.put_i32(0);
        array.put_u32(oid);
        if n > 0 {
            array.put_i32(length(n));
            array.put_i32(1);
        }
        array.append(&mut out);
        Value(Some(array))
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

impl From<i32> for Value {
    fn from(count: i32) -> Value {
        count.to_be_bytes().as_slice().into()
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
