//! What can go wrong between a call and its answer, and which error of a backend that is.

use std::io;
use std::time::Duration;

use fairlock_core::backend::{BackendError, BackendErrorKind};
use fairlock_net::{Endpoint, TlsFailure, in_words, within};

/// No such schema, table, function or column.
const MISSING: [&str; 4] = ["3F000", "42P01", "42883", "42703"];

/// Why a call to the server has no answer.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: BackendErrorKind,
    /// The SQLSTATE with which the server refused; then the transaction is rolled back.
    code: Option<String>,
    message: String,
    /// The setting that the message is about.
    setting: Option<&'static str>,
    /// Advice, if the server's words give none.
    advice: Option<String>,
    /// Whether nothing of the request was sent.
    is_unsent: bool,
    /// Whether there was no TLS where TLS is required.
    pub(super) is_of_tls: bool,
}

impl Failure {
    /// None that the server told.
    pub(crate) fn new(kind: BackendErrorKind, message: impl Into<String>) -> Failure {
        let (code, setting, advice, is_unsent, is_of_tls) = Default::default();
        Failure { kind, code, message: message.into(), setting, advice, is_unsent, is_of_tls }
    }

    /// The server refused, in its own words.
    pub(super) fn refused(code: String, message: String) -> Failure {
        let kind = kind_of(&code);
        Failure { code: Some(code), ..Failure::new(kind, message) }
    }

    /// The failure, with the user whose right is missing, or the database without tables.
    pub(super) fn refused_to(user: &str, place: &str, code: String, message: String) -> Failure {
        if code == "42501" {
            let right = grant_of(&message, user).map_or_else(String::new, |grant| format!(" (`{grant}`)"));
            let advice = format!(
                "user {user} lacks a right{right}; `fairlock doctor --postgres URL` names each missing one"
            );
            return Failure::refused(code, message).advising(advice);
        }
        if MISSING.contains(&code.as_str()) {
            let what =
                "has no fairlock tables: run `fairlock migrate --postgres URL`, or the backend's `migrate`";
            return Failure::refused(code, format!("{place} {what}"));
        }
        Failure::refused(code, message)
    }

    /// The failure about this setting.
    pub(crate) fn about_setting(self, setting: &'static str) -> Failure {
        Failure { setting: Some(setting), ..self }
    }

    /// The failure with this advice.
    pub(crate) fn advising(self, advice: impl Into<String>) -> Failure {
        Failure { advice: Some(advice.into()), ..self }
    }

    /// The failure, if it may pass although it looks as if it could not.
    pub(super) fn passing(self) -> Failure {
        Failure { kind: BackendErrorKind::Unavailable, ..self }
    }

    /// The connection failed, was late, or said what makes no sense. Whether the server did what was asked is not known.
    pub(crate) fn broken(message: impl Into<String>) -> Failure {
        Failure::new(BackendErrorKind::Unavailable, message)
    }

    pub(crate) fn senseless() -> Failure {
        Failure::broken("the server's answer makes no sense")
    }

    /// The rules refuse: this version can't read a row, or a request can't be granted.
    pub(crate) fn by_rules(error: impl Into<BackendError>) -> Failure {
        let error = error.into();
        Failure::new(error.kind(), error.message())
    }

    /// The address or a setting can't work, or the tables can't be used.
    pub(crate) fn invalid(message: impl Into<String>) -> Failure {
        Failure::new(BackendErrorKind::InvalidConfig, message)
    }

    /// There is no TLS where TLS is required.
    pub(super) fn of_tls(message: impl Into<String>) -> Failure {
        Failure { is_of_tls: true, ..Failure::invalid(message) }
    }

    /// The failure of a call that had no connection yet, and so had not begun.
    pub(crate) fn unsent(self) -> Failure {
        Failure { is_unsent: true, ..self }
    }

    /// The failure of a call of which an earlier part may have been sent.
    pub(crate) fn maybe_sent(self) -> Failure {
        Failure { is_unsent: false, ..self }
    }

    /// The failure of a connection to this server.
    pub(super) fn at(self, endpoint: &Endpoint) -> Failure {
        Failure { message: format!("PostgreSQL at {endpoint}, connecting: {}", self.message), ..self }
    }

    /// The failure with the setting whose time was over.
    pub(super) fn within(self, limit: Duration, setting: &'static str) -> Failure {
        match within(&self.message, limit) {
            Some(message) => Failure { message, ..self }.about_setting(setting),
            None => self,
        }
    }

    /// The failure with the server, if it is one of the way there: no answer says where it comes from.
    pub(super) fn of_link_to(self, endpoint: &Endpoint) -> Failure {
        if self.is_answer() || self.kind != BackendErrorKind::Unavailable {
            return self;
        }
        Failure { message: format!("PostgreSQL at {endpoint}: {}", self.message), ..self }
    }

    /// Whether the server refused with one of these codes.
    pub(crate) fn has_code(&self, codes: &[&str]) -> bool {
        self.code.as_deref().is_some_and(|code| codes.contains(&code))
    }

    pub(super) fn says(&self, words: &str) -> bool {
        self.message.contains(words)
    }

    /// Another transaction has the row.
    pub(crate) fn blocked() -> Failure {
        Failure::refused("55P03".to_owned(), "it was locked all the time".to_owned())
    }

    /// Whether another transaction has the row.
    pub(crate) fn is_of_blocked_row(&self) -> bool {
        self.has_code(&["55P03"])
    }

    /// Whether the schema or the table was dropped, with all that it kept.
    pub(crate) fn is_of_dropped_table(&self) -> bool {
        self.has_code(&["3F000", "42P01"])
    }

