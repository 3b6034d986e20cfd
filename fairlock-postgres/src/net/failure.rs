//! What can go wrong between a call and its answer, and which error of a backend that is.

use std::io;

use fairlock_core::backend::{BackendError, BackendErrorKind};
use fairlock_net::{Endpoint, TlsFailure, in_words};

const NO_LAYOUT: &str = "the database has no tables of fairlock: run `fairlock migrate --postgres URL`, or call \
                         PostgresBackend::migrate";

/// Why a flight has no answer.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The connection failed, was late, or said what makes no sense. Whether the server did what was asked is not known.
    Broken(String),
    /// The server refused with an SQLSTATE and its words. The transaction is rolled back.
    Server { code: String, message: String },
    /// The address or a setting can't work.
    Invalid(String),
    /// A wrong password, or none where one is needed.
    Denied(String),
    /// What a row has is of no use to this version. The connection is.
    Corrupt(String),
}

impl Failure {
    pub(crate) fn senseless() -> Failure {
        Failure::Broken("the server's answer makes no sense".to_owned())
    }

    /// The same, which says where.
    pub(super) fn at(mut self, endpoint: &Endpoint) -> Failure {
        let (Failure::Broken(message)
        | Failure::Server { message, .. }
        | Failure::Invalid(message)
        | Failure::Denied(message)
        | Failure::Corrupt(message)) = &mut self;
        *message = format!("{endpoint}: {message}");
        self
    }

    /// Whether another host may do better.
    pub(crate) fn is_of_this_host(&self) -> bool {
        !matches!(self.kind(), BackendErrorKind::InvalidConfig)
    }

    /// Whether the layout is missing: no such schema, table, function or column.
    pub(crate) fn is_missing_layout(&self) -> bool {
        matches!(self, Failure::Server { code, .. }
            if matches!(code.as_str(), "3F000" | "42P01" | "42883" | "42703"))
    }

    /// Whether a prepared statement is not what it was: the session is another one, behind a pooler that does not show, or has dropped
    /// them, or a table was altered.
    pub(super) fn is_of_preparing(&self) -> bool {
        matches!(self, Failure::Server { code, .. } if matches!(code.as_str(), "26000" | "42P05" | "0A000"))
    }

    /// Whether the connection is of use, after a rollback.
    pub(crate) fn keeps_connection(&self) -> bool {
        match self {
            Failure::Server { code, .. } => !code.starts_with("57P") && !code.starts_with("25P03"),
            _ => matches!(self, Failure::Corrupt(_)),
        }
    }

    fn kind(&self) -> BackendErrorKind {
        match self {
            Failure::Broken(_) => BackendErrorKind::Unavailable,
            Failure::Invalid(_) => BackendErrorKind::InvalidConfig,
            Failure::Denied(_) => BackendErrorKind::Denied,
            Failure::Corrupt(_) => BackendErrorKind::Corrupt,
            Failure::Server { .. } if self.is_missing_layout() => BackendErrorKind::InvalidConfig,
            Failure::Server { code, .. } => kind_of(code),
        }
    }
}

/// The kind of an SQLSTATE. What is not known may pass, so core asks again.
fn kind_of(code: &str) -> BackendErrorKind {
    match code {
        "42501" => BackendErrorKind::Denied,
        // Disk full, out of memory: nothing was begun. A full table of connections (53300) passes.
        "53100" | "53200" => BackendErrorKind::Refused,
        _ if code.starts_with("28") => BackendErrorKind::Denied,
        // No such database, and what no statement of ours should meet.
        _ if code.starts_with("3D") || code.starts_with("42") || code.starts_with("22") => {
            BackendErrorKind::InvalidConfig
        }
        _ => BackendErrorKind::Unavailable,
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Broken(match error.kind() {
            io::ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
            _ => in_words(&error),
        })
    }
}

impl From<TlsFailure> for Failure {
    fn from(failure: TlsFailure) -> Failure {
        match failure {
            TlsFailure::Handshake(_) => Failure::Broken(failure.to_string()),
            TlsFailure::NotBegun(cause) => Failure::Invalid(cause),
            TlsFailure::Certificate(cause) => {
                Failure::Invalid(format!("the server's certificate is not trusted: {cause}"))
            }
        }
    }
}

impl From<Failure> for BackendError {
    fn from(failure: Failure) -> BackendError {
        let kind = failure.kind();
        let is_missing_layout = failure.is_missing_layout();
        let message = match failure {
            Failure::Server { .. } if is_missing_layout => NO_LAYOUT.to_owned(),
            Failure::Server { code, message } if code == "55P03" => {
                format!("another transaction has the lock's row: {message} ({code})")
            }
            Failure::Server { code, message } => format!("{message} ({code})"),
            Failure::Broken(message)
            | Failure::Invalid(message)
            | Failure::Denied(message)
            | Failure::Corrupt(message) => message,
        };
        BackendError::new(kind, message)
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

    #[test]
    fn each_sqlstate_has_its_kind() {
        let kind = |code: &str| {
            BackendError::from(Failure::Server { code: code.to_owned(), message: String::new() }).kind()
        };
        for code in ["55P03", "40001", "57P01", "53300", "25006", "25P03", "XX000", "08006"] {
            assert_eq!(kind(code), BackendErrorKind::Unavailable, "{code}");
        }
        assert_eq!([kind("53100"), kind("53200")], [BackendErrorKind::Refused; 2]);
        assert_eq!([kind("28P01"), kind("42501")], [BackendErrorKind::Denied; 2]);
        assert_eq!([kind("3D000"), kind("42P01"), kind("3F000")], [BackendErrorKind::InvalidConfig; 3]);
    }
}
