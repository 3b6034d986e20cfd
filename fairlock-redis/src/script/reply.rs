//! Replies of scripts, read strictly: anything but the expected words and numbers is an error.

use std::borrow::Cow;
use std::str::Utf8Chunk;
use std::time::Duration;

use fairlock_core::FencingToken;
use fairlock_core::backend::{BackendError, BackendErrorKind};
use redis::Value;

pub(crate) use crate::net::value::{items, number, text, unintelligible};

type Read<T> = Result<T, BackendError>;

/// One row of a reply: its first word, and the items after it.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    pub(crate) word: &'a str,
    rest: &'a [Value],
    whole: &'a Value,
}

impl<'a> Row<'a> {
    pub(crate) fn of(reply: &'a Value) -> Result<Row<'a>, BackendError> {
        match items(reply)?.split_first() {
            Some((word, rest)) => Ok(Row { word: text(word)?, rest, whole: reply }),
            None => Err(unintelligible(reply)),
        }
    }

    /// The item at this index after the word.
    pub(crate) fn at<T>(&self, index: usize, read: impl FnOnce(&'a Value) -> Read<T>) -> Read<T> {
        self.if_any(index, read)?.ok_or_else(|| self.unexpected())
    }

    /// The item at this index, which the row may lack.
    pub(crate) fn if_any<T>(&self, index: usize, read: impl FnOnce(&'a Value) -> Read<T>) -> Read<Option<T>> {
        self.rest.get(index).map(read).transpose()
    }

    /// All items after the word.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = Read<i64>> {
        self.rest.iter().map(number)
    }

    pub(crate) fn unexpected(&self) -> BackendError {
        unintelligible(self.whole)
    }
}

/// An owner or a label, perhaps written by another program. Bytes that are not UTF-8 are shown as `\xff`: a foreign entry does
/// not hide the others.
pub(crate) fn written(value: &Value) -> Result<Cow<'_, str>, BackendError> {
    let Value::BulkString(bytes) = value else { return text(value).map(Cow::Borrowed) };
    let shown = |chunk: Utf8Chunk<'_>| format!("{}{}", chunk.valid(), chunk.invalid().escape_ascii());
    Ok(match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(bytes.utf8_chunks().map(shown).collect()),
    })
}

/// A time in milliseconds; a negative number stands for none.
pub(crate) fn time(value: &Value) -> Result<Option<Duration>, BackendError> {
    Ok(u64::try_from(number(value)?).ok().map(Duration::from_millis))
}

/// A time in milliseconds, which is not negative.
pub(crate) fn lease(value: &Value) -> Result<Duration, BackendError> {
    rank(value).map(Duration::from_millis)
}

/// Milliseconds until the next attempt; a negative number stands for "at the next heartbeat".
pub(crate) fn recheck_in(value: &Value) -> Result<Duration, BackendError> {
    Ok(time(value)?.unwrap_or(Duration::MAX))
}

/// A number that is not negative.
pub(crate) fn rank(value: &Value) -> Result<u64, BackendError> {
    u64::try_from(number(value)?).map_err(|_| unintelligible(value))
}

pub(crate) fn token(value: &Value) -> Result<FencingToken, BackendError> {
    let number = number(value)?;
    u64::try_from(number).map(FencingToken::new).map_err(|_| unintelligible(value))
}

/// The error for an item without a row in the reply.
pub(crate) fn missing() -> BackendError {
    BackendError::new(BackendErrorKind::Unavailable, "the server's reply has no row for this item")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn only_the_expected_shapes_are_read() {
        let reply = Value::Array(vec![bulk("granted"), Value::Int(7), Value::Int(30_000)]);
        let row = Row::of(&reply).unwrap();
        assert_eq!((row.word, row.at(0, token).unwrap().get()), ("granted", 7));
        assert_eq!(row.at(1, lease).unwrap(), Duration::from_secs(30));
        assert!(row.at(2, number).is_err());
        for reply in [Value::Nil, Value::Array(vec![]), Value::Array(vec![Value::Nil]), Value::Int(1)] {
            assert_eq!(Row::of(&reply).unwrap_err().kind(), BackendErrorKind::Unavailable);
        }
    }

    /// A negative time means the next heartbeat, and is an error for a lease.
    #[test]
    fn a_negative_time_means_the_next_heartbeat() {
        let reply = Value::Array(vec![bulk("busy"), Value::Int(-1)]);
        let row = Row::of(&reply).unwrap();
        assert_eq!(row.at(0, recheck_in).unwrap(), Duration::MAX);
        assert!(row.at(0, lease).is_err());
    }

    #[test]
    fn bytes_that_are_not_text_are_shown_but_refused_as_a_word() {
        let bytes = Value::BulkString(b"a\xff\xfe:\xc3\xa9".to_vec());
        assert_eq!(written(&bytes).unwrap(), "a\\xff\\xfe:é");
        assert_eq!(written(&bulk("é:1")).unwrap(), "é:1");
        assert!(text(&bytes).is_err() && written(&Value::Nil).is_err());
    }

    #[test]
    fn numbers_are_read_one_by_one_or_all() {
        let reply = Value::Array(vec![bulk("word"), Value::Int(3), bulk("12"), Value::Int(-1)]);
        let row = Row::of(&reply).unwrap();
        assert_eq!(row.numbers().map(Result::unwrap).collect::<Vec<_>>(), [3, 12, -1]);
        assert_eq!([1, 2].map(|at| row.at(at, number).unwrap()), [12, -1]);
        assert_eq!([1, 9].map(|at| row.if_any(at, number).unwrap()), [Some(12), None]);
        assert_eq!(
            (row.at(0, rank).unwrap(), row.at(1, recheck_in).unwrap()),
            (3, Duration::from_millis(12))
        );
        assert!(row.at(2, rank).is_err() && number(&bulk("x")).is_err());
        assert_eq!(
            (time(&bulk("12")).unwrap(), time(&Value::Int(-1)).unwrap()),
            (Some(Duration::from_millis(12)), None)
        );
    }

    #[test]
    fn an_error_shows_the_reply() {
        let reply = Value::Array(vec![bulk("new")]);
        let error = Row::of(&reply).unwrap().unexpected();
        assert_eq!(error.kind(), BackendErrorKind::Unavailable);
        assert!(error.message().contains("makes no sense: array([bulk-string('\"new\"')])"), "{error}");
        assert_eq!(text(&Value::SimpleString("OK".into())).unwrap(), "OK");
    }

    #[test]
    fn tokens_up_to_two_to_the_53rd_are_exact() {
        assert_eq!(token(&bulk("9007199254740991")).unwrap().get(), 9_007_199_254_740_991);
        assert!(token(&Value::Int(-1)).is_err());
    }
}
