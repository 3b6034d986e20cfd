//! One round of the watchdog.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::watch_ends_meanwhile;
use crate::backend::{BackendError, Renew, Renewal, or_missing};
use crate::claim::{AfterRenewal, Claim, GrantedBy, RoundTimes, WatchdogStep, earlier};
use crate::config::MOST_AT_ONCE;
use crate::error::LostCause;
use crate::flow::{Parts, STEP_LIMIT};
use crate::ids::FencingToken;
use crate::logging::log_line;
use crate::shared::Shared;

/// A claim that is due for renewal, and the renewal to send. No other thread renews the claim until this is dropped.
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
    /// The claims whose tasks wait for the end of a release.
    told: Vec<Arc<Claim>>,
    due: Vec<Due>,
    /// The requests to be asked for, and since when that is due.
    asks: Vec<(Instant, Arc<Claim>)>,
    next: Option<Instant>,
    /// How many requests are in the queue, for the metrics. A round follows within a heartbeat, which finds fewer.
    waiting: usize,
}

/// Does what is due for all claims, in the order that the module's head gives; returns when the next round is.
pub(super) fn round(shared: &Shared) -> Option<Instant> {
    let Shared { ledger, timers, outage, backlog, .. } = shared;
    let now = shared.now();
    // A slow or silent server holds the whole round up. So the round also does what comes due meanwhile: otherwise the locks
    // on other servers would lose that time again and again.
    let (meanwhile, pauses) = (*timers.meanwhile.lock(), outage.pauses());
    let mut round = Round::default();
    ledger.registry.for_each(|claim| round.note(claim, &RoundTimes { now, meanwhile, pauses }));
    let Round { over, given_up, told, mut due, mut asks, next, waiting } = round;
    for (claim, cause) in over {
        ledger.lose_in_background(&claim, cause);
    }
    for claim in given_up {
        claim.raise();
        match claim.leaving() {
            Some(_) => ledger.withdraw_soon(&claim),
            None => {
                ledger.retire(&claim); // never asked for
                shared.first_attempts.left(&claim);
            }
        }
    }
    told.iter().for_each(|claim| claim.raise());
    outage.end_if_over(&ledger.registry, backlog);
    if cfg!(feature = "metrics") {
        ledger.counters.waiting(waiting);
        ledger.counters.outage(outage.lasts());
    }
    let looked_after = !due.is_empty() || !asks.is_empty();
    if looked_after {
        watch_ends_meanwhile(timers);
    }
    due.sort_by_key(|due| due.hold.is_none());
    let gone = if due.is_empty() { Vec::new() } else { renew(shared, due) };
    let next_cleanup = shared.cleanup_run().do_due(|| watch_ends_meanwhile(timers));
    let next_line = earlier(outage.refused.tell_rest(shared.now()), timers.end_pauses(|at| at <= now));
    asks.sort_by_key(|(since, _)| *since);
    ask(shared.parts(), asks.into_iter().map(|(_, claim)| claim), gone);
    let stop_at = shared.now() + STEP_LIMIT;
    let are_logged = ledger.unlogged.log(|| shared.now() >= stop_at);
    if looked_after {
        let took = shared.now().saturating_duration_since(now);
        // Decays slowly: a round that asks no dead server looks quick.
        *timers.meanwhile.lock() = took.max(meanwhile / 2);
        return Some(shared.now()); // the next round finds their new deadlines
    }
    earlier(earlier(earlier(next, next_cleanup), next_line), (!are_logged).then(|| shared.now()))
}

