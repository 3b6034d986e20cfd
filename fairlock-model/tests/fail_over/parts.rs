//! A lock of several units: holds that take a part, and claim in a grace, also beside those of an old file; and holds that take
//! all units. `.ci/run` checks those whose names end in `a_fail_over`.

use fairlock_model::fail_over::bounds::{Bounds, Faults, Times};
use fairlock_model::fail_over::properties::{EXCLUSION, FORCE, KEPT, RELEASED};
use fairlock_model::fail_over::rules::Rules;
use fairlock_model::fail_over::steps::Step;
use stateright::{Model, Path};

use super::{FAIL_OVER, NONE, holds, holds_to_depth, life, no_line, quorum, refuted};

const OLD_FILE: Faults = Faults { old_files: 1, ..NONE };
const LATE: Faults = Faults { time_outs: 1, ..OLD_FILE };

/// A lock of two units, and a request of three clients each, without a line.
pub fn of_two(takes: [u8; 3], bounds: Bounds) -> Bounds {
    Bounds { capacity: 2, takes, clients: 3, servers: 1, ..no_line(bounds) }
}

/// Two clients: one that takes both units, and one that takes a part.
fn writer_and_reader(bounds: Bounds) -> Bounds {
    Bounds { clients: 2, servers: 2, ..of_two([2, 1, 1], bounds) }
}

fn wrong(rules: Rules, bounds: Bounds) -> Bounds {
    Bounds { rules, ..bounds }
}

/// Three parts of two units were held, of which an old file has two: one is released, and stands beside a live one.
#[test]
fn three_parts_through_a_fail_over() {
    holds("life: parts 1, 1, 1 of 2, an old file", of_two([1; 3], life(OLD_FILE)));
}

#[test]
fn a_part_and_all_through_a_fail_over() {
    let faults = Faults { restarts: 1, time_outs: 1, ..NONE };
    holds("life: 2 and 1 of 2, empty restart, a late call", writer_and_reader(life(faults)));
}

#[test]
fn a_part_and_all_with_an_old_file() {
    let faults = Faults { promotions: 1, restarts: 1, ..LATE };
    holds(
        "life: 2 and 1 of 2, promotion, empty restart, an old file, a late call",
        writer_and_reader(life(faults)),
    );
}

#[test]
fn three_parts_with_a_late_call() {
    let faults = Faults { restarts: 1, time_outs: 1, ..NONE };
    holds("life: parts 1, 1, 1 of 2, empty restart, a late call", of_two([1; 3], life(faults)));
}

#[test]
fn three_parts_with_an_old_file_and_a_late_call_to_a_depth() {
    holds_to_depth("life: parts 1, 1, 1 of 2, an old file, a late call", of_two([1; 3], life(LATE)), 16);
}

#[test]
fn three_parts_with_a_finer_time() {
    let bounds = Bounds { times: Times::life(3), ..life(OLD_FILE) };
    holds("life: parts 1, 1, 1 of 2, an old file, a trust of 3", of_two([1; 3], bounds));
}

#[test]
fn two_parts_and_all() {
    holds("life: 1, 1 and 2 of 2, an old file", of_two([1, 1, 2], life(OLD_FILE)));
}

#[test]
fn two_parts_and_all_with_a_force() {
    let faults = Faults { restarts: 1, forces: 1, ..NONE };
    holds("life: 1, 1 and 2 of 2, empty restart, a force", of_two([1, 1, 2], life(faults)));
}

#[test]
fn a_part_and_all_with_two_requests() {
    let faults = Faults { restarts: 1, time_outs: 2, ..NONE };
    let bounds = Bounds { requests: 2, ..writer_and_reader(life(faults)) };
    holds("life: 2 and 1 of 2, two requests each, empty restart, two late calls", bounds);
}

#[test]
fn a_part_and_all_with_a_quorum() {
    holds(
        "quorum: 2 and 1 of 2, fail-over, a late call",
        writer_and_reader(quorum(Faults { time_outs: 1, ..FAIL_OVER })),
    );
}

