//! A lock that becomes bytes and back after each operation does what one does that stays as it is. Damaged bytes are an error, or
//! a lock that works.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use fairlock_core::backend::{Acquire, Acquired, Hold, LockId, Place, Renew, Renewal, RequestId, Wait};
use fairlock_core::{FencingToken, LockKind, LockName, OwnerId};
use fairlock_rules::{DecodeError, LockEntry, Moment, Presence, StoreContext, WakeUpKind};
use proptest::prelude::*;

const KINDS: [LockKind; 4] =
    [LockKind::Fair, LockKind::Plain, LockKind::ReadWrite, LockKind::Semaphore { permits: 100 }];

/// What a request does, and after how many milliseconds.
type Step = (What, u64, u64);

#[derive(Clone, Copy, Debug)]
enum What {
    Ask(Wait),
    AskForAll,
    Renew,
    Release,
    Keep,
    Count,
    Withdraw,
    Kick,
    TakeHold,
    Force,
    OtherKind,
    LoseHolds,
    LoseQueue,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    use What::*;
    let what =
        [Ask(Wait::Forever), Ask(Wait::Forever), Ask(Wait::No), AskForAll, Renew, Renew, Release, Release]
            .into_iter()
            .chain([Keep, Count, Withdraw, Kick, TakeHold, Force, OtherKind, LoseHolds, LoseQueue]);
    let after = prop_oneof![6 => 0..50_u64, 3 => 50..3_000_u64, 1 => 3_000..100_000_u64];
    let step = (proptest::sample::select(what.collect::<Vec<_>>()), 0..90_u64, after);
    proptest::collection::vec(step, 1..200)
}

/// A lock, and what its requests were told.
struct World {
    lock: LockId,
    store_context: StoreContext,
    now: Moment,
    told: Vec<(u64, FencingToken)>, // the ticket and the token of each request
}

impl World {
    fn new(kind: LockKind) -> World {
        let lock = LockId::new(LockName::new("x").unwrap(), kind);
        let told = vec![(0, FencingToken::new(0)); 90];
        World { lock, store_context: StoreContext::default(), now: Duration::from_secs(1_800_000_000), told }
    }

    /// Does the step, and tells all that came of it.
    fn run(&mut self, entry: &mut LockEntry, step: Step) -> (String, Vec<String>, u64) {
        let (what, number, after) = step;
        self.now += Duration::from_millis(after);
        let World { lock, store_context, now, told } = self;
        let owner = OwnerId::new(&format!("c{}:{number}", number % 3));
        let (ticket, token) = told[number as usize];
        let hold = Hold::new(lock, &owner, RequestId::new(number), token);
        let mut place = Place::new(lock, &owner, RequestId::new(number));
        (place.ticket, place.ttl) = (ticket, Duration::from_secs(3 + number % 4));
        let lease = Duration::from_secs(10 + number);
        let presence = |owner: &OwnerId| Presence::if_listening(owner.client() != "c2");
        let context = &mut store_context.operation(&lock.name, *now, &presence);
        let answer = match what {
            What::Ask(_) | What::AskForAll => {
                if let What::Ask(wait) = what {
                    place.wait = wait;
                } else {
                    place.units = lock.kind.capacity();
                }
                let mut ask = Acquire::new(place, lease);
                ask.label = "worker";
                let answer = entry.acquire(context, &ask);
                match answer {
                    Ok(Acquired::Granted { token, .. }) => told[number as usize].1 = token,
                    Ok(Acquired::Queued { ticket, .. }) => told[number as usize].0 = ticket,
                    _ => {}
                }
                format!("{answer:?}")
            }
            What::Renew => {
                let items = [Renew::Place { place, lease }, Renew::Hold { hold, holds: 2, lease }];
                let answers = entry.renew(context, &items);
                if let Renewal::Granted { token, .. } = answers[0] {
                    told[number as usize].1 = token;
                }
                format!("{answers:?}")
            }
            What::Release => format!("{:?}", entry.release(context, &hold)),
            What::Keep => format!("{:?}", entry.keep(context, &hold, RequestId::new(number + 1_000), lease)),
            What::Count => format!("{:?}", entry.set_hold_count(context, &hold, 3)),
            What::Withdraw => format!("{:?}", entry.withdraw(context, &place)),
            What::Kick => format!("{:?}", entry.kick(context, &place)),
            What::TakeHold => format!("{:?}", entry.take_hold(context, &hold)),
            What::Force => format!("{:?}", entry.force_release(context, lock)),
            What::LoseHolds => format!("{:?}", entry.lose_hold()),
            What::LoseQueue => format!("{:?}", entry.lose_queue()),
            What::OtherKind => {
                let other = LockId::new(lock.name.clone(), LockKind::Semaphore { permits: 3 });
                format!(
                    "{:?}",
                    entry.acquire(context, &Acquire::new(Place::new(&other, &owner, hold.request), lease))
                )
            }
        };
        let seen = entry.inspect(context, lock, 0..500).map(|state| state.to_string());
        // Those for any waiter of a client name one of them, and have no order.
        let told = store_context.take_wake_ups().into_iter().map(|wake_up| match wake_up.kind {
            WakeUpKind::RecheckAny => wake_up.owner.client().to_owned(),
            _ => wake_up.to_string(),
        });
        let mut told: Vec<_> = told.collect();
        told.sort();
        (format!("{answer} {seen:?} {:?}", entry.over_at()), told, store_context.last_number())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// An entry that is read from bytes after each operation does what an entry that is kept as it is does.
    #[test]
    fn an_entry_read_from_bytes_does_what_it_did_before(kind in 0..4_usize, steps in steps()) {
        let (mut stays, mut becomes) = (World::new(KINDS[kind]), World::new(KINDS[kind]));
        let (mut as_it_is, mut bytes) = (LockEntry::default(), LockEntry::default().encode());
        for step in steps {
            let mut read = LockEntry::decode(&bytes).unwrap();
            prop_assert_eq!(becomes.run(&mut read, step), stays.run(&mut as_it_is, step));
            bytes = read.encode();
            prop_assert_eq!(&bytes, &as_it_is.encode());
        }
    }

    #[test]
    fn damaged_bytes_are_an_error_or_a_lock_that_works(
        kind in 0..4_usize,
        steps in steps(),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
        cut in proptest::option::of(any::<proptest::sample::Index>()),
    ) {
        let (mut world, mut entry) = (World::new(KINDS[kind]), LockEntry::default());
        steps.iter().for_each(|step| _ = world.run(&mut entry, *step));
        let mut bytes = entry.encode();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(at) = cut {
            bytes.truncate(at.index(bytes.len()));
        }
        match LockEntry::decode(&bytes) {
            Ok(mut damaged) => {
                steps.iter().for_each(|step| _ = world.run(&mut damaged, *step));
                prop_assert!(LockEntry::decode(&damaged.encode()).is_ok());
            }
            Err(DecodeError::Format { found }) => prop_assert_eq!(found, bytes[0]),
            Err(DecodeError::Damaged { at }) => prop_assert!(at <= bytes.len()),
            Err(DecodeError::WakeUp) => prop_assert!(false, "it is no message"),
        }
    }

    #[test]
    fn any_bytes_are_an_error_or_a_lock(mut bytes in proptest::collection::vec(any::<u8>(), 1..200)) {
        bytes[0] = 1;
        let _ = LockEntry::decode(&bytes);
    }
}
