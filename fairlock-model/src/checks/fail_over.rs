//! The checks of fail-overs.

use stateright::{Model, Path};

use super::{Check, check, possible, refuted};
use crate::fail_over::bounds::{Bounds, Faults, Times};
use crate::fail_over::properties::{EXCLUSION, FORCE, KEPT, ORDER, RELEASED, RESIDUE, WITNESSES};
use crate::fail_over::rules::Rules;
use crate::fail_over::steps::Step;

const NONE: Faults = Faults::NONE;
const PROMOTION: Faults = Faults { promotions: 1, ..NONE };
/// A promotion, and the sentinels name the new master. It may be a copy of any age, or by hand.
const FAIL_OVER: Faults = Faults { namings: 1, ..PROMOTION };
const NAMED_AGAIN: Faults = Faults { namings: 2, ..PROMOTION };
const RESTART: Faults = Faults { restarts: 1, ..NONE };
const OLD_FILE: Faults = Faults { old_files: 1, ..NONE };

/// Two clients that ask once each, of a server that is dead when it is replaced.
fn queue(faults: Faults) -> Bounds {
    Bounds {
        rules: Rules::Right,
        quorum: false,
        times: Times::life(2),
        capacity: 1,
        takes: [1; 3],
        servers: 2,
        clients: 2,
        requests: 1,
        waits: true,
        keeps: true,
        faults,
        alike: false,
        witness: false,
    }
}

/// The same with the quorum rule. With a trust of 2 a lease would be one tick: too coarse to refute a short lease at the server.
fn quorum_queue(faults: Faults) -> Bounds {
    Bounds { quorum: true, times: Times::quorum(3), keeps: faults.namings < 2, ..queue(faults) }
}

/// Without a queue: a request takes a free lock, or gets nothing.
fn life(faults: Faults) -> Bounds {
    Bounds { waits: false, ..queue(faults) }
}

fn quorum(faults: Faults) -> Bounds {
    Bounds { waits: false, ..quorum_queue(faults) }
}

fn late(calls: u8, faults: Faults) -> Faults {
    Faults { time_outs: calls, ..faults }
}

fn forced(faults: Faults) -> Faults {
    Faults { forces: 1, ..faults }
}

fn flushed(faults: Faults) -> Faults {
    Faults { flushes: 1, ..faults }
}

fn drifting(faults: Faults) -> Faults {
    Faults { drifts: 1, ..faults }
}

fn twice(bounds: Bounds) -> Bounds {
    Bounds { requests: 2, ..bounds }
}

fn wrong(rules: Rules, bounds: Bounds) -> Bounds {
    Bounds { rules, ..bounds }
}

fn extra(extra: u8, bounds: Bounds) -> Bounds {
    Bounds { times: Times { extra, ..bounds.times }, ..bounds }
}

fn grace(grace: u8, bounds: Bounds) -> Bounds {
    Bounds { times: Times { grace, ..bounds.times }, ..bounds }
}

/// A lock of two units, and a request of three clients each.
fn of_two(takes: [u8; 3], bounds: Bounds) -> Bounds {
    Bounds { capacity: 2, takes, clients: 3, servers: 1, ..bounds }
}

fn parts(bounds: Bounds) -> Bounds {
    of_two([1; 3], bounds)
}

/// Two clients: the first takes both units, the second takes a part.
fn all_and_part(bounds: Bounds) -> Bounds {
    Bounds { clients: 2, servers: 2, ..of_two([2, 1, 1], bounds) }
}

fn alike(bounds: Bounds) -> Bounds {
    Bounds { alike: true, ..bounds }
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
        [right(), right_parts(), wrong_rules(), wrong_times(), wrong_parts(), witnesses()]
            .into_iter()
            .flatten(),
    )
}

