//! The checkers find what is planted, and nothing in clean histories.

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
    recorder.ask("worker 1", "a b\n{c}");
    recorder.granted("worker 1", "a b\n{c}", 7);
    recorder.release("worker 1", "a b\n{c}");
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
            (me, "worker 1", "a b\n{c}", What::Ask),
            (me, "worker 1", "a b\n{c}", What::Granted { token: 7 }),
            (me, "worker 1", "a b\n{c}", What::Release),
        ]
    );
    assert!(before <= events[2].at && events[4].at <= now_ns());
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
fn a_line_that_is_none_is_refused_with_its_number() {
    let dir = WorkDir::new();
    let path = dir.file("history");
    for bad in
        ["", "1 2 w ask - x y", "1 2 w granted - x", "1 2 w ask 5 x", "1 2 w waits - x", "-1 2 w ask - x"]
    {
        fs::write(&path, format!("1 2 w ask - x\n{bad}\n")).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("history:2: not a line of a history"), "{error}");
    }
}

#[test]
fn holds_one_after_the_other_do_not_overlap() {
    let events = [
        event(1, "a", What::Ask),
        event(2, "b", What::Ask),
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
fn the_same_name_in_another_process_is_somebody_else() {
    let other = Event { pid: 2, ..granted(2, "a", 2) };
    assert_eq!(violations(check_overlap(&[granted(1, "a", 1), other])).len(), 1);
}

#[test]
fn a_release_by_one_who_does_not_hold_is_found() {
    let found = violations(check_overlap(&[granted(1, "a", 1), event(2, "b", What::Release)]));
    assert_eq!(found, ["Release of `orders` by process 1 `b` at 2 ns, who did not hold it"]);
}

#[test]
fn a_lost_hold_ends_when_it_was_lost_and_may_be_given_back_once() {
    let lost =
        [granted(1, "a", 1), event(5, "a", What::Lost), granted(6, "b", 2), event(8, "a", What::Release)];
    check_overlap(&lost).unwrap();
    let too_late = [granted(1, "a", 1), event(7, "a", What::Lost), granted(6, "b", 2)];
    assert_eq!(violations(check_overlap(&too_late)).len(), 1);
    let twice = [&lost[..], &[event(9, "a", What::Release)]].concat();
    assert_eq!(violations(check_overlap(&twice)).len(), 1);
}

#[test]
fn what_a_killed_process_held_ends_with_it() {
    let gone = Event { who: String::new(), lock: String::new(), ..event(5, "", What::Gone) };
    let other = Event { pid: 2, ..granted(6, "b", 2) };
    check_overlap(&[granted(1, "a", 1), gone.clone(), other.clone()]).unwrap();
    let someone_elses = Event { pid: 3, ..gone };
    assert_eq!(violations(check_overlap(&[granted(1, "a", 1), someone_elses, other])).len(), 1);
}

#[test]
fn tokens_that_stand_still_or_fall_are_found() {
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
fn an_inversion_a_missing_and_an_extra_grant_are_found() {
    let events = [granted(2, "b", 2), granted(1, "a", 1), granted(3, "c", 3)];
    let grants = grants(&events, "orders");
    check_order(&grants, &["a", "b", "c"]).unwrap();
    assert_eq!(violations(check_order(&grants, &["b", "a", "c"])).len(), 2);
    assert_eq!(
        violations(check_order(&grants, &["a", "b", "c", "d"])),
        ["grant 3 should be `d`'s and never came"]
    );
    assert_eq!(violations(check_order(&grants, &["a", "b"])).len(), 1);
}

#[test]
fn only_the_grants_of_the_lock_are_counted() {
    let other = Event { lock: "bills".to_owned(), ..granted(2, "b", 1) };
    assert_eq!(
        count(&[granted(1, "a", 1), event(1, "a", What::Ask), other, granted(3, "c", 2)], "orders"),
        2
    );
}
