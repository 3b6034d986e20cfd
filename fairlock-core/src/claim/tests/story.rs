//! Stories of one claim: what its callers, the watchdog, the server and the program do with it, and what it says.
//!
//! In `claim().caller().asks().at(S).answer(got(7)).is(AfterAnswer::Withdraw)` a caller looks what to do next, which is to ask, and the
//! answer is sent and received at the time of one second. Words that let something happen keep what the claim said: the next word may
//! check that, as `is`, `yes`, `no` and `none` do. Times count from the beginning.
#![allow(clippy::wrong_self_convention, reason = "a story goes on with the same case")]

use std::fmt::Debug;
use std::time::{Duration, Instant};

use super::{Case, LEASE, TOKEN, silent_for};
use crate::backend::Wait;
use crate::claim::{
    AfterAnswer, AfterGivingUp, CallerStep, Failure, GrantedBy, Patience, TaskStep, Terms, Unlocked,
    WatchdogStep,
};
use crate::tests::scene::{Says, got, rank};
use crate::time::CancelToken;
use crate::{FencingToken, LockKind, LostCause};

pub(super) fn claim() -> Case {
    Case::new()
}

/// Its caller has asked, and it stands behind one other.
#[track_caller]
pub(super) fn in_queue() -> Case {
    claim().caller().asks().answer(rank(1)).is(AfterAnswer::Nothing)
}

/// Its caller has asked, and has the lock.
#[track_caller]
pub(super) fn held() -> Case {
    claim().caller().asks().answer(got(7)).is(AfterAnswer::Granted(GrantedBy::FirstAsk))
}

