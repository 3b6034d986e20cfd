//! What tasks want of the server: the queue of the thread that makes the first attempts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::Duty;
use crate::claim::Claim;
use crate::config::MOST_AT_ONCE;
use crate::timers::Timers;

/// One attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errand {
    /// Asks for the lock.
    Ask,
    Tell(Duty),
}

/// In the order in which tasks wanted them, but releases and withdrawals before requests: what a task has given up is given up before
/// it asks again.
pub(crate) struct Errands<Client>(Mutex<Queue<Client>>);

struct Queue<Client> {
    left: Batch,
    /// Lives until the last errand is taken, also when its task has dropped the last handle.
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

impl<Client> Default for Errands<Client> {
    fn default() -> Errands<Client> {
        Errands(Mutex::new(Queue { left: Batch::default(), client: None, in_hand: false }))
    }
}

impl<Client> Errands<Client> {
    pub(crate) fn add(&self, claim: &Arc<Claim>, errand: Errand, client: Arc<Client>) {
        let queue = &mut *self.0.lock();
        queue.left.add(claim, errand);
        queue.client.get_or_insert(client);
    }

    /// After an errand was added: has the thread look.
    ///
    /// An end that has begun takes what is in the queue, and the thread does not look any more. The end is read after the errand was
    /// added: it takes the errand, or it is seen here. Then the queue must not keep the client, which would be for ever.
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

    /// Whether no errand is queued or in the thread's hands: then another thread may run an errand now without overtaking.
    pub(crate) fn is_idle(&self) -> bool {
        let queue = self.0.lock();
        !queue.in_hand && queue.left.is_empty()
    }

    /// What goes into the next calls, one of each kind. None: nothing is wanted. The caller owns the client, too.
    pub(crate) fn next(&self) -> Option<Batch> {
        let (queue, mut next) = (&mut *self.0.lock(), Batch::default());
        let all = &mut queue.left;
        let first = |queue: &mut VecDeque<_>| queue.drain(..queue.len().min(MOST_AT_ONCE)).collect();
        next.releases = first(&mut all.releases);
        next.withdrawals = first(&mut all.withdrawals);
        // Requests go with the last of what was given up before them.
        if all.releases.is_empty() && all.withdrawals.is_empty() {
            next.asks = first(&mut all.asks);
        }
        if all.is_empty() {
            queue.client = None;
        }
        queue.in_hand = !next.is_empty();
        queue.in_hand.then_some(next)
    }

    /// All that is left at a client's end, whose claims are no longer asked for. The caller owns the client, too.
    pub(crate) fn take_all(&self) -> Batch {
        let queue = &mut *self.0.lock();
        queue.client = None;
        std::mem::take(&mut queue.left)
    }
}

impl Batch {
    pub(crate) fn of(claim: &Arc<Claim>, errand: Errand) -> Batch {
        let mut batch = Batch::default();
        batch.add(claim, errand);
        batch
    }

    fn add(&mut self, claim: &Arc<Claim>, errand: Errand) {
        let queue = match errand {
            Errand::Ask => &mut self.asks,
            Errand::Tell(Duty::Release) => &mut self.releases,
            Errand::Tell(Duty::Withdraw) => &mut self.withdrawals,
        };
        queue.push_back(Arc::clone(claim));
    }

    fn is_empty(&self) -> bool {
        self.releases.is_empty() && self.withdrawals.is_empty() && self.asks.is_empty()
    }
}
