//! A state in parts, for a model. The model renames requests, tickets and tokens and moves all times: states that differ in names
//! and times only become the same state.

use fairlock_core::LockKind;

use super::holds::{GrantedHold, Holds};
use super::{LockEntry, Note};
use crate::interest::Interest;
use crate::queue::{Queue, QueueParts};

/// All parts of a state.
pub struct Parts {
    /// The kind of all holds and present waiters.
    pub kind: LockKind,
    /// The holds, by token.
    pub holds: Vec<GrantedHold>,
    /// The queue.
    pub queue: QueueParts,
    interest: Interest,
    note: Option<Note>,
}

impl Parts {
    /// The parts of a state in which no request waits for a plain lock.
    pub fn new(kind: LockKind, holds: Vec<GrantedHold>, queue: QueueParts) -> Parts {
        Parts { kind, holds, queue, interest: Interest::default(), note: None }
    }
}

impl From<LockEntry> for Parts {
    fn from(entry: LockEntry) -> Parts {
        let LockEntry { kind, holds, queue, interest, note, calls: _, grace: _ } = entry;
        Parts { kind, holds: holds.iter().cloned().collect(), queue: queue.into(), interest, note }
    }
}

impl From<Parts> for LockEntry {
    fn from(parts: Parts) -> LockEntry {
        let Parts { kind, holds: kept, queue, interest, note } = parts;
        let mut holds = Holds::default();
        kept.into_iter().for_each(|hold| holds.add(hold));
        LockEntry { kind, holds, queue: Queue::from(queue), interest, note, ..LockEntry::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fairlock_core::backend::{Acquire, LockId, Place, RequestId};
    use fairlock_core::{LockName, OwnerId};

    use super::*;
    use crate::context::{Presence, StoreContext};

    /// What only operators see may differ: since when, and labels.
    #[test]
    fn a_state_that_was_taken_apart_decides_as_before() {
        let lock = LockId::new(LockName::new("x").unwrap(), LockKind::Semaphore { permits: 2 });
        let play = |is_taken_apart: bool| {
            let (mut entry, mut store_context) = (LockEntry::default(), StoreContext::default());
            let mut answers = String::new();
            for (at, owner) in "abcdefabdefabcdef".chars().enumerate() {
                let owner = OwnerId::new(&format!("{owner}:1"));
                let ask = Acquire::new(Place::new(&lock, &owner, RequestId::new(1)), Duration::from_secs(4));
                let listens = |owner: &OwnerId| Presence::if_listening(owner.client() != "c");
                let mut context =
                    store_context.operation(&lock.name, Duration::from_secs(at as u64), &listens);
                answers += &format!("{:?}\n", entry.acquire(&mut context, &ask));
                answers += &format!("{:?}\n", store_context.take_wake_ups());
                if is_taken_apart {
                    entry = Parts::from(entry).into();
                }
            }
            answers
        };
        assert_eq!(play(true), play(false));
    }
}
