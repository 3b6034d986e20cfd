//! What all handles of one client share: the client's parts, among them the parts that the flows use, and the end with the last handle.

use std::fmt;
use std::ops::Deref;
use std::panic::RefUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::backend::{Backend, Subscription};
use crate::backlog::{Backlog, Calls, FirstAttempts};
use crate::config::Config;
use crate::flow::{CleanupRun, Parts};
use crate::ids::ClientId;
use crate::ledger::Ledger;
use crate::logging::log_line;
use crate::outage::Outage;
use crate::stats::Counters;
use crate::time::Woken;
use crate::timers::{Bodies, Body, Timers};

/// For how long the drop of a client's last handle waits for what tasks have given up.
const LAST_MOMENT: Duration = Duration::from_millis(250);

/// [`Handles`] own it; threads only keep a `Weak`.
pub(crate) struct Shared {
    pub(crate) id: ClientId,
    pub(crate) config: Arc<Config>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) ledger: Ledger,
    pub(crate) timers: Arc<Timers>,
    pub(crate) backlog: Arc<Backlog>,
    pub(crate) first_attempts: FirstAttempts,
    pub(crate) calls: Calls,
    pub(crate) outage: Outage,
    pub(crate) subscription: Mutex<Option<Subscription>>,
}

/// What the program's handles, guards and requests own together. What they leave to threads owns a [`Shared`] alone.
pub(crate) struct Handles(pub(crate) Arc<Shared>);

impl Deref for Handles {
    type Target = Arc<Shared>;

    fn deref(&self) -> &Arc<Shared> {
        &self.0
    }
}

impl Drop for Handles {
    /// The last one is gone, and the process may end at once: what tasks have just given up has a moment to be told. The system sends
    /// what a thread has written by then, even if the process ends.
    fn drop(&mut self) {
        let signal = &self.ledger.ending.signal;
        let until = self.now() + LAST_MOMENT;
        loop {
            let seen = signal.generation();
            if self.first_attempts.is_idle()
                || self.timers.is_told_to_end()
                || signal.wait_at_the_end(seen, until) == Woken::TimeOut
            {
                return;
            }
        }
    }
}

/// The bodies of the client's threads, which stand above this module.
pub(crate) struct Threads {
    pub(crate) dog: fn(&Weak<Shared>),
    pub(crate) expiry: fn(&Weak<Shared>),
    /// With the thread's number.
    pub(crate) tasks: fn(&Weak<Shared>, usize),
    pub(crate) calls: fn(&Weak<Shared>, usize),
    pub(crate) waker: fn(&Weak<Shared>),
    pub(crate) slow: fn(&Weak<Shared>),
}

impl Shared {
    /// No wake-ups reach it before it has a subscription.
    pub(crate) fn new(
        id: ClientId,
        config: Config,
        backend: Arc<dyn Backend>,
        counters: Counters,
        threads: &Threads,
    ) -> Arc<Shared> {
        let (config, backlog) = (Arc::new(config), Arc::new(Backlog::default()));
        Arc::new_cyclic(|client| {
            let body = |body: fn(&Weak<Shared>)| -> Body {
                let client = Weak::clone(client);
                Arc::new(move || body(&client))
            };
            let numbered = |body: fn(&Weak<Shared>, usize), number: usize| -> Body {
                let client = Weak::clone(client);
                Arc::new(move || body(&client, number))
            };
            let bodies = Bodies {
                dog: body(threads.dog),
                expiry: body(threads.expiry),
                tasks: std::array::from_fn(|number| numbered(threads.tasks, number)),
                calls: std::array::from_fn(|number| numbered(threads.calls, number)),
                waker: body(threads.waker),
                slow: body(threads.slow),
            };
            let timers = Arc::new(Timers::new(&config.clock, bodies));
            Shared {
                id,
                ledger: Ledger::new(&config, &backend, &timers, &backlog, counters),
                outage: Outage::new(&config, timers.signal()),
                config,
                backend,
                timers,
                backlog,
                first_attempts: FirstAttempts::default(),
                calls: Calls::default(),
                subscription: Mutex::new(None),
            }
        })
    }

    pub(crate) fn now(&self) -> Instant {
        self.config.now()
    }

    pub(crate) fn parts(&self) -> Parts<'_> {
        let Shared { id, config, backend, ledger, timers, backlog, outage, .. } = self;
        Parts { id: *id, config, backend: &**backend, ledger, timers, backlog, outage }
    }

    pub(crate) fn cleanup_run(&self) -> CleanupRun<'_> {
        CleanupRun::new(self.parts())
    }
}

// A panic leaves no state half changed, here, in a claim or in a channel: each mutex is held for a few assignments that can't
// panic. So a guard may be dropped as a thread unwinds, and a handle be used after `catch_unwind`.
impl RefUnwindSafe for Shared {}

impl fmt::Debug for Handles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Drop for Shared {
    /// The last handle is gone, so no guard and no request is left: only leaked holds can be. The threads are told to end
    /// and not waited for, since this may run on one of them.
    fn drop(&mut self) {
        self.timers.tell_to_end();
        self.timers.run_wakers();
        self.ledger.unlogged.log(|| false);
        if self.config.stop.is_stopped() {
            return self.outage.refused.tell_at_the_end();
        }
        // The place of a request that was the last handle, for example. Within 100 ms one attempt begins for each cleanup, and a
        // second one if the first fails at once, as on an idle connection that was closed. A cleanup that has failed before does not
        // wait for the end of its pause: nobody would be left to send it.
        self.backlog.make_late_ones_due(self.now());
        self.backlog.retries.answered();
        self.cleanup_run().do_due(|| ());
        self.outage.refused.tell_at_the_end();
        let mut leaked = self.ledger.registry.all();
        leaked.retain(|claim| claim.leaked() > 0);
        if let Some(first) = leaked.first() {
            let (lock, owner, holds) = (&first.lock.name, &first.owner, leaked.len());
            log_line!(warn, "fairlock::watchdog",
                event = "leaked", lock = lock.as_str(), owner = owner.as_str(), holds = holds;
                "the client is gone: its {holds} leaked holds are not renewed any more; the first: {owner} holds lock {lock}"
            );
        }
    }
}
