//! The kinds of locks.

use std::fmt;

/// How many units a lock has, and whether waiters get it in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum LockKind {
    /// One holder at a time, in the order in which they asked.
    Fair,
    /// One holder at a time, without an order: the first to ask after a release.
    Plain,
    /// Readers together, a writer alone, in the order in which they asked. A reader takes one unit, a writer all of them.
    ReadWrite,
    /// Holders of this many permits together, in the order in which they asked.
    Semaphore {
        /// How many permits there are.
        permits: u32,
    },
}

/// The names of the kinds, in metrics and spans.
pub(crate) const KINDS: [&str; 4] = ["fair", "plain", "read_write", "semaphore"];

impl LockKind {
    /// Its place among [`KINDS`].
    pub(crate) const fn place(self) -> usize {
        match self {
            LockKind::Fair => 0,
            LockKind::Plain => 1,
            LockKind::ReadWrite => 2,
            LockKind::Semaphore { .. } => 3,
        }
    }

    /// How many units there are. No holders together take more.
    pub const fn capacity(self) -> u32 {
        match self {
            LockKind::Fair | LockKind::Plain => 1,
            LockKind::ReadWrite => u32::MAX,
            LockKind::Semaphore { permits } => permits,
        }
    }

    /// Whether locks of both kinds may have one name: those of one capacity. Fair and plain handles and semaphores of one permit are
    /// one lock; semaphores with different numbers of permits exclude each other.
    pub const fn agrees_with(self, other: LockKind) -> bool {
        self.capacity() == other.capacity()
    }

    /// Whether several holders may hold it together.
    pub const fn is_shared(self) -> bool {
        matches!(self, LockKind::ReadWrite | LockKind::Semaphore { .. })
    }
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockKind::Fair => f.write_str("fair lock"),
            LockKind::Plain => f.write_str("plain lock"),
            LockKind::ReadWrite => f.write_str("read-write lock"),
            LockKind::Semaphore { permits: 1 } => f.write_str("semaphore of 1 permit"),
            LockKind::Semaphore { permits } => write!(f, "semaphore of {permits} permits"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_one_capacity_may_have_one_name() {
        let semaphore = |permits| LockKind::Semaphore { permits };
        let kinds = [
            (LockKind::Fair, 1, false, "fair lock"),
            (LockKind::Plain, 1, false, "plain lock"),
            (LockKind::ReadWrite, u32::MAX, true, "read-write lock"),
            (semaphore(1), 1, true, "semaphore of 1 permit"),
            (semaphore(5), 5, true, "semaphore of 5 permits"),
        ];
        for (kind, capacity, is_shared, text) in kinds {
            assert_eq!((kind.capacity(), kind.is_shared(), &*kind.to_string()), (capacity, is_shared, text));
            for (other, of_other, ..) in kinds {
                assert_eq!(kind.agrees_with(other), capacity == of_other, "{kind}, {other}");
            }
        }
    }
}
