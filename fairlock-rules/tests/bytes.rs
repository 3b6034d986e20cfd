//! A lock that becomes bytes and back after each operation does what one does that stays as it is. Damaged bytes are an error, or
//! a lock that works.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, Hold, LockId, Place, Renew, Renewal, RequestId, Since, Wait,
};
use fairlock_core::{FencingToken, LockKind, LockName, OwnerId};
use fairlock_rules::{DecodeError, LockEntry, Moment, Presence, StoreContext, WakeUp, WakeUpKind};
use proptest::prelude::*;
use proptest::sample::Index;

const KINDS: [LockKind; 4] =
    [LockKind::Fair, LockKind::Plain, LockKind::ReadWrite, LockKind::Semaphore { permits: 100 }];

/// What a request does, and after how many milliseconds.
type Step = (What, u64, u64);

#[derive(Clone, Copy, Debug)]
enum What {
    Ask(Wait),
    AskForAll,
    /// Once in five seconds.
    AskEvery,
    AskBehindOne,
    Renew,
    Release,
    Adopt,
    Withdraw,
    TakeHold,
    Force,
    OtherKind,
    LoseHolds,
    LoseQueue,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    use What::*;
    let what = [
        Ask(Wait::Forever),
        Ask(Wait::Forever),
        Ask(Wait::No),
        AskForAll,
        AskEvery,
        AskBehindOne,
        Renew,
        Renew,
        Release,
        Release,
    ]
    .into_iter()
    .chain([Adopt, Adopt, Withdraw, TakeHold, Force, OtherKind, LoseHolds, LoseQueue]);
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
            What::Ask(_) | What::AskForAll | What::AskEvery | What::AskBehindOne => {
                if let What::Ask(wait) = what {
                    place.wait = wait;
                } else if matches!(what, What::AskForAll) {
                    place.units = lock.kind.capacity();
                } else if matches!(what, What::AskEvery) {
                    place.wait = Wait::No;
                }
                let mut ask = Acquire::new(place, lease);
                match what {
                    What::AskEvery => {
                        ask.condition.not_granted = Some(Since::PeriodBegan(Duration::from_secs(5)))
                    }
                    What::AskBehindOne => ask.condition.most_ahead = Some(1),
                    _ => {}
                }
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
            What::Adopt => {
                let adopter = OwnerId::new(&format!("c{}:{number}", (number + 1) % 3));
                format!("{:?}", entry.adopt(context, &hold, &adopter, lease / 2))
            }
            What::Withdraw => format!("{:?}", entry.withdraw(context, &place)),
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
        (
            format!("{answer} {seen:?} {:?}", (entry.over_at(), entry.note_ends())),
            told,
            store_context.last_number(),
        )
    }
}

/// A number of any length, as the bytes have them, or one byte.
fn number() -> impl Strategy<Value = Vec<u8>> {
    let great = [0, 1, 1 << 20, 1 << 32, 1 << 53, u128::from(u64::MAX), Duration::MAX.as_nanos(), u128::MAX];
    let number = prop_oneof![proptest::sample::select(great.to_vec()), any::<u64>().prop_map(u128::from)];
    let written = number.prop_map(|mut rest| {
        let mut bytes = Vec::new();
        while rest > 0x7f {
            bytes.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
        bytes
    });
    prop_oneof![written, any::<u8>().prop_map(|byte| vec![byte])]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// An entry that is read from bytes after each operation does what an entry that is kept as it is does.
    #[test]
    fn an_entry_read_from_bytes_does_what_it_did_before(kind in 0..4_usize, steps in steps()) {
        let (mut stays, mut becomes) = (World::new(KINDS[kind]), World::new(KINDS[kind]));
        let (mut as_it_is, mut bytes) = (LockEntry::default(), LockEntry::default().encode());
        for step in steps {
            let mut read = LockEntry::decode(&bytes, becomes.store_context.last_number()).unwrap();
            prop_assert_eq!(becomes.run(&mut read, step), stays.run(&mut as_it_is, step));
            bytes = read.encode();
            prop_assert_eq!(&bytes, &as_it_is.encode());
        }
    }

    #[test]
    fn damaged_bytes_are_an_error_or_a_lock_that_works(
        kind in 0..4_usize,
        steps in steps(),
        damage in proptest::collection::vec((any::<Index>(), number()), 1..4),
        cut in proptest::option::of(any::<Index>()),
    ) {
        let (mut world, mut entry) = (World::new(KINDS[kind]), LockEntry::default());
        steps.iter().for_each(|step| _ = world.run(&mut entry, *step));
        let mut bytes = entry.encode();
        for (at, number) in damage {
            let at = at.index(bytes.len());
            let rest = bytes[at..].iter().position(|byte| *byte <= 0x7f).map_or(bytes.len(), |end| at + end + 1);
            bytes.splice(at..rest, number);
        }
        if let Some(at) = cut {
            bytes.truncate(at.index(bytes.len()));
        }
        match LockEntry::decode(&bytes, world.store_context.last_number()) {
            Ok(mut damaged) => {
                steps.iter().for_each(|step| _ = world.run(&mut damaged, *step));
                prop_assert!(LockEntry::decode(&damaged.encode(), world.store_context.last_number()).is_ok());
            }
            Err(DecodeError::Newer { found, .. }) => prop_assert_eq!(found, bytes[0]),
            Err(DecodeError::Damaged { at }) => prop_assert!(at <= bytes.len()),
            Err(DecodeError::WakeUp) => prop_assert!(false, "it is no message"),
        }
    }

    #[test]
    fn damaged_beyond_any_form_bytes_are_an_error_or_a_lock(mut bytes in proptest::collection::vec(any::<u8>(), 1..200)) {
        bytes[0] = 1;
        let _ = LockEntry::decode(&bytes, u64::MAX);
    }

    /// A message is read as it was written, and any other text is a message or an error.
    #[test]
    fn damaged_messages_are_an_error_or_a_message(
        lock in ".{1,40}",
        owner in ".{0,40}",
        (kind, number, token) in (0..4_u8, any::<u64>(), any::<u64>()),
        at in any::<Index>(),
        other in "[ 0-9a-g+é]{0,3}",
    ) {
        let (request, token) = (RequestId::new(number), FencingToken::new(token));
        let kind = match kind {
            0 => WakeUpKind::Granted { request, token },
            1 => WakeUpKind::Taken { token },
            2 => WakeUpKind::Recheck,
            _ => WakeUpKind::RecheckAny,
        };
        let message = WakeUp { lock: LockName::new(&lock).unwrap(), owner: OwnerId::new(&owner), kind };
        let mut text = message.to_string();
        prop_assert_eq!(text.parse(), Ok(message));
        let at = at.index(text.len());
        text.replace_range(at..=at, &other);
        if let Ok(read) = text.parse::<WakeUp>() {
            prop_assert_eq!(read.to_string().parse(), Ok(read));
        }
    }
}
