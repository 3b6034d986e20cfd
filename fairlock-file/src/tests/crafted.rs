//! States that another user of the directory's group has written on purpose: whole, with right checksums, and wrong.

use std::fs::File;
use std::time::Duration;

use fairlock_core::backend::{Acquire, Backend, Hold, LockId, Place as Asked, Renew, RequestId};
use fairlock_core::{ClientId, FencingToken, LockKind, LockName, OwnerId};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::store::Place;
use crate::FileBackend;
use crate::slots::Content;

const LEASE: Duration = Duration::from_secs(30);
const KINDS: &[LockKind] = &[LockKind::Fair, LockKind::ReadWrite, LockKind::Semaphore { permits: 3 }];

/// A number as a state has it.
fn written(mut number: u128) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn edges() -> impl Strategy<Value = u128> {
    let edges = [0, 1, 2, 0x7f, u32::MAX as u128, 1 << 52, 1 << 53, 1 << 63, u64::MAX as u128];
    let lengths = [1 << 26, 1 << 42, Duration::MAX.as_nanos(), u128::MAX];
    select([&edges[..], &lengths].concat())
}

/// Every operation, by those whom the state knows and by a newcomer. Any answer will do, and any error.
fn use_it(backend: &FileBackend, lock: &LockId, owners: &[OwnerId]) {
    for (at, owner) in owners.iter().enumerate() {
        let mut place = Asked::new(lock, owner, RequestId::new(1));
        place.ticket = at as u64;
        let hold = Hold::new(lock, owner, RequestId::new(1), FencingToken::new(at as u64));
        _ = backend.inspect(lock, 0..9);
        _ = backend.renew(
            ClientId::random(),
            &[Renew::Place { place, lease: LEASE }, Renew::Hold { hold, holds: 1, lease: LEASE }],
        );
        _ = backend.acquire(&[Acquire::new(place, LEASE)]);
        _ = backend.withdraw(&[place]);
        _ = backend.adopt(&hold, &owners[0], LEASE);
        _ = backend.release(&[hold]);
    }
    _ = backend.locks(None);
    _ = backend.force_release(lock);
    _ = backend.inspect(lock, 0..9);
}

proptest! {
    #[test]
    fn a_crafted_state_makes_no_process_fail(
        kind in select(KINDS),
        edits in vec((any::<Index>(), 0..12_usize, edges()), 1..4),
    ) {
        let place = Place::new();
        let backend = place.open();
        let lock = LockId::new(LockName::new("x").unwrap(), kind);
        let owners = ["a:1", "b:1", "c:1"].map(OwnerId::new);
        for owner in &owners {
            _ = backend.acquire(&[Acquire::new(Asked::new(&lock, owner, RequestId::new(1)), LEASE)]);
        }
        let file = File::options().read(true).write(true).open(&place.files("lock")[0]).unwrap();
        let content = Content::read(&file).unwrap();
        let mut bytes = content.bytes.clone();
        for (at, removed, number) in edits {
            // Behind the boot, the last number, the length of the name and the name; sometimes within them.
            let at = 16 + at.index(bytes.len() - 16);
            let end = bytes.len().min(at + removed);
            bytes.splice(at..end, written(number));
        }
        content.replace(&file, &bytes).unwrap();
        use_it(&backend, &lock, &owners);
    }
}
