//! What the scripts in `hand_off/` are told, and what their replies mean. The server is a fake one.

mod look;

use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;
use std::thread;

use fairlock_core::backend::{Backend, Renew, only};
use fairlock_core::{ClientId, FencingToken, LockKind, OwnerId};
use parking_lot::Mutex;

use super::*;
use crate::fake_backend::{LEASE, Ran, RecordedWakeUps, hand_off, hold, id, of, owner, place};
use crate::net::test_server::{Act, FakeServer, confirmed, polite};
use crate::{Durability, RedisBackend};

const MEMBER: &str = "u:1:000000000000001f";
/// The end of an attempt where the server's clock is not known.
const NEVER: &str = "0000000000000000";
const LEFT: &str = "*2\r\n+left\r\n:0\r\n";
const LEFT_SOME: &str = "*2\r\n+left\r\n:1\r\n";

/// A backend whose server says these one after the other, and the last of them again and again.
fn saying(said: &[&'static str]) -> (RedisBackend, Arc<Mutex<Vec<Ran>>>) {
    let (next, said) = (AtomicUsize::new(0), said.to_vec());
    let reply = move |_: &str, _: &[String]| {
        said[next.fetch_add(1, Ordering::Relaxed).min(said.len() - 1)].to_owned()
    };
    of(|builder| builder, reply)
}

/// How the server answers an attempt, and how often it was asked.
fn acquired(said: &[&'static str]) -> (Option<Acquired>, usize) {
    let ((backend, ran), lock, owner) = (saying(said), id(LockKind::Fair), owner());
    let answer = only(backend.acquire(&[Acquire::new(place(&lock, &owner), LEASE)])).ok();
    let asked = ran.lock().len();
    (answer, asked)
}

/// The scripts, by their first arguments.
fn scripts_of(ran: &Mutex<Vec<Ran>>) -> Vec<(String, Vec<String>)> {
    ran.lock().iter().map(|ran| (ran.sha.clone(), ran.arguments.clone())).collect()
}

/// The script that only hands on what is free.
fn hands_on() -> (String, Vec<String>) {
    (scripts::HAND_OFF_WITHDRAW.text.sha.clone(), ["", "1", "s"].map(str::to_owned).to_vec())
}

#[test]
fn an_attempt_says_what_its_script_has_to_know() {
    let (backend, ran) = saying(&[":7\r\n"]);
    let (lock, owner) = (id(LockKind::Semaphore { permits: 3 }), owner());
    let mut ask = Acquire::new(place(&lock, &owner), LEASE);
    (ask.label, ask.place.units, ask.place.ttl) = ("nightly", 2, Duration::from_secs(9));
    only(backend.acquire(&[ask])).unwrap();
    ask.place.ticket = 5;
    only(backend.acquire(&[ask])).unwrap();
    let mut sent = [MEMBER, "30000", "9000", "ws", "nightly", "2", "3", NEVER, "0"];
    assert_eq!(ran.lock()[0].keys, ["a", "fairlock_queue:{a}", "fairlock_record:{a}", "fairlock_ends:{a}"]);
    assert_eq!(ran.lock()[0].arguments, sent);
    sent[8] = "5";
    assert_eq!(ran.lock()[1].arguments, sent);
}

/// A server whose connection for commands breaks once, at a script, and whose connection for messages goes on.
#[test]
fn the_first_call_after_a_lost_connection_tells_of_it() {
    let asked = AtomicUsize::new(0);
    let server = FakeServer::start(move |_, words| match words[0].as_str() {
        "EVALSHA" if asked.fetch_add(1, Ordering::SeqCst) == 1 => Act::HangUp,
        "EVALSHA" => Act::Say(":7\r\n".to_owned()),
        "TIME" => Act::Say("*2\r\n+1000\r\n+7\r\n".to_owned()),
        "subscribe" => Act::Say(confirmed(&words[1])),
        _ => polite(words),
    });
    let backend = RedisBackend::builder(&format!("redis://{}", server.address())).connect().unwrap();
    let client = ClientId::random();
    let _subscription = backend.subscribe(client, Arc::new(RecordedWakeUps::default())).unwrap();
    let (lock, owner) = (id(LockKind::Fair), OwnerId::new(&format!("{client}:1")));
    let ask = Acquire::new(place(&lock, &owner), LEASE);
    let is_answered = [(); 3].map(|()| only(backend.acquire(&[ask])).is_ok());
    assert_eq!(is_answered, [true, false, true]);
    let options: Vec<String> = server.asked("EVALSHA").iter().map(|words| words[9].clone()).collect();
    assert_eq!(options[..2], ["ws", "ws"]);
    let (letters, since) = options[2].split_once('u').expect("the fault");
    assert_eq!(letters, "wsd", "the subscription may be lost, too");
    assert!(since.parse::<u64>().unwrap() > 1_000_000_007, "{since}");
}

#[test]
fn letters_say_whether_it_waits() {
    for (wait, letters) in [(Wait::Forever, "ws"), (Wait::No, "s")] {
        let (backend, ran) = saying(&[":7\r\n"]);
        let (lock, owner) = (id(LockKind::Fair), owner());
        let mut ask = Acquire::new(place(&lock, &owner), LEASE);
        ask.place.wait = wait;
        only(backend.acquire(&[ask])).unwrap();
        assert_eq!(ran.lock()[0].arguments[3], letters);
    }
}

/// What the reply to a waiter says of a holder that is foreign, and how often the client looks whether others wait with it. Without an
/// answer, too, and without the right, the waiter has its place.
#[test]
fn one_look_follows_the_word_that_the_holder_is_foreign() {
    for said in [":1\r\n", ":0\r\n", "-NOPERM no\r\n", "*0\r\n", ""] {
        let (foreign, looks) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (is_foreign, seen) = (Arc::clone(&foreign), Arc::clone(&looks));
        let server = FakeServer::start(move |_, words| match words[0].as_str() {
            "EVALSHA" => {
                let foreign = u8::from(is_foreign.load(Ordering::SeqCst));
                Act::Say(format!("*5\r\n:0\r\n:500\r\n:4\r\n:9\r\n:{foreign}\r\n"))
            }
            "EXISTS" => {
                seen.lock().push(words[1..].to_vec());
                if said.is_empty() { Act::HangUp } else { Act::Say(said.to_owned()) }
            }
            _ => polite(words),
        });
        let backend = RedisBackend::builder(&format!("redis://{}", server.address())).connect().unwrap();
        let (lock, owner) = (id(LockKind::Fair), owner());
        let ask = Acquire::new(place(&lock, &owner), LEASE);
        let is_queued = |count: usize| {
            for _ in 0..3 {
                assert!(matches!(only(backend.acquire(&[ask])), Ok(Acquired::Queued { .. })), "{said}");
            }
            assert_eq!(*looks.lock(), vec![["redisson_lock_queue:{a}"]; count], "{said}");
        };
        is_queued(0);
        foreign.store(true, Ordering::SeqCst);
        is_queued(1);
    }
}

#[test]
fn an_attempt_is_granted_or_queued_or_finds_the_lock_busy() {
    let granted = Acquired::Granted { token: FencingToken::new(7), lease: LEASE };
    assert_eq!(acquired(&[":7\r\n"]), (Some(granted), 1));
    assert_eq!(acquired(&["*3\r\n+granted\r\n:7\r\n:30000\r\n"]), (Some(granted), 1));
    let recheck_in = Duration::from_millis(500);
    let queued = Acquired::Queued { rank: 2, recheck_in, ticket: 4, latest: 9 };
    assert_eq!(acquired(&["*5\r\n:2\r\n:500\r\n:4\r\n:9\r\n:0\r\n"]), (Some(queued), 1));
    assert_eq!(acquired(&["*4\r\n:2\r\n:500\r\n:4\r\n:9\r\n"]), (None, 1));
    let busy = Acquired::Busy { recheck_in };
    assert_eq!(acquired(&["*2\r\n+busy\r\n:500\r\n"]), (Some(busy), 1));
    assert_eq!(acquired(&["*3\r\n+busy\r\n:500\r\n:0\r\n"]), (Some(busy), 1));
    // The script had reached a limit.
    assert_eq!(acquired(&["*3\r\n+busy\r\n:500\r\n:1\r\n", ":7\r\n"]), (Some(granted), 2));
}

/// A release that has more to do is repeated until there is no more to do.
#[test]
fn a_release_goes_on_until_there_is_no_more_to_do() {
    let (lock, owner) = (id(LockKind::Fair), owner());
    let cases: [(&[&str], _, usize); 6] = [
        (&[":0\r\n", LEFT], Released::Released, 0),
        (&[":1\r\n", LEFT], Released::Released, 1),
        (&[":1\r\n", LEFT_SOME, LEFT_SOME, LEFT], Released::Released, 3),
        (&[":1\r\n", "-ERR no\r\n"], Released::Released, 1),
        (&["*1\r\n+not_held\r\n", LEFT], Released::NotHeld, 0),
        (&["*2\r\n+not_held\r\n:1\r\n", LEFT], Released::NotHeld, 1),
    ];
    for (said, answer, more) in cases {
        let (backend, ran) = saying(said);
        assert_eq!(only(backend.release(&[hold(&lock, &owner)])).unwrap(), answer, "{said:?}");
        let ran = scripts_of(&ran);
        assert_eq!(ran[0].1, ["1", MEMBER, "1", "7", "s"], "{said:?}");
        assert_eq!(ran[1..], vec![hands_on(); more], "{said:?}");
    }
}

#[test]
fn a_request_that_leaves_hands_on_what_it_kept_from_others() {
    let (lock, owner) = (id(LockKind::Fair), owner());
    let was_granted = "*3\r\n+was_granted\r\n:7\r\n:30000\r\n";
    let granted = Withdrawn::WasGranted { token: FencingToken::new(7), lease: LEASE };
    let cases: [(&[&str], _, usize); 4] = [
        (&[LEFT], Withdrawn::Left, 0),
        (&[LEFT_SOME, LEFT], Withdrawn::Left, 1),
        (&["*1\r\n+left\r\n"], Withdrawn::Left, 0),
        (&[was_granted, LEFT], granted, 0),
    ];
    for (said, answer, more) in cases {
        let (backend, ran) = saying(said);
        assert_eq!(only(backend.withdraw(&[place(&lock, &owner)])).unwrap(), answer, "{said:?}");
        let ran = scripts_of(&ran);
        assert_eq!(ran[0].1, [MEMBER, "1", "s"]);
        assert_eq!(ran[1..], vec![hands_on(); more], "{said:?}");
    }
}

#[test]
fn taking_a_lock_goes_on_behind_the_holders_that_were_looked_at() {
    let lock = id(LockKind::Semaphore { permits: 3 });
    let some = "*4\r\n+taken\r\n:0\r\n:8\r\n:9\r\n";
    let (backend, ran) = saying(&[some, "*2\r\n+not_held\r\n:0\r\n"]);
    assert_eq!(backend.force_release(&lock).unwrap(), ForceReleased::Taken);
    let arguments: Vec<_> = ran.lock().iter().map(|ran| ran.arguments.clone()).collect();
    let sent = ["s", "3", NEVER, "", "", "8", "9"];
    assert_eq!(arguments, [&sent[..5], &sent]);
    for (said, more) in [("*2\r\n+not_held\r\n:0\r\n", 0), ("*2\r\n+not_held\r\n:1\r\n", 1)] {
        let (backend, ran) = saying(&[said, LEFT]);
        let (fair, owner) = (id(LockKind::Fair), owner());
        let taken = backend.take_hold(&hold(&fair, &owner)).unwrap();
        let ran = scripts_of(&ran);
        assert_eq!(taken, ForceReleased::NotHeld);
        assert_eq!(ran[0].1, ["s", "1", NEVER, MEMBER, "7"]);
        assert_eq!(ran[1..], vec![hands_on(); more]);
    }
}

#[test]
fn taking_a_lock_ends_though_its_holders_never_do() {
    let some = |_: &str, _: &[String]| "*4\r\n+taken\r\n:0\r\n:8\r\n:9\r\n".to_owned();
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        let (backend, _ran) = of(|builder| builder.response_timeout(Duration::from_millis(300)), some);
        done.send(backend.force_release(&id(LockKind::ReadWrite))).unwrap();
    });
    let answer = ended.recv_timeout(Duration::from_secs(20)).expect("it ends");
    assert!(answer.is_err_and(|error| error.kind() == BackendErrorKind::Unavailable));
}

