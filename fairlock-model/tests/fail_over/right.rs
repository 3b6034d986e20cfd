//! The right rules hold in every state within the limits. `.ci/run` checks those whose names end in `a_fail_over`.

use fairlock_model::fail_over::bounds::{Bounds, Faults};

use super::{FAIL_OVER, NONE, holds, holds_to_depth, life, no_line, quorum};

const LATE: Faults = Faults { time_outs: 1, ..FAIL_OVER };

#[test]
fn life_alone_through_a_fail_over() {
    let faults = Faults { promotions: 1, restarts: 1, flushes: 1, time_outs: 1, ..NONE };
    holds("life: promotion, empty restart, FLUSHALL, a late call", no_line(life(faults)));
}

#[test]
fn life_alone_with_a_line_through_a_fail_over() {
    let faults = Faults { promotions: 1, time_outs: 1, ..NONE };
    holds("life: a line, promotion, a late call", life(faults));
}

#[test]
fn a_quorum_through_a_fail_over() {
    let faults = Faults { flushes: 1, ..FAIL_OVER };
    holds("quorum: fail-over, FLUSHALL", no_line(quorum(faults)));
}

#[test]
fn a_quorum_with_a_line_through_a_fail_over() {
    holds("quorum: a line, fail-over", quorum(FAIL_OVER));
}

#[test]
fn life_alone_with_an_old_file() {
    let faults = Faults { promotions: 2, demotions: 1, old_files: 1, time_outs: 1, ..NONE };
    holds("life: two promotions, a demotion, an old file, a late call", no_line(life(faults)));
}

#[test]
fn life_alone_with_two_requests() {
    let faults = Faults { restarts: 1, time_outs: 2, ..NONE };
    let bounds = Bounds { requests: 2, ..no_line(life(faults)) };
    holds("life: two requests each, empty restart, two late calls", bounds);
}

#[test]
fn a_quorum_with_late_calls() {
    let faults = Faults { time_outs: 2, ..FAIL_OVER };
    holds("quorum: fail-over, two late calls", no_line(quorum(faults)));
}

#[test]
fn a_quorum_with_two_requests() {
    let bounds = Bounds { requests: 2, ..no_line(quorum(LATE)) };
    holds("quorum: two requests each, fail-over, a late call", bounds);
}

#[test]
fn a_quorum_with_a_master_that_is_named_again() {
    let faults = Faults { namings: 2, flushes: 1, ..FAIL_OVER };
    holds("quorum: fail-over, the old master named again, FLUSHALL", no_line(quorum(faults)));
}

#[test]
fn a_quorum_with_a_demoted_master() {
    let faults = Faults { demotions: 1, restarts: 1, flushes: 1, ..FAIL_OVER };
    holds("quorum: fail-over, demotion, empty restart, FLUSHALL", no_line(quorum(faults)));
}

#[test]
fn a_quorum_with_an_old_file() {
    let faults = Faults { old_files: 1, ..FAIL_OVER };
    holds("quorum: fail-over, an old file", no_line(quorum(faults)));
}

#[test]
fn a_quorum_with_a_line_that_is_flushed() {
    let faults = Faults { flushes: 1, ..FAIL_OVER };
    holds("quorum: a line, fail-over, FLUSHALL", quorum(faults));
}

#[test]
fn a_quorum_with_a_line_and_late_calls_to_a_depth() {
    holds_to_depth("quorum: a line, fail-over, a late call", quorum(LATE), 16);
}

#[test]
fn three_servers_to_a_depth() {
    let faults = Faults { promotions: 2, namings: 2, demotions: 1, ..NONE };
    let bounds = Bounds { servers: 3, ..no_line(quorum(faults)) };
    holds_to_depth("quorum: three servers, two fail-overs, a demotion", bounds, 14);
}
