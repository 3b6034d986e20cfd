//! Who leads, and for which questions: without a server. In the tables each word is a question about the lock of its name: `A` is asked by
//! the call that looks for work, `a` by another call, `a~` by one that has little time left; `a#` is blocked.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlock_core::backend::BackendError;
use fairlock_tests::eventually;

use super::{Combiner, MOST_LOCKS};
use crate::combiner::{Call, Question};
use crate::command::Command;
use crate::test_values::{SECOND, lock};

const ENOUGH: Duration = Duration::from_secs(60);

fn asked(word: &str, call: &Arc<Call>) -> Question {
    let lock = lock(&word.trim_end_matches(['#', '~']).to_lowercase());
    let mut question = call.question(0, &lock.name, Command::ForceRelease(lock.clone()));
    question.is_blocked = word.contains('#');
    question
}

fn words<'q>(questions: impl IntoIterator<Item = &'q Question>, own: &Arc<Call>) -> String {
    let word = |question: &Question| {
        let name = question.lock.as_str();
        let name = if question.is_of(own) { name.to_uppercase() } else { name.to_owned() };
        name + if question.is_blocked { "#" } else { "" }
    };
    questions.into_iter().map(word).collect::<Vec<_>>().join(" ")
}

/// A combiner of four leaders at most, so many of whom lead, and wait for a row.
fn combiner(leading: usize, waiting_for_rows: usize) -> Combiner {
    let combiner = Combiner::new(5, ENOUGH);
    let mut state = combiner.state.lock();
    (state.leading, state.waiting_for_rows) = (leading, waiting_for_rows);
    drop(state);
    combiner
}

#[test]
fn a_leader_takes_what_its_step_can_answer() {
    let others: Vec<_> = (0..MOST_LOCKS).map(|n| format!("b{n}")).collect();
    let many = format!("A {}", others.join(" "));
    let most = many.strip_suffix(&format!(" {}", others[MOST_LOCKS - 1])).unwrap();
    for (waiting, waiting_for_rows, time, taken, waits) in [
        ("A b a c b c#", 0, 2.0, "A b a c b", Some(None)),
        ("A b~ c~", 0, 2.0, "A", Some(None)),
        ("A b B", 0, 0.0, "A B", Some(None)), // a late call, and one that is not
        ("A b~ c d~", 0, 0.4, "A b d", Some(None)), // others that are late
        ("A b~", 0, 0.7, "A", Some(None)),    // which would end sooner
        ("A c# b", 3, 2.0, "A b", Some(None)),
        ("A# b a b# a# B#", 0, 2.0, "A# a a#", Some(Some(2))),
        ("A# B c", 3, 2.0, "B c", Some(None)),
        ("F A f", 0, 2.0, "A", Some(None)),   // another step is about it
        ("S f s", 0, 2.0, "S s", Some(None)), // the other step is silent
        (&many, 0, 2.0, most, Some(None)),
        ("a b C#", 3, 2.0, "", None), // which may not wait for its row
    ] {
        let (combiner, now) = (combiner(3, waiting_for_rows), Instant::now());
        let [own, late, other] = [time, 0.5, 2.0].map(|time| Call::new(1, now + ENOUGH.mul_f64(time)));
        let call = |word: &str| match word {
            _ if word.starts_with(char::is_uppercase) => &own,
            _ if word.ends_with('~') => &late,
            _ => &other,
        };
        let mut state = combiner.state.lock();
        state.in_steps = HashMap::from([(lock("f").name, now + ENOUGH), (lock("s").name, now)]);
        state.waiting = waiting.split(' ').map(|word| asked(word, call(word))).collect();
        let work = combiner.work(&mut state, &own);
        let (questions, lead) =
            work.map_or_else(Default::default, |(questions, lead)| (questions, Some(lead)));
        let done = (words(&questions, &own), lead.as_ref().map(|lead| lead.waits));
        let silent_after = lead.as_ref().map(|lead| lead.silent_from.duration_since(now).as_secs());
        let counts = (state.leading, state.waiting_for_rows);
        drop(state);
        drop(lead);
        assert_eq!(done, (taken.to_owned(), waits), "{waiting}");
        let halves = waits.map(|waits| if waits.is_some() { 3 } else { 1 });
        assert_eq!(silent_after.map(|time| time * 2 / ENOUGH.as_secs()), halves, "{waiting}");
        let for_row = usize::from(waits.is_some_and(|waits| waits.is_some()));
        assert_eq!(counts, (3 + usize::from(waits.is_some()), waiting_for_rows + for_row), "{waiting}");
        let state = combiner.state.lock();
        assert_eq!((state.leading, state.waiting_for_rows), (3, waiting_for_rows), "{waiting}");
        assert!(state.in_steps.contains_key(&lock("f").name) && state.in_steps.len() <= 2, "{waiting}");
    }
}