#[test]
fn counts_are_told_once_one_of_them_was_not_one() {
    let (lock, owner) = (id(LockKind::Fair), owner());
    let shared = id(LockKind::ReadWrite);
    let (backend, ran) = saying(&["*1\r\n+renewed\r\n"]);
    let renew = |lock: &LockId, holds| {
        let item = Renew::Hold { hold: hold(lock, &owner), holds, lease: LEASE };
        backend.renew(ClientId::random(), &[item]).remove(0).unwrap();
        let ran = ran.lock();
        ran.last().unwrap().arguments[..3].join("|")
    };
    let told = [renew(&lock, 1), renew(&shared, 1), renew(&lock, 2), renew(&lock, 1)];
    // The last number is that of the keys of each hold.
    assert_eq!(told, ["|30000|1", "|30000|2", "2|30000|1", "1|30000|1"]);
    let (other, ran) = saying(&["*1\r\n+renewed\r\n"]);
    hand_off(&other).will_tell(2);
    let held = hold(&lock, &owner);
    let call = hand_off(&other).renew_holds(&[&held], 1, LEASE).unwrap();
    other.0.scripts.run(&call).unwrap();
    assert_eq!(ran.lock()[0].arguments[0], "1");
}

#[test]
fn a_durable_client_reclaims_a_hold_that_is_alone() {
    let durable = |builder: crate::RedisBuilder| builder.durable(Durability::default());
    let (backend, ran) = of(durable, |_, _| "*1\r\n+renewed\r\n".to_owned());
    let (lock, owner) = (id(LockKind::Fair), owner());
    let hold = hold(&lock, &owner);
    for holds in [&[&hold][..], &[&hold, &hold]] {
        let call = hand_off(&backend).renew_holds(holds, 1, LEASE).unwrap();
        backend.0.scripts.run(&call).unwrap();
    }
    let sent_before = attempt_length(Duration::from_secs(1)) + Duration::from_millis(500);
    let sent_before = sent_before.as_millis().to_string();
    let around = ["0", "10602", "0", ""];
    let alone = [&["", "30000", "1", MEMBER, "1", "7", NEVER, &sent_before][..], &around].concat();
    let many = [&["", "30000", "1", MEMBER, "7", MEMBER, "7"][..], &around].concat();
    let arguments: Vec<_> = ran.lock().iter().map(|ran| ran.arguments.clone()).collect();
    assert_eq!(arguments, [alone, many]);
}

