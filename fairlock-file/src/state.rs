//! The state of one lock as the content of its file.

use fairlock_core::backend::{BackendError, BackendErrorKind, RequestId};
use fairlock_core::{LockName, OwnerId};
use fairlock_rules::{DecodeError, LockEntry};

use crate::dir::Dir;
use crate::presence;

/// The boot, the last number, and the length of the name.
const HEAD: usize = 26;

/// A lock of this boot.
pub(crate) struct State {
    /// The lock's name.
    pub(crate) name: String,
    /// The last number that the lock has drawn.
    pub(crate) last: u64,
    pub(crate) entry: LockEntry,
    /// What another boot left.
    former: Option<LockEntry>,
}

impl State {
    /// Its bytes.
    pub(crate) fn encode(lock: &LockName, boot: u128, last: u64, entry: &LockEntry) -> Vec<u8> {
        let name = lock.as_str().as_bytes();
        let length = name.len() as u16; // at most 512
        [&boot.to_le_bytes()[..], &last.to_le_bytes(), &length.to_le_bytes(), name, &entry.encode()].concat()
    }

    /// The state in these bytes. What an earlier boot left is over, since all its processes are; the numbers go on.
    pub(crate) fn decode(bytes: &[u8], boot: u128) -> Result<State, DecodeError> {
        let damaged = DecodeError::Damaged { at: bytes.len() };
        let (head, rest) = bytes.split_first_chunk::<HEAD>().ok_or(damaged)?;
        let number = |from: usize, length: usize| {
            (from..from + length).rev().fold(0_u128, |number, at| number << 8 | u128::from(head[at]))
        };
        let (of_boot, last, length) = (number(0, 16), number(16, 8) as u64, number(24, 2) as usize);
        let (name, entry) = rest.split_at_checked(length).ok_or(damaged)?;
        let name = String::from_utf8(name.to_vec()).map_err(|_| damaged)?;
        let (entry, former) = if of_boot == boot {
            (LockEntry::decode(entry)?, None)
        } else {
            (LockEntry::default(), LockEntry::decode(entry).ok())
        };
        Ok(State { name, last, entry, former })
    }

    /// The state of this lock. Fails if a process lives that another boot left with a hold.
    pub(crate) fn of(lock: &LockName, bytes: &[u8], dir: &Dir, boot: u128) -> Result<State, BackendError> {
        let state = State::decode(bytes, boot)?;
        if state.name != lock.as_str() {
            let message = format!("the file that this name would have is that of the lock {:?}", state.name);
            return Err(BackendError::new(BackendErrorKind::InvalidName, message));
        }
        let nobody = OwnerId::new("");
        let holders = |entry| LockEntry::ahead_of(entry, &nobody, RequestId::new(0), usize::MAX);
        let is_taken = |owner: &&OwnerId| presence::is_taken(dir, owner.client());
        if let Some(owner) = state.former.iter().flat_map(holders).find(is_taken) {
            let message = format!(
                "its holder {owner} lives and sees another boot_id: is one of the two processes in a container?"
            );
            return Err(BackendError::new(BackendErrorKind::InvalidConfig, message));
        }
        Ok(state)
    }
}
