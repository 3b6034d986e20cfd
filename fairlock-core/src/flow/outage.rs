//! When an outage begins and ends, and how much of the client it concerns.

use std::time::Instant;

use crate::LockName;
use crate::backend::BackendError;
use crate::claim::Standing;
use crate::schedule::Concerned;
use crate::shared::Shared;

impl Shared {
    /// A call that was sent at `sent` was not answered; `failed` is its lock and its error. `others_answer`: a call to another
    /// server was, at the same time.
    pub(crate) fn heard_nothing(&self, sent: Instant, failed: (LockName, BackendError), others_answer: bool) {
        let now = self.now();
        self.schedule.heard_nothing();
        let line = self.schedule.with_rounds(|rounds| rounds.outage.failed(sent, now, failed));
        // Counted for a line only: there may be many claims, and many calls fail.
        let Some(line) = line else { return };
        let concerned = self.concerned((!others_answer).then_some(line.since));
        self.schedule.with_rounds(|rounds| rounds.outage.concerns(concerned));
        line.write(&self.config.label, concerned);
    }

    /// The outage is over when the server has answered, and nothing that failed is left.
    pub(crate) fn end_outage_if_over(&self) {
        if self.schedule.is_silent() || !self.schedule.with_rounds(|rounds| rounds.outage.lasts()) {
            return;
        }
        let failed = self.registry.has(|claim| claim.is_concerned(None).is_some());
        if failed || self.schedule.chores.has_failed() {
            return;
        }
        let now = self.now();
        let ended = self.schedule.with_rounds(|rounds| {
            rounds.renewals.answered();
            rounds.outage.ended(now)
        });
        if let Some((line, concerned)) = ended {
            line.write(&self.config.label, concerned);
        }
    }

    fn concerned(&self, since: Option<Instant>) -> Concerned {
        let mut concerned = Concerned { releases: self.schedule.chores.len(), ..Concerned::default() };
        self.registry.for_each(|claim| match claim.is_concerned(since) {
            Some(Standing::Holds) => concerned.holds += 1,
            Some(Standing::Waits) => concerned.waiters += 1,
            None => {}
        });
        concerned
    }
}
