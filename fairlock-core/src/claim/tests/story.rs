//! Stories of one claim: what its callers, the watchdog, the server and the program do with it, and what it says.
//!
//! A story is a list of sentences with semicolons or line ends between them; parentheses are for the reader. Times count from the
//! beginning: `at 5s` is the time of all sentences behind it, and answers are sent and received then. A sentence may end before what
//! the claim says.
//!
//! | sentence | meaning |
//! | --- | --- |
//! | `waits no`, `waits 1s`, `is fixed 2s`, `is capped 70s`, `is task`, `is plain` | the request, before anything else |
//! | `patience 1s keeps cancelled`, `no`, `ever` | of the next callers, if it is not the request's: whether it keeps its place, and was cancelled |
//! | `caller asks`, `sleeps 5s`, `takes 7 1`, `gives-up cancelled Withdraw quietly`, … | the next step of a caller |
//! | `dog asks`, `waits 5s`, `renews-hold 1 30s`, `renews-place 30s`, `loses LeaseOver`, `gives-up`, `tells` | the next step of the watchdog |
//! | `task takes`, `is-busy`, `fails` | the next step of a task |
//! | `answer rank/1/ever/1/1 Nothing`, `got/7`, `busy/1s`, `down`, `denied`, `full` | an answer to an ask, and what follows from it |
//! | `beat rank/0/1 Nothing`, `done`, `got/7`, `lost`, `down` | an answer to a renewal |
//! | `push yes`, `taken yes`, `late-grant yes`, `wake yes` | a grant by message, one that was taken before, one that a withdrawal finds; a hint |
//! | `join Held 2`, `unlock Last`, `lose yes`, `shutdown Withdraw`, `give-up OthersWait`, `attend`, `leave`, `retire`, … | what callers and the client do |
//! | `until 5s`, `due 5s`, `count 1`, `loss Taken`, `ticket 5`, … | what is seen |

use std::time::Instant;

use super::parse::{acquired, renewed, text_of, time_of};
use super::{Case, LEASE, TOKEN, silent_for};
use crate::backend::{BackendError, Wait};
use crate::cancel::Cancel;
use crate::claim::{CallerStep, Failure, Patience, TaskStep, Terms, Unlocked, WatchdogStep};
use crate::{FencingToken, LockKind, LostCause};

/// Tests that are a story or more.
macro_rules! stories {
    ($($(#[$doc:meta])* fn $name:ident() { $($story:literal)+ })*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            $($crate::claim::tests::Case::new().tell($story);)+
        }
    )*};
}
pub(super) use stories;

impl Case {
    #[track_caller]
    pub(super) fn tell(mut self, story: &str) -> Case {
        for sentence in story.split([';', '\n']) {
            let sentence = sentence.split('(').next().unwrap_or_default();
            let words: Vec<&str> = sentence.split_whitespace().collect();
            if words.is_empty() {
                continue;
            }
            let said = self.run(&words);
            let mut others = said.split_whitespace();
            let is_so = words.iter().all(|word| others.next() == Some(word));
            assert!(is_so, "`{}`, but `{said}`, in: {story}", words.join(" "));
        }
        self
    }

