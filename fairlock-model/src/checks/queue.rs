//! The checks of one server's queue. Names that begin with `units` are those of locks with several.

use super::{Check, possible, refuted};
use crate::queue::bounds::{Bounds, Calls, Discipline, Faults, Time, Times};
use crate::queue::properties::{
    ENDED, EXCLUSION, FORCE, HEARTBEAT, ORDER, OWN_END, PLACE, PROGRESS, RESIDUE, REST, SETTLED, TURN, USED,
    VALIDITY, WITNESSES,
};
use crate::queue::rules::Rules;

const NONE: Faults = Faults {
    crashes: 0,
    dead_holders: 0,
    time_outs: 0,
    duplicates: 0,
    cuts: 0,
    lost_pushes: 0,
    drifts: 0,
    lags: 0,
    jumps: 0,
    lost_queues: 0,
    forces: 0,
};
const CRASH: Faults = Faults { crashes: 1, ..NONE };
const DEAD_HOLDER: Faults = Faults { dead_holders: 1, ..NONE };
const TIME_OUT: Faults = Faults { time_outs: 1, ..NONE };
const DUPLICATE: Faults = Faults { duplicates: 1, ..NONE };
const CUT: Faults = Faults { cuts: 1, ..NONE };
const LOST_PUSH: Faults = Faults { lost_pushes: 1, ..NONE };
const LAG: Faults = Faults { lags: 1, ..TIME_OUT };
const JUMP: Faults = Faults { jumps: 1, ..NONE };
const LOST_QUEUE: Faults = Faults { lost_queues: 1, ..NONE };
const FORCED: Faults = Faults { forces: 1, ..NONE };
const CRASH_AND_TIME_OUT: Faults = Faults { time_outs: 1, ..CRASH };
const FAULTS: Faults = Faults { cuts: 1, ..CRASH_AND_TIME_OUT };

/// One unit, and two clients that ask once each, with free time.
fn two(faults: Faults) -> Bounds {
    Bounds {
        rules: Rules::Right,
        discipline: Discipline::HandOff,
        takes: &[1; 2],
        capacities: &[1; 3],
        requests: 1,
        times: Times::MIXED,
        calls: Calls::ByTurns,
        give_ups: true,
        late: false,
        faults,
        time: Time::Free,
        alike: false,
        witness: false,
    }
}

/// Capacity 2, and three clients that ask once each, for 1, 1 and 2 units, with free time.
fn units(faults: Faults) -> Bounds {
    Bounds {
        takes: &[1, 1, 2],
        capacities: &[2; 4],
        times: Times::SHORT,
        calls: Calls::Single,
        ..two(faults)
    }
}

/// Prompt time: the lock is idle for at most `idle` ticks.
fn prompt(horizon: u8, idle: u8, bounds: Bounds) -> Bounds {
    Bounds { time: Time::Prompt { horizon, last_begin: 2, longest_hold: 2, idle }, ..bounds }
}

/// The same, of units.
fn prompt_units(idle: u8, faults: Faults) -> Bounds {
    let time = Time::Prompt { horizon: 30, last_begin: 2, longest_hold: 10, idle };
    Bounds { times: Times::FINE, give_ups: false, time, ..units(faults) }
}

/// Without time-outs of waits.
fn stay(bounds: Bounds) -> Bounds {
    Bounds { give_ups: false, ..bounds }
}

fn twice(bounds: Bounds) -> Bounds {
    Bounds { requests: 2, ..bounds }
}

fn both(bounds: Bounds) -> Bounds {
    Bounds { calls: Calls::Both, ..bounds }
}

fn three(faults: Faults) -> Bounds {
    Bounds { takes: &[1; 3], ..two(faults) }
}

/// Time is prompt, and yet a command may be late.
fn prompt_and_late(idle: u8) -> Bounds {
    prompt(20, idle, twice(Bounds { late: true, ..two(TIME_OUT) }))
}

/// An answer is lost, a subscription is cut: a live waiter that does not know its ticket may be absent at its turn.
fn unheard(clients: fn(Faults) -> Bounds) -> Bounds {
    prompt(12, 9, stay(clients(Faults { cuts: 1, ..TIME_OUT })))
}

/// Clients that say these capacities, and ask for these units.
fn saying(capacities: &'static [u8], takes: &'static [u8], faults: Faults) -> Bounds {
    Bounds { capacities, takes, ..units(faults) }
}

fn four(faults: Faults) -> Bounds {
    stay(saying(&[2, 2, 3, 3], &[2, 2, 3, 1], faults))
}

fn of(discipline: Discipline, bounds: Bounds) -> Bounds {
    twice(Bounds { discipline, ..bounds })
}

fn wrong(rules: Rules, bounds: Bounds) -> Bounds {
    Bounds { rules, ..bounds }
}