fn right() -> Vec<Check> {
    let restarted = Faults { promotions: 1, ..RESTART };
    let demoted = Faults { promotions: 2, demotions: 1, ..NONE };
    let demoted_and_old = Faults { old_files: 1, ..demoted };
    let demoted_and_named = Faults { demotions: 1, restarts: 1, ..FAIL_OVER };
    let three = Faults { namings: 2, ..demoted };
    vec![
        holds("life: promotion, restart, FLUSHALL, a late call (quick)", life(late(1, flushed(restarted)))),
        holds("life: a queue, promotion, a late call (quick)", queue(late(1, PROMOTION))),
        holds("quorum: fail-over, FLUSHALL (quick)", quorum(flushed(FAIL_OVER))),
        holds("quorum: a queue, fail-over (quick)", quorum_queue(FAIL_OVER)),
        holds("life: demotion, an old file, a late call", life(late(1, demoted_and_old))),
        holds("life: two requests each, restart, two late calls", twice(life(late(2, RESTART)))),
        holds("quorum: fail-over, two late calls", quorum(late(2, FAIL_OVER))),
        holds("quorum: two requests each, fail-over, a late call", twice(quorum(late(1, FAIL_OVER)))),
        holds("quorum: the old master named again, FLUSHALL", quorum(flushed(NAMED_AGAIN))),
        holds("quorum: demotion, restart, FLUSHALL", quorum(flushed(demoted_and_named))),
        holds("quorum: fail-over, an old file", quorum(Faults { old_files: 1, ..FAIL_OVER })),
        holds("quorum: a queue, fail-over, FLUSHALL", quorum_queue(flushed(FAIL_OVER))),
        holds_to("quorum: a queue, fail-over, a late call", quorum_queue(late(1, FAIL_OVER)), 16),
        holds_to("quorum: three servers, demotion", Bounds { servers: 3, ..quorum(three) }, 14),
        holds("life: a force, promotion, restart (quick)", life(forced(restarted))),
        holds("life: a queue, a force, promotion", queue(forced(PROMOTION))),
        holds("quorum: a force, fail-over", quorum(forced(FAIL_OVER))),
        holds("life: a force, a late call, restart", life(late(1, forced(RESTART)))),
        holds_to("quorum: a queue, a force, fail-over", quorum_queue(forced(FAIL_OVER)), 16),
        // What a client learns under an old epoch ends before the grace of the new one. It is refused all the same.
        holds("an old epoch that is served", wrong(Rules::OldEpochIsServed, quorum(NAMED_AGAIN))),
    ]
}

fn right_parts() -> Vec<Check> {
    let restarted = Faults { promotions: 1, restarts: 1, ..OLD_FILE };
    let finer = Bounds { times: Times::life(3), ..life(OLD_FILE) };
    let two_servers = Bounds { servers: 2, ..parts(quorum(FAIL_OVER)) };
    vec![
        // Three parts of two units were held, of which an old file has two: one is released, and stands beside a live one.
        holds("life: 1, 1, 1 of 2, an old file (quick)", parts(life(OLD_FILE))),
        holds("life: 2, 1 of 2, restart, a late call (quick)", all_and_part(life(late(1, RESTART)))),
        holds("life: 2, 1 of 2, all but FLUSHALL", all_and_part(life(late(1, restarted)))),
        holds("life: 1, 1, 1 of 2, restart, a late call", parts(life(late(1, RESTART)))),
        holds_to("life: 1, 1, 1 of 2, an old file, a late call", parts(life(late(1, OLD_FILE))), 16),
        holds("life: 1, 1, 1 of 2, an old file, a trust of 3", parts(finer)),
        holds("life: 1, 1, 2 of 2, an old file", of_two([1, 1, 2], life(OLD_FILE))),
        holds("life: 1, 1, 2 of 2, restart, a force", of_two([1, 1, 2], life(forced(RESTART)))),
        holds("life: 2, 1 of 2, two requests each", twice(all_and_part(life(late(2, RESTART))))),
        holds("quorum: 2, 1 of 2, fail-over, a late call", all_and_part(quorum(late(1, FAIL_OVER)))),
        holds_to("quorum: 1, 1, 1 of 2, fail-over", two_servers, 14),
        holds_to("life: a queue, 1, 1, 1 of 2, an old file", parts(queue(OLD_FILE)), 14),
    ]
}

