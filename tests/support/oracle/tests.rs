//! The oracle finds each lie in these histories, and nothing in those that are right.

use super::*;
use crate::history::parse;

/// `3 a granted 1 bills, 5 2/b release`: at 3 ns `a` of process 1 was granted the lock `bills` with token 1, and at 5 ns `b` of process
/// 2 was about to release the lock `orders`.
fn history(story: &str) -> Vec<Event> {
    let event = |text: &str| {
        let mut words = text.split(' ');
        let (at, who, what) = (words.next()?, words.next()?, words.next()?);
        let (pid, who) = who.split_once('/').unwrap_or(("1", who));
        let (number, lock) = (words.next().unwrap_or("-"), words.next().unwrap_or("orders"));
        parse(&format!("{at} {pid} {who} {what} {number} {lock}"))
    };
    story.split(", ").map(|text| event(text).unwrap_or_else(|| panic!("{text}"))).collect()
}

fn found(checked: Result<(), Violations>) -> usize {
    checked.err().map_or(0, |violations| violations.0.len())
}

#[test]
fn holders_that_hold_together_are_found() {
    for (expected, what, story) in [
        (
            0,
            "one after the other, in one nanosecond",
            "3 a granted 1, 5 a release, 5 b granted 2, 9 b release, 10 b granted 3",
        ),
        (0, "two locks", "3 a granted 1, 4 b granted 1 bills"),
        (1, "lines out of order", "9 a release, 4 b granted 2, 3 a granted 1, 6 b release"),
        (2, "three together", "1 a granted 1, 2 b granted 2, 3 c granted 3"),
        (1, "without an end", "1 a granted 1, 1000000 b granted 2"),
        (1, "a second grant to the holder", "1 a granted 1, 2 a granted 2"),
        (1, "the same name in another process", "1 a granted 1, 2 2/a granted 2"),
        (1, "a release without a hold", "1 a granted 1, 2 b release"),
        (0, "lost, and released late", "1 a granted 1, 5 a lost, 6 b granted 2, 8 a release"),
        (1, "lost too late", "1 a granted 1, 7 a lost, 6 b granted 2"),
        (1, "released twice", "1 a granted 1, 5 a lost, 6 b granted 2, 8 a release, 9 a release"),
        (0, "its process is gone", "1 a granted 1, 5 1/x gone, 6 2/b granted 2"),
        (1, "another process is gone", "1 a granted 1, 5 3/x gone, 6 2/b granted 2"),
        (0, "valid up to then", "10 a granted 1, 12 a valid 20, 20 b granted 2"),
        (1, "valid for longer", "10 a granted 1, 12 a valid 20, 19 b granted 2"),
        (1, "prolonged", "10 a granted 1, 11 a valid 15, 12 a valid 20, 19 b granted 2"),
        (0, "silent until it was killed", "10 a granted 1, 10 a valid 20, 20 2/b granted 2, 90 1/x gone"),
        (1, "silent, and believed", "10 a granted 1, 10 a valid 20, 19 2/b granted 2, 90 1/x gone"),
        (0, "lost before that", "10 a granted 1, 11 a valid 90, 20 a lost, 21 b granted 2"),
        (0, "gone before that", "10 a granted 1, 11 a valid 90, 20 1/x gone, 21 2/b granted 2"),
        (
            0,
            "a hold of one moment",
            "10 a granted 1, 10 a release, 11 b granted 2, 12 b release, 30 a granted 3",
        ),
    ] {
        assert_eq!(found(check_overlap(&history(story))), expected, "{what}");
    }
    let sentence = check_overlap(&history("1 a granted 1, 2 b release")).unwrap_err().0;
    assert_eq!(sentence, ["Release of `orders` by process 1 `b` at 2 ns, which did not hold it"]);
}

#[test]
fn an_overlap_lasts_until_one_of_both_has_ended() {
    for ([from, until], lasted) in [([19, 30], 1), ([15, 30], 5), ([12, 13], 1), ([5, 30], 10)] {
        let story = format!("10 a granted 1, 20 a lost, {from} b granted 2, {until} b release");
        let found = overlaps(&holds(&history(&story)), |_| 1);
        assert_eq!(
            found.iter().map(Finding::lasted).collect::<Vec<_>>(),
            [Duration::from_nanos(lasted)],
            "{story}"
        );
    }
}

/// Holders beside each other are found if they take more units than there are.
#[test]
fn holders_of_too_many_units_together_are_found() {
    let two = "0 a ask, 0 a wants 2, 10 a granted 1, 40 a release, 20 b granted 2, 30 b release";
    let found = |story: &str, units| overlaps(&holds(&history(story)), |_| units);
    assert_eq!(found(two, 3), []);
    for (until, lasted) in [(28, 3), (50, 5)] {
        let found = found(&format!("{two}, 25 c granted 3, {until} c release"), 3);
        assert_eq!(found.iter().map(Finding::lasted).collect::<Vec<_>>(), [Duration::from_nanos(lasted)]);
    }
    // A writer's units are all there are.
    let writer = format!("0 c ask, 0 c wants {}", u32::MAX);
    assert_eq!(found(&format!("{two}, {writer}, 39 c granted 4"), u32::MAX).len(), 1);
    assert_eq!(found(&format!("{two}, {writer}, 40 c granted 4"), u32::MAX), []);
}

