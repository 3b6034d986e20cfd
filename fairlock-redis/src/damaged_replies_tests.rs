//! Replies of scripts that were damaged, or that a program between sends: each is an answer, or an error in words.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use redis::{Value, parse_redis_value};

use crate::backend::by_rules;
use crate::builder::Discipline;
use crate::fake_backend::{LEASE, bulk, hold, id, owner, place, with};
use crate::script::reply::{self, Row};
use fairlock_core::LockKind;
use fairlock_core::backend::{Acquire, BackendError, BackendErrorKind, LockState};

/// As the scripts have sent them.
const RECORDED: [&str; 15] = [
    ":1764212345678901\r\n",
    ":1\r\n",
    "*5\r\n:2\r\n:500\r\n:4\r\n:9\r\n:0\r\n",
    "*3\r\n$7\r\ngranted\r\n:7\r\n:30000\r\n",
    "*5\r\n$6\r\nqueued\r\n:1\r\n:-1\r\n$16\r\n1764212345678901\r\n:9\r\n",
    "*3\r\n$4\r\nbusy\r\n:500\r\n:1\r\n",
    "*2\r\n$8\r\nreleased\r\n:1\r\n",
    "*2\r\n$4\r\nleft\r\n:0\r\n",
    "*3\r\n$11\r\nwas_granted\r\n:7\r\n:30000\r\n",
    "*3\r\n$7\r\nrenewed\r\n:1\r\n:-3\r\n",
    "*3\r\n*4\r\n$7\r\nwaiting\r\n:2\r\n:-1\r\n:9\r\n*1\r\n$4\r\nlost\r\n*3\r\n$7\r\ngranted\r\n:7\r\n:5\r\n",
    "*2\r\n$8\r\nnot_held\r\n:0\r\n",
    "*1\r\n$5\r\ntaken\r\n",
    "*8\r\n$5\r\nstate\r\n:2\r\n:2\r\n:1\r\n*1\r\n*8\r\n$3\r\nu:1\r\n$2\r\n1f\r\n:2\r\n$1\r\n7\r\n:3\r\n$0\r\n\r\n:1500\r\n:-1\r\n:4\r\n:1\r\n\
     *1\r\n*6\r\n$3\r\nv:1\r\n$1\r\n2\r\n:20\r\n:30\r\n$1\r\n2\r\n$1\r\nw\r\n",
    "*6\r\n$5\r\nstate\r\n*5\r\n$3\r\nu:1\r\n$1\r\n1\r\n$1\r\n7\r\n$1\r\nw\r\n$2\r\n15\r\n:1500\r\n:4\r\n:1\r\n*1\r\n*2\r\n$3\r\nv:1\r\n:30\r\n",
];

fn any_value() -> impl Strategy<Value = Value> {
    let word = select(vec![
        "granted",
        "queued",
        "busy",
        "taken",
        "lost",
        "state",
        "",
        "-1",
        "1f",
        "18446744073709551616",
        "é",
    ]);
    let number = prop_oneof![select(vec![0, 1, -1, i64::MAX, i64::MIN, 1 << 53, 1 << 32]), any::<i64>()];
    let leaf = prop_oneof![
        3 => word.prop_map(bulk),
        3 => number.prop_map(Value::Int),
        1 => vec(any::<u8>(), 0..9).prop_map(Value::BulkString),
        1 => select(vec![Value::Nil, Value::Okay, Value::SimpleString("x".into())]),
    ];
    leaf.prop_recursive(3, 24, 8, |item| vec(item, 0..9).prop_map(Value::Array))
}

/// A recorded reply in which some values have others, more, or none at their place.
fn damaged() -> impl Strategy<Value = Value> {
    let change = (any::<Index>(), 0..4_u8, any_value());
    (select(RECORDED.to_vec()), vec(change, 0..4)).prop_map(|(recorded, changes)| {
        let mut reply = parse_redis_value(recorded.as_bytes()).unwrap();
        changes.into_iter().for_each(|(at, how, other)| {
            let mut left = at.index(size(&reply));
            change_at(&mut reply, &mut left, how, &other);
        });
        reply
    })
}

fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        _ => 1,
    }
}

/// Changes the value that comes after so many others.
fn change_at(value: &mut Value, left: &mut usize, how: u8, other: &Value) -> bool {
    if *left == 0 {
        match value {
            Value::Array(items) if how == 1 => _ = items.pop(),
            Value::Array(items) if how == 2 => items.push(other.clone()),
            _ => *value = other.clone(),
        }
        return true;
    }
    *left -= 1;
    let Value::Array(items) = value else { return false };
    items.iter_mut().any(|item| change_at(item, left, how, other))
}

/// What says no more than that the reply makes no sense, or that it was not written by us.
fn in_words<T>(answer: Result<T, BackendError>) -> Result<T, BackendErrorKind> {
    answer.map_err(|error| {
        assert!(!error.message().is_empty() && error.message().len() < 1000, "{error}");
        assert!(
            matches!(error.kind(), BackendErrorKind::Unavailable | BackendErrorKind::Corrupt),
            "{error:?}"
        );
        error.kind()
    })
}

#[test]
fn damaged_replies_of_scripts_are_answers_or_errors_in_words() {
    // What follows a reply finds nothing more to do.
    let disciplines = [
        Discipline::HandOff,
        #[cfg(feature = "redisson")]
        Discipline::Redisson,
    ];
    let backends = disciplines.map(|it| with(it, |_, _| "*2\r\n$4\r\nleft\r\n:0\r\n".to_owned()).0);
    let kinds = [LockKind::Fair, LockKind::ReadWrite, LockKind::Semaphore { permits: 3 }];
    let (locks, owner) = (kinds.map(id), owner());
    proptest!(|(reply in prop_oneof![4 => damaged().boxed(), 1 => any_value().boxed()], which in 0..backends.len(), lock in 0..3_usize)| {
        let (rules, lock) = (&backends[which].0.fair, &locks[lock * (1 - which)]);
        let (place, hold) = (place(lock, &owner), hold(lock, &owner));
        let ask = Acquire::new(place, LEASE);
        let call = by_rules!(rules, acquire(&ask)).unwrap();
        let _ = in_words(by_rules!(rules, acquired(&ask, &call, reply.clone())));
        let _ = in_words(by_rules!(rules, released(&hold, &reply)));
        let _ = in_words(by_rules!(rules, withdrawn(&place, &reply)));
        for n in 0..4 {
            let answers = [reply::renewed(&reply, n), reply::renewed_holds(&reply, n)].map(in_words);
            for answers in answers.into_iter().flatten() {
                prop_assert_eq!(answers.len(), n);
            }
        }
        let _ = in_words(Row::of(&reply).and_then(|row| reply::adopted(&row)));
        let _ = in_words(Row::of(&reply).and_then(|row| reply::force_released(&row)));
        if let Ok(state) = in_words(by_rules!(rules, seen(lock.kind, &reply))) {
            let LockState { holders, queue, .. } = &state;
            prop_assert!(state.taken() as usize >= holders.len().min(1) * usize::from(holders.iter().any(|it| it.units > 0)));
            prop_assert!(!state.to_string().is_empty() || queue.is_empty());
        }
    });
}
