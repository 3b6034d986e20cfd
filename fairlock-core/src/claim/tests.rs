//! The interleavings of answers, pushes, renewals and callers who leave, one by one.

mod stop;

use std::time::{Duration, Instant};

mod agenda;
mod tickets;

use super::*;
use crate::backend::{Acquired, BackendErrorKind, Renewal};
use crate::{Clock, LockKind, LockName};

const S: Duration = Duration::from_secs(1);
const NOW: Duration = Duration::ZERO;
const LEASE: Duration = Duration::from_secs(30);
const PLACE: Duration = Duration::from_secs(5);
const OUTAGE: Duration = Duration::from_secs(10);
const TOKEN: FencingToken = FencingToken::new(7);

struct Case {
    claim: Claim,
    start: Instant,
}

impl Case {
    fn with(wait: Wait, terms: Terms) -> Case {
        let lock = LockId::new(LockName::new("x").unwrap(), LockKind::Fair);
        let (clock, start) = (Clock::system(), Instant::now());
        let signal = Signal::new(&clock);
        let config = Config {
            lease: LEASE,
            place_ttl: PLACE,
            outage_limit: OUTAGE,
            label: "worker 3".into(),
            clock,
            stop: Stop::default(),
        };
        Case { claim: Claim::new(lock, OwnerId::new("u:1"), wait, terms, &config, signal, start), start }
    }

    fn new() -> Case {
        Case::with(Wait::Forever, Terms::Renewed(LEASE))
    }

    fn patience(&self, wait: Wait) -> Patience {
        let deadline = if let Wait::UpTo(time) = wait { Some(self.start + time) } else { None };
        Patience { wait, deadline, cancel: None, keeps_place: false }
    }

    fn step(&self, at: Duration) -> Step {
        self.claim.next_step(&self.patience(self.claim.wait), self.start + at)
    }

    fn look(&self, at: Duration) -> Look {
        Look { now: self.start + at, meanwhile: NOW, pauses: Pauses::default() }
    }

    fn duty(&self, at: Duration) -> Duty {
        self.claim.duty(&self.look(at))
    }

    fn answer(&self, sent: Duration, answer: Result<Acquired, BackendError>) -> AfterAnswer {
        self.claim.answered(answer, self.start + sent, self.start + sent, OUTAGE)
    }

    fn queued(&self, sent: Duration) -> AfterAnswer {
        self.queued_as(sent, 1, 1)
    }

    fn queued_as(&self, sent: Duration, ticket: u64, latest: u64) -> AfterAnswer {
        self.answer(sent, Ok(Acquired::Queued { rank: 1, recheck_in: Duration::MAX, ticket, latest }))
    }

    fn granted(&self, sent: Duration) -> AfterAnswer {
        self.answer(sent, Ok(Acquired::Granted { token: TOKEN, lease: LEASE }))
    }

    fn push(&self, at: Duration) -> Option<GrantedBy> {
        self.claim.pushed(TOKEN, self.start + at)
    }

    fn renewed(&self, sent: Duration, answer: Renewal) -> AfterRenewal {
        self.claim.renewed(Ok(answer), self.start + sent, LEASE, self.start + sent)
    }
}

fn unavailable() -> BackendError {
    BackendError::new(BackendErrorKind::Unavailable, "down")
}

fn waiting(latest: u64) -> Renewal {
    Renewal::Waiting { rank: 0, recheck_in: Duration::MAX, latest }
}

#[test]
fn a_free_lock_is_taken_at_the_first_ask() {
    let case = Case::new();
    assert!(matches!(case.step(NOW), Step::Ask));
    assert!(matches!(case.step(NOW), Step::Sleep(None)), "one thread asks at a time");
    assert_eq!(case.granted(NOW), AfterAnswer::Granted(GrantedBy::FirstAsk));
    assert!(matches!(case.step(NOW), Step::Take { token: TOKEN, count: 1 }));
    assert!(matches!(case.claim.give_back(case.start), Given::Last { token: TOKEN, .. }));
}

#[test]
fn a_wake_up_during_an_ask_leads_to_another_ask() {
    let case = Case::new();
    case.step(NOW);
    assert!(!case.claim.wake(), "its maker attends to it, so the watchdog need not be told");
    case.queued(NOW); // the server saw the ask before the release that the wake-up speaks of
    assert!(matches!(case.step(NOW), Step::Ask));
    case.queued(NOW);
    assert!(matches!(case.step(NOW), Step::Sleep(Some(_))));
}

