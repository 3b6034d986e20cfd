//! The replay accepts what a lock can do, and refuses histories with one wrong event, each by its own rule.

use super::*;
use crate::history::What;

const LEASE: Duration = Duration::from_millis(100);
const PLACE: Duration = Duration::from_millis(40);

/// An event of process 1 at a time in milliseconds.
fn at(ms: u64, who: &str, what: What) -> Event {
    Event { at: ms * MS, pid: 1, who: who.to_owned(), lock: "orders".to_owned(), what }
}

fn asks(ms: u64, who: &str) -> Event {
    at(ms, who, What::Ask { limit: None })
}

fn asks_for(ms: u64, who: &str, limit: u64) -> Event {
    at(ms, who, What::Ask { limit: Some(limit) })
}

fn in_queue(ms: u64, who: &str, ticket: u64) -> Event {
    at(ms, who, What::InQueue { ticket: Some(ticket).filter(|ticket| *ticket > 0) })
}

fn gets(ms: u64, who: &str, token: u64) -> Event {
    at(ms, who, What::Granted { token })
}

/// The release takes a millisecond.
fn releases(ms: u64, who: &str) -> [Event; 2] {
    [at(ms, who, What::Release), at(ms + 1, who, What::Released)]
}

fn replayed(rules: Rules, events: &[&[Event]]) -> Result<Replayed, String> {
    replay(&events.concat(), "orders", rules, LEASE, PLACE).map_err(|found| found.0.join("\n"))
}

#[track_caller]
fn refused(rules: Rules, events: &[&[Event]], why: &str) {
    let found = replayed(rules, events).expect_err("the history is wrong");
    assert!(found.starts_with("`orders`: ") && found.contains(why), "{found}");
}

/// `a` has the lock from 1 to 10 ms. `b` and `c` queue meanwhile.
fn two_behind_one() -> Vec<Event> {
    let queue = [asks(2, "b"), in_queue(4, "b", 20), asks(3, "c"), in_queue(5, "c", 30)];
    [&[asks(0, "a"), gets(1, "a", 10)][..], &queue, &releases(10, "a")].concat()
}

#[test]
fn hand_overs_in_the_order_of_tickets_are_accepted() {
    let end = [
        &[gets(11, "b", 40)][..],
        &releases(12, "b"),
        &[gets(13, "c", 50)],
        &releases(14, "c"),
        &[asks(20, "a"), gets(21, "a", 60)],
        &releases(22, "a"),
    ];
    let done = replayed(Rules::HandOff, &[&two_behind_one(), &end.concat()]).unwrap();
    assert_eq!(done, Replayed { grants: 4, handed_over: 2, unseen: 0 });
}

/// Calls of 20 ms that overlap: only their tickets and tokens say what came first.
#[test]
fn an_order_within_overlapping_calls_is_found() {
    let asked = [asks(0, "a"), asks(0, "b"), asks(0, "c"), gets(18, "a", 30)];
    let queue = [in_queue(19, "b", 50), in_queue(19, "c", 40), at(20, "a", What::Release)];
    let served = [gets(22, "c", 60), at(23, "c", What::Release), gets(24, "b", 70)];
    // The release returns after the next grants.
    let late = [at(25, "a", What::Released), at(26, "c", What::Released)];
    let done = replayed(Rules::HandOff, &[&asked, &queue, &served, &late]).unwrap();
    assert_eq!(done, Replayed { grants: 3, handed_over: 2, unseen: 0 });
}

#[test]
fn two_holders_at_a_time_are_refused() {
    let early = [gets(9, "b", 40)];
    let because = "process 1 `b` (token 40) had the lock at 9000000 ns, which can't be before 10000000 ns, \
                   when process 1 `a` (token 10) releases it";
    refused(Rules::HandOff, &[&two_behind_one(), &early], because);
    // A hold whose release failed is over at its call at the earliest.
    let unknown = [asks(0, "a"), gets(1, "a", 10), at(10, "a", What::Release), at(12, "a", What::Unknown)];
    let other = |ms| [asks(2, "b"), gets(ms, "b", 20)];
    assert!(replayed(Rules::HandOff, &[&unknown, &other(11)]).is_ok());
    refused(Rules::HandOff, &[&unknown, &other(9)], "releases it");
}