/// Renews all these claims in one call. The answers count from before the call was sent. Returns the claims whose places are gone:
/// their callers notice nothing while the places come back.
fn renew(shared: &Shared, due: Vec<Due>) -> Vec<Due> {
    let Shared { config, ledger, outage, .. } = shared;
    let items: Vec<Renew<'_>> = due.iter().map(Due::item).collect();
    let sent = config.now();
    let answers = shared.backend.renew(shared.id, &items);
    let now = config.now();
    let (mut unanswered, mut others_answer, mut places_gone) = (None, false, Vec::new());
    for (due, answer) in due.into_iter().zip(or_missing(answers)) {
        let Due { claim, hold, lease } = &due;
        // Else such a hold would be renewed again at once, without end.
        let answer = match answer {
            Ok(Renewal::Waiting { .. } | Renewal::Granted { .. }) if hold.is_some() => {
                Err(BackendError::senseless())
            }
            answer => answer,
        };
        others_answer |= answer.is_ok();
        let error = answer.as_ref().map_or_else(BackendError::clone, |_| BackendError::senseless());
        let number = answer.as_ref().ok().and_then(Renewal::number);
        let after = claim.renewed(answer, sent, *lease, now);
        // A renewal without an answer begins nothing later: it puts no place back.
        if hold.is_none() {
            ledger.attempt_ended(claim, Ok(number), now);
        }
        match after {
            AfterRenewal::Nothing => {}
            AfterRenewal::Unanswered => _ = unanswered.get_or_insert((claim.lock.name.clone(), error)),
            AfterRenewal::Renewed(punctuality) => ledger.counters.renewed(&claim.lock, punctuality),
            AfterRenewal::Granted => ledger.granted(claim, GrantedBy::Polling),
            AfterRenewal::PlaceGone => places_gone.push(due),
            AfterRenewal::PlaceLost => {
                ledger.counters.place_lost(&claim.lock);
                places_gone.push(due);
            }
            // The place was lost; its caller has asked again meanwhile, and has the lock.
            AfterRenewal::HoldLost if hold.is_none() => {}
            AfterRenewal::HoldLost => ledger.lose_in_background(claim, LostCause::Taken),
        }
    }
    // Logged when everything is done: a slow logger must not take time from other holds.
    if let Some(Due { claim, .. }) = places_gone.first()
        && let Some(places) = outage.places_gone.count(places_gone.len() as u64, now)
    {
        let (lock, owner) = (&claim.lock.name, &claim.owner);
        log_line!(warn, "fairlock::watchdog",
            event = "place gone", lock = lock.as_str(), owner = owner.as_str(), places = places;
            "{places} place(s) have left the queue, lost by the store or passed over; asking again (one: lock {lock}, owner {owner})"
        );
    }
    match unanswered {
        // This round has repeated all that had failed before, but for what has ended meanwhile.
        None => {
            outage.renewals.answered();
            outage.heard();
        }
        Some(failed) => {
            outage.renewals.failed(sent, config.longest_pause());
            outage.heard_nothing(&ledger.registry, &shared.backlog, sent, failed, others_answer);
        }
    }
    places_gone
}

/// Asks for requests without a waiting caller, and for all requests whose places are gone, many in a call. What is left after a
/// turn, or after an unanswered call, is for the next round, which follows at once, and for callers.
fn ask(parts: Parts<'_>, unattended: impl Iterator<Item = Arc<Claim>>, gone: Vec<Due>) {
    let Parts { config, outage, .. } = parts;
    let stop_at = config.now() + STEP_LIMIT;
    let gone = gone.into_iter().map(|due| (Arc::clone(&due.claim), Some(due)));
    let mut all = unattended.map(|claim| (claim, None)).chain(gone);
    loop {
        // A caller of a request whose place is gone finds, when it looks, that the watchdog has asked.
        let (claims, are_retries): (Vec<_>, Vec<_>) = all
            .by_ref()
            .map(|(claim, renewing)| (claim.last_ask_failed(), claim, renewing))
            .filter(|(_, claim, _)| claim.begin_to_ask())
            .take(MOST_AT_ONCE)
            .map(|(is_retry, claim, _)| (claim, is_retry))
            .unzip();
        if claims.is_empty() {
            return;
        }
        let sent = config.now();
        parts.ask_all(&claims);
        let (now, retries) = (config.now(), &outage.asks);
        let failed = claims.iter().any(|claim| claim.last_ask_failed());
        if failed {
            retries.failed(sent, config.longest_pause());
        } else if are_retries.contains(&true) {
            // Requests that had not failed before say nothing about those that have: another server may keep their locks.
            retries.answered();
        }
        if failed || now >= stop_at {
            return;
        }
    }
}

impl Round {
    fn note(&mut self, claim: &Arc<Claim>, look: &RoundTimes) {
        if cfg!(feature = "metrics") && claim.is_in_queue() {
            self.waiting += 1;
        }
        let step = claim.watchdog_step(look);
        let claim = || Arc::clone(claim);
        match step {
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
