//! Which scripts a round becomes, and which answer each item gets. The server is a fake one.
#![cfg(feature = "redisson")]

use std::time::Duration;

use fairlock_core::backend::LockId;
use fairlock_core::{LockKind, OwnerId};

use super::*;
use crate::Discipline;
use crate::fake_backend::{LEASE, hold, named as id, owner, place, with};
use crate::script::scripts::{self, Script};

const RENEWED: &str = "*1\r\n+renewed\r\n";

fn is(sha: &str, script: &Script) -> bool {
    script.text.sha == sha
}

fn fair(count: usize) -> Vec<LockId> {
    (0..count).map(|n| id(&format!("lock:{n}"), LockKind::Fair)).collect()
}

/// A hold and a place of each lock, by an owner each.
fn items<'a>(locks: &'a [LockId], owner: &'a OwnerId) -> [Vec<Renew<'a>>; 2] {
    let hold = |lock| Renew::Hold { hold: hold(lock, owner), holds: 1, lease: LEASE };
    let place = |lock| Renew::Place { place: place(lock, owner), lease: LEASE };
    [locks.iter().map(hold).collect(), locks.iter().map(place).collect()]
}

/// Holds are renewed by hundreds, and the lost ones are told by their positions.
#[test]
fn holds_go_by_hundreds_and_lost_ones_are_told() {
    let (backend, ran) = with(Discipline::HandOff, |_, _| "*2\r\n+renewed\r\n:2\r\n".to_owned());
    let (locks, owner) = (fair(MOST_HOLDS + 50), owner());
    let [holds, _] = items(&locks, &owner);
    let answers = backend.0.renew(&holds);
    let lost: Vec<_> = (0..holds.len()).filter(|at| matches!(answers[*at], Ok(Renewal::Lost))).collect();
    assert_eq!(lost, [1, MOST_HOLDS + 1]);
    assert_eq!(answers.iter().filter(|answer| matches!(answer, Ok(Renewal::Renewed))).count(), 148);
    let counts: Vec<_> = ran.lock().iter().map(|ran| ran.keys.len()).collect();
    assert_eq!(counts, [MOST_HOLDS, 50]);
}

#[test]
fn each_hold_of_a_script_that_is_refused_is_renewed_alone() {
    let (backend, ran) = with(Discipline::HandOff, |_, keys| match keys {
        [one] if one != "lock:1" => RENEWED.to_owned(),
        _ => "-WRONGTYPE no\r\n".to_owned(),
    });
    let (locks, owner) = (fair(3), owner());
    let answers = backend.0.renew(&items(&locks, &owner)[0]);
    assert!(matches!(&answers[..], [Ok(Renewal::Renewed), Err(_), Ok(Renewal::Renewed)]), "{answers:?}");
    let scripts: Vec<_> =
        ran.lock().iter().map(|ran| (is(&ran.sha, &scripts::HAND_OFF_RENEW_HOLDS), ran.keys.len())).collect();
    assert_eq!(scripts, [(true, 3), (true, 1), (true, 1), (true, 1)]);
    // A hold that was alone, and places, which have a row each, are not asked for again.
    let two = [locks[1].clone(), locks[1].clone()];
    let [holds, places] = items(&two, &owner);
    for alone in [&holds[..1], &places] {
        ran.lock().clear();
        for answer in backend.0.renew(alone) {
            assert!(answer.is_err_and(|error| error.kind() != missing().kind()));
        }
        assert_eq!(ran.lock().len(), 1);
    }
}

#[test]
fn a_hold_that_is_refused_among_others_is_renewed_alone() {
    let (backend, ran) = with(Discipline::HandOff, |_, keys| match keys {
        [_, _] => "*2\r\n+renewed\r\n:-2\r\n".to_owned(),
        _ => "*2\r\n+renewed\r\n:1\r\n".to_owned(),
    });
    let (locks, owner) = (fair(2), owner());
    let answers = backend.0.renew(&items(&locks, &owner)[0]);
    assert!(matches!(&answers[..], [Ok(Renewal::Renewed), Ok(Renewal::Lost)]), "{answers:?}");
    assert_eq!(ran.lock()[1].keys, ["lock:1"]);
}

#[test]
fn each_item_gets_the_answer_of_its_own_script() {
    let waiting = |rank: u64| format!("*4\r\n+waiting\r\n:{rank}\r\n:-1\r\n:9\r\n");
    let (backend, ran) = with(Discipline::HandOff, move |sha, keys| match sha {
        _ if is(sha, &scripts::HAND_OFF_RENEW) && keys[0] == "fair" => format!("*1\r\n{}", waiting(1)),
        _ if is(sha, &scripts::HAND_OFF_RENEW) => format!("*1\r\n{}", waiting(2)),
        _ if is(sha, &scripts::REDISSON_RENEW) => format!("*1\r\n{}", waiting(3)),
        _ if keys[0] == "shared" => "*2\r\n+renewed\r\n:1\r\n".to_owned(),
        _ => RENEWED.to_owned(),
    });
    let locks = [id("fair", LockKind::Fair), id("shared", LockKind::ReadWrite), id("plain", LockKind::Plain)];
    let owner = owner();
    let [holds, places] = items(&locks, &owner);
    let answers = backend.0.renew(&[places, holds].concat());
    let waits = |rank| Renewal::Waiting { rank, recheck_in: Duration::MAX, latest: 9 };
    let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers, [waits(1), waits(2), waits(3), Renewal::Renewed, Renewal::Lost, Renewal::Renewed]);
    let times = |script: &Script| ran.lock().iter().filter(|ran| is(&ran.sha, script)).count();
    // A script of holds names two keys of each, or one.
    let each = [
        &scripts::HAND_OFF_RENEW_HOLDS,
        &scripts::HAND_OFF_RENEW,
        &scripts::REDISSON_RENEW_HOLDS,
        &scripts::REDISSON_RENEW,
    ];
    assert_eq!((each.map(|script| times(script)), ran.lock().len()), ([2, 2, 1, 1], 6));
}

#[test]
fn a_round_of_redissons_queue_has_the_scripts_of_that_queue() {
    let (backend, ran) = with(Discipline::Redisson, |sha, _| match sha {
        _ if is(sha, &scripts::REDISSON_RENEW) => "*1\r\n*4\r\n+waiting\r\n:1\r\n:-1\r\n:0\r\n".to_owned(),
        _ => RENEWED.to_owned(),
    });
    let (locks, owner) = (fair(1), owner());
    let [holds, places] = items(&locks, &owner);
    let answers = backend.0.renew(&[holds, places].concat());
    assert!(matches!(&answers[..], [Ok(Renewal::Renewed), Ok(Renewal::Waiting { .. })]), "{answers:?}");
    assert!(ran.lock().iter().any(|ran| is(&ran.sha, &scripts::REDISSON_RENEW_HOLDS)));
}

#[test]
fn a_reply_without_a_row_for_each_place_is_an_error_for_all() {
    let (backend, _) = with(Discipline::HandOff, |_, _| "*1\r\n*1\r\n+lost\r\n".to_owned());
    let (lock, owner) = (id("a", LockKind::Fair), owner());
    let answers = backend.0.renew(&items(&[lock.clone(), lock], &owner)[1]);
    assert!(matches!(&answers[..], [Err(_), Err(_)]), "{answers:?}");
}