#[test]
fn a_turn_out_of_order_is_refused() {
    let because =
        "process 1 `c` (token 40) got the lock while process 1 `b` (token 50) was first in the queue";
    let wrong = [&[gets(11, "c", 40)][..], &releases(12, "c"), &[gets(13, "b", 50)]].concat();
    refused(Rules::HandOff, &[&two_behind_one(), &wrong], because);
    // The same by a newcomer without a place.
    let barging = [asks(11, "d"), gets(12, "d", 40), at(13, "d", What::Release), gets(14, "b", 50)];
    refused(Rules::HandOff, &[&two_behind_one(), &barging], "`d` (token 40) got the lock while");
    // By a waiter that has not left, or can't have left yet.
    let queue = [asks_for(2, "b", 10), in_queue(4, "b", 20), asks(3, "c"), in_queue(5, "c", 30)];
    let start = [&[asks(0, "a"), gets(1, "a", 10)][..], &queue, &releases(6, "a")].concat();
    let leaves = |ms| [gets(ms, "c", 40), at(13, "b", What::Failed)];
    assert!(replayed(Rules::HandOff, &[&start, &leaves(12)]).is_ok());
    refused(Rules::HandOff, &[&start, &leaves(8)], "when process 1 `b` leaves the queue");
}

#[test]
fn a_token_that_does_not_grow_is_refused() {
    let turns = |second| {
        let turns =
            [&[asks(0, "a"), gets(1, "a", 10)][..], &releases(2, "a"), &[asks(5, "b"), gets(6, "b", second)]];
        [turns.concat(), releases(7, "b").to_vec()].concat()
    };
    assert!(replayed(Rules::HandOff, &[&turns(11)]).is_ok());
    refused(
        Rules::HandOff,
        &[&turns(10)],
        "the token of process 1 `b` (token 10) is not greater than all before",
    );
    refused(Rules::HandOff, &[&turns(9)], "`a` (token 10) had the lock at 1000000 ns, which can't be before");
    // Tickets come from the same sequence.
    let ticket = |ticket| [asks(2, "b"), in_queue(4, "b", ticket), gets(11, "b", 20)];
    let start = [&[asks(0, "a"), gets(1, "a", 10)][..], &releases(10, "a")].concat();
    assert!(replayed(Rules::HandOff, &[&start, &ticket(11)]).is_ok());
    refused(Rules::HandOff, &[&start, &ticket(10)], "an earlier place or grant had no smaller number");
    refused(Rules::HandOff, &[&start, &ticket(9)], "while process 1 `b` (token 20) was first in the queue");
    refused(Rules::HandOff, &[&start, &ticket(20)], "had a ticket that is not less than its token");
}

#[test]
fn a_grant_to_a_request_that_had_left_is_refused() {
    let start = [asks(0, "a"), gets(1, "a", 10), asks_for(2, "b", 5), in_queue(4, "b", 20)];
    let left = [at(8, "b", What::Failed), at(10, "a", What::Release), at(11, "a", What::Released)];
    let over = "`b` got it at 12000000 ns (token 30), and its request was over or never made";
    refused(Rules::HandOff, &[&start, &left, &[gets(12, "b", 30)]], over);
    refused(Rules::HandOff, &[&[gets(12, "b", 30)]], over);
    // The next one gets it then.
    let next = [asks(12, "c"), gets(13, "c", 30)];
    assert_eq!(replayed(Rules::HandOff, &[&start, &left, &next]).unwrap().grants, 2);
}

/// The lock is handed to a request that is leaving, which gives it back: no process sees that hold.
#[test]
fn a_grant_that_crosses_the_end_of_a_wait_is_accepted() {
    let start = [asks(0, "a"), gets(1, "a", 10), asks_for(2, "b", 10), in_queue(4, "b", 20)];
    let queue = [asks(5, "c"), in_queue(6, "c", 30), at(8, "a", What::Release), at(9, "a", What::Released)];
    let end = [at(13, "b", What::Failed), gets(14, "c", 50)];
    let done = replayed(Rules::HandOff, &[&start, &queue, &end]).unwrap();
    assert_eq!(done, Replayed { grants: 2, handed_over: 1, unseen: 0 });
}

