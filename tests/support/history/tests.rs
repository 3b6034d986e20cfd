//! The checkers find planted violations and report nothing in clean histories.

use super::*;
use crate::workdir::WorkDir;

fn event(at: u64, who: &str, what: What) -> Event {
    Event { at, pid: 1, who: who.to_owned(), lock: "orders".to_owned(), what }
}

fn granted(at: u64, who: &str, token: u64) -> Event {
    event(at, who, What::Granted { token })
}

fn violations(checked: Result<(), Violations>) -> Vec<String> {
    checked.unwrap_err().0
}

#[test]
fn a_recorded_history_is_read_back() {
    let dir = WorkDir::new();
    let path = dir.file("history");
    let before = now_ns();
    let recorder = Recorder::open(&path).unwrap();
    recorder.ask("worker 1", "a b\n{c}", None);
    recorder.ask("worker 1", "a b\n{c}", Some(Duration::from_millis(1500)));
    recorder.failed("worker 1", "a b\n{c}");
    recorder.unknown("worker 1", "a b\n{c}");
    recorder.granted("worker 1", "a b\n{c}", 7);
    recorder.release("worker 1", "a b\n{c}");
    recorder.released("worker 1", "a b\n{c}");
    recorder.lost("worker 2", "", 5);
    recorder.gone(99, 6);
    let events = read(&path).unwrap();
    let seen: Vec<_> = events.iter().map(|e| (e.pid, e.who.as_str(), e.lock.as_str(), e.what)).collect();
    let me = std::process::id();
    assert_eq!(
        seen,
        [
            (me, "worker 2", "", What::Lost),
            (99, "", "", What::Gone),
            (me, "worker 1", "a b\n{c}", What::Ask { limit: None }),
            (me, "worker 1", "a b\n{c}", What::Ask { limit: Some(1500) }),
            (me, "worker 1", "a b\n{c}", What::Failed),
            (me, "worker 1", "a b\n{c}", What::Unknown),
            (me, "worker 1", "a b\n{c}", What::Granted { token: 7 }),
            (me, "worker 1", "a b\n{c}", What::Release),
            (me, "worker 1", "a b\n{c}", What::Released),
        ]
    );
    assert!(before <= events[2].at && events[8].at <= now_ns());
}

#[test]
fn lines_of_many_threads_do_not_mix() {
    let dir = WorkDir::new();
    let path = dir.file("history");
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let path = &path;
            scope.spawn(move || {
                let recorder = Recorder::open(path).unwrap();
                (0..200).for_each(|token| recorder.granted(&format!("w{worker}"), &"x".repeat(512), token));
            });
        }
    });
    assert_eq!(count(&read(&path).unwrap(), &"x".repeat(512)), 1600);
}

#[test]
fn a_malformed_line_is_refused_with_its_number() {
    let dir = WorkDir::new();
    let path = dir.file("history");
    for bad in [
        "",
        "1 2 w ask - x y",
        "1 2 w granted - x",
        "1 2 w ask soon x",
        "1 2 w release 5 x",
        "1 2 w waits - x",
        "-1 2 w ask - x",
    ] {
        fs::write(&path, format!("1 2 w ask - x\n{bad}\n")).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("history:2: not a line of a history"), "{error}");
    }
}

#[test]
fn holds_one_after_the_other_do_not_overlap() {
    let events = [
        event(1, "a", What::Ask { limit: None }),
        event(2, "b", What::Ask { limit: None }),
        granted(3, "a", 1),
        event(5, "a", What::Release),
        granted(5, "b", 2), // in the same nanosecond
        event(9, "b", What::Release),
        granted(10, "b", 3),
    ];
    check_overlap(&events).unwrap();
}

#[test]
fn two_locks_do_not_disturb_each_other() {
    let other = Event { lock: "bills".to_owned(), ..granted(4, "b", 1) };
    check_overlap(&[granted(3, "a", 1), other]).unwrap();
}