    fn run(&mut self, words: &[&str]) -> String {
        let (now, claim) = (self.start + self.at, &mut self.claim);
        let said = |word: &str| format!("{} {word}", words[0]);
        let yes = |is: bool| said(if is { "yes" } else { "no" });
        let time = |at: Instant| text_of(at - self.start);
        let moment = |at: Option<Instant>| said(&at.map_or_else(|| "none".to_owned(), time));
        match *words {
            ["at", time] => self.at = time_of(time),
            ["waits", "no"] => claim.wait = Wait::No,
            ["waits", time] => claim.wait = Wait::UpTo(time_of(time)),
            ["patience", wait, ref more @ ..] => {
                let wait = match wait {
                    "ever" => Wait::Forever,
                    "no" => Wait::No,
                    time => Wait::UpTo(time_of(time)),
                };
                let cancel = more.contains(&"cancelled").then(Cancel::new);
                cancel.iter().for_each(Cancel::cancel);
                let keeps_place = more.contains(&"keeps");
                self.patience = Some(Patience { cancel, keeps_place, ..self.patience(wait) });
            }
            ["is", "fixed", time] => claim.terms = Terms::Fixed(time_of(time)),
            ["is", "capped", time] => claim.terms = Terms::Capped { lease: LEASE, limit: time_of(time) },
            ["is", "plain"] => claim.lock.kind = LockKind::Plain,
            ["is", "task"] => self.become_task(),
            ["meanwhile", time] => self.meanwhile = time_of(time),
            ["pauses", "asks", time] => self.pauses.asks = Some(self.start + time_of(time)),
            ["pauses", "renewals", time] => self.pauses.renewals = Some(self.start + time_of(time)),
            ["attend"] => claim.attend(),
            ["retire"] => claim.retire(),
            ["renewal-over"] => claim.renewal_done(),
            ["renew-at-once"] => claim.renew_at_once(now),
            ["stop"] => _ = claim.config.stop.stop(),
            ["close"] => claim.config.stop.close(),
            ["leak"] => claim.leak(),
            ["caller", ..] => return said(&self.caller()),
            ["dog", ..] => return said(&self.dog()),
            ["task", ..] => return said(&self.task()),
            ["answer", answer, ..] => {
                return said(&format!("{answer} {}", plain(&claim.answered(acquired(answer), now, now))));
            }
            ["beat", answer, ..] => {
                let after = claim.renewed(renewed(answer), now, LEASE, now);
                return said(&format!("{answer} {}", plain(&after)));
            }
            ["push", token, "yes" | "no"] => {
                let token = FencingToken::new(token.parse().unwrap());
                return said(&format!("{token} {}", if claim.pushed(token, now) { "yes" } else { "no" }));
            }
            ["push", ..] => return yes(claim.pushed(TOKEN, now)),
            ["taken", ..] => return yes(claim.taken_early(TOKEN)),
            ["late-grant", ..] => return yes(claim.granted_while_leaving(TOKEN, now, LEASE, now)),
            ["decline", ..] => return yes(claim.decline_grant()),
            ["wake", ..] => return yes(claim.wake()),
            ["begin-to-ask", ..] => return yes(claim.begin_to_ask()),
            ["recheck", at, ..] => {
                let is_taken = claim.recheck_by(self.start + time_of(at));
                return said(&format!("{at} {}", if is_taken { "yes" } else { "no" }));
            }
            ["join", ..] => return said(&plain(&claim.join(claim.lock.kind, 1, now))),
            ["unlock", ..] => return said(&unlocked(claim.unlock(now))),
            ["lose", ..] => return yes(claim.lose(LostCause::Taken).is_some()),
            ["shutdown", ..] => {
                claim.config.stop.close();
                return said(&plain(&claim.fail_for_shutdown()));
            }
            ["give-up", ..] => return said(&plain(&claim.give_up_request().map(|give_up| give_up.after))),
            ["leave", ..] => return moment(claim.stop_attending()),
            ["until", ..] => return moment(claim.valid_until()),
            ["due", ..] => return moment(claim.due_at()),
            ["take-recheck", ..] => return moment(claim.take_recheck()),
            ["count", _] => return said(&claim.hold_count(now).to_string()),
            ["token", _] => return said(&plain(&claim.token().map(FencingToken::get))),
            ["leaving-token", _] => return said(&plain(&claim.leaving_token().map(FencingToken::get))),
            ["renewal", ..] => {
                let renewal =
                    claim.renewal(now).map(|(_, count, lease)| format!("{count} {}", text_of(lease)));
                return said(&renewal.unwrap_or_else(|| "None".to_owned()));
            }
            ["loss", _] => return said(&plain(&claim.loss(now).map(|lost| lost.cause))),
            ["rank", ..] => return said(&plain(&claim.rank())),
            ["ticket", _] => return said(&claim.place().ticket.to_string()),
            ["silent", ..] => {
                let silent = silent_for(claim, now).map(text_of);
                return said(&silent.unwrap_or_else(|| "None".to_owned()));
            }
            ["leaves", ..] => {
                let leaving = claim.leaving();
                let error = |error: Option<BackendError>| {
                    error.map_or_else(String::new, |error| error.message().to_owned())
                };
                return said(
                    &leaving.map_or_else(
                        || "no".to_owned(),
                        |(failed, last)| format!("{failed} {}", error(last)),
                    ),
                );
            }
            ["concerned", since, ..] => {
                let moment = (since != "never").then(|| self.start + time_of(since));
                return said(&format!("{since} {}", plain(&claim.is_concerned(moment))));
            }
            ["asking", _] => return yes(claim.is_asking()),
            ["renewing", _] => return yes(claim.is_renewing()),
            ["may-make-a-place", _] => return yes(claim.may_make_a_place()),
            ["waiting", _] => return yes(claim.is_waiting()),
            ["heard", _] => return yes(claim.was_heard()),
            ["refused", _] => return yes(claim.was_refused()),
            ["last-ask-failed", _] => return yes(claim.last_ask_failed()),
            ["open", _] => return yes(claim.is_open()),
            ["unlocked", _] => return yes(claim.is_unlocked()),
            ["leaked", _] => return said(&claim.leaked().to_string()),
            ["unleak", ..] => return said(&plain(&claim.unleak())),
            ["lost-leak", _] => return yes(claim.has_lost_leak()),
            _ => panic!("it is no sentence: {words:?}"),
        }
        words.join(" ")
    }

