//! The whole state as bytes, for stores that keep bytes; and in parts, for a model.

use fairlock_core::LockKind;

use super::holds::{GrantedHold, Holds};
use super::{LockEntry, Note};
use crate::bytes::{Coded, DecodeError, read, read_list, write_list};
use crate::queue::Queue;
#[cfg(feature = "model")]
use crate::queue::{Interest, QueueParts};

/// The layout (the first byte) of the state of a semaphore with a waiter that names another number of permits than the last grant. See
/// `docs/versions.md` before you change what is written.
const LAYOUT: u8 = 3;
/// The layout of any other state with a note.
const WITH_NOTE: u8 = 2;
/// The layout of any other state.
const PLAIN: u8 = 1;

impl LockEntry {
    /// The state as bytes. Equal states are equal bytes. Without a label a hold takes about 70 bytes, a place about 90.
    pub fn encode(&self) -> Vec<u8> {
        self.encode_behind(Vec::new())
    }

    /// The same, behind what a store writes before.
    pub fn encode_behind(&self, mut out: Vec<u8>) -> Vec<u8> {
        let LockEntry { kind, holds, queue, interest, note, calls: _, grace: _ } = self;
        let all = queue.places().map(|(ticket, place)| (ticket, place.capacity));
        let others: Vec<_> = all.filter(|(_, capacity)| *capacity != kind.capacity()).collect();
        let layout = match note {
            _ if !others.is_empty() => LAYOUT,
            Some(_) => WITH_NOTE,
            None => PLAIN,
        };
        out.push(layout);
        // The number of units tells the kind, as far as it matters; 0 for one holder at a time, whether fair or plain.
        let units = if kind.is_shared() { u64::from(kind.capacity()) + 1 } else { 0 };
        units.write(&mut out);
        write_list(holds.iter().collect::<Vec<_>>().into_iter(), &mut out);
        queue.write(&mut out);
        interest.write(&mut out);
        if layout == LAYOUT {
            write_list(others.iter(), &mut out);
            write_list(note.iter(), &mut out);
        } else {
            note.iter().for_each(|note| note.write(&mut out));
        }
        out
    }

    /// The state in these bytes, of a lock whose last number is `last`.
    ///
    /// # Errors
    /// For the layout of a later version, and for bytes that `encode` can't have written. Damage does not always show: a changed time is a
    /// time.
    pub fn decode(bytes: &[u8], last: u64) -> Result<LockEntry, DecodeError> {
        let (layout, mut rest) = match bytes {
            [layout @ (PLAIN | WITH_NOTE | LAYOUT), rest @ ..] => (*layout, rest),
            [found, ..] if *found > LAYOUT => {
                return Err(DecodeError::Newer { found: *found, known: LAYOUT });
            }
            _ => return Err(DecodeError::Damaged { at: 0 }),
        };
        let entry = read_entry(&mut rest, last, layout).filter(|_| rest.is_empty());
        entry.ok_or(DecodeError::Damaged { at: bytes.len() - rest.len() })
    }
}

/// A token or a ticket after the last number would be drawn a second time.
fn read_entry(from: &mut &[u8], last: u64, layout: u8) -> Option<LockEntry> {
    let kind = match read::<u64>(from)?.checked_sub(1).map(u32::try_from) {
        None => LockKind::Fair,
        Some(Ok(u32::MAX)) => LockKind::ReadWrite,
        Some(permits) => LockKind::Semaphore { permits: permits.ok()? },
    };
    let mut holds = Holds::default();
    let mut free = kind.capacity();
    let mut before = None;
    read_list(from, |hold: GrantedHold| {
        free = free.checked_sub(hold.units)?;
        let is_later = before.replace(hold.token) < Some(hold.token);
        let can_be = is_later && hold.token.get() <= last && hold.units > 0;
        holds.add(hold);
        can_be.then_some(())
    })?;
    let mut queue: Queue = read(from)?;
    let is_drawn = queue.places().next_back().is_none_or(|(ticket, _)| ticket <= last);
    let interest = read(from)?;
    queue.set_capacities(kind.capacity());
    let mut note = if layout == WITH_NOTE { Some(read(from)?) } else { None };
    if layout == LAYOUT {
        read_list(from, |(ticket, capacity): (u64, u32)| {
            let agrees = kind.agrees_with(LockKind::Semaphore { permits: capacity });
            queue.set_capacity(ticket, capacity).filter(|()| agrees)
        })?;
        read_list(from, |kept| note.replace(kept).is_none().then_some(()))?;
    }
    is_drawn.then_some(LockEntry { kind, holds, queue, interest, note, ..LockEntry::default() })
}