#[test]
fn an_overlap_is_found_even_when_the_lines_are_out_of_order() {
    let events =
        [event(9, "a", What::Release), granted(4, "b", 2), granted(3, "a", 1), event(6, "b", What::Release)];
    let found = violations(check_overlap(&events));
    assert_eq!(
        found,
        ["`orders` granted to process 1 `b` at 4 ns while held by process 1 `a` (token 1, granted at 3 ns)"]
    );
}

#[test]
fn every_one_of_three_that_hold_together_is_found() {
    let found = violations(check_overlap(&[granted(1, "a", 1), granted(2, "b", 2), granted(3, "c", 3)]));
    assert_eq!(found.len(), 3);
}

#[test]
fn a_hold_without_an_end_lasts_for_ever() {
    assert_eq!(violations(check_overlap(&[granted(1, "a", 1), granted(1_000_000, "b", 2)])).len(), 1);
}

#[test]
fn a_second_grant_to_the_holder_is_found() {
    assert_eq!(violations(check_overlap(&[granted(1, "a", 1), granted(2, "a", 2)])).len(), 1);
}

#[test]
fn the_same_name_in_another_process_is_another_holder() {
    let other = Event { pid: 2, ..granted(2, "a", 2) };
    assert_eq!(violations(check_overlap(&[granted(1, "a", 1), other])).len(), 1);
}

#[test]
fn a_release_without_a_hold_is_found() {
    let found = violations(check_overlap(&[granted(1, "a", 1), event(2, "b", What::Release)]));
    assert_eq!(found, ["Release of `orders` by process 1 `b` at 2 ns, which did not hold it"]);
}

#[test]
fn a_lost_hold_ends_at_its_loss_and_may_be_released_once() {
    let lost =
        [granted(1, "a", 1), event(5, "a", What::Lost), granted(6, "b", 2), event(8, "a", What::Release)];
    check_overlap(&lost).unwrap();
    let too_late = [granted(1, "a", 1), event(7, "a", What::Lost), granted(6, "b", 2)];
    assert_eq!(violations(check_overlap(&too_late)).len(), 1);
    let twice = [&lost[..], &[event(9, "a", What::Release)]].concat();
    assert_eq!(violations(check_overlap(&twice)).len(), 1);
}

#[test]
fn the_holds_of_a_killed_process_end_with_it() {
    let gone = Event { who: String::new(), lock: String::new(), ..event(5, "", What::Gone) };
    let other = Event { pid: 2, ..granted(6, "b", 2) };
    check_overlap(&[granted(1, "a", 1), gone.clone(), other.clone()]).unwrap();
    let someone_elses = Event { pid: 3, ..gone };
    assert_eq!(violations(check_overlap(&[granted(1, "a", 1), someone_elses, other])).len(), 1);
}

#[test]
fn tokens_that_repeat_or_fall_are_found() {
    check_token_order(&[granted(1, "a", 1), granted(2, "b", 2), granted(3, "a", 9)]).unwrap();
    assert_eq!(violations(check_token_order(&[granted(1, "a", 2), granted(2, "b", 2)])).len(), 1);
    assert_eq!(
        violations(check_token_order(&[granted(1, "a", 3), granted(2, "b", 2), granted(3, "c", 1)])).len(),
        2
    );
    // Each lock has tokens of its own.
    let other = Event { lock: "bills".to_owned(), ..granted(2, "b", 1) };
    check_token_order(&[granted(1, "a", 5), other, granted(3, "c", 6)]).unwrap();
}

#[test]
fn inverted_missing_and_extra_grants_are_found() {
    let events = [granted(2, "b", 2), granted(1, "a", 1), granted(3, "c", 3)];
    let grants = grants(&events, "orders");
    check_order(&grants, &["a", "b", "c"]).unwrap();
    assert_eq!(violations(check_order(&grants, &["b", "a", "c"])).len(), 2);
    assert_eq!(
        violations(check_order(&grants, &["a", "b", "c", "d"])),
        ["grant 3 was due to `d` and never came"]
    );
    assert_eq!(violations(check_order(&grants, &["a", "b"])).len(), 1);
}