    fn become_task(&mut self) {
        let until = if let Wait::UpTo(time) = self.claim.wait { Some(self.start + time) } else { None };
        let claim = std::mem::replace(&mut self.claim, Case::new().claim);
        self.claim = claim.of_task(until);
    }

    fn caller(&self) -> String {
        match self.step(self.at) {
            CallerStep::Take { token, count } => format!("takes {token} {count}"),
            CallerStep::Ask => "asks".to_owned(),
            CallerStep::Sleep(None) => "sleeps ever".to_owned(),
            CallerStep::Sleep(Some(until)) => format!("sleeps {}", text_of(until - self.start)),
            CallerStep::NotYet => "not-yet".to_owned(),
            CallerStep::TooLate => "too-late".to_owned(),
            CallerStep::NotGranted => "is-busy".to_owned(),
            CallerStep::Failed(failure) => failed(&failure),
            CallerStep::GiveUp(step) => {
                let cancelled = if step.cancelled { "cancelled " } else { "" };
                let error = if step.error.is_some() { "with-error" } else { "quietly" };
                format!("gives-up {cancelled}{:?} {error}", step.after)
            }
        }
    }

    fn dog(&self) -> String {
        match self.watchdog_step(self.at) {
            WatchdogStep::Wait(None) => "waits ever".to_owned(),
            WatchdogStep::Wait(Some(until)) => format!("waits {}", text_of(until - self.start)),
            WatchdogStep::Lose(cause) => format!("loses {cause:?}"),
            WatchdogStep::Ask(_) => "asks".to_owned(),
            WatchdogStep::GivenUp => "gives-up".to_owned(),
            WatchdogStep::Tell => "tells".to_owned(),
            WatchdogStep::RenewPlace { lease, .. } => format!("renews-place {}", text_of(lease)),
            WatchdogStep::RenewHold { token, count, lease } => {
                assert_eq!(token, TOKEN);
                format!("renews-hold {count} {}", text_of(lease))
            }
        }
    }

    fn task(&self) -> String {
        match self.claim.task_step(self.start + self.at) {
            TaskStep::Take { token, .. } => format!("takes {token}"),
            TaskStep::Failed(failure) => failed(&failure),
            TaskStep::NotGranted => "is-busy".to_owned(),
            TaskStep::TooLate => "too-late".to_owned(),
            TaskStep::Pending => "pending".to_owned(),
        }
    }
}

fn failed(failure: &Failure) -> String {
    match failure {
        Failure::Backend(_) => "fails".to_owned(),
        Failure::Shutdown => "is-shut-down".to_owned(),
    }
}

fn unlocked(unlocked: Unlocked) -> String {
    match unlocked {
        Unlocked::StillHeld { count, .. } => format!("StillHeld {count}"),
        Unlocked::Last { token, held_for, is_asking } => {
            assert!(token == TOKEN && !is_asking);
            format!("Last {}", text_of(held_for))
        }
        Unlocked::Lost { last, .. } => format!("Lost {}", if last { "last" } else { "one" }),
        other => format!("{other:?}"),
    }
}

/// Its debug form, in words.
fn plain(said: &impl std::fmt::Debug) -> String {
    let text = format!("{said:?}").replace("Some(", "").replace("count:", "");
    text.replace(['(', ')', '{', '}', ','], " ").replace("token: FencingToken 7", "")
}
