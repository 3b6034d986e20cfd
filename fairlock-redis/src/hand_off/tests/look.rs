//! What `inspect` shows of a lock with our queue.

use std::time::Duration;

use super::*;
use crate::backend::RedisBackend;
use crate::builder::Discipline;
use crate::fake_backend::{bulk, hand_off, id, with};
use fairlock_core::FencingToken;

fn backend() -> RedisBackend {
    with(Discipline::HandOff, |_, _| String::new()).0
}

/// Owner, request, units, token, count, label, lease left, held for.
fn hold(token: &str, label: &str) -> Value {
    let of_owner = [bulk("u:1"), bulk("000000000000001f"), Value::Int(2), bulk(token), Value::Int(3)];
    let [a, b, c, d, e] = of_owner;
    Value::Array(vec![a, b, c, d, e, bulk(label), Value::Int(1500), Value::Int(-1)])
}

/// {state, capacity, used units, number of holders, holders, length of the queue, absent, queue}
fn reply(capacity: i64, used: i64, count: i64, holders: Vec<Value>) -> Value {
    let numbers = [capacity, used, count].map(Value::Int);
    let queue = [Value::Int(4), Value::Int(1), Value::Array(Vec::new())];
    let items = [bulk("state")].into_iter().chain(numbers).chain([Value::Array(holders)]).chain(queue);
    Value::Array(items.collect())
}

#[test]
fn a_holder_has_what_is_known_of_it() {
    let known = holder(&hold("7", "nightly")).unwrap();
    assert_eq!((known.owner.as_str(), known.units, known.hold_count), ("u:1", 2, 3));
    assert_eq!((known.request, known.token), (Some(RequestId::new(0x1f)), Some(FencingToken::new(7))));
    assert_eq!((known.lease_left, known.held_for), (Some(Duration::from_millis(1500)), None));
    assert_eq!(known.label.as_deref(), Some("nightly"));
    let Value::Array(mut of_java) = hold("", "") else { panic!() };
    of_java[1] = bulk("");
    let of_java = holder(&Value::Array(of_java)).unwrap();
    assert_eq!((of_java.request, of_java.token, of_java.label), (None, None, None));
}

#[test]
fn a_waiter_has_what_is_known_of_it() {
    let of = |units: &str, label: &str, capacity: &str| {
        let [who, request] = [bulk("u:1"), bulk("1f")];
        let [units, label, capacity] = [units, label, capacity].map(bulk);
        let place = [who, request, Value::Int(20), Value::Int(30), units, label, capacity];
        waiter(&Value::Array(place.to_vec())).unwrap()
    };
    let known = of("2", "a b", "5");
    assert_eq!((known.owner.as_str(), known.request), ("u:1", Some(RequestId::new(0x1f))));
    let times = (Some(Duration::from_millis(20)), Some(Duration::from_millis(30)));
    assert_eq!((known.waiting, known.place_left), times);
    assert_eq!((known.units, known.label.as_deref(), known.capacity), (2, Some("a b"), Some(5)));
    assert_eq!(of("1", "", "1").capacity, None);
    let without = of("", "", "");
    assert_eq!((without.units, without.label, without.capacity), (1, None, None));
}

/// A capacity is told of locks of several units, and of a semaphore of one.
#[test]
fn a_capacity_is_told_of_several_units_and_semaphores() {
    let (backend, one) = (backend(), LockKind::Semaphore { permits: 1 });
    let told =
        |kind, capacity| hand_off(&backend).seen(kind, &reply(capacity, 0, 0, Vec::new())).unwrap().capacity;
    assert_eq!([told(LockKind::Fair, 2), told(one, 2), told(LockKind::ReadWrite, 2)], [Some(2); 3]);
    assert_eq!([told(LockKind::Fair, 1), told(one, 1), told(LockKind::ReadWrite, 1)], [None, Some(1), None]);
    assert_eq!(told(one, -1), None);
}

#[test]
fn holders_come_by_their_tokens_and_the_others_are_counted() {
    let (backend, kind) = (backend(), LockKind::ReadWrite);
    let two = vec![hold("9", ""), hold("7", "")];
    let all = hand_off(&backend).seen(kind, &reply(8, 4, 2, two.clone())).unwrap();
    let tokens: Vec<_> = all.holders.iter().filter_map(|holder| holder.token).collect();
    assert_eq!(tokens, [7, 9].map(FencingToken::new));
    assert_eq!((all.unlisted_holders, all.unlisted_units, all.taken()), (0, 0, 4));
    assert_eq!((all.queue_length, all.absent, all.queue.len()), (4, 1, 0));
    let more = hand_off(&backend).seen(kind, &reply(8, 7, 3, two.clone())).unwrap();
    assert_eq!((more.unlisted_holders, more.unlisted_units, more.taken()), (1, 3, 7));
    // Units that no holder has are not told.
    let odd = hand_off(&backend).seen(kind, &reply(8, 9, 2, two)).unwrap();
    assert_eq!((odd.unlisted_holders, odd.unlisted_units), (0, 0));
}

#[test]
fn a_look_names_the_capacity_unless_any_kind_is_shown() {
    let empty = "*8\r\n+state\r\n:-1\r\n:0\r\n:0\r\n*0\r\n:0\r\n:0\r\n*0\r\n";
    let (backend, ran) = with(Discipline::HandOff, |_, _| empty.to_owned());
    let lock = id(LockKind::Semaphore { permits: 3 });
    for kinds in [Kinds::This, Kinds::Any] {
        let call = hand_off(&backend).look(&lock, &Look { from: 5, many: 6, examined: 7, kinds }).unwrap();
        backend.0.scripts.run(&call).unwrap();
    }
    let most = MOST_INSPECTED.to_string();
    let arguments: Vec<_> = ran.lock().iter().map(|ran| ran.arguments.clone()).collect();
    assert_eq!(arguments, [[&most, "5", "6", "7", "3"], [&most, "5", "6", "7", "0"]]);
}

#[test]
fn the_queue_is_found_by_its_keys_and_needs_the_rights_to_them() {
    let backend = backend();
    assert_eq!(hand_off(&backend).keys_like("a*"), (queues("a*").to_vec(), "zset"));
    let keys = Keys::of(&id(LockKind::ReadWrite)).unwrap();
    let [all, of_several] = hand_off(&backend).needed(&keys, "fairlock:u");
    let on = |key: &str| all.iter().filter(|words| words.get(1) == Some(&key)).count();
    assert_eq!([on("fairlock_queue:{a}"), on("fairlock_record:{a}"), on("NUMSUB")], [5, 1, 1]);
    assert_eq!(of_several.len(), 2);
    assert!(of_several.iter().all(|words| words[1] == "fairlock_ends:{a}"));
}
