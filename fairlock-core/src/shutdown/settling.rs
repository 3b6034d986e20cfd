//! Tells the server what a shutdown has left to tell, on a few threads: a slow server must not cost the sum of all waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use parking_lot::Mutex;

use crate::backend::{Answer, Backend, BackendError, Withdrawn, only, or_missing};
use crate::backlog::Cleanup;
use crate::backoff;
use crate::claim::Claim;
use crate::config::MOST_AT_ONCE;
use crate::ids::{FencingToken, LockName};
use crate::logging::log_line;
use crate::time::{Clock, Signal, Woken};

/// The most calls at once; a backend may combine them into fewer round trips.
const MOST_THREADS: usize = 16;

pub(super) struct Settling {
    backend: Arc<dyn Backend>,
    clock: Clock,
    /// Raised when an item is added, done or failed.
    signal: Arc<Signal>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By the time of the next attempt and its number.
    queue: BTreeMap<(Instant, u64), Item>,
    /// The items that are not done, by number: the lock, and the last error.
    open: BTreeMap<u64, (LockName, Option<BackendError>)>,
    /// Claims of which the server has nothing left.
    done: Vec<Arc<Claim>>,
    added: u64,
    in_hand: usize,
    threads: usize,
    closed: bool,
}

struct Item {
    number: u64,
    claim: Arc<Claim>,
    cleanup: Cleanup,
    /// Of the hold to be released.
    token: Option<FencingToken>,
    failures: u32,
}

/// What could not be settled.
pub(super) struct Open {
    pub(super) count: usize,
    pub(super) lock: LockName,
    pub(super) error: Option<BackendError>,
}

/// What a thread does next.
enum Next {
    /// A release, or withdrawals for one call.
    Do(Vec<Item>),
    Sleep(Instant),
    End,
}

impl Settling {
    pub(super) fn new(backend: &Arc<dyn Backend>, clock: &Clock, signal: Arc<Signal>) -> Arc<Settling> {
        let (backend, clock) = (Arc::clone(backend), clock.clone());
        Arc::new(Settling { backend, clock, signal, state: Mutex::default() })
    }

    /// `token`: of the hold to be released.
    pub(super) fn add(&self, claim: &Arc<Claim>, cleanup: Cleanup, token: Option<FencingToken>) {
        let mut state = self.state.lock();
        let number = state.added;
        state.added += 1;
        state.open.insert(number, (claim.lock.name.clone(), None));
        let (claim, at) = (Arc::clone(claim), self.clock.now());
        state.queue.insert((at, number), Item { number, claim, cleanup, token, failures: 0 });
    }

    /// Has as many threads as there is work for work until `until`.
    pub(super) fn work(self: &Arc<Self>, until: Instant) {
        loop {
            let mut state = self.state.lock();
            if state.threads >= state.queue.len().min(MOST_THREADS) {
                return;
            }
            state.threads += 1;
            drop(state);
            self.clock.announce_background();
            let settling = Arc::clone(self);
            let run = move || settling.run(until);
            if let Err(error) = thread::Builder::new().name("fairlock-end".into()).spawn(run) {
                log_line!(warn, "fairlock::release",
                    event = "no thread", error:% = error;
                    "can't start a thread to release locks, so the shutdown takes longer: {error}"
                );
                self.run(until);
                return;
            }
        }
    }