#[test]
fn a_push_that_overtakes_the_answer_waits_for_it() {
    let case = Case::new();
    case.step(NOW);
    assert_eq!(case.push(S), None);
    assert_eq!(case.queued(NOW), AfterAnswer::Granted(GrantedBy::WakeUp));
    // Good from the time when the ask was sent, for the life of the place.
    let until = case.claim.valid_until().unwrap() - case.start;
    assert_eq!(until, PLACE - terms::margin(PLACE));
}

#[test]
fn a_late_answer_does_not_undo_a_push() {
    let case = Case::new();
    case.step(NOW);
    case.queued(NOW);
    case.claim.wake();
    case.step(S);
    assert_eq!(case.push(S), Some(GrantedBy::WakeUp));
    assert_eq!(case.queued(S), AfterAnswer::Nothing);
    assert!(matches!(case.step(S), Step::Take { token: TOKEN, count: 1 }));
}

#[test]
fn a_push_is_not_believed_past_the_place_it_was_for() {
    let case = Case::new();
    case.step(NOW);
    case.queued(NOW);
    assert_eq!(case.push(PLACE), None);
    assert!(matches!(case.step(PLACE), Step::Ask), "the server is asked instead");
}

/// The process stood still, and its grant is nearly over: it is told so, and only then hears the push.
#[test]
fn a_grant_that_is_over_is_not_believed_because_its_push_comes_later() {
    let case = Case::new();
    case.step(NOW);
    case.queued(NOW);
    let nearly_over = Renewal::Granted { token: TOKEN, lease: Duration::from_millis(2) };
    assert_eq!(case.renewed(PLACE, nearly_over), AfterRenewal::Nothing);
    assert_eq!(case.push(PLACE), None);
    assert_eq!(case.claim.hold_count(case.start + PLACE), 0);
}

#[test]
fn heartbeats_move_the_time_from_which_a_push_counts() {
    let case = Case::new();
    case.step(NOW);
    case.queued(NOW);
    case.renewed(4 * S, waiting(1));
    assert_eq!(case.push(6 * S), Some(GrantedBy::WakeUp));
    assert_eq!(case.claim.valid_until().unwrap() - case.start, 9 * S - terms::margin(PLACE));
}

#[test]
fn a_heartbeats_answer_that_a_push_has_overtaken_changes_nothing() {
    let case = Case::new();
    case.step(NOW);
    case.queued(NOW);
    assert_eq!(case.push(S), Some(GrantedBy::WakeUp));
    let due = case.claim.due_at();
    for late in [waiting(1), Renewal::Granted { token: TOKEN, lease: LEASE }] {
        assert_eq!(case.renewed(S, late), AfterRenewal::Nothing);
        assert_eq!(case.claim.due_at(), due, "no renewal is hurried by it");
    }
}

#[test]
fn an_answer_that_came_too_late_is_not_a_grant() {
    let case = Case::new();
    case.step(NOW);
    let answer = Ok(Acquired::Granted { token: TOKEN, lease: LEASE });
    let after = case.claim.answered(answer, case.start, case.start + LEASE, OUTAGE);
    assert_eq!(after, AfterAnswer::Nothing);
    assert!(matches!(case.step(LEASE), Step::Ask));
}

#[test]
fn who_leaves_believes_nothing_any_more() {
    let case = Case::with(Wait::UpTo(S), Terms::Renewed(LEASE));
    case.step(NOW);
    case.queued(NOW);
    let Step::GiveUp(give_up) = case.step(S) else { panic!() };
    assert_eq!(give_up.rest, Rest::Withdraw);
    assert_eq!(case.push(S), None);
    assert_eq!(case.renewed(S, Renewal::Granted { token: TOKEN, lease: LEASE }), AfterRenewal::Nothing);
    // The withdrawal finds the grant: the caller takes it while he still waits for that answer,
    assert!(case.claim.granted_while_leaving(TOKEN, case.start + S, LEASE, case.start + S));
    assert_eq!(case.claim.hold_count(case.start + S), 1);
}

#[test]
fn a_grant_that_nobody_waits_for_is_passed_on() {
    let case = Case::with(Wait::UpTo(S), Terms::Renewed(LEASE));
    case.step(NOW);
    case.queued(NOW);
    case.step(S);
    assert!(case.claim.stop_leaving());
    assert!(!case.claim.granted_while_leaving(TOKEN, case.start + S, LEASE, case.start + S));
    assert_eq!(case.claim.leaving_token(), Some(TOKEN));
}