#[test]
fn a_hold_beyond_its_lease_that_was_not_renewed_is_refused() {
    let until = |ms, renewals: &[u64]| {
        let renewed = renewals.iter().map(|sent| at(sent + 1, "a", What::Renewed { sent: sent * MS }));
        [&[asks(0, "a"), gets(1, "a", 10)][..], &renewed.collect::<Vec<_>>(), &releases(ms, "a")].concat()
    };
    assert!(replayed(Rules::HandOff, &[&until(100, &[])]).is_ok());
    let lost = "`a` (token 10) believed in its hold until 102000000 ns, and its lease ended at 100000000 ns";
    refused(Rules::HandOff, &[&until(102, &[])], lost);
    assert!(replayed(Rules::HandOff, &[&until(180, &[30, 80])]).is_ok());
    refused(Rules::HandOff, &[&until(182, &[30, 80])], "its lease ended at 180000000 ns");
    refused(Rules::HandOff, &[&until(180, &[102])], "its lease ended at 100000000 ns");
    let late = [asks(150, "b"), in_queue(151, "b", 20), gets(182, "b", 30)];
    let because = "renewed its hold at 102000000 ns, after its lease";
    refused(Rules::HandOff, &[&until(180, &[102]), &late], because);
    // A hold that was handed over lasts for the rest of its place's time.
    let handed =
        |ms, kept: &[Event]| [&two_behind_one(), kept, &[gets(11, "b", 40)], &releases(ms, "b")].concat();
    assert!(replayed(Rules::HandOff, &[&handed(42, &[])]).is_ok());
    refused(Rules::HandOff, &[&handed(43, &[])], "its lease ended at 42000000 ns");
    let kept = [at(9, "b", What::PlaceKept { sent: 8 * MS })];
    assert!(replayed(Rules::HandOff, &[&handed(48, &kept)]).is_ok());
}

#[test]
fn the_hold_of_a_killed_process_lasts_as_long_as_its_lease() {
    let killed = [asks(0, "a"), gets(1, "a", 10), at(31, "a", What::Renewed { sent: 30 * MS })];
    let next = |ms| [asks(50, "b"), gets(ms, "b", 20)];
    assert!(replayed(Rules::HandOff, &[&killed, &next(130)]).is_ok());
    refused(Rules::HandOff, &[&killed, &next(120)], "when the lease of process 1 `a` (token 10) ends");
    // A waiter that was killed gets nothing, and those behind it get their turns.
    let queue = [asks(2, "b"), in_queue(4, "b", 20), asks(3, "c"), in_queue(5, "c", 30), gets(140, "c", 40)];
    assert_eq!(replayed(Rules::HandOff, &[&killed, &queue]).unwrap().grants, 2);
}

/// `b` was killed, which no event says. What it may have had is over at once, but the place of `c` was kept after that.
#[test]
fn a_kept_place_was_granted_the_lock_later() {
    let kept = [at(31, "c", What::PlaceKept { sent: 30 * MS })];
    let served = [&kept[..], &[gets(60, "c", 40)], &releases(65, "c")].concat();
    assert_eq!(replayed(Rules::HandOff, &[&two_behind_one(), &served]).unwrap().grants, 2);
    refused(Rules::HandOff, &[&two_behind_one(), &served[1..]], "believed in its hold until 65000000 ns");
}

/// It stands in the queue although no process is known to hold the lock: a process that was killed just then may.
#[test]
fn a_hold_that_no_process_has_seen_is_counted() {
    let queue = [asks(2, "b"), in_queue(4, "b", 20), gets(30, "b", 40)];
    let done = replayed(Rules::HandOff, &[&queue]).unwrap();
    assert_eq!(done, Replayed { grants: 1, handed_over: 1, unseen: 1 });
    let free = [&[asks(0, "a"), gets(1, "a", 10)][..], &releases(2, "a")].concat();
    let queue = [asks(12, "b"), in_queue(14, "b", 20), gets(30, "b", 40)];
    let done = replayed(Rules::HandOff, &[&free, &queue]).unwrap();
    assert_eq!(done, Replayed { grants: 2, handed_over: 1, unseen: 1 });
}