    /// Whether the server has no such table, function or column.
    pub(crate) fn is_of_missing_table(&self) -> bool {
        self.has_code(&MISSING)
    }

    /// Whether the failure is an answer of the server.
    pub(crate) fn is_answer(&self) -> bool {
        self.code.is_some() || self.is_unreadable()
    }

    /// Whether this version can't read what the server has.
    pub(crate) fn is_unreadable(&self) -> bool {
        matches!(self.kind, BackendErrorKind::Corrupt | BackendErrorKind::Unsupported)
    }

    /// Whether the server may refuse one row only: data that can't be stored or read, a deadlock, or a row that another transaction is
    /// inserting: every step waits for such a row, even if the step passes over locked rows.
    pub(crate) fn may_be_of_one_row(&self) -> bool {
        let is_of =
            |code: &str| ["22", "23", "40", "54", "55P03", "XX"].iter().any(|class| code.starts_with(class));
        self.code.as_deref().is_some_and(is_of)
    }

    /// Whether the connection can be used after a rollback: the server refused, or this version can't read a row. Not if the server
    /// ends the session, or takes no writes any more: then another host may take them.
    pub(crate) fn keeps_connection(&self) -> bool {
        let ends = |code: &String| ["57P", "25P03", "25006"].iter().any(|end| code.starts_with(end));
        self.code.as_ref().map_or(self.is_unreadable(), |code| !ends(code))
    }
}

/// The kind of an SQLSTATE. What is not known may pass, so core asks again.
fn kind_of(code: &str) -> BackendErrorKind {
    match code {
        "42501" => BackendErrorKind::Denied,
        // Disk full, out of memory: nothing was begun. A full table of connections (53300) passes.
        "53100" | "53200" => BackendErrorKind::Refused,
        _ if code.starts_with("28") => BackendErrorKind::Denied,
        // No such database or schema, and what none of our statements should meet.
        _ if ["3D", "3F000", "42", "22"].iter().any(|class| code.starts_with(class)) => {
            BackendErrorKind::InvalidConfig
        }
        _ => BackendErrorKind::Unavailable,
    }
}

/// What gives the user all rights to what the server refuses, by its name: the other words depend on the server's language.
fn grant_of(message: &str, user: &str) -> Option<String> {
    let names =
        |name: &str| message.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name);
    let what = if names("meta") {
        "select on fairlock.meta"
    } else if names("lock") {
        "select, insert, update, delete on fairlock.lock"
    } else if ["micros", "grace_ends"].into_iter().any(names) {
        "execute on all functions in schema fairlock"
    } else if names("fairlock") {
        "usage on schema fairlock"
    } else {
        return None;
    };
    Some(format!("grant {what} to {}", identifier(user)))
}

/// A name as SQL has it.
pub(crate) fn identifier(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_lowercase() || c == '_';
    if name.starts_with(is_plain) && name.chars().all(|c| is_plain(c) || c.is_ascii_digit()) {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        if let Some(failure) = TlsFailure::of(&error) {
            return failure.into();
        }
        Failure::broken(match error.kind() {
            io::ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
            // NotFound is that of a socket's path.
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
                format!("{}; is PostgreSQL running there?", in_words(&error))
            }
            _ => in_words(&error),
        })
    }
}

impl From<TlsFailure> for Failure {
    fn from(failure: TlsFailure) -> Failure {
        match failure {
            TlsFailure::Handshake(_) => Failure::broken(failure.to_string()),
            _ => Failure::of_tls(failure.to_string()),
        }
    }
}

impl From<Failure> for BackendError {
    fn from(failure: Failure) -> BackendError {
        let is_missing_layout = failure.is_of_missing_table();
        let Failure { kind, code, message, setting, advice, is_unsent, is_of_tls: _ } = failure;
        let message = match advice {
            Some(advice) => format!("{message}: {advice}"),
            None => message,
        };
        let message = match code.as_deref() {
            None => message,
            Some(_) if is_missing_layout => message,
            Some("55P03") => {
                format!(
                    "another transaction has the lock's row, or the table (LOCK TABLE, VACUUM FULL): {message} (55P03)"
                )
            }
            Some(code) => format!("{message} ({code})"),
        };
        let error = BackendError::new(kind, message).about_setting(setting);
        if is_unsent { error.unsent() } else { error }
    }
}

impl From<Failure> for fairlock_core::Error {
    fn from(failure: Failure) -> fairlock_core::Error {
        BackendError::from(failure).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that ends the session or takes no writes costs the connection.
    #[test]
    fn an_ended_or_read_only_session_costs_the_connection() {
        let keeps = |code: &str| Failure::refused(code.to_owned(), String::new()).keeps_connection();
        assert_eq!(["25006", "25P03", "57P01", "57P02", "57P03", "57P05"].map(keeps), [false; 6]);
        assert_eq!(["25P02", "55P03", "40001", "57014", "53300"].map(keeps), [true; 5]);
        assert!(!Failure::senseless().keeps_connection());
    }

    #[test]
    fn each_sqlstate_has_its_kind() {
        let kind = |code: &str| BackendError::from(Failure::refused(code.to_owned(), String::new())).kind();
        for code in ["55P03", "40001", "57P01", "53300", "25006", "25P03", "XX000", "08006"] {
            assert_eq!(kind(code), BackendErrorKind::Unavailable, "{code}");
        }
        assert_eq!([kind("53100"), kind("53200")], [BackendErrorKind::Refused; 2]);
        assert_eq!([kind("28P01"), kind("42501")], [BackendErrorKind::Denied; 2]);
        assert_eq!([kind("3D000"), kind("42P01"), kind("3F000")], [BackendErrorKind::InvalidConfig; 3]);
    }
}
