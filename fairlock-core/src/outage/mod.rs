//! What a client does while the server does not answer: it pauses before it repeats, and `lines.rs` says so in the log.

mod lines;
mod refused;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::backend::BackendError;
use crate::backlog::Backlog;
use crate::backoff::Retries;
use crate::claim::{Pauses, Standing};
use crate::config::Config;
use crate::ids::LockName;
use crate::logging::LineLimit;
use crate::registry::Registry;
use crate::time::Signal;

use lines::{Concerned, Lines};
pub(crate) use refused::First;
use refused::Refused;

pub(crate) struct Outage {
    config: Arc<Config>,
    /// Wakes the watchdog, which looks whether the outage is over.
    signal: Arc<Signal>,
    /// Whether the latest call was not answered.
    silent: AtomicBool,
    pub(crate) renewals: Retries,
    /// The pause of asks for requests without a waiting caller.
    pub(crate) asks: Retries,
    lines: Mutex<Lines>,
    pub(crate) refused: Refused,
    /// The lines about places that the server has lost.
    pub(crate) places_gone: LineLimit,
}

impl Outage {
    pub(crate) fn new(config: &Arc<Config>, signal: &Arc<Signal>) -> Outage {
        Outage {
            config: Arc::clone(config),
            signal: Arc::clone(signal),
            silent: AtomicBool::new(false),
            renewals: Retries::default(),
            asks: Retries::default(),
            lines: Mutex::default(),
            refused: Refused::default(),
            places_gone: LineLimit::new(),
        }
    }

    /// A call was answered. After the first answer in an outage the watchdog looks whether the outage is over.
    pub(crate) fn heard(&self) {
        if self.silent.load(Ordering::Acquire) {
            self.silent.store(false, Ordering::Release);
            self.signal.raise();
        }
    }

    /// A call that was sent at `sent` was not answered; `failed`: its lock and its error. `others_answer`: another server answered
    /// a call at the same time.
    pub(crate) fn heard_nothing(
        &self,
        registry: &Registry,
        backlog: &Backlog,
        sent: Instant,
        failed: (LockName, BackendError),
        others_answer: bool,
    ) {
        let now = self.config.now();
        self.silent.store(true, Ordering::Release);
        let line = self.lines.lock().failed(sent, now, failed);
        // Counted only if a line is to be logged: there may be many claims, and many calls fail.
        let Some(line) = line else { return };
        let concerned = concerned(registry, backlog, (!others_answer).then_some(line.since));
        self.lines.lock().concerns(concerned);
        line.write(&self.config.label, concerned);
    }

    /// The outage is over when the server has answered, and nothing that failed is left.
    pub(crate) fn end_if_over(&self, registry: &Registry, backlog: &Backlog) {
        if self.silent.load(Ordering::Acquire) || !self.lasts() {
            return;
        }
        if registry.has(|claim| claim.is_concerned(None).is_some()) || backlog.is_unanswered() {
            return;
        }
        self.renewals.answered();
        let ended = self.lines.lock().ended(self.config.now());
        if let Some((line, concerned)) = ended {
            line.write(&self.config.label, concerned);
        }
    }

    pub(crate) fn lasts(&self) -> bool {
        self.lines.lock().lasts()
    }

    /// For how long the outage has lasted.
    pub(crate) fn lasted(&self) -> Option<Duration> {
        self.lines.lock().lasted(self.config.now())
    }

    pub(crate) fn pauses(&self) -> Pauses {
        Pauses { renewals: self.renewals.not_before(), asks: self.asks.not_before() }
    }

    /// A thread panicked in some request. Returns whether that is to be logged.
    pub(crate) fn panicked(&self, now: Instant) -> bool {
        for kind in [&self.renewals, &self.asks] {
            kind.failed(now, self.config.longest_pause());
        }
        self.lines.lock().panicked(now)
    }
}

fn concerned(registry: &Registry, backlog: &Backlog, since: Option<Instant>) -> Concerned {
    let mut concerned = Concerned { releases: backlog.len(), ..Concerned::default() };
    registry.for_each(|claim| match claim.is_concerned(since) {
        Some(Standing::Holds) => concerned.holds += 1,
        Some(Standing::Waits) => concerned.waiters += 1,
        None => {}
    });
    concerned
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::BackendErrorKind;
    use crate::time::Clock;

    #[test]
    fn the_first_answer_in_an_outage_wakes_the_watchdog() {
        let clock = Clock::system();
        let signal = Arc::new(Signal::new(&clock));
        let outage = Outage::new(&Arc::new(Config::of_tests(clock)), &signal);
        let heard = || {
            let seen = signal.generation();
            outage.heard();
            signal.generation() != seen
        };
        assert!(!heard());
        let failed = (LockName::new("x").unwrap(), BackendError::new(BackendErrorKind::Unavailable, "down"));
        outage.heard_nothing(&Registry::default(), &Backlog::default(), Instant::now(), failed, false);
        assert_eq!([heard(), heard()], [true, false]);
    }
}
