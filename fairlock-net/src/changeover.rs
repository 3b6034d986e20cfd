//! Certificates and keys that are being replaced, at one end before the other.
//!
//! | so far | a failure of TLS is |
//! | --- | --- |
//! | no connection has had TLS | an error at once: a setting is wrong |
//! | one had TLS, and the first failure since then was less than two minutes ago | an outage |
//! | all have failed for two minutes | an error |

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long after the first failure the certificates may still be about to change: as for a password, see `fairlock_core::backend::Logins`.
const CHANGES_WITHIN: Duration = Duration::from_secs(120);

/// Tells a certificate that is being replaced from a wrong one. Clones are for servers whose certificates are replaced together: one that
/// connects ends the two minutes of all.
#[derive(Clone, Debug, Default)]
pub struct Changeover(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    had_tls: bool,
    failing_since: Option<Instant>,
}

impl Changeover {
    /// A server has answered by TLS.
    pub fn accepted(&self) {
        *self.0.lock() = State { had_tls: true, failing_since: None };
    }

    /// There is no TLS. Returns whether that may pass.
    pub fn may_pass(&self) -> bool {
        self.may_pass_at(Instant::now())
    }

    fn may_pass_at(&self, now: Instant) -> bool {
        let mut state = self.0.lock();
        let since = *state.failing_since.get_or_insert(now);
        state.had_tls && now.saturating_duration_since(since) < CHANGES_WITHIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_passes_for_two_minutes_after_a_connection() {
        let (changeover, start) = (Changeover::default(), Instant::now());
        assert!(!changeover.may_pass_at(start), "no connection so far");
        changeover.accepted();
        let other = changeover.clone();
        let passes = |seconds| changeover.may_pass_at(start + Duration::from_secs(seconds));
        assert_eq!([0, 119, 120, 500].map(passes), [true, true, false, false]);
        other.accepted();
        assert_eq!([500, 619, 620].map(passes), [true, true, false]);
    }
}
