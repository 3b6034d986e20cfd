//! What tasks want of the server, for the thread that makes the first attempts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::Cleanup;
use crate::claim::Claim;
use crate::config::MOST_AT_ONCE;
use crate::timers::Timers;

/// What a task's first attempt does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstAttempt {
    /// Asks for the lock.
    Ask,
    CleanUp(Cleanup),
}

/// In the tasks' order, but releases and withdrawals go before asks: what a task has given up is given up before it asks again.
pub(crate) struct FirstAttempts<Client>(Mutex<Inner<Client>>);

struct Inner<Client> {
    left: Batch,
    /// Lives until the last first attempt is taken, even if its task has dropped the last handle.
    client: Option<Arc<Client>>,
    /// The thread has the last batch in its hands, until it comes for the next one.
    in_hand: bool,
}

#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) releases: VecDeque<Arc<Claim>>,
    pub(crate) withdrawals: VecDeque<Arc<Claim>>,
    pub(crate) asks: VecDeque<Arc<Claim>>,
}

impl<Client> Default for FirstAttempts<Client> {
    fn default() -> FirstAttempts<Client> {
        FirstAttempts(Mutex::new(Inner { left: Batch::default(), client: None, in_hand: false }))
    }
}

impl<Client> FirstAttempts<Client> {
    pub(crate) fn add(&self, claim: &Arc<Claim>, attempt: FirstAttempt, client: Arc<Client>) {
        let inner = &mut *self.0.lock();
        inner.left.add(claim, attempt);
        inner.client.get_or_insert(client);
    }

    /// After a first attempt was added: has the thread look.
    ///
    /// A client that ends takes all that was added, and the thread looks no more. The end is read here after the attempt was added. So
    /// the ending client takes the attempt; or the end is seen here, and the list lets go of the client, which it would keep for ever.
    pub(crate) fn added(&self, timers: &Timers, now: Instant) {
        if timers.is_told_to_end() {
            drop(self.take_client());
            timers.signal().raise();
        } else {
            timers.tasks.due_by(now);
        }
    }

    pub(crate) fn take_client(&self) -> Option<Arc<Client>> {
        self.0.lock().client.take()
    }

    /// Whether no first attempt is left or in the thread's hands: another thread that makes one now overtakes none.
    pub(crate) fn is_idle(&self) -> bool {
        let inner = self.0.lock();
        !inner.in_hand && inner.left.is_empty()
    }

    /// What goes into the next calls, one of each kind. None: nothing is wanted. The caller owns the client, too.
    pub(crate) fn next(&self) -> Option<Batch> {
        let (inner, mut next) = (&mut *self.0.lock(), Batch::default());
        let all = &mut inner.left;
        let first = |list: &mut VecDeque<_>| list.drain(..list.len().min(MOST_AT_ONCE)).collect();
        next.releases = first(&mut all.releases);
        next.withdrawals = first(&mut all.withdrawals);
        // Requests go with the last of what was given up before them.
        if all.releases.is_empty() && all.withdrawals.is_empty() {
            next.asks = first(&mut all.asks);
        }
        if all.is_empty() {
            inner.client = None;
        }
        inner.in_hand = !next.is_empty();
        inner.in_hand.then_some(next)
    }

    /// All that is left at a client's end, whose claims are no longer asked for. The caller owns the client, too.
    pub(crate) fn take_all(&self) -> Batch {
        let inner = &mut *self.0.lock();
        inner.client = None;
        std::mem::take(&mut inner.left)
    }
}

impl Batch {
    pub(crate) fn of(claim: &Arc<Claim>, attempt: FirstAttempt) -> Batch {
        let mut batch = Batch::default();
        batch.add(claim, attempt);
        batch
    }

    fn add(&mut self, claim: &Arc<Claim>, attempt: FirstAttempt) {
        let list = match attempt {
            FirstAttempt::Ask => &mut self.asks,
            FirstAttempt::CleanUp(Cleanup::Release) => &mut self.releases,
            FirstAttempt::CleanUp(Cleanup::Withdraw) => &mut self.withdrawals,
        };
        list.push_back(Arc::clone(claim));
    }

    fn is_empty(&self) -> bool {
        self.releases.is_empty() && self.withdrawals.is_empty() && self.asks.is_empty()
    }
}
