//! The state of one lock as the content of its file.

use fairlock_core::backend::{BackendError, BackendErrorKind, RequestId};
use fairlock_core::{LockName, OwnerId};
use fairlock_rules::{DecodeError, LockEntry};

use crate::dir::Dir;
use crate::machine;
use crate::presence;

/// All numbers are below this one.
const BELOW: u64 = 1 << 53;

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

    /// The state in these bytes. What an earlier boot left is over, since all its processes are. The numbers go on at the clock: when
    /// the machine stopped, the system may have lost what the last steps wrote. Without bytes it has also lost the name.
    pub(crate) fn decode(bytes: &[u8], boot: u128) -> Result<State, DecodeError> {
        if bytes.is_empty() {
            let (last, entry) = (machine::first_number(), LockEntry::default());
            return Ok(State { name: String::new(), last, entry, former: None });
        }
        let (of_boot, last, name, entry) = parts(bytes).ok_or(DecodeError::Damaged { at: bytes.len() })?;
        let (last, entry, former) = if of_boot == boot {
            (last, LockEntry::decode(entry)?, None)
        } else {
            let former = match LockEntry::decode(entry) {
                Err(newer @ DecodeError::Newer { .. }) => return Err(newer),
                former => former.ok(),
            };
            (last.max(machine::first_number()), LockEntry::default(), former)
        };
        Ok(State { name: name.to_owned(), last, entry, former })
    }

    /// The state of this lock. Fails if a process lives that another boot left with a hold.
    pub(crate) fn of(lock: &LockName, bytes: &[u8], dir: &Dir, boot: u128) -> Result<State, BackendError> {
        let state = State::decode(bytes, boot)?;
        if state.name != lock.as_str() && !state.name.is_empty() {
            let message = format!("the file that this name would have is that of the lock {:?}", state.name);
            return Err(BackendError::new(BackendErrorKind::InvalidName, message));
        }
        let nobody = OwnerId::new("");
        let holders = |entry| LockEntry::ahead_of(entry, &nobody, RequestId::new(0), usize::MAX);
        let lives = |owner: &&OwnerId| presence::lives(dir, owner.client()) == Some(true);
        if let Some(owner) = state.former.iter().flat_map(holders).find(lives) {
            let message = format!(
                "its holder {owner} lives and sees another boot_id: is one of the two processes in a container?"
            );
            return Err(BackendError::new(BackendErrorKind::InvalidConfig, message));
        }
        Ok(state)
    }
}

/// The boot, the last number, the name and the rest.
fn parts(bytes: &[u8]) -> Option<(u128, u64, &str, &[u8])> {
    let (boot, rest) = bytes.split_first_chunk()?;
    let (last, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (name, entry) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
    let last = Some(u64::from_le_bytes(*last)).filter(|last| *last < BELOW)?;
    Some((u128::from_le_bytes(*boot), last, str::from_utf8(name).ok()?, entry))
}
