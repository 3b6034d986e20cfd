//! What a failed call of the system means for the caller of a lock.

use std::fmt::Display;
use std::io::{self, ErrorKind};

use fairlock_core::backend::{BackendError, BackendErrorKind};
use fairlock_rules::DecodeError;
use rustix::io::Errno;

/// The error of a call that did not do this, or of a file that can't be read.
pub(crate) fn failure(what: impl Display, error: io::Error) -> BackendError {
    use BackendErrorKind::{Corrupt, Denied, Refused, Unavailable};
    let unreadable = error.get_ref().and_then(|source| source.downcast_ref::<DecodeError>());
    let (kind, cure) = match (error.kind(), Errno::from_io_error(&error), unreadable) {
        (ErrorKind::StorageFull | ErrorKind::QuotaExceeded, ..) => {
            (Refused, ": make room, or use another directory")
        }
        (ErrorKind::FileTooLarge, ..) => (Refused, ""),
        (ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem, ..) => (Denied, ""),
        // A directory, a link, a socket or a pipe has the name of the file.
        (_, Some(Errno::ISDIR | Errno::LOOP | Errno::NXIO | Errno::SPIPE), _) => (Corrupt, ""),
        (.., Some(newer @ DecodeError::Newer { .. })) => return (*newer).into(),
        (.., Some(_)) => (Corrupt, ", or it is another program's: remove it if nobody uses it"),
        _ => (Unavailable, ""),
    };
    BackendError::new(kind, format!("{what}: {error}{cure}")).with_source(error)
}