#[test]
fn only_the_grants_of_the_lock_are_counted() {
    let other = Event { lock: "bills".to_owned(), ..granted(2, "b", 1) };
    assert_eq!(
        count(
            &[granted(1, "a", 1), event(1, "a", What::Ask { limit: None }), other, granted(3, "c", 2)],
            "orders"
        ),
        2
    );
}

const MS: u64 = 1_000_000;

fn ask(at: u64, who: &str) -> Event {
    event(at, who, What::Ask { limit: None })
}

#[test]
fn a_waiter_that_is_not_woken_in_time_is_found() {
    let bound = Duration::from_millis(5);
    let until_release = [granted(MS, "a", 1), ask(2 * MS, "b"), event(3 * MS, "a", What::Release)];
    let then = |events: &[Event]| check_wake_up_gaps(&[&until_release[..], events].concat(), bound);
    then(&[granted(8 * MS, "b", 2)]).unwrap();
    assert_eq!(violations(then(&[granted(8 * MS + 1, "b", 2)])).len(), 1);
    assert_eq!(violations(then(&[])).len(), 1);
    // A grant to another waiter counts.
    then(&[ask(4 * MS, "c"), granted(5 * MS, "c", 2), granted(99 * MS, "b", 3)]).unwrap();
    // A waiter that gave up, got an open outcome, or was killed no longer waits.
    then(&[event(4 * MS, "b", What::Failed)]).unwrap();
    then(&[event(8 * MS, "b", What::Unknown), ask(99 * MS, "c")]).unwrap();
    then(&[event(4 * MS, "", What::Gone), granted(99 * MS, "b", 2)]).unwrap();
    assert_eq!(violations(then(&[ask(9 * MS, "c"), event(10 * MS, "b", What::Failed)])).len(), 1);
}

#[test]
fn no_gap_is_found_without_a_waiter() {
    let bound = Duration::from_millis(5);
    let alone = [granted(MS, "a", 1), event(2 * MS, "a", What::Release), ask(50 * MS, "b")];
    check_wake_up_gaps(&alone, bound).unwrap();
    let of_another_lock = Event { lock: "bills".to_owned(), ..ask(MS, "b") };
    let other = [&[of_another_lock], &alone[..2], &[ask(50 * MS, "c"), granted(51 * MS, "c", 2)]].concat();
    check_wake_up_gaps(&other, bound).unwrap();
    // A lease decides when a lost hold is replaced.
    let lost = [granted(MS, "a", 1), ask(MS, "b"), event(2 * MS, "a", What::Lost), granted(90 * MS, "b", 2)];
    check_wake_up_gaps(&lost, bound).unwrap();
}

#[test]
fn a_call_that_ends_late_or_never_is_found() {
    let check =
        |events: &[Event]| check_call_bounds(events, Duration::from_millis(20), Duration::from_millis(2));
    let timed = event(MS, "a", What::Ask { limit: Some(5) });
    for end in [What::Failed, What::Unknown, What::Granted { token: 1 }] {
        check(&[timed.clone(), event(8 * MS, "a", end)]).unwrap();
        assert_eq!(violations(check(&[timed.clone(), event(8 * MS + 1, "a", end)])).len(), 1);
    }
    let release = event(MS, "a", What::Release);
    for end in [What::Released, What::Unknown, What::Lost] {
        check(&[release.clone(), event(23 * MS, "a", end)]).unwrap();
        assert_eq!(violations(check(&[release.clone(), event(24 * MS, "a", end)])).len(), 1);
    }
    check(&[ask(MS, "a"), granted(900 * MS, "a", 1)]).unwrap();
    let never = violations(check(&[ask(MS, "a"), granted(2 * MS, "b", 1)]));
    assert_eq!(never, ["Ask { limit: None } of `orders` by process 1 `a` at 1000000 ns never ended"]);
    check(&[ask(MS, "a"), release, event(2 * MS, "", What::Gone)]).unwrap();
}
