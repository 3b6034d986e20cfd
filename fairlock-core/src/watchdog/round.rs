//! One round of the watchdog.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::{BackendError, Renew, Renewal, or_missing};
use crate::claim::{AfterRenewal, Claim, GrantedBy, RoundTimes, WatchdogStep, earlier};
use crate::error::LostCause;
use crate::flow::TURN;
use crate::ids::FencingToken;
use crate::logging::log_line;
use crate::schedule::{MOST_AT_ONCE, longest_pause};
use crate::shared::Shared;

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
    /// Whose tasks wait for the end of a release.
    told: Vec<Arc<Claim>>,
    due: Vec<Due>,
    /// The requests to be asked for, and since when that is due.
    asks: Vec<(Instant, Arc<Claim>)>,
    next: Option<Instant>,
    /// How many requests are in line, for the metrics. A round follows within a heartbeat, which finds fewer.
    waiting: usize,
}

impl Shared {
    /// Does what is due for all claims, in the order that the module's head gives; returns when the next round is.
    pub(super) fn round(self: &Arc<Self>) -> Option<Instant> {
        let now = self.now();
        // A slow or silent server holds the whole round up. So the round takes along what comes due meanwhile, or the locks on
        // other servers would lose that time again and again.
        let (meanwhile, pauses) = self.schedule.with_rounds(|rounds| (rounds.meanwhile, rounds.pauses()));
        let mut round = Round::default();
        self.registry.for_each(|claim| round.note(claim, &RoundTimes { now, meanwhile, pauses }));
        let Round { over, given_up, told, mut due, mut asks, next, waiting } = round;
        for (claim, cause) in over {
            self.lose_in_background(&claim, cause);
        }
        for claim in given_up {
            claim.raise();
            match claim.leaving() {
                Some(_) => self.withdraw_soon(&claim),
                None => self.retire(&claim), // never asked for
            }
        }
        told.iter().for_each(|claim| claim.raise());
        self.end_outage_if_over();
        if cfg!(feature = "metrics") {
            self.counters.waiting(waiting);
            self.counters.outage(self.schedule.with_rounds(|rounds| rounds.outage.lasts()));
        }
        let looked_after = !due.is_empty() || !asks.is_empty();
        if looked_after {
            self.watch_ends_meanwhile();
        }
        if !due.is_empty() {
            due.sort_by_key(|due| due.hold.is_none());
            self.renew(due);
        }
        let next_chore = self.do_chores(|| self.watch_ends_meanwhile());
        asks.sort_by_key(|(since, _)| *since);
        self.ask_unattended(asks.into_iter().map(|(_, claim)| claim).collect());
        let stop_at = self.now() + TURN;
        let are_logged = self.schedule.unlogged.log(|| self.now() >= stop_at);
        if looked_after {
            let took = self.now().saturating_duration_since(now);
            // Decays slowly: a round that asks no dead server looks quick.
            self.schedule.with_rounds(|rounds| rounds.meanwhile = took.max(meanwhile / 2));
            return Some(self.now()); // the next round finds their new deadlines
        }
        earlier(earlier(next, next_chore), (!are_logged).then(|| self.now()))
    }

    /// Reports the loss at once, and logs it after this round's renewals: ten thousand lines to a slow logger must not take
    /// the time of the renewals.
    pub(super) fn lose_in_background(&self, claim: &Arc<Claim>, cause: LostCause) {
        if let Some(lost) = self.report_loss(claim, cause) {
            self.schedule.unlogged.keep(lost);
        }
    }

    /// Renews all of them in one call. The answers count from before it was sent.
    fn renew(self: &Arc<Self>, due: Vec<Due>) {
        let items: Vec<Renew<'_>> = due.iter().map(Due::item).collect();
        let sent = self.now();
        let answers = self.backend.renew(self.id, &items);
        let now = self.now();
        let (mut unanswered, mut others_answer, mut places_gone) = (None, false, Vec::new());
        for (due, answer) in due.into_iter().zip(or_missing(answers)) {
            let Due { claim, hold, lease } = &due;
            others_answer |= answer.is_ok();
            let error = answer.as_ref().map_or_else(BackendError::clone, |_| BackendError::senseless());
            let outcome = answer.as_ref().map(Renewal::number).map_err(BackendError::clone);
            let after = claim.renewed(answer, sent, *lease, now);
            if hold.is_none() {
                self.attempt_ended(claim, outcome, now);
            }
            match after {
                AfterRenewal::Nothing => {}
                AfterRenewal::Unanswered => _ = unanswered.get_or_insert((claim.lock.name.clone(), error)),
                AfterRenewal::Renewed(punctuality) => self.counters.renewed(&claim.lock.name, punctuality),
                AfterRenewal::Granted => self.granted(claim, GrantedBy::Polling),
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
            log_line!(warn, "fairlock::watchdog",
                event = "place gone", lock = lock.as_str(), owner = owner.as_str(), places = places;
                "the server has lost {places} place(s), which are asked for again; the first is {owner}'s for lock {lock}"
            );
        }
        let longest = longest_pause(&self.config);
        match unanswered {
            // This round had everything that had failed before, but for what has ended meanwhile.
            None => {
                self.schedule.with_rounds(|rounds| rounds.renewals.answered());
                self.schedule.heard();
            }
            Some(failed) => {
                self.schedule.with_rounds(|rounds| rounds.renewals.failed(now, longest));
                self.heard_nothing(sent, failed, others_answer);
            }
        }
    }

    /// Asks for requests on which no caller waits, many in a call. What is left after a turn, or after a call that was not
    /// answered, is left to the next round, which follows at once.
    fn ask_unattended(&self, due: Vec<Arc<Claim>>) {
        let stop_at = self.now() + TURN;
        let mut due = due.into_iter();
        loop {
            let (claims, retries): (Vec<_>, Vec<_>) = due
                .by_ref()
                .map(|claim| (claim.asked_in_vain(), claim))
                .filter(|(_, claim)| claim.begin_to_ask())
                .take(MOST_AT_ONCE)
                .map(|(is_retry, claim)| (claim, is_retry))
                .unzip();
            if claims.is_empty() {
                return;
            }
            self.ask_all(&claims);
            let (now, longest) = (self.now(), longest_pause(&self.config));
            let failed = claims.iter().any(|claim| claim.asked_in_vain());
            self.schedule.with_rounds(|rounds| match failed {
                true => rounds.asks.failed(now, longest),
                // Requests that had not failed before say nothing about those that have: another server may keep their locks.
                false if retries.contains(&true) => rounds.asks.answered(),
                false => {}
            });
            if failed || now >= stop_at {
                return;
            }
        }
    }
}

impl Round {
    fn note(&mut self, claim: &Arc<Claim>, look: &RoundTimes) {
        if cfg!(feature = "metrics") && claim.is_in_line() {
            self.waiting += 1;
        }
        let duty = claim.watchdog_step(look);
        let claim = || Arc::clone(claim);
        match duty {
            WatchdogStep::Wait(at) => self.next = earlier(self.next, at),
            WatchdogStep::Lose(cause) => self.over.push((claim(), cause)),
            WatchdogStep::GivenUp => self.given_up.push(claim()),
            WatchdogStep::Tell => self.told.push(claim()),
            WatchdogStep::Ask(since) => self.asks.push((since, claim())),
            WatchdogStep::RenewPlace { lease } => self.due.push(Due { claim: claim(), hold: None, lease }),
            WatchdogStep::RenewHold { token, count, lease } => {
                self.due.push(Due { claim: claim(), hold: Some((token, count)), lease });
            }
        }
    }
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