#[test]
fn a_heartbeat_has_all_places_of_a_lock() {
    let (lock, owner) = (id(LockKind::Semaphore { permits: 3 }), owner());
    let (backend, ran) = saying(&["*0\r\n"]);
    let [mut short, mut long] = [place(&lock, &owner), place(&lock, &owner)];
    (short.ttl, short.ticket, long.ttl, long.units) = (LEASE / 10, 4, LEASE / 5, 2);
    let call = hand_off(&backend).renew_places(&lock, &[(&short, LEASE), (&long, 2 * LEASE)]).unwrap();
    backend.0.scripts.run(&call).unwrap();
    let places = [MEMBER, "30000", "4", MEMBER, "60000", "0"];
    assert_eq!(ran.lock()[0].arguments, [&["6000", "ws", "3"][..], &places].concat());
}

#[test]
fn the_queue_has_locks_of_any_capacity_and_no_plain_ones() {
    let (backend, _) = saying(&["*0\r\n"]);
    let kinds = [LockKind::Fair, LockKind::ReadWrite, LockKind::Semaphore { permits: 1 }, LockKind::Plain];
    assert_eq!(kinds.map(|kind| backend.supports(kind)), [true, true, true, cfg!(feature = "redisson")]);
    assert_eq!(backend.keeps_only(), "plain locks need the feature `redisson`");
}

#[test]
fn a_name_is_looked_for_once_an_hour_and_any_once_a_minute() {
    let names = ["a", "b"].map(|name| LockName::new(name).unwrap());
    let (shared, start) = (SharedNames::default(), Instant::now());
    let is_due = |name: usize, seconds| shared.is_due(&names[name], start + Duration::from_secs(seconds));
    assert!(is_due(0, 0));
    assert!(!is_due(0, 0) && !is_due(1, 59));
    assert!(is_due(1, 60));
    assert!(!is_due(0, 3599));
    assert!(is_due(0, 3600));
    assert!(!is_due(1, 3659) && is_due(1, 3660));
}

#[test]
fn only_the_names_of_an_hour_are_remembered() {
    let (shared, start) = (SharedNames::default(), Instant::now());
    for second in 0..20_000 {
        let name = LockName::new(&second.to_string()).unwrap();
        shared.is_due(&name, start + Duration::from_secs(second));
    }
    assert_eq!(shared.0.lock().len(), 60);
}
