//! Leader election: a campaign asks for the lock whenever it was lost, and its holder leads for a term.

use std::ops::Deref;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::handle::caller::Caller;
use crate::handle::guard::{Guard, finished};
use crate::handle::lock::Lock;
use crate::handle::owner::{Ownership, ThisThread};
use crate::time;

/// A leader's term of office, for the closure of [`Lock::lead`]: its hold, and why the term is over.
#[derive(Debug)]
pub struct Term<'a, O: Ownership = ThisThread> {
    guard: &'a Guard<O>,
    candidate: &'a Caller<O>,
}

impl<O: Ownership> Deref for Term<'_, O> {
    type Target = Guard<O>;

    fn deref(&self) -> &Guard<O> {
        self.guard
    }
}

impl<O: Ownership> Term<'_, O> {
    /// Says whether the term goes on, for a `?` before each act. Asks no server.
    ///
    /// # Errors
    /// Why the term is over: [`Error::Lost`]; [`Error::Cancelled`], by the [`Cancel`](crate::Cancel) of the handle;
    /// [`Error::Shutdown`], in a [`drain`](crate::Client::drain).
    pub fn check(&self) -> Result<()> {
        self.guard.check()?;
        self.candidate.may_lead()
    }

    /// Sleeps for this time, by the client's [clock](crate::ClientBuilder::clock), or until the term is over.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn pause(&self, time: Duration) -> Result<()> {
        let (claim, config) = (&self.guard.claim, &self.candidate.shared.config);
        let _here = config.clock.attend();
        let until = config.now().checked_add(time);
        loop {
            // Read first: a loss, a cancel or a drain after the check ends the sleep.
            let seen = claim.signal.generation();
            self.check()?;
            if until.is_some_and(|until| until <= config.now()) {
                return Ok(());
            }
            claim.signal.wait(seen, until);
        }
    }
}

impl<O: Ownership> Lock<O> {
    /// Leads whenever it is this caller's turn: waits for the lock, and calls `f`, which leads until its term is over: by a loss, a
    /// [`Cancel`](crate::Cancel) of this handle, or a [`drain`](crate::Client::drain). After a loss, or while the server does not answer,
    /// it asks again, at the tail of the queue.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// # fn act(_: fairlock::FencingToken) {}
    /// client.fair_lock("lock:leader")?.lead(|term| -> fairlock::Result<()> {
    ///     println!("leads, token {}", term.token());
    ///     loop {
    ///         act(term.token());
    ///         term.pause(Duration::from_millis(100))?; // ends early, with an error, if the term is over
    ///     }
    /// })?;
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// `f` leads as long as it does not return: [`Term::check`] and [`Term::pause`] tell it when to. To return before is to resign:
    /// the lock is released, and this call returns what `f` returned. It returns `None` if a drain or a
    /// [`shutdown`](crate::Client::shutdown) has ended the campaign, or the term; what `f` returned is dropped then.
    ///
    /// # Errors
    /// [`Error::Cancelled`]: the program has ended the campaign, or the term; what `f` returned is dropped.
    /// [`Error::Denied`], at once if the first request was denied, else when requests were denied for two minutes.
    /// [`Error::Corrupt`], [`Error::Misuse`] and others that do not pass: see [`Lock`].
    pub fn lead<R>(&self, mut f: impl FnMut(&Term<'_, O>) -> R) -> Result<Option<R>> {
        let mut campaign = Campaign::default();
        loop {
            let ended = match self.lock() {
                Ok(guard) => {
                    campaign.is_won();
                    self.0.term(guard, &mut f)
                }
                Err(error) => Err(error),
            };
            let config = &self.0.shared.config;
            let Some(pause) = campaign.pause_after(&ended, config.now()) else {
                return unless_drained(ended);
            };
            let _here = config.clock.attend();
            config.clock.sleep(pause);
        }
    }
}

impl<O: Ownership> Caller<O> {
    fn term<R>(&self, guard: Guard<O>, f: &mut impl FnMut(&Term<'_, O>) -> R) -> Result<R> {
        let _listening = self.cancel.as_ref().map(|cancel| cancel.listen(&guard.claim));
        let term = Term { guard: &guard, candidate: self };
        let result = f(&term);
        let led = term.check();
        let released = guard.unlock();
        led.and_then(|()| finished(released, result))
    }

    /// # Errors
    /// The program wants this leader to step down.
    pub(super) fn may_lead(&self) -> Result<()> {
        let lock = || self.lock.name.clone();
        if self.cancel.as_ref().is_some_and(|cancel| cancel.is_cancelled()) {
            return Err(Error::Cancelled { lock: lock() });
        }
        if self.shared.config.stop.is_closed() {
            return Err(Error::Shutdown { lock: Some(lock()) });
        }
        Ok(())
    }
}

/// The end of a client ends its campaigns in order.
pub(super) fn unless_drained<R>(ended: Result<R>) -> Result<Option<R>> {
    match ended {
        Err(Error::Shutdown { .. }) => Ok(None),
        ended => ended.map(Some),
    }
}

/// For how long a right that a candidate had may be gone, while rights are changed: as long as a password, see `Logins`.
const RIGHTS_CHANGE_WITHIN: Duration = Duration::from_secs(120);

/// When a candidate asks again.
#[derive(Default)]
pub(super) struct Campaign {
    /// How many times in a row it did not get to lead.
    failures: u32,
    /// It has led, or has waited as long as an outage may last: its first request was not denied.
    has_begun: bool,
    /// Since when its requests are denied.
    denied_since: Option<Instant>,
}

impl Campaign {
    pub(super) fn is_won(&mut self) {
        *self = Campaign { has_begun: true, ..Campaign::default() };
    }

    /// How long to pause before the next request; none if there is no next one. A full server refuses newcomers at once, so without a
    /// pause it would be asked all the time.
    pub(super) fn pause_after<R>(&mut self, ended: &Result<R>, now: Instant) -> Option<Duration> {
        match ended {
            Err(Error::Lost(_) | Error::Unavailable { .. }) => self.has_begun = true,
            Err(Error::Denied { .. }) if self.has_begun => {
                let since = *self.denied_since.get_or_insert(now);
                if now >= since + RIGHTS_CHANGE_WITHIN {
                    return None;
                }
            }
            _ => return None,
        }
        self.failures += 1;
        Some(time::pause(self.failures))
    }
}