    /// Whether nothing is left to try.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.queue.is_empty() && state.in_hand == 0
    }

    pub(super) fn take_done(&self) -> Vec<Arc<Claim>> {
        std::mem::take(&mut self.state.lock().done)
    }

    /// Begins nothing more. Returns the rest.
    pub(super) fn close(&self) -> Option<Open> {
        let mut state = self.state.lock();
        state.closed = true;
        let count = state.open.len();
        let (_, (lock, error)) = state.open.pop_first()?;
        drop(state);
        self.signal.raise();
        Some(Open { count, lock, error })
    }

    fn run(&self, until: Instant) {
        let _here = self.clock.attend_in_background();
        loop {
            let seen = self.signal.generation();
            match self.next(until) {
                Next::Do(items) => self.settle(items, until),
                Next::Sleep(at) => _ = self.signal.wait_at_the_end(seen, at),
                Next::End => return,
            }
        }
    }

    fn next(&self, until: Instant) -> Next {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let Some((&(at, _), first)) = state.queue.first_key_value().filter(|_| !state.closed && now < until)
        else {
            state.threads -= 1;
            return Next::End;
        };
        if at > now {
            return Next::Sleep(at.min(until));
        }
        let cleanup = first.cleanup;
        // The threads share what there is.
        let most = if cleanup == Cleanup::Withdraw {
            state.queue.len().div_ceil(state.threads).min(MOST_AT_ONCE)
        } else {
            1
        };
        let mut items = Vec::new();
        while items.len() < most
            && let Some(next) = state.queue.first_entry().filter(|next| next.key().0 <= now)
            && next.get().cleanup == cleanup
        {
            items.push(next.remove());
        }
        state.in_hand += items.len();
        Next::Do(items)
    }

    /// One attempt for items of one kind.
    fn settle(&self, mut items: Vec<Item>, until: Instant) {
        let told = match items[..] {
            [Item { cleanup: Cleanup::Release, .. }] => vec![self.release(&items[0])],
            _ => self.withdraw(&mut items, until),
        };
        let told: Vec<_> = or_missing(told).take(items.len()).collect();
        for (item, told) in items.iter().zip(&told) {
            if let Err(error) = told {
                item.claim.leaving_failed(error.clone()); // without the mutex: a waker may run
            }
        }
        let mut state = self.state.lock();
        for (mut item, told) in items.into_iter().zip(told) {
            state.in_hand -= 1;
            match told {
                // As the request was, which has left nothing.
                Err(_) if item.claim.was_refused() => {
                    state.open.remove(&item.number);
                    state.done.push(item.claim);
                }
                Ok(()) => {
                    state.open.remove(&item.number);
                    // A hold that was lost stays lost to its guards.
                    if item.claim.leaving().is_some() {
                        state.done.push(item.claim);
                    }
                }
                Err(error) => {
                    if let Some((_, said)) = state.open.get_mut(&item.number) {
                        *said = Some(error);
                    }
                    item.failures += 1;
                    let at = self.clock.now() + backoff::pause(item.failures);
                    state.queue.insert((at, item.number), item);
                }
            }
        }
        drop(state);
        self.signal.raise();
    }

    fn release(&self, item: &Item) -> Answer<()> {
        match item.token {
            Some(token) => only(self.backend.release(&[item.claim.hold(token)])).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Waits for calls about the places that are under way: one that arrives after the withdrawal would make its place anew.
    fn withdraw(&self, items: &mut [Item], until: Instant) -> Vec<Answer<()>> {
        for Item { claim, .. } in &*items {
            loop {
                let seen = claim.signal.generation();
                if !claim.may_make_a_place() || claim.signal.wait_at_the_end(seen, until) == Woken::TimeOut {
                    break;
                }
            }
        }
        // What was never sent is not there.
        let is_sent: Vec<_> = items.iter().map(|item| !item.claim.is_unsent()).collect();
        let sent = items.iter().zip(&is_sent).filter(|(_, is_sent)| **is_sent);
        let places: Vec<_> = sent.map(|(item, _)| item.claim.place()).collect();
        let answers = if places.is_empty() { Vec::new() } else { self.backend.withdraw(&places) };
        let mut answers = or_missing(answers);
        let told =
            |(item, is_sent): (&mut Item, bool)| match answers.next().filter(|_| is_sent).transpose()? {
                None | Some(Withdrawn::Left) => Ok(()),
                Some(Withdrawn::WasGranted { token, .. }) => {
                    (item.cleanup, item.token) = (Cleanup::Release, Some(token));
                    self.release(item)
                }
            };
        items.iter_mut().zip(is_sent).map(told).collect()
    }
}
