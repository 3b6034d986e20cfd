//! Checks of errors: their kind, and their one-line message.

use std::fmt::{Debug, Display};

use fairlock::Error;

use crate::secrets::assert_no_secret;

/// Panics unless the error's message is one line that contains all these parts, and no password.
#[track_caller]
pub fn assert_says(error: &impl Display, parts: &[&str]) {
    let message = error.to_string();
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
    assert!(!message.contains('\n'), "more than one line: {message}");
    assert_no_secret(&message);
}

/// Panics unless the call failed because the store is unavailable.
#[track_caller]
pub fn assert_unavailable<T: Debug>(result: Result<T, Error>, parts: &[&str]) {
    let error = result.unwrap_err();
    assert_no_secret(&format!("{error:?}"));
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert_says(&error, &["the store is unavailable"]);
    assert_says(&error, parts);
}

/// Panics unless the call failed because the store denies access.
#[track_caller]
pub fn assert_denied<T: Debug>(result: Result<T, Error>, parts: &[&str]) {
    let error = result.unwrap_err();
    assert_no_secret(&format!("{error:?}"));
    assert!(matches!(error, Error::Denied { .. }), "{error:?}");
    assert_says(&error, parts);
}

/// Panics unless the call failed because a key holds something that is not ours.
#[track_caller]
pub fn assert_corrupt<T: Debug>(result: Result<T, Error>, parts: &[&str]) {
    let error = result.unwrap_err();
    assert_no_secret(&format!("{error:?}"));
    assert!(matches!(error, Error::Corrupt { .. }), "{error:?}");
    assert_says(&error, parts);
}