/// Interchangeable clients: with prompt time that does not pay.
fn alike(bounds: Bounds) -> Bounds {
    Bounds { alike: !bounds.is_prompt(), ..bounds }
}

fn holds(name: &str, bounds: Bounds) -> Check {
    super::holds(name, alike(bounds))
}

fn holds_to(name: &str, bounds: Bounds, depth: usize) -> Check {
    super::holds_to(name, alike(bounds), depth)
}

fn examples(name: &str, bounds: Bounds, which: &[usize]) -> Check {
    let names = which.iter().map(|at| WITNESSES[*at].0).collect();
    possible(name, Bounds { witness: true, ..bounds }, names)
}

/// All checks.
pub fn all() -> Vec<Check> {
    Vec::from_iter(
        [right(), right_units(), wrong_rules(), wrong_late(), wrong_units(), witnesses()]
            .into_iter()
            .flatten(),
    )
}

fn right() -> Vec<Check> {
    let crash_and_cut = Faults { cuts: 1, ..CRASH };
    let time_out_and_cut = Faults { cuts: 1, ..TIME_OUT };
    let most = Faults { lost_pushes: 1, ..FAULTS };
    let crash_and_lost_push = Faults { lost_pushes: 1, ..CRASH };
    let crash_and_drift = Faults { drifts: 1, ..CRASH };
    let forced_and_late = Faults { forces: 1, ..TIME_OUT };
    let by_owner = of(Discipline::ByOwner, two(TIME_OUT));
    vec![
        holds("one unit: a crash, an unanswered call", two(CRASH_AND_TIME_OUT)),
        holds("one unit: a crash, a cut", two(crash_and_cut)),
        holds("one unit: clients that wait on, an unanswered call, a cut", stay(two(time_out_and_cut))),
        holds("one unit: two calls at a time", both(two(NONE))),
        holds_to("one unit: two requests each", stay(twice(two(NONE))), 30),
        holds("one unit: a command executed twice", two(DUPLICATE)),
        holds("one unit: a clock that drifts by the margin", two(crash_and_drift)),
        holds("one unit: a lost queue", two(LOST_QUEUE)),
        holds("one unit: two requests each, prompt", prompt(30, 6, twice(two(most)))),
        holds("one unit: three clients, prompt (quick)", prompt(20, 3, stay(three(crash_and_lost_push)))),
        holds("one unit: an unanswered call, a cut, prompt (quick)", unheard(two)),
        holds("one unit: three clients, an unanswered call, a cut, prompt", unheard(three)),
        holds(
            "one unit: three clients, a lost queue, prompt (quick)",
            prompt(16, 4, stay(three(LOST_QUEUE))),
        ),
        holds_to("one unit: three clients, one fault of each kind", three(FAULTS), 12),
        holds("one unit: clients that wait on, an unanswered call", stay(two(TIME_OUT))),
        holds_to("one unit: an unanswered call, a slow server", two(LAG), 17),
        holds("one unit: an unanswered call, prompt", prompt_and_late(4)),
        holds("one unit: a clock that jumps, prompt", prompt(20, 0, two(JUMP))),
        holds("one unit: a force", two(FORCED)),
        holds_to("one unit: a force, an unanswered call", two(forced_and_late), 16),
        holds_to("places by owner: two requests each, an unanswered call", by_owner, 22),
        holds("plain: two requests each, an unanswered call", of(Discipline::Plain, two(TIME_OUT))),
    ]
}

fn right_units() -> Vec<Check> {
    let reader_and_writer = |faults: Faults| saying(&[2; 2], &[1, 2], faults);
    let lost = |faults: Faults| Faults { lost_pushes: 1, ..faults };
    let give_up = |bounds: Bounds| Bounds { give_ups: true, ..bounds };
    vec![
        holds("units: three clients (quick)", units(NONE)),
        holds("units: a holder dies, a lost push, prompt (quick)", prompt_units(0, lost(DEAD_HOLDER))),
        holds("units: a crash, prompt (quick)", prompt_units(7, CRASH)),
        holds("units: a crash", units(CRASH)),
        holds("units: clients that wait on, an unanswered call", stay(units(TIME_OUT))),
        holds("units: clients that wait on, a cut", stay(units(CUT))),
        holds("units: clients that wait on, a command executed twice", stay(units(DUPLICATE))),
        holds("units: two clients, a crash, an unanswered call", reader_and_writer(CRASH_AND_TIME_OUT)),
        holds("units: two clients, two requests each", twice(reader_and_writer(TIME_OUT))),
        holds("units: clients that wait on, two requests each", twice(stay(units(NONE)))),
        holds("units: capacity 3, for 2, 2 and 1", saying(&[3; 3], &[2, 2, 1], NONE)),
        holds("units: capacity 3, for 1, 1 and 3", saying(&[3; 3], &[1, 1, 3], NONE)),
        holds("units: clients that say capacity 2, 2 and 3", saying(&[2, 2, 3], &[2, 2, 3], NONE)),
        holds_to("units: clients that say capacity 2, 2, 3 and 3, a cut", four(CUT), 16),
        holds_to("units: four clients", saying(&[2; 4], &[1, 1, 2, 1], CRASH_AND_TIME_OUT), 10),
        holds("units: a lost call, a lost push, prompt", give_up(prompt_units(0, lost(TIME_OUT)))),
        holds("units: a crash, a lost push, prompt", prompt_units(7, lost(CRASH))),
        holds("units: a cut, prompt", prompt_units(4, CUT)),
    ]
}

