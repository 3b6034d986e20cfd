//! The thread of a client that keeps its promises while its callers sleep or work: it renews holds and places, many in one round
//! trip; notices losses in time; asks for requests without a waiting caller; and repeats unanswered releases and withdrawals. A
//! second thread reports losses while the watchdog waits for the server, further threads make the first attempts of tasks, and one
//! explains slow waits.
//!
//! One round, in this order. A call is bounded by the backend; calls of many requests have up to 128 of them.
//!
//! | what | how much in a round | what waits for it |
//! | --- | --- | --- |
//! | losses: holds whose time is over | all | nothing: no call is made. During the calls below `report_ended` does this |
//! | renewals: holds first, then places | all that are due, or will be within a round, in one call | all below |
//! | releases, withdrawals | many calls, none begins after 100 ms; first attempts before repeats | asks, the next renewals |
//! | asks: wake-ups without a caller, all places that are gone | the same; no ask begins in a round after a failed ask | the next renewals |
//! | lines in the log about losses | 100 ms | the next renewals |
//!
//! So a renewal is late by 300 ms and one call of each kind at most, however many releases and asks there are. The rest follows
//! in the next round, at once. Withdrawals go before asks, since a caller whose time is over waits up to 50 ms for its
//! withdrawal. A look passes all claims, and takes little time beside the calls of its round.
//!
//! Each request of a call has its own answer. If the request is carried out and its answer lost, it is repeated with the same
//! number, and gets the same answer, as if it had been alone.
//!
//! A slow wait explains itself (`explain`): a line in the log says how many are ahead, and who holds the lock. The line is counted, and
//! `Busy` says the same if the wait runs out.
//!
//! A look costs a call of the store, and runs on a thread of its own (`fairlock-slow`): no renewal waits for a look. There is at most one
//! look a second, for the longest wait that no line has explained, and each wait is explained once. So a client with a thousand slow
//! waits writes a line a second.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::backend::{BackendError, LockState, Renew, Renewal, or_missing};
use crate::claim::{AfterRenewal, Claim, GrantedBy, RoundTimes, WatchdogStep, earlier};
use crate::config::MOST_AT_ONCE;
use crate::error::{LostCause, SlowWait, held_by, name_of, to_a_tenth};
use crate::flow::{Parts, STEP_LIMIT};
use crate::ids::FencingToken;
use crate::logging::{LineLimit, log_line};
use crate::shared::{Shared, Threads};
use crate::stats::Event;
use crate::timers::{Sleeper, Timers};
use crate::{tasks, time};

/// The second thread watches the ends of holds beside the watchdog, which may be waiting for answers: a silent server must not
/// delay the report of a loss. The second thread sleeps until the first known hold ends. A renewal never delays it: at worst the
/// thread wakes once and finds nothing to do. A grant wakes the thread only if the new hold ends earlier.
pub(crate) const THREADS: Threads = Threads {
    dog: |client| keep(client, |timers| &timers.dog, |shared| elsewhere(shared, round)),
    expiry: |client| keep(client, |timers| &timers.expiry, |shared| elsewhere(shared, report_ended)),
    tasks: |client, number| {
        let look = move |shared: &Shared| tasks::run_first_attempts(shared, number);
        keep(client, |timers| &timers.tasks[number], look);
    },
    calls: |client, number| {
        let look = move |shared: &Shared| tasks::make_calls(shared, number);
        keep(client, |timers| &timers.calls[number], look);
    },
    waker: |client| {
        let look = |shared: &Shared| {
            shared.timers.run_wakers();
            None
        };
        keep(client, |timers| &timers.waker, look);
    },
    slow: |client| {
        let pause = Cell::new(None);
        keep(client, |timers| &timers.slow, |shared| explain(shared, &pause));
    },
};

/// A look whose wakers another thread runs.
fn elsewhere(shared: &Shared, look: fn(&Shared) -> Option<Instant>) -> Option<Instant> {
    shared.timers.wake_elsewhere(shared.now(), || look(shared))
}

/// The body of these threads: looks, and looks again at the time that the last look returned, or when woken, until the client
/// ends. A thread owns the client only during a look, so that the last handle can go at any time.
fn keep(
    client: &Weak<Shared>,
    sleeper: impl Fn(&Timers) -> &Sleeper,
    look: impl Fn(&Shared) -> Option<Instant>,
) {
    let mut panics = 0;
    let Some(signal) = client.upgrade().map(|shared| Arc::clone(sleeper(&shared.timers).signal())) else {
        return;
    };
    loop {
        let seen = signal.generation();
        let Some(shared) = client.upgrade() else { return };
        let timers = &shared.timers;
        sleeper(timers).awake();
        if timers.is_told_to_end() {
            shared.ledger.unlogged.log(|| false);
            return;
        }
        // A backend may panic. The unwinding puts back what was under way, see `Due`, `UnderWay` and `CleanupBatch`.
        let next = match catch_unwind(AssertUnwindSafe(|| look(&shared))) {
            Ok(next) => {
                panics = 0;
                next
            }
            Err(panic) => {
                panics += 1;
                panicked(&shared, sleeper(timers).name, panic);
                Some(shared.now() + time::pause(panics))
            }
        };
        let until = sleeper(timers).asleep(next);
        drop(shared); // possibly the last one: its drop raises the signal, and the upgrade fails
        signal.wait(seen, until);
    }
}