#[test]
fn those_who_joined_are_granted_together_and_the_last_gives_back() {
    let case = Case::new();
    assert!(matches!(case.claim.join(case.start), Joined::Waiting));
    case.step(NOW);
    case.granted(NOW);
    assert!(matches!(case.claim.give_back(case.start), Given::Inner { count: 1, .. }));
    assert!(matches!(case.claim.join(case.start), Joined::Held { token: TOKEN, count: 2 }));
    assert!(matches!(case.claim.give_back(case.start), Given::Inner { count: 1, .. }));
    assert!(matches!(case.claim.give_back(case.start), Given::Last { .. }));
    assert!(matches!(case.claim.join(case.start), Joined::Leaving));
}

#[test]
fn one_who_leaves_does_not_take_the_place_of_the_others() {
    let case = Case::new();
    case.claim.join(case.start);
    case.step(NOW);
    case.queued(NOW);
    let timed = case.patience(Wait::UpTo(S));
    let Step::GiveUp(give_up) = case.claim.next_step(&timed, case.start + S) else { panic!() };
    assert_eq!(give_up.rest, Rest::Others);
    assert!(matches!(case.step(S), Step::Sleep(_)));
}

#[test]
fn a_failing_server_is_asked_again_until_the_outage_limit() {
    let case = Case::new();
    let mut now = Duration::ZERO;
    let mut asks = 0;
    loop {
        match case.step(now) {
            Step::Ask => {
                asks += 1;
                case.claim.wake(); // wake-ups don't make it spin
                if case.answer(now, Err(unavailable())) == AfterAnswer::Withdraw {
                    break;
                }
            }
            Step::Sleep(Some(until)) => now = until - case.start,
            other => panic!("{other:?}"),
        }
    }
    assert!(now >= OUTAGE && now <= OUTAGE + S, "{now:?}");
    assert!((10..60).contains(&asks), "{asks}");
    assert!(matches!(case.step(now), Step::Failed(Failure::Backend(_))));
}

#[test]
fn one_attempt_is_repeated_once_if_it_was_not_answered() {
    let case = Case::with(Wait::No, Terms::Renewed(LEASE));
    assert!(matches!(case.step(NOW), Step::Ask));
    assert_eq!(case.answer(NOW, Err(unavailable())), AfterAnswer::Nothing);
    assert!(matches!(case.step(NOW), Step::Ask));
    assert_eq!(case.answer(NOW, Err(unavailable())), AfterAnswer::Withdraw);
    let busy = Case::with(Wait::No, Terms::Renewed(LEASE));
    busy.step(NOW);
    assert_eq!(busy.answer(NOW, Ok(Acquired::Busy { recheck_in: S })), AfterAnswer::Over);
    assert!(matches!(busy.step(NOW), Step::NotGranted));
}

#[test]
fn a_silent_server_is_asked_after_the_outage_limit() {
    let case = Case::new();
    case.step(NOW);
    case.queued(NOW);
    let Step::Sleep(Some(until)) = case.step(S) else { panic!() };
    assert_eq!(until, case.start + OUTAGE);
    assert!(matches!(case.step(OUTAGE), Step::Ask));
}

#[test]
fn the_watchdog_renews_in_time_and_not_after_the_last_holder_left() {
    let case = Case::new();
    case.step(NOW);
    case.granted(NOW);
    assert!(matches!(case.duty(S), Duty::None(Some(_))));
    assert!(matches!(case.duty(10 * S), Duty::RenewHold { token: TOKEN, count: 1, lease: LEASE }));
    assert!(case.claim.is_renewing(), "unlock waits for it");
    assert!(matches!(case.claim.give_back(case.start), Given::Last { .. }));
    assert_eq!(case.renewed(10 * S, Renewal::Lost), AfterRenewal::Nothing, "the release overtook it");
    case.claim.renewal_done();
    assert!(!case.claim.is_renewing());
    assert!(matches!(case.duty(10 * S), Duty::None(None)));
}

#[test]
fn what_comes_due_while_a_slow_server_is_waited_for_is_renewed_before() {
    let case = Case::new();
    case.step(NOW);
    case.granted(NOW);
    let duty = |at: Duration, meanwhile| case.claim.duty(&Look { meanwhile, ..case.look(at) });
    assert!(matches!(duty(4 * S, 5 * S), Duty::None(Some(_))));
    assert!(matches!(duty(5 * S, 5 * S), Duty::RenewHold { .. }));
}

