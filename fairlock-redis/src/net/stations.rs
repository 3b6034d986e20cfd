//! Where an ear can listen: at one server, or at one of several.

use super::{Address, Failure};

/// The servers at which an ear hears everything that it has to hear.
pub(crate) trait Stations: Send + Sync {
    /// The one to try next. Asked once for each attempt to connect.
    ///
    /// # Errors
    /// There is none at the moment.
    fn next(&self) -> Result<Address, Failure>;

    /// Whether an ear there still hears everything; it looks at each tick, and moves if not. Must not block.
    fn serves(&self, _at: &Address) -> bool {
        true
    }

    /// How many to try before an ear that starts gives up.
    fn count(&self) -> usize {
        1
    }
}

impl Stations for Address {
    fn next(&self) -> Result<Address, Failure> {
        Ok(self.clone())
    }
}
