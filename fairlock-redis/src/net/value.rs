//! One value of a reply, read strictly: anything but what is expected is an error.

use fairlock_core::backend::{BackendError, BackendErrorKind};
use redis::Value;

pub(crate) fn items(value: &Value) -> Result<&[Value], BackendError> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(unintelligible(other)),
    }
}

pub(crate) fn text(value: &Value) -> Result<&str, BackendError> {
    let text = match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text.as_str()),
        _ => None,
    };
    text.ok_or_else(|| unintelligible(value))
}

pub(crate) fn number(value: &Value) -> Result<i64, BackendError> {
    match value {
        Value::Int(number) => Ok(*number),
        other => text(other)?.parse().map_err(|_| unintelligible(other)),
    }
}

/// The reply to TIME, in microseconds since 1970.
pub(crate) fn micros(time: &Value) -> Result<u64, BackendError> {
    let [seconds, micros] = items(time)? else { return Err(unintelligible(time)) };
    let micros = number(seconds)?.saturating_mul(1_000_000).saturating_add(number(micros)?);
    Ok(u64::try_from(micros).unwrap_or(0))
}

/// A field of the reply to INFO.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// The error for a reply with an unknown shape, which must never pass for "granted" or "free".
pub(crate) fn unintelligible(reply: &Value) -> BackendError {
    let shown: String = format!("{reply:?}").chars().take(100).collect();
    BackendError::new(BackendErrorKind::Unavailable, format!("the server's reply makes no sense: {shown}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn texts_and_numbers_are_read_and_nothing_else() {
        assert_eq!(text(&Value::SimpleString("OK".into())).unwrap(), "OK");
        assert_eq!([&bulk("12"), &Value::Int(-1)].map(|value| number(value).unwrap()), [12, -1]);
        assert!(number(&bulk("x")).is_err() && text(&Value::Nil).is_err() && items(&Value::Int(1)).is_err());
        assert_eq!(micros(&Value::Array(vec![bulk("2"), bulk("7")])).unwrap(), 2_000_007);
        assert!(micros(&Value::Array(vec![])).is_err());
    }

    #[test]
    fn a_field_of_info_is_found_by_its_whole_name() {
        let info = "# Server\r\nrole_of:x\r\nrole:master\r\n";
        assert_eq!((field(info, "role"), field(info, "rol")), (Some("master"), None));
    }
}