#[test]
fn three_parts_with_a_quorum_to_a_depth() {
    let bounds = Bounds { servers: 2, ..of_two([1; 3], quorum(FAIL_OVER)) };
    holds_to_depth("quorum: parts 1, 1, 1 of 2, fail-over", bounds, 14);
}

#[test]
fn three_parts_with_a_line_to_a_depth() {
    let bounds = Bounds { waits: true, ..of_two([1; 3], life(OLD_FILE)) };
    holds_to_depth("life: a line, parts 1, 1, 1 of 2, an old file", bounds, 14);
}

#[test]
fn claims_by_token_among_parts() {
    let bounds = wrong(Rules::ClaimsByToken, of_two([1; 3], life(OLD_FILE)));
    refuted("claims by token among parts", bounds, KEPT, 14);
}

#[test]
fn a_hold_that_was_heard_and_gives_way() {
    let bounds = wrong(Rules::HeardGivesWay, of_two([1; 3], life(OLD_FILE)));
    refuted("a heard hold that gives way", bounds, KEPT, 20);
}

#[test]
fn renewals_that_do_not_count_as_heard() {
    let bounds = wrong(Rules::RenewalsAreNotHeard, of_two([1; 3], life(OLD_FILE)));
    refuted("renewals that are not heard", bounds, KEPT, 20);
}

/// The same breaks exclusion, in more steps than a search can take. Client 0 renews its hold in the grace, and gives way to client
/// 2; the hold of client 1, which the old file has, was released before, and ends with the grace: then client 1 comes back.
#[test]
fn three_that_believe_in_two_units() {
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
        let bounds = Bounds { requests: 2, ..wrong(rules, of_two([1; 3], life(OLD_FILE))) };
        let first = bounds.init_states().remove(0);
        let path = Path::from_actions(&bounds, first, steps.as_flattened()).expect("each step is possible");
        (bounds.property(EXCLUSION).condition)(&bounds, path.last_state())
    };
    assert!(excludes(Rules::Right));
    assert!(!excludes(Rules::RenewalsAreNotHeard));
}

#[test]
fn a_claim_of_a_former_life_that_counts_as_heard() {
    let faults = Faults { restarts: 1, time_outs: 1, ..NONE };
    let bounds = wrong(Rules::LateClaimsAreHeard, of_two([1; 3], life(faults)));
    refuted("a late claim that is heard", bounds, KEPT, 15);
}

#[test]
fn a_hold_that_was_heard_beside_all() {
    let faults = Faults { restarts: 1, time_outs: 1, ..NONE };
    let bounds = wrong(Rules::HeardStaysBesideAll, writer_and_reader(life(faults)));
    refuted("a heard part that stays beside all", bounds, KEPT, 11);
}

#[test]
fn a_hold_of_all_that_is_claimed_beside_a_newer_one() {
    let faults = Faults { restarts: 1, time_outs: 2, ..NONE };
    let bounds = Bounds { requests: 2, ..writer_and_reader(life(faults)) };
    refuted("all units claimed beside a newer part", wrong(Rules::ClaimsInAnyOrder, bounds), EXCLUSION, 18);
}

#[test]
fn a_claim_of_a_part_that_was_released() {
    let faults = Faults { restarts: 1, time_outs: 1, ..NONE };
    let bounds = wrong(Rules::EndedIsForgotten, of_two([1; 3], life(faults)));
    refuted("a part that was released in the grace and is forgotten", bounds, RELEASED, 8);
}

#[test]
fn a_release_of_a_part_that_ends_all_before() {
    let faults = Faults { restarts: 1, ..NONE };
    let bounds = wrong(Rules::PartEndsAllBefore, of_two([1; 3], life(faults)));
    refuted("a released part that ends all before", bounds, KEPT, 9);
}

#[test]
fn a_force_in_the_grace_that_ends_only_parts_it_finds() {
    let faults = Faults { restarts: 1, forces: 1, ..NONE };
    let bounds = wrong(Rules::ForceEndsWhatItFinds, of_two([1; 3], life(faults)));
    refuted("parts: a force in the grace that ends what it finds", bounds, FORCE, 7);
}
