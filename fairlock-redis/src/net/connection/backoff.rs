//! The pause before the next attempt to connect.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// Doubles from 50 ms to 1 s. Each pause is random between half of that and the whole, so that the clients that one
/// server's end cut off do not all return at the same moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Backoff {
        Backoff { next: SHORTEST }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(LONGEST);
        // Each RandomState has its own keys: a random number without another crate.
        let thousandths = u32::try_from(RandomState::new().hash_one(()) % 1000).unwrap_or(0);
        whole / 2 + whole / 2 * thousandths / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_second_and_differ() {
        let mut backoff = Backoff::new();
        for whole in [50, 100, 200, 400, 800, 1000, 1000] {
            let wait = backoff.next();
            assert!(
                wait >= Duration::from_millis(whole / 2) && wait <= Duration::from_millis(whole),
                "{wait:?}"
            );
        }
        let mut others: Vec<_> = (0..8).map(|_| Backoff { next: LONGEST }.next()).collect();
        others.dedup();
        assert!(others.len() > 1);
    }
}