#[test]
fn a_grant_that_passes_an_earlier_place_is_found() {
    let asks = "1 a ask, 1 b ask, 2 a in_queue 3, 2 b in_queue 4";
    for (expected, what, story) in [
        (Some(2), "in order", "5 a granted 8, 6 b granted 9"),
        (None, "passed", "5 b granted 8, 6 a granted 9"),
        (Some(1), "it gave up, and asked anew", "5 b granted 8, 6 a failed, 7 a ask, 8 a granted 9"),
        (Some(2), "a later place", "3 a in_queue 6, 5 b granted 8, 6 a granted 9"),
    ] {
        let checked = check_tickets(&history(&format!("{asks}, {story}")), "orders");
        assert_eq!(checked.ok(), expected, "{what}");
    }
}

#[test]
fn tokens_that_repeat_or_fall_are_found() {
    for (expected, story) in [
        (0, "1 a granted 1, 2 b granted 2, 3 a granted 9"),
        (1, "1 a granted 2, 2 b granted 2"),
        (2, "1 a granted 3, 2 b granted 2, 3 c granted 1"),
        // Each lock has its own tokens.
        (0, "1 a granted 5, 2 b granted 1 bills, 3 c granted 6"),
    ] {
        assert_eq!(found(check_token_order(&history(story))), expected, "{story}");
    }
    // From the call on: it may have been granted before the other one, and its answer came late.
    for (expected, asked, token) in [(0, 11, 8), (1, 11, 7), (1, 11, 6), (0, 10, 6)] {
        let story = format!("0 a ask, 10 a granted 7, {asked} b ask, 30 b granted {token}");
        assert_eq!(tokens(&holds(&history(&story)), |hold| hold.asked).len(), expected, "{story}");
    }
}

#[test]
fn a_waiter_that_is_not_woken_in_time_is_found() {
    for (expected, what, story) in [
        (0, "in time", "8 b granted 2"),
        (1, "late", "9 b granted 2"),
        (1, "never", "3 a released"),
        (0, "another waiter got it", "4 c ask, 5 c granted 2, 99 b granted 3"),
        (0, "it gave up", "4 b failed"),
        (0, "its outcome is open, and the next one asks later", "8 b unknown, 99 c ask"),
        (0, "it gave up, and the next one asks soon", "4 b failed, 7 c ask, 9 c granted 2"),
        (0, "it was killed", "4 1/x gone, 99 b granted 2"),
        (1, "it gave up too late", "9 c ask, 10 b failed"),
    ] {
        let events = history(&format!("1 a granted 1, 2 b ask, 3 a release, {story}"));
        assert_eq!(wake_up_gaps(&events, Duration::from_nanos(5)).len(), expected, "{what}");
    }
    for (what, story) in [
        ("nobody waits", "1 a granted 1, 2 a release, 50 b ask"),
        ("a waiter of another lock", "1 b ask - bills, 1 a granted 1, 2 a release, 50 c ask, 51 c granted 2"),
        ("a lease decides", "1 a granted 1, 1 b ask, 2 a lost, 90 b granted 2"),
    ] {
        assert_eq!(wake_up_gaps(&history(story), Duration::from_nanos(5)).len(), 0, "{what}");
    }
}

#[test]
fn a_call_that_ends_late_or_never_is_found() {
    let check = |story: &str| call_bounds(&history(story), Duration::from_nanos(20), Duration::from_nanos(2));
    const LIMIT: u64 = 5_000_000;
    for end in ["failed", "unknown", "granted 1"] {
        assert_eq!(check(&format!("1 a ask 5, {} a {end}", LIMIT + 3)).len(), 0, "{end}");
        assert_eq!(check(&format!("1 a ask 5, {} a {end}", LIMIT + 4)).len(), 1, "{end}");
    }
    for end in ["released", "unknown", "lost"] {
        assert_eq!(check(&format!("1 a release, 23 a {end}")).len(), 0, "{end}");
        assert_eq!(check(&format!("1 a release, 24 a {end}")).len(), 1, "{end}");
    }
    assert_eq!(check("1 a ask, 900 a granted 1").len(), 0);
    let never = check("1 a ask, 2 b granted 1").remove(0).sentence;
    assert_eq!(never, "Ask { limit: None } of `orders` by process 1 `a` at 1 ns never ended");
    assert_eq!(check("1 a ask, 1 a release, 2 1/x gone").len(), 0);
}