fn wrong_rules() -> Vec<Check> {
    let check = |rules: Rules, bounds: Bounds, property: &'static str, steps: usize| {
        refuted(&format!("{rules:?}"), wrong(rules, bounds), property, steps)
    };
    let dead_head = || prompt(24, 9, stay(three(CRASH)));
    let no_polling = || prompt(24, 9, stay(two(LOST_PUSH)));
    let most = Faults { lost_pushes: 1, ..FAULTS };
    vec![
        check(Rules::ValidFromTheAnswer, two(NONE), VALIDITY, 4),
        check(Rules::ValidFromTheAnswer, two(NONE), EXCLUSION, 8),
        check(Rules::PushOlderThanThePlace, two(NONE), VALIDITY, 14),
        check(Rules::PushOlderThanThePlace, two(NONE), EXCLUSION, 20),
        check(Rules::PushComparedWithTheTicket, two(NONE), VALIDITY, 14),
        check(Rules::PushComparedWithTheTicket, two(NONE), EXCLUSION, 20),
        check(Rules::PutBackAtTheTail, twice(stay(two(NONE))), ORDER, 14),
        check(Rules::HeartbeatRestores, two(NONE), HEARTBEAT, 12),
        check(Rules::HeartbeatRestores, prompt(12, 9, both(two(NONE))), RESIDUE, 18),
        check(Rules::UnheardLeavesAtOnce, unheard(two), PLACE, 8),
        check(Rules::AbsentIsNotServed, stay(two(CUT)), REST, 14),
        check(Rules::LostQueueDoesNotRest, prompt(12, 9, stay(three(LOST_QUEUE))), ORDER, 18),
        check(Rules::PushCountsFromAnyAnswer, two(NONE), VALIDITY, 13),
        check(Rules::PushWithoutDeadline, two(NONE), VALIDITY, 10),
        check(Rules::PushWithoutDeadline, two(NONE), EXCLUSION, 17),
        check(Rules::NoMargin, two(Faults { drifts: 1, ..NONE }), EXCLUSION, 8),
        check(Rules::DeadHeadIsWaitedFor, dead_head(), PROGRESS, 50),
        check(Rules::DeadHeadIsWaitedFor, dead_head(), TURN, 103),
        check(Rules::NewcomerBarges, two(CRASH), ORDER, 9),
        check(Rules::NewcomerBargesAfterManyAbsent, stay(three(CRASH)), ORDER, 16),
        check(Rules::LateRequestTakesOver, twice(two(TIME_OUT)), VALIDITY, 9),
        check(Rules::LateRequestTakesOver, twice(two(TIME_OUT)), EXCLUSION, 14),
        check(Rules::ReleaseOfAnyHold, two(TIME_OUT), VALIDITY, 10),
        check(Rules::PlaceKeptOnTimeOut, prompt(24, 9, two(NONE)), RESIDUE, 6),
        check(Rules::NobodyLooks, no_polling(), PROGRESS, 47),
        check(Rules::NobodyLooks, no_polling(), TURN, 100),
        // Not a rule but a limit: the smallest one that holds.
        refuted("one unit: idle for a tick less", prompt(30, 5, twice(two(most))), PROGRESS, 41),
    ]
}

