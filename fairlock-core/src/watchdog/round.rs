//! One round of the watchdog.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::{BackendError, BackendErrorKind, Renew};
use crate::claim::{AfterRenewal, Claim, RoundTimes, WatchdogStep};
use crate::flow::TURN;
use crate::logging::log_safely;
use crate::schedule::longest_pause;
use crate::shared::Shared;
use crate::{FencingToken, LostCause};

/// A claim that is due for renewal, and what is asked for it. No other thread renews it until this is dropped.
struct Due {
    claim: Arc<Claim>,
    hold: Option<(FencingToken, u32)>,
    lease: Duration,
}

/// What a round has to do.
#[derive(Default)]
struct Round {
    over: Vec<(Arc<Claim>, LostCause)>,
    given_up: Vec<Arc<Claim>>,
    due: Vec<Due>,
    /// Of the requests to be asked for, the one that has been due longest.
    ask: Option<(Instant, Arc<Claim>)>,
    next: Option<Instant>,
}

impl Shared {
    /// Does what is due for all claims; returns when the next round is. It asks for at most one request, and chores have a
    /// short time, so that renewals are never far behind, whatever the server does.
    pub(super) fn round(self: &Arc<Self>) -> Option<Instant> {
        let now = self.now();
        // A slow or silent server holds the whole round up. So the round takes along what comes due meanwhile, or the locks on
        // other servers would lose that time again and again.
        let (meanwhile, pauses) = self.schedule.with_rounds(|rounds| (rounds.meanwhile, rounds.pauses()));
        let mut round = Round::default();
        self.registry.for_each(|claim| round.note(claim, &RoundTimes { now, meanwhile, pauses }));
        let Round { over, given_up, due, ask, next } = round;
        for (claim, cause) in over {
            self.lose_in_background(&claim, cause);
        }
        for claim in given_up {
            claim.signal.raise();
            self.withdraw_soon(&claim);
        }
        self.end_outage_if_over();
        let looked_after = !due.is_empty() || ask.is_some();
        let work = || {
            if !due.is_empty() {
                self.renew(due);
            }
            if let Some((_, claim)) = ask {
                self.ask_unattended(&claim);
            }
            self.do_chores()
        };
        let waits_for_answers = looked_after || self.schedule.chores_due_at().is_some_and(|at| at <= now);
        let next_chore = if waits_for_answers { self.with_expiry_thread(work) } else { work() };
        let stop_at = self.now() + TURN;
        let are_logged = self.schedule.log_losses(|| self.now() >= stop_at);
        if looked_after {
            let took = self.now().saturating_duration_since(now);
            // A quick round between slow ones does not mean that the next one is quick: a server that is down is not asked in
            // each round.
            self.schedule.with_rounds(|rounds| rounds.meanwhile = took.max(meanwhile / 2));
            return Some(self.now()); // the next round finds their new deadlines
        }
        earlier(earlier(next, next_chore), (!are_logged).then(|| self.now()))
    }

    /// Reports the loss at once, and logs it after this round's renewals: ten thousand lines to a slow logger must not take
    /// the time of the renewals.
    pub(super) fn lose_in_background(&self, claim: &Arc<Claim>, cause: LostCause) {
        if let Some(lost) = self.report_loss(claim, cause) {
            self.schedule.log_later(lost);
        }
    }