impl Coded for GrantedHold {
    fn write(&self, out: &mut Vec<u8>) {
        let GrantedHold { owner, request, token, units, holds, since, ends, label } = self;
        owner.write(out);
        request.write(out);
        token.write(out);
        [units, holds].into_iter().for_each(|count| count.write(out));
        [since, ends].into_iter().for_each(|time| time.write(out));
        label.write(out);
    }

    fn read(from: &mut &[u8]) -> Option<GrantedHold> {
        let (owner, request, token) = read(from)?;
        let (units, holds) = read(from)?;
        let (since, ends, label) = read(from)?;
        Some(GrantedHold { owner, request, token, units, holds, since, ends, label })
    }
}

impl Coded for Note {
    fn write(&self, out: &mut Vec<u8>) {
        let Note { granted, keep, until } = self;
        granted.write(out);
        [keep, until].into_iter().for_each(|time| time.write(out));
    }

    fn read(from: &mut &[u8]) -> Option<Note> {
        let (granted, keep, until) = read(from)?;
        Some(Note { granted, keep, until })
    }
}

/// All parts of a state, for a model. The model renames requests, tickets and tokens and moves all times: states that differ in names
/// and times only become the same state.
#[cfg(feature = "model")]
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

#[cfg(feature = "model")]
impl Parts {
    /// The parts of a state in which no request waits for a plain lock.
    pub fn new(kind: LockKind, holds: Vec<GrantedHold>, queue: QueueParts) -> Parts {
        Parts { kind, holds, queue, interest: Interest::default(), note: None }
    }
}

#[cfg(feature = "model")]
impl From<LockEntry> for Parts {
    fn from(entry: LockEntry) -> Parts {
        let LockEntry { kind, holds, queue, interest, note, calls: _, grace: _ } = entry;
        Parts { kind, holds: holds.iter().cloned().collect(), queue: queue.into(), interest, note }
    }
}

#[cfg(feature = "model")]
impl From<Parts> for LockEntry {
    fn from(parts: Parts) -> LockEntry {
        let Parts { kind, holds: kept, queue, interest, note } = parts;
        let mut holds = Holds::default();
        kept.into_iter().for_each(|hold| holds.add(hold));
        LockEntry { kind, holds, queue: queue.into(), interest, note, ..LockEntry::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_version_has_written_is_an_error_in_words() {
        let bytes = LockEntry::default().encode();
        let decode = |bytes: &[u8]| LockEntry::decode(bytes, 2);
        assert!(decode(&bytes).is_ok_and(|entry| entry.is_empty()));
        let error = |bytes: &[u8]| decode(bytes).err().map(|error| error.to_string());
        assert_eq!(error(&[4]).as_deref(), Some("the lock's state has layout 4"));
        for nothing in [&[][..], &[0]] {
            assert_eq!(error(nothing).as_deref(), Some("the lock's state is damaged at byte 0"));
        }
        // Two holds of two permits, the first of which takes this many units, and the second has this token.
        let permits = |units: u8, second: u8| {
            let hold = |token, units| [0, 0, token, units, 1, 0, 0, 0];
            decode(&[&[1, 3, 2][..], &hold(1, units), &hold(second, 1), &bytes[3..]].concat()).is_ok()
        };
        assert!(permits(1, 2));
        assert_eq!([permits(2, 2), permits(0, 2), permits(1, 1), permits(1, 3)], [false; 4]);
        // A place with this ticket, for this many units.
        let place = |ticket: u8, units: u8| {
            decode(&[&bytes[..9], &[1, ticket, 0, 0, 0, units, 0, 0, 0, 0, 0]].concat()).is_ok()
        };
        assert_eq!([place(2, 1), place(3, 1), place(2, 0)], [true, false, false]);
        // A semaphore of two permits, with a place for two units. The list then says that the place with this ticket names this capacity.
        let capacity = |ticket: u8, capacity: u8| {
            let place = [1, 2, 0, 0, 0, 2, 0, 0, 0, 0, 0];
            decode(&[&[3, 3], &bytes[2..9], &place[..], &[1, ticket, capacity, 0]].concat()).is_ok()
        };
        assert_eq!([capacity(2, 5), capacity(1, 5), capacity(2, 1)], [true, false, false]);
        let longer = [&bytes[..], &[0]].concat();
        let at_its_end = format!("the lock's state is damaged at byte {}", bytes.len());
        for damaged in [&longer, &bytes[..bytes.len() - 1]] {
            assert!(error(damaged).is_some_and(|error| error <= at_its_end), "{damaged:?}");
        }
    }

    /// What only operators see may differ: since when, and labels.
    #[cfg(feature = "model")]
    #[test]
    fn a_state_that_was_taken_apart_decides_as_before() {
        use std::time::Duration;

        use fairlock_core::backend::{Acquire, LockId, Place, RequestId};
        use fairlock_core::{LockName, OwnerId};

        use crate::context::{Presence, StoreContext};

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