fn wrong_late() -> Vec<Check> {
    let check = |rules: Rules, bounds: Bounds, property: &'static str, steps: usize| {
        refuted(&format!("late: {rules:?}"), wrong(rules, bounds), property, steps)
    };
    let by_owner = || of(Discipline::ByOwner, two(TIME_OUT));
    vec![
        check(Rules::NoEndOfAnAsk, two(TIME_OUT), RESIDUE, 10),
        check(Rules::NoEndOfAForce, two(FORCED), FORCE, 9),
        check(Rules::EndIsAhead, two(TIME_OUT), RESIDUE, 10),
        check(Rules::EndIsAhead, two(FORCED), FORCE, 9),
        check(Rules::NoWithdrawalAfterTheEnd, two(TIME_OUT), RESIDUE, 6),
        check(Rules::WithdrawalWithoutMargin, two(LAG), RESIDUE, 9),
        check(Rules::EndJudgedByTheAnswer, two(TIME_OUT), RESIDUE, 12),
        check(Rules::AnyReleaseSettles, two(TIME_OUT), RESIDUE, 18),
        check(Rules::NewsOfAnotherGrantIsIgnored, two(NONE), RESIDUE, 30),
        check(Rules::TooLateIsNotRepeated, prompt(12, 9, stay(two(JUMP))), TURN, 16),
        check(Rules::RenewalOfAnyHold, two(Faults { forces: 1, ..TIME_OUT }), FORCE, 10),
        check(Rules::LateRequestTakesOver, of(Discipline::Plain, two(TIME_OUT)), VALIDITY, 9),
        check(Rules::NextRequestBeforeTheWithdrawal, by_owner(), ORDER, 16),
        check(Rules::OwnersPlaceIsTheRequests, by_owner(), ORDER, 20),
        check(Rules::NoEndOfAWithdrawal, by_owner(), ORDER, 22),
        check(Rules::UnansweredWithdrawalIsForgotten, by_owner(), ORDER, 18),
        refuted("idle for a tick less than the end of a late attempt", prompt_and_late(3), PROGRESS, 28),
    ]
}

fn wrong_units() -> Vec<Check> {
    let check = |rules: Rules, bounds: Bounds, property: &'static str, steps: usize| {
        refuted(&format!("units: {rules:?}"), wrong(rules, bounds), property, steps)
    };
    let dead_holder = || prompt_units(0, DEAD_HOLDER);
    vec![
        check(Rules::SmallerPasses, units(NONE), ORDER, 6),
        check(Rules::NewcomerBarges, units(NONE), ORDER, 6),
        check(Rules::CapacityBeforeEnds, units(NONE), SETTLED, 6),
        check(Rules::EndFreesNothing, units(NONE), SETTLED, 6),
        check(Rules::FreedTwice, units(NONE), USED, 9),
        check(Rules::FreedTwice, units(NONE), EXCLUSION, 13),
        check(Rules::RepeatIsGrantedAnew, units(NONE), VALIDITY, 11),
        check(Rules::WithdrawalWithoutHandOn, units(NONE), SETTLED, 9),
        check(
            Rules::WithdrawalWithoutHandOn,
            Bounds { give_ups: true, ..prompt_units(0, NONE) },
            PROGRESS,
            13,
        ),
        check(Rules::OneGrantAScript, units(NONE), SETTLED, 8),
        check(Rules::BlockerIsWaitedFor, prompt_units(7, CRASH), PROGRESS, 47),
        check(Rules::DeafBlockerIsAbsentAtOnce, units(CUT), ORDER, 7),
        check(Rules::FitsByTheLastGrant, saying(&[2, 3, 2], &[1, 2, 1], NONE), EXCLUSION, 9),
        check(Rules::EndedIsRenewed, units(NONE), ENDED, 7),
        check(Rules::RenewalRaisesAll, units(NONE), OWN_END, 8),
        check(Rules::RenewalRaisesAll, dead_holder(), PROGRESS, 24),
        check(Rules::OneEnd, units(NONE), OWN_END, 5),
        check(Rules::OneEnd, dead_holder(), PROGRESS, 21),
        check(Rules::EndsOnTheQueueClock, units(NONE), OWN_END, 4),
        check(Rules::LastEnd, dead_holder(), PROGRESS, 24),
        check(Rules::NoLookAtEnds, dead_holder(), PROGRESS, 15),
        // Not a rule but a limit: the smallest one that holds.
        refuted("units that are free for a tick less", prompt_units(6, CRASH), PROGRESS, 54),
    ]
}

fn witnesses() -> Vec<Check> {
    let other = saying(&[2, 2, 1], &[1, 1, 1], NONE);
    let prompt_three = prompt(24, 9, stay(three(Faults { crashes: 1, ..LOST_PUSH })));
    vec![
        examples("free time", two(NONE), &[0, 3, 4, 5, 7, 9]),
        examples("an unanswered call", two(TIME_OUT), &[6]),
        examples("a cut subscription", two(CUT), &[1, 8]),
        examples("three clients and a cut subscription", stay(three(CUT)), &[18]),
        examples("a lost queue", two(LOST_QUEUE), &[10]),
        examples("prompt time", prompt_three, &[0, 1, 2, 3]),
        examples("units", units(NONE), &[3, 7, 11, 12, 13, 14, 15, 16]),
        examples("units and another kind of lock", other, &[17]),
        examples("units and prompt time", prompt_units(2, LOST_PUSH), &[2]),
    ]
}