fn wrong_rules() -> Vec<Check> {
    let check = |rules: Rules, bounds: Bounds, property: &'static str, steps: usize| {
        let rule = if bounds.quorum { "quorum" } else { "life" };
        refuted(&format!("{rule}: {rules:?}"), wrong(rules, bounds), property, steps)
    };
    let demoted = Faults { promotions: 2, demotions: 1, ..NONE };
    vec![
        check(Rules::NoLife, life(RESTART), EXCLUSION, 5),
        check(Rules::NoLife, life(flushed(NONE)), EXCLUSION, 5),
        check(Rules::NoLife, life(PROMOTION), EXCLUSION, 5),
        check(Rules::NoLife, quorum(FAIL_OVER), EXCLUSION, 6),
        check(Rules::LifeNotInTheData, life(flushed(NONE)), EXCLUSION, 5),
        check(Rules::LifeIsTheProcess, quorum(demoted), EXCLUSION, 7),
        check(Rules::NoEpochInTheKey, quorum(NAMED_AGAIN), EXCLUSION, 14),
        check(Rules::OldEpochIsNamedAgain, quorum(NAMED_AGAIN), EXCLUSION, 14),
        check(Rules::FreeIsGrantedInTheGrace, life(RESTART), EXCLUSION, 5),
        check(Rules::HandedOnInTheGrace, twice(queue(late(1, PROMOTION))), EXCLUSION, 13),
        check(Rules::FoundInTheGrace, quorum(NAMED_AGAIN), EXCLUSION, 16),
        check(Rules::ValidFromTheAnswer, quorum(FAIL_OVER), EXCLUSION, 13),
        check(Rules::BeliefRevives, life(RESTART), EXCLUSION, 9),
        check(Rules::RepeatProlongs, quorum(late(1, FAIL_OVER)), EXCLUSION, 12),
        check(Rules::RenewalsWithoutProof, quorum(FAIL_OVER), EXCLUSION, 19),
        check(Rules::NoQuorum, life(PROMOTION), EXCLUSION, 9),
        check(Rules::PushFromAnyServer, quorum_queue(FAIL_OVER), EXCLUSION, 22),
        check(Rules::HandedOnForThePlace, quorum_queue(FAIL_OVER), EXCLUSION, 12),
        check(Rules::ReclaimsInAnyOrder, twice(life(late(2, RESTART))), EXCLUSION, 19),
        check(Rules::EndedIsForgotten, life(late(1, RESTART)), RELEASED, 8),
        check(Rules::EndedBesideAnotherHold, life(late(1, PROMOTION)), RELEASED, 13),
        check(Rules::ReclaimsAfterTheGrace, life(late(1, NONE)), RELEASED, 7),
        check(Rules::PutBackAtTheTail, queue(RESTART), ORDER, 17),
        check(Rules::NoEndOfAnAsk, life(late(1, RESTART)), RESIDUE, 10),
        check(Rules::NoEndOfAReclaim, life(late(1, RESTART)), RESIDUE, 11),
        check(Rules::NoEndOfAForce, life(forced(RESTART)), FORCE, 7),
        check(Rules::ForceEndsWhatItFinds, life(forced(RESTART)), FORCE, 7),
    ]
}

fn wrong_times() -> Vec<Check> {
    let flushed = flushed(FAIL_OVER);
    let check = |name: &str, bounds: Bounds, steps: usize| refuted(name, bounds, EXCLUSION, steps);
    vec![
        check("life: a grace below the trust", grace(1, life(RESTART)), 8),
        check("quorum: a grace of a lease", grace(2, quorum(flushed)), 10),
        check("quorum: a grace of the trust", grace(3, quorum(flushed)), 16),
        check("a server's lease of a lease", extra(0, quorum(FAIL_OVER)), 10),
        check("a server's lease of a lease and a tick", extra(1, quorum(FAIL_OVER)), 13),
        // Steps come between ticks, so that one tick less than the rule says is enough. A clock that gains a tick takes it.
        holds("the least lease of the server", extra(2, quorum(FAIL_OVER))),
        check("the least lease, a clock that gains", extra(2, quorum(drifting(FAIL_OVER))), 14),
        holds("a server's lease with a margin, a clock that gains", extra(3, quorum(drifting(FAIL_OVER)))),
        holds("the least grace", grace(4, quorum(flushed))),
        check("the least grace, a clock that gains", grace(4, quorum(drifting(flushed))), 17),
        holds("a grace with a margin, a clock that gains", grace(5, quorum(drifting(flushed)))),
        check("life: a grace without a margin", extra(1, life(drifting(RESTART))), 9),
        holds("life: a grace with a margin", grace(3, extra(1, life(drifting(RESTART))))),
    ]
}