#[test]
fn a_hold_is_lost_by_the_clock_even_if_nobody_noticed() {
    let case = Case::new();
    case.step(NOW);
    case.granted(NOW);
    let over = case.start + LEASE;
    assert_eq!(case.claim.hold_count(over), 0);
    assert_eq!(case.claim.loss(over).unwrap().cause, LostCause::NotRenewed);
    assert!(matches!(case.duty(LEASE), Duty::Lose(LostCause::NotRenewed)));
    assert!(matches!(case.claim.join(over), Joined::Expired));
    let loss = case.claim.lose(LostCause::NotRenewed).expect("it is reported");
    let said = "lock `x` was lost by `worker 3` (u:1, token 7): its lease could not be renewed in time";
    assert_eq!(loss.to_string(), said);
    assert!(case.claim.lose(LostCause::Taken).is_none(), "reported once");
    assert!(matches!(case.claim.give_back(case.start), Given::Lost { last: true, .. }));
}

#[test]
fn a_fixed_lease_is_renewed_only_to_its_end() {
    let case = Case::with(Wait::Forever, Terms::Fixed(LEASE));
    case.step(NOW);
    case.queued(NOW);
    case.push(S);
    // What was pushed is the rest of the place: one renewal raises it to the fixed lease, and no more.
    let Duty::RenewHold { lease, .. } = case.duty(4 * S) else { panic!() };
    assert_eq!(lease, LEASE - 4 * S);
    case.claim.renewed(Ok(Renewal::Renewed), case.start + 4 * S, lease, case.start + 4 * S);
    case.claim.renewal_done();
    let Duty::None(Some(at)) = case.duty(20 * S) else { panic!() };
    assert!(at <= case.start + LEASE && at > case.start + 29 * S);
    assert!(matches!(case.duty(at - case.start), Duty::Lose(LostCause::LeaseOver)));
}

#[test]
fn a_request_nobody_waits_on_is_the_watchdogs() {
    let case = Case::new();
    let duty = case.duty(NOW);
    assert!(
        !matches!(duty, Duty::Ask(_)),
        "its maker asks first, so that its place is taken when he goes on"
    );
    case.step(NOW);
    case.queued(NOW);
    case.claim.stop_attending();
    assert!(case.claim.wake(), "nobody attends: the watchdog is told");
    case.claim.attend();
    assert!(!matches!(case.duty(NOW), Duty::Ask(_)), "its caller asks himself");
    case.claim.stop_attending();
    assert!(matches!(case.duty(NOW), Duty::Ask(_)));
}

#[test]
fn decisions_are_told_once_and_losses_too() {
    let case = Case::new();
    let (decider, decided) = crossbeam_channel::bounded(1);
    case.claim.tell_when_decided(decider);
    case.step(NOW);
    case.granted(NOW);
    assert!(decided.try_recv().is_ok() && decided.try_recv().is_err());
    let (mourner, lost) = crossbeam_channel::bounded(1);
    case.claim.tell_when_lost(mourner);
    case.claim.lose(LostCause::Taken).unwrap();
    assert_eq!(lost.try_recv().unwrap().cause, LostCause::Taken);
    assert!(case.claim.lose(LostCause::NotRenewed).is_none() && lost.try_recv().is_err());
    let (late, heard) = crossbeam_channel::bounded(1);
    case.claim.tell_when_lost(late);
    assert_eq!(heard.try_recv().unwrap().cause, LostCause::Taken);
}

#[test]
fn a_failed_heartbeat_does_not_keep_a_waiter_from_asking() {
    let case = Case::new();
    case.step(NOW);
    case.queued(NOW);
    let later = case.start + 2 * S;
    case.claim.renewed(Err(unavailable()), later, LEASE, later);
    assert!(matches!(case.step(2 * S), Step::Sleep(Some(_))));
    case.claim.wake();
    assert!(matches!(case.step(2 * S), Step::Ask));
}

#[test]
fn an_answer_after_everybody_left_is_late() {
    let case = Case::new();
    case.step(NOW);
    assert!(case.claim.fail_for_shutdown());
    assert_eq!(case.queued(NOW), AfterAnswer::Late);
    case.claim.end();
    assert_eq!(case.granted(NOW), AfterAnswer::Late);
}
