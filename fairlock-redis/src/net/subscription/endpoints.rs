//! Where a subscriber can listen: at one server, or at one of several.

use crate::net::connection::{Address, Failure};

/// The servers at which a subscriber receives every message it needs.
pub(crate) trait Endpoints: Send + Sync {
    /// The server to try next; called once for each attempt to connect.
    ///
    /// # Errors
    /// There is none at the moment.
    fn next(&self) -> Result<Address, Failure>;

    /// Whether a subscriber at this server still receives everything. It asks at each tick, and moves if not. Must
    /// not block.
    fn serves(&self, _at: &Address) -> bool {
        true
    }

    /// How many servers a starting subscriber tries before it gives up.
    fn count(&self) -> usize {
        1
    }
}

impl Endpoints for Address {
    fn next(&self) -> Result<Address, Failure> {
        Ok(self.clone())
    }
}