/// Starts the second thread, before the watchdog first waits for answers. The thread runs until the client ends.
fn watch_ends_meanwhile(timers: &Timers) {
    static NO_THREAD: LineLimit = LineLimit::new();
    if let Err(error) = timers.start(&timers.expiry)
        && NO_THREAD.count(1, Instant::now()).is_some()
    {
        // The watchdog itself reports them after the answers.
        log_line!(warn, "fairlock::watchdog",
            event = "no thread", error:% = error;
            "can't start the thread that reports losses in time: {error}"
        );
    }
}

/// Reports the holds whose time is over; returns when the next one ends.
fn report_ended(shared: &Shared) -> Option<Instant> {
    let (ledger, now) = (&shared.ledger, shared.now());
    let (mut ended, mut next) = (Vec::new(), None);
    ledger.registry.for_each(|claim| match claim.valid_until() {
        Some(until) if until <= now => ended.push(Arc::clone(claim)),
        until => next = earlier(next, until),
    });
    // The watchdog, which has the answer, or a caller may have found the loss too: the first of them reports it.
    for claim in &ended {
        if let Some(lost) = claim.loss(now) {
            ledger.lose_in_background(claim, lost.cause);
        }
    }
    // The watchdog logs these losses.
    shared.timers.due_by((!ended.is_empty()).then_some(now));
    next
}

/// After a panic the watchdog pauses, as after a request without an answer, so that a thread that panics each time does not spin.
/// At most one line a minute is logged.
fn panicked(shared: &Shared, name: &str, panic: Box<dyn Any + Send>) {
    let now = shared.now();
    shared.backlog.retries.failed(now, shared.config.longest_pause());
    let is_logged = shared.outage.panicked(now);
    let message = panic.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    if is_logged {
        log_line!(error, "fairlock::watchdog",
            event = "panicked", thread = name, panic = message;
            "the thread {name} panicked, and goes on: {message}"
        );
    }
    std::mem::forget(panic); // its drop may panic as well
}

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
fn round(shared: &Shared) -> Option<Instant> {
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
            AfterRenewal::Renewed(punctuality) => {
                ledger.counters.happened(&claim.lock, Event::Renewed(punctuality));
            }
            AfterRenewal::Granted => ledger.granted(claim, GrantedBy::Polling),
            AfterRenewal::PlaceGone => places_gone.push(due),
            AfterRenewal::PlaceLost => {
                ledger.counters.happened(&claim.lock, Event::PlaceLost);
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

const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// Explains the longest of the waits that are slow. Returns when to look again. `pause`: until when no call is made, also if the thread
/// is woken, since another wait will be slow before that.
fn explain(shared: &Shared, pause: &Cell<Option<Instant>>) -> Option<Instant> {
    let now = shared.now();
    if pause.get().is_some_and(|until| now < until) {
        return pause.get();
    }
    let (mut slow, mut next) = (Vec::new(), None);
    // All of them are kept until the registry's mutex is free: a claim that is dropped may run a subscriber of the program.
    shared.ledger.registry.for_each(|claim| match claim.slow_at() {
        Some(at) if at <= now => slow.push((at, Arc::clone(claim))),
        slow_at => next = earlier(next, slow_at),
    });
    let Some((_, claim)) = slow.into_iter().min_by_key(|(at, _)| *at) else { return next };
    claim.set_explained(); // a look that fails is not repeated: outages have their own lines
    let seen = shared.backend.inspect(&claim.lock, 0..0);
    // The wait may have ended during the look: then the answer may name this owner, or the next one. Nor is there anything to explain if
    // the request was granted, and the client does not know it yet.
    let is_granted = |state: &LockState| state.holders.iter().any(|of| of.request == Some(claim.request));
    if let (Ok(state), true) = (seen, claim.is_waiting())
        && !is_granted(&state)
    {
        let (waited, ahead) = (claim.waited(shared.now()), claim.rank());
        let held_by = held_by(&state, &claim.owner, claim.is_tasks());
        let seen = Arc::new(SlowWait { waited, ahead, state, held_by });
        claim.set_seen(Arc::clone(&seen));
        write_line(&claim, &seen);
        if let Some(holder) = seen.state.holder() {
            claim.waits_for(&name_of(holder), holder);
        }
        shared.ledger.counters.happened(&claim.lock, Event::SlowWait);
    }
    pause.set(Some(shared.now() + BETWEEN_LOOKS));
    pause.get()
}

fn write_line(claim: &Claim, seen: &SlowWait) {
    let (lock, owner, holder) = (&claim.lock.name, &claim.owner, &seen.held_by);
    log_line!(info, "fairlock::acquire",
        event = "slow wait", lock = lock.as_str(), owner = owner.as_str(), ahead = seen.ahead, holder = holder.as_str(),
        waited_ms = u64::try_from(seen.waited.as_millis()).unwrap_or(u64::MAX);
        "lock {lock}: {owner} has waited for {}: {seen}", to_a_tenth(seen.waited)
    );
}