    /// Renews all of them in one call. The answers count from before it was sent.
    fn renew(self: &Arc<Self>, due: Vec<Due>) {
        let items: Vec<Renew<'_>> = due.iter().map(Due::item).collect();
        let sent = self.now();
        let answers = self.backend.renew(self.id, &items);
        let now = self.now();
        let missing = || Err(BackendError::new(BackendErrorKind::Unavailable, "no answer for this item"));
        let mut answers = answers.into_iter();
        let (mut unanswered, mut others_answer, mut places_gone) = (None, false, Vec::new());
        for due in due {
            let Due { claim, hold, lease } = &due;
            let answer = answers.next().unwrap_or_else(missing);
            others_answer |= answer.is_ok();
            let error = answer.as_ref().map_or_else(BackendError::clone, |_| senseless());
            match claim.renewed(answer, sent, *lease, now) {
                AfterRenewal::Nothing => {}
                AfterRenewal::Unanswered => _ = unanswered.get_or_insert((claim.lock.name.clone(), error)),
                AfterRenewal::Renewed(punctuality) => self.counters.renewed(&claim.lock.name, punctuality),
                AfterRenewal::Granted(by) => self.granted(claim, by),
                AfterRenewal::PlaceGone => places_gone.push(Arc::clone(claim)),
                AfterRenewal::PlaceLost => {
                    self.counters.place_lost(&claim.lock.name);
                    places_gone.push(Arc::clone(claim));
                }
                // The place was lost; its caller has asked again meanwhile, and has the lock.
                AfterRenewal::HoldLost if hold.is_none() => {}
                AfterRenewal::HoldLost => self.lose_in_background(claim, LostCause::Taken),
            }
        }
        // Logged when everything is done: a slow logger must not take time from other holds.
        if let Some(claim) = places_gone.first() {
            let (lock, owner, places) = (&claim.lock.name, &claim.owner, places_gone.len());
            log_safely(|| {
                log::warn!(
                    target: "fairlock::watchdog",
                    event = "place gone", lock = lock.as_str(), owner = owner.as_str(), places = places;
                    "the server has lost {places} place(s), which are asked for again; the first is {owner}'s for lock {lock}"
                );
            });
        }
        let longest = longest_pause(&self.config);
        match unanswered {
            // This round had everything that had failed before, but for what has ended meanwhile.
            None => {
                self.schedule.with_rounds(|rounds| rounds.renewals.answered());
                self.schedule.heard();
            }
            Some((lock, error)) => {
                self.schedule.with_rounds(|rounds| rounds.renewals.failed(now, longest));
                self.heard_nothing(sent, &lock, &error, others_answer);
            }
        }
    }

    /// Asks for a request on which no caller waits.
    fn ask_unattended(&self, claim: &Arc<Claim>) {
        let is_retry = claim.asked_in_vain();
        if !claim.begin_to_ask() {
            return;
        }
        let now = self.ask(claim, self.now());
        let longest = longest_pause(&self.config);
        self.schedule.with_rounds(|rounds| match claim.asked_in_vain() {
            true => rounds.asks.failed(now, longest),
            // A request that had not failed before says nothing about those that have: another server may keep their locks.
            false if is_retry => rounds.asks.answered(),
            false => {}
        });
    }
}

impl Round {
    fn note(&mut self, claim: &Arc<Claim>, look: &RoundTimes) {
        let duty = claim.watchdog_step(look);
        let claim = || Arc::clone(claim);
        match duty {
            WatchdogStep::Wait(at) => self.next = earlier(self.next, at),
            WatchdogStep::Lose(cause) => self.over.push((claim(), cause)),
            WatchdogStep::GivenUp => self.given_up.push(claim()),
            WatchdogStep::Ask(since) if self.ask.as_ref().is_none_or(|(first, _)| since < *first) => {
                self.ask = Some((since, claim()));
            }
            WatchdogStep::Ask(_) => {} // the next round follows at once
            WatchdogStep::RenewPlace { lease } => self.due.push(Due { claim: claim(), hold: None, lease }),
            WatchdogStep::RenewHold { token, count, lease } => {
                self.due.push(Due { claim: claim(), hold: Some((token, count)), lease });
            }
        }
    }
}

fn senseless() -> BackendError {
    BackendError::new(BackendErrorKind::Unavailable, "the answer makes no sense")
}

impl Due {
    fn item(&self) -> Renew<'_> {
        match self.hold {
            Some((token, holds)) => Renew::Hold { hold: self.claim.hold(token), holds, lease: self.lease },
            None => Renew::Place { place: self.claim.place(), lease: self.lease },
        }
    }
}

impl Drop for Due {
    fn drop(&mut self) {
        self.claim.renewal_done();
    }
}

pub(super) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    [one, other].into_iter().flatten().min()
}