fn wrong_parts() -> Vec<Check> {
    let check = |rules: Rules, bounds: Bounds, property: &'static str, steps: usize| {
        refuted(&format!("parts: {rules:?}"), wrong(rules, bounds), property, steps)
    };
    vec![
        check(Rules::ReclaimsByToken, parts(life(OLD_FILE)), KEPT, 14),
        check(Rules::HeardGivesWay, parts(life(OLD_FILE)), KEPT, 20),
        check(Rules::RenewalsAreNotHeard, parts(life(OLD_FILE)), KEPT, 20),
        three_that_believe_in_two_units(),
        check(Rules::LateReclaimsAreHeard, parts(life(late(1, RESTART))), KEPT, 15),
        check(Rules::HeardStaysBesideAll, all_and_part(life(late(1, RESTART))), KEPT, 11),
        check(Rules::ReclaimsInAnyOrder, twice(all_and_part(life(late(2, RESTART)))), EXCLUSION, 18),
        check(Rules::EndedIsForgotten, parts(life(late(1, RESTART))), RELEASED, 8),
        check(Rules::PartEndsAllBefore, parts(life(RESTART)), KEPT, 9),
        check(Rules::ForceEndsWhatItFinds, parts(life(forced(RESTART))), FORCE, 7),
    ]
}

/// Renewals that do not count as heard break exclusion, too, in more steps than a search can take. Client 0 renews its hold in the
/// grace, and gives way to client 2; the hold of client 1, which the old file has, was released before, and ends with the grace:
/// then client 1 comes back.
fn three_that_believe_in_two_units() -> Check {
    check("refuted: parts: RenewalsAreNotHeard: exclusion".into(), |name| {
        let steps = [
            [Step::Ask(0, 0), Step::Answer(0)],
            [Step::Ask(1, 0), Step::Answer(1)],
            [Step::Save(0), Step::Release(1, 0)],
            [Step::Answer(1), Step::Ask(2, 0)],
            [Step::Answer(2), Step::RestartWithFile(0)],
            [Step::Renew(0, 0), Step::Answer(0)],
            [Step::Tick, Step::Renew(0, 0)],
            [Step::Answer(0), Step::Renew(2, 0)],
            [Step::Answer(2), Step::Tick],
            [Step::Ask(1, 0), Step::Answer(1)],
        ];
        let excludes = |rules: Rules| {
            let bounds = wrong(rules, twice(parts(life(OLD_FILE))));
            let first = bounds.init_states().remove(0);
            let path = Path::from_actions(&bounds, first, steps.as_flattened())?;
            Some((bounds.property(EXCLUSION).condition)(&bounds, path.last_state()))
        };
        match (excludes(Rules::Right), excludes(Rules::RenewalsAreNotHeard)) {
            (Some(true), Some(false)) => Ok((format!("{name}: a walk of 20 steps"), String::new())),
            found => Err(format!("{found:?}")),
        }
    })
}

fn witnesses() -> Vec<Check> {
    vec![
        examples("the life rule", queue(late(1, PROMOTION)), &[0, 1, 2, 3, 6]),
        examples("the quorum rule", quorum_queue(FAIL_OVER), &[0, 1, 2, 3, 4]),
        examples("a master that is named again", quorum_queue(NAMED_AGAIN), &[5]),
        examples("holds that take a part", parts(life(OLD_FILE)), &[7, 8]),
    ]
}