#[test]
fn callers_are_called_to_a_step_that_waits_and_to_another() {
    for (leading, waiting_for_rows, waiting, led) in [
        (0, 0, "a b c# d#", "a c#"),
        (3, 0, "a# b", "a# b"),
        (4, 0, "a# b", ""),
        (0, 0, "f a b", "a"),
        (0, 2, "a# b", "a# b"),
        (0, 3, "a# b", "b"),
    ] {
        let (combiner, now) = (combiner(leading, waiting_for_rows), Instant::now());
        let calls: Vec<_> = waiting.split(' ').map(|word| (word, Call::new(1, now))).collect();
        calls.iter().for_each(|(_, call)| call.begin_to_wait());
        let mut state = combiner.state.lock();
        state.in_steps.insert(lock("f").name, now + ENOUGH);
        state.waiting = calls.iter().map(|(word, call)| asked(word, call)).collect();
        combiner.call_others(&state);
        let called = |(word, call): &(_, Arc<Call>)| (!call.calls()).then_some(*word);
        let called: Vec<_> = calls.iter().filter_map(called).collect();
        assert_eq!((called.join(" "), state.leading), (led.to_owned(), leading), "{waiting}");
    }
}

/// Blocked questions come first, and later ones about the same lock go with them.
#[test]
fn what_is_left_of_a_step_is_answered_first() {
    let (combiner, call) = (combiner(4, 0), Call::new(1, Instant::now() + ENOUGH));
    let questions = |words: &str| words.split(' ').map(|word| asked(word, &call)).collect::<Vec<_>>();
    combiner.state.lock().waiting = questions("A# B C D");
    combiner.put_back(questions("B# E#"));
    combiner.put_back(questions("D"));
    assert_eq!(words(&combiner.state.lock().waiting, &call), "A# B# E# B# D C D");
}

/// The call gives up what nobody takes. Behind a blocked question about its lock a question is blocked as well.
#[test]
fn a_call_waits_for_its_time() {
    for (waiting, why) in [
        ("b", "in use"),
        ("a", "in use"),
        ("b#", "in use"),
        ("a#", "locked all the time"),
        ("b a#", "locked"),
    ] {
        let (combiner, now) = (combiner(4, 0), Instant::now());
        let [call, other] = [SECOND / 50, ENOUGH].map(|time| Call::new(1, now + time));
        combiner.state.lock().waiting = waiting.split(' ').map(|word| asked(word, &other)).collect();
        combiner.operation(&call, vec![asked("a", &call)], |_, _| panic!("all lead"));
        let error = BackendError::from(call.answers().remove(0).err().unwrap());
        assert!(error.message().contains(why), "{waiting}: {error}");
        assert_eq!(words(&combiner.state.lock().waiting, &other), waiting.to_uppercase());
    }
}

#[test]
fn a_caller_that_waits_leads_when_another_has_led() {
    let (combiner, deadline, made) = (combiner(3, 0), Instant::now() + SECOND * 20, AtomicUsize::new(0));
    let [busy, call] = [(); 2].map(|()| Call::new(1, deadline));
    let mut state = combiner.state.lock();
    state.waiting.push(asked("a", &busy));
    let (taken, lead) = combiner.work(&mut state, &busy).expect("a lead is free");
    drop(state);
    thread::scope(|scope| {
        scope.spawn(|| {
            combiner.operation(&call, vec![asked("b", &call)], |_, _| {
                made.fetch_add(1, Ordering::AcqRel);
                Vec::new()
            });
        });
        eventually("it waits", || !combiner.state.lock().waiting.is_empty());
        drop((taken, lead));
    });
    assert!(Instant::now() < deadline, "it waits no longer than for its answer");
    assert_eq!((made.into_inner(), combiner.state.lock().leading), (1, 3));
}

#[test]
fn a_call_that_waits_for_answers_is_called_once() {
    let (now, call) = (Instant::now(), Call::new(1, Instant::now()));
    assert!(!call.calls(), "it does not wait yet");
    call.begin_to_wait();
    assert!(call.calls() && !call.calls());
    assert!(!call.is_answered_by(now + SECOND * 20) && !call.calls(), "it has come");
    call.begin_to_wait();
    assert!(!call.is_answered_by(now) && !call.calls(), "it has left");
    call.begin_to_wait();
    drop(asked("a", &call));
    assert!(!call.calls() && call.is_answered_by(now + SECOND * 20), "it has its answers");
    assert!(now.elapsed() < SECOND * 20);
}
