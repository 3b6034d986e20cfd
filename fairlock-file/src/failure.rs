//! What a failed call of the system means for the caller of a lock.

use std::fmt::Display;
use std::io::{self, ErrorKind};

use fairlock_core::backend::{BackendError, BackendErrorKind};
use rustix::io::Errno;

/// The error of a call that did not do this.
pub(crate) fn failure(what: impl Display, error: io::Error) -> BackendError {
    let kind = match (error.kind(), Errno::from_io_error(&error)) {
        (ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge, _) => {
            BackendErrorKind::Refused
        }
        (ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem, _) => BackendErrorKind::Denied,
        // A directory, a link, a socket or a pipe has the name of the file.
        (_, Some(Errno::ISDIR | Errno::LOOP | Errno::NXIO | Errno::SPIPE)) => BackendErrorKind::Corrupt,
        _ => BackendErrorKind::Unavailable,
    };
    BackendError::new(kind, format!("{what}: {error}")).with_source(error)
}