/// Words that do something, or look, and keep what the claim says.
macro_rules! steps {
    ($($(#[$doc:meta])* $word:ident($case:ident $(, $with:ident: $of:ty)*) $does:block)+) => {$(
        $(#[$doc])*
        #[track_caller]
        pub(super) fn $word(mut $case $(, $with: $of)*) -> Case {
            let said = $does;
            $case.said = format!("{said:?}");
            $case
        }
    )+};
}

/// What was said begins so.
macro_rules! said {
    ($($(#[$doc:meta])* $word:ident($($with:ident: $of:ty),*) $text:literal)+) => {$(
        $(#[$doc])*
        #[track_caller]
        pub(super) fn $word(self $(, $with: $of)*) -> Case {
            self.begins(&format!($text))
        }
    )+};
}

/// The request, before anything else, and the next callers.
impl Case {
    steps! {
        tries(self) { self.claim.wait = Wait::No }
        tries_for(self, time: Duration) { self.claim.wait = Wait::UpTo(time) }
        fixed(self, lease: Duration) { self.claim.terms = Terms::Fixed(lease) }
        capped(self, limit: Duration) { self.claim.terms = Terms::Capped { lease: LEASE, limit } }
        plain(self) { self.claim.lock.kind = LockKind::Plain }
        as_task(self) {
            let until = if let Wait::UpTo(time) = self.claim.wait { Some(self.start + time) } else { None };
            let claim = std::mem::replace(&mut self.claim, Case::new().claim);
            self.claim = claim.of_task(until);
        }
        /// The next callers wait so, which is not as the request does.
        patience(self, wait: Wait) { self.patience = Some(self.patience_of(wait)) }
        /// They were cancelled.
        cancelled(self) {
            let cancel = CancelToken::new();
            cancel.cancel();
            self.patience = Some(Patience { cancel: Some(cancel), ..self.patience.take().unwrap() });
        }
        /// They leave the request its place.
        keeping_place(self) {
            self.patience = Some(Patience { keeps_place: true, ..self.patience.take().unwrap() });
        }
    }
}

/// What happens.
impl Case {
    fn now(&self) -> Instant {
        self.start + self.at
    }

    fn moment(&self, at: Option<Instant>) -> Option<Duration> {
        at.map(|at| at - self.start)
    }

    steps! {
        at(self, time: Duration) { self.at = time }
        /// How long a round of the watchdog is thought to take.
        meanwhile(self, time: Duration) { self.meanwhile = time }
        pauses_asks(self, time: Duration) { self.pauses.asks = Some(self.start + time) }
        pauses_renewals(self, time: Duration) { self.pauses.renewals = Some(self.start + time) }
        answer(self, says: Says) { self.claim.answered(says.answer(), self.now(), self.now()) }
        /// The answer to a renewal.
        beat(self, says: Says) { self.claim.renewed(says.answer(), self.now(), LEASE, self.now()) }
        renewal_over(self) { self.claim.renewal_done() }
        renew_at_once(self) { self.claim.renew_at_once(self.now()) }
        /// A message grants the lock.
        push(self) { self.claim.pushed(TOKEN, self.now()) }
        push_with(self, token: u64) { self.claim.pushed(FencingToken::new(token), self.now()) }
        /// A message says that the hold was taken before it was heard of.
        taken(self) { self.claim.taken_early(TOKEN) }
        /// A withdrawal finds a grant.
        late_grant(self) { self.claim.granted_while_leaving(TOKEN, self.now(), LEASE, self.now()) }
        decline(self) { self.claim.decline_grant() }
        wake(self) { self.claim.wake() }
        begin_to_ask(self) { self.claim.begin_to_ask() }
        recheck(self, at: Duration) { self.claim.recheck_by(self.start + at) }
        take_recheck(self) { self.moment(self.claim.take_recheck()) }
        attend(self) { self.claim.attend() }
        leave(self) { self.moment(self.claim.stop_attending()) }
        give_up(self) { self.claim.give_up_request().map(|give_up| give_up.after) }
        join(self) { self.claim.join(self.claim.lock.kind, 1, self.now()) }
        lose(self) { self.claim.lose(LostCause::Taken).is_some() }
        leak(self) { self.claim.leak() }
        unleak(self) { self.claim.unleak() }
        retire(self) { self.claim.retire() }
        stop(self) { _ = self.claim.config.stop.stop() }
        close(self) { self.claim.config.stop.close() }
        shutdown(self) {
            self.claim.config.stop.close();
            self.claim.fail_for_shutdown()
        }
    }

    /// The last word had this answer.
    #[track_caller]
    pub(super) fn is(self, expected: impl Debug) -> Case {
        assert_eq!(self.said, format!("{expected:?}"), "at {:?}", self.at);
        self
    }

    #[track_caller]
    pub(super) fn yes(self) -> Case {
        self.is(true)
    }

    #[track_caller]
    pub(super) fn no(self) -> Case {
        self.is(false)
    }

    #[track_caller]
    pub(super) fn none(self) -> Case {
        self.is(None::<()>)
    }
}

/// What is seen.
impl Case {
    steps! {
        until(self, time: Duration) { assert_eq!(self.moment(self.claim.valid_until()), Some(time), "until") }
        due(self, time: Duration) { assert_eq!(self.moment(self.claim.due_at()), Some(time), "when it is due") }
        count(self, count: u32) { assert_eq!(self.claim.hold_count(self.now()), count, "the hold count") }
        token(self) { self.claim.token() }
        leaving_token(self) { self.claim.leaving_token() }
        renewal(self) { self.claim.renewal(self.now()).map(|(_, count, lease)| (count, lease)) }
        loss(self, cause: LostCause) {
            assert_eq!(self.claim.loss(self.now()).map(|lost| lost.cause), Some(cause), "the loss");
        }
        rank(self) { self.claim.rank() }
        ticket(self, ticket: u64) { assert_eq!(self.claim.place().ticket, ticket, "the ticket") }
        silent(self, time: Duration) { assert_eq!(silent_for(&self.claim, self.now()), Some(time), "silence") }
        /// How many attempts to leave have failed, and why the last one did.
        leaving(self) {
            let leaving = self.claim.leaving();
            leaving.map(|(failed, last)| (failed, last.map(|error| error.message().to_owned())))
        }
        concerned(self, since: Option<Duration>) { self.claim.is_concerned(since.map(|at| self.start + at)) }
        is_asking(self) { self.claim.is_asking() }
        is_renewing(self) { self.claim.is_renewing() }
        may_make_a_place(self) { self.claim.may_make_a_place() }
        was_refused(self) { self.claim.was_refused() }
        last_ask_failed(self) { self.claim.last_ask_failed() }
        is_open(self) { self.claim.is_open() }
        is_unlocked(self) { self.claim.is_unlocked() }
        leaked(self, count: u32) { assert_eq!(self.claim.leaked(), count, "leaked holds") }
        has_lost_leak(self) { self.claim.has_lost_leak() }
    }
}

/// The next step of a caller, of the watchdog and of a task, and the end of an unlock.
impl Case {
    fn says(mut self, said: String) -> Case {
        self.said = said;
        self
    }

    pub(super) fn caller(self) -> Case {
        let said = match self.step(self.at) {
            CallerStep::Take { token } => format!("gets {token}"),
            CallerStep::Ask => "asks".to_owned(),
            CallerStep::Sleep(until) => format!("waits {:?}", self.moment(until)),
            CallerStep::Failed(failure) => failed(&failure),
            CallerStep::NotGranted => "is busy".to_owned(),
            CallerStep::GiveUp(step) => {
                let verb = if step.cancelled { "is cancelled" } else { "gives up" };
                let error = if step.error.is_some() { " with an error" } else { "" };
                format!("{verb} {:?}{error}", step.after)
            }
            other => format!("{other:?}"),
        };
        self.says(said)
    }

    pub(super) fn dog(self) -> Case {
        let said = match self.watchdog_step(self.at) {
            WatchdogStep::Wait(until) => format!("waits {:?}", self.moment(until)),
            WatchdogStep::Lose(cause) => format!("loses {cause:?}"),
            WatchdogStep::Ask(_) => "asks".to_owned(),
            WatchdogStep::GivenUp => "gives up".to_owned(),
            WatchdogStep::Tell => "tells".to_owned(),
            WatchdogStep::RenewPlace { lease, .. } => format!("renews a place {lease:?}"),
            WatchdogStep::RenewHold { token, count, lease } => {
                assert_eq!(token, TOKEN);
                format!("renews a hold {count} {lease:?}")
            }
        };
        self.says(said)
    }

    pub(super) fn task(self) -> Case {
        let said = match self.claim.task_step(self.now()) {
            TaskStep::Take { token, .. } => format!("gets {token}"),
            TaskStep::Failed(failure) => failed(&failure),
            TaskStep::NotGranted => "is busy".to_owned(),
            other => format!("{other:?}"),
        };
        self.says(said)
    }

    pub(super) fn unlock(self) -> Case {
        let said = match self.claim.unlock(self.now()) {
            Unlocked::StillHeld => format!("still held {}", self.claim.hold_count(self.now())),
            Unlocked::Last { token, held_for, is_asking } => {
                assert!(token == TOKEN && !is_asking);
                format!("last {held_for:?}")
            }
            Unlocked::Lost { last, .. } => format!("lost {}", if last { "last" } else { "one" }),
            other => format!("{other:?}"),
        };
        self.says(said)
    }

    said! {
        asks() "asks"
        gets(token: u64) "gets {token}"
        /// Or sleeps.
        waits() "waits"
        waits_until(time: Duration) "waits Some({time:?})"
        waits_for_ever() "waits None"
        is_busy() "is busy"
        is_not_yet() "NotYet"
        fails() "fails"
        is_shut_down() "is shut down"
        gives_up() "gives up"
        gives_up_with(after: AfterGivingUp) "gives up {after:?}"
        is_cancelled() "is cancelled"
        is_cancelled_with(after: AfterGivingUp) "is cancelled {after:?}"
        loses(cause: LostCause) "loses {cause:?}"
        tells() "tells"
        renews_place() "renews a place"
        renews_place_for(lease: Duration) "renews a place {lease:?}"
        renews_hold() "renews a hold"
        renews_hold_for(count: u32, lease: Duration) "renews a hold {count} {lease:?}"
        still_held(count: u32) "still held {count}"
        last() "last"
        last_after(time: Duration) "last {time:?}"
        lost_last() "lost last"
        lost_one() "lost one"
        not_held() "NotHeld"
    }

    /// The call had no error to tell.
    #[track_caller]
    pub(super) fn quietly(self) -> Case {
        assert!(!self.said.ends_with(" with an error"), "{}", self.said);
        self
    }

    #[track_caller]
    fn begins(self, expected: &str) -> Case {
        let rest = self.said.strip_prefix(expected);
        let is_so = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
        assert!(is_so, "expected is {expected:?} at {:?}, but seen {:?}", self.at, self.said);
        self
    }
}

fn failed(failure: &Failure) -> String {
    match failure {
        Failure::Backend(_) => "fails".to_owned(),
        Failure::Shutdown => "is shut down".to_owned(),
    }
}
