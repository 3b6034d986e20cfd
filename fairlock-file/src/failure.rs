//! What a failed call of the system means for the caller of a lock.

use std::fmt::Display;
use std::io::{self, ErrorKind};

use fairlock_core::backend::{BackendError, BackendErrorKind};

/// The error of a call that did not do this.
pub(crate) fn failure(what: impl Display, error: io::Error) -> BackendError {
    let kind = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem => {
            BackendErrorKind::Refused
        }
        ErrorKind::PermissionDenied => BackendErrorKind::Denied,
        _ => BackendErrorKind::Unavailable,
    };
    BackendError::new(kind, format!("{what}: {error}")).with_source(error)
}
