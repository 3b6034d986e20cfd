//! Which names a lock may have. It stands above the errors, which name locks.

use crate::error::{Error, Result};
use crate::ids::{LockName, MAX_NAME_BYTES};

impl LockName {
    /// Checks `name`.
    ///
    /// # Errors
    /// [`Error::InvalidName`] when it is empty or longer than 512 bytes.
    pub fn new(name: &str) -> Result<LockName> {
        let reason = match name.len() {
            0 => "it is empty".to_owned(),
            1..=MAX_NAME_BYTES => return Ok(LockName::unchecked(name)),
            bytes => format!("it has {bytes} bytes, {MAX_NAME_BYTES} are allowed"),
        };
        Err(Error::InvalidName { name: shortened(name), reason })
    }
}

/// The first characters of a name that is too long to be shown whole.
fn shortened(name: &str) -> String {
    match name.char_indices().nth(40) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name.to_owned(),
    }
}
