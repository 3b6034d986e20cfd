//! What a file keeps: the state of one lock, in two slots that are written in turn. A writer that is killed leaves the old content or
//! the new one.
//!
//! ```text
//!  0     slot    40 bytes of head: magic (its last byte is the layout's number), generation, place, length and checksum of the content;
//!                then the content, if it fits
//!  2048  slot    the same: the whole slot with the greater generation counts
//!  4096  …       contents that fit into no slot; a write never touches the content that counts
//! ```

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

use fairlock_core::backend::{BackendError, BackendErrorKind, RequestId};
use fairlock_core::{LockName, OwnerId};
use fairlock_rules::{DecodeError, LockEntry};

use crate::machine::{self, Dir, is_of_new_file};

/// Its last byte is the number of the layout, as a digit. See `docs/versions.md` before you change what is written.
const MAGIC: u64 = u64::from_le_bytes(*b"fairloc2");
const SLOT: usize = 2048;
const HEAD: usize = 40;
/// The longest content, of about 200,000 waiters. Any user of the directory's group may write a head that names a longer one.
const LONGEST: usize = 64 << 20;

/// All numbers are below this one.
const BELOW: u64 = 1 << 53;

/// The content that counts, and where it stands.
pub(crate) struct Content {
    slot: usize,
    generation: u64,
    at: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Content {
    const EMPTY: Content = Content { slot: 1, generation: 0, at: 0, bytes: Vec::new() };

    /// Writes the first content of a file that nobody else knows.
    pub(crate) fn begin(file: &File, bytes: &[u8]) -> io::Result<()> {
        file.write_all_at(&[0; 2 * SLOT], 0)?; // a full disk shows here, and not at a later step
        Content::EMPTY.replace(file, bytes)
    }

    /// Reads the file, which no other process writes meanwhile. A slot of a later layout speaks for the whole file: the other slot has
    /// the content from before. What a power cut left without a whole slot has an empty content.
    pub(crate) fn read(file: &File) -> io::Result<Content> {
        let mut slots = [0; 2 * SLOT];
        file.read_at(&mut slots, 0)?; // what a shorter file does not have is 0
        let mut heads = [0, 1].map(|slot| (slot, numbers::<5>(&slots[slot * SLOT..])));
        // The later one first. They wrap: no generation that anybody has written is the last one.
        if (heads[1].1[1].wrapping_sub(heads[0].1[1]) as i64) > 0 {
            heads.swap(0, 1);
        }
        let is_newer = |magic: &u64| magic << 8 == MAGIC << 8 && *magic > MAGIC;
        if let Some(magic) = heads.iter().map(|(_, [magic, ..])| *magic).find(is_newer) {
            let [found, known] = [magic, MAGIC].map(|magic| (magic >> 56) as u8 - b'0');
            return Err(unreadable(DecodeError::Newer { found, known }));
        }
        for (slot, [magic, generation, at, length, sum]) in heads {
            if magic != MAGIC || length > LONGEST as u64 {
                continue;
            }
            let bytes = read_content(file, at, length as usize)?;
            if let Some(bytes) = bytes.filter(|bytes| checksum(generation, at, bytes) == sum) {
                return Ok(Content { slot, generation, at, bytes });
            }
        }
        let found = file.metadata()?;
        let is_blank = slots == [0; 2 * SLOT] && found.len() <= slots.len() as u64;
        let was_a_lock =
            is_blank && is_of_new_file(&found) || heads.iter().any(|(_, [magic, ..])| *magic == MAGIC);
        // No process of this boot leaves a file so, and all others have ended.
        let was_cut = was_a_lock && found.modified()? < machine::began();
        if was_cut { Ok(Content::EMPTY) } else { Err(unreadable(DecodeError::Damaged { at: 0 })) }
    }

    /// Writes the content that counts from now on.
    pub(crate) fn replace(&self, file: &File, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > LONGEST {
            return Err(io::Error::new(ErrorKind::FileTooLarge, "too many waiters"));
        }
        let (slot, generation) = (1 - self.slot, self.generation.wrapping_add(1));
        let start = slot * SLOT;
        let fits = HEAD + bytes.len() <= SLOT;
        let far = 2 * SLOT as u64;
        let at = match fits {
            true => (start + HEAD) as u64,
            false if self.at < far || far + bytes.len() as u64 <= self.at => far,
            false => self.at + self.bytes.len() as u64,
        };
        let head = [MAGIC, generation, at, bytes.len() as u64, checksum(generation, at, bytes)];
        let mut written = head.map(u64::to_le_bytes).concat();
        if fits {
            written.extend(bytes);
        } else {
            file.write_all_at(bytes, at)?; // the head, which makes it count, comes after it
        }
        file.write_all_at(&written, start as u64)
    }
}

/// As an error of the call that reads the file.
fn unreadable(error: DecodeError) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

fn numbers<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let (words, _) = bytes.as_chunks();
    std::array::from_fn(|at| u64::from_le_bytes(words[at]))
}

/// Word by word, in four lanes that do not wait for each other: a step sums a whole queue twice. Each change of a lane can be undone, so a
/// single wrong word always shows.
fn checksum(generation: u64, at: u64, bytes: &[u8]) -> u64 {
    let mixed = |lane: u64, word: u64| (lane ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    let (blocks, rest) = bytes.as_chunks::<32>();
    let mut last = [0; 32];
    last[..rest.len()].copy_from_slice(rest);
    let mut lanes = [generation, at, bytes.len() as u64, 0];
    for words in blocks.iter().chain([&last]).map(|block| numbers::<4>(block)) {
        lanes = std::array::from_fn(|lane| mixed(lanes[lane], words[lane]));
    }
    lanes.into_iter().fold(0, mixed)
}

/// None where no file has a content, and where this one ends before: a head may have any numbers.
fn read_content(file: &File, at: u64, length: usize) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; length]; // zeroed memory takes no time before something is read into it
    match file.read_exact_at(&mut bytes, at) {
        Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::InvalidInput) => Ok(None),
        read => read.map(|()| Some(bytes)),
    }
}

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
        entry.encode_behind(
            [&boot.to_le_bytes()[..], &last.to_le_bytes(), &length.to_le_bytes(), name].concat(),
        )
    }

    /// The state in these bytes. What an earlier boot left is over, since all its processes are; the note of its last grant is not. The
    /// numbers go on at the clock: when the machine stopped, the system may have lost what the last steps wrote. Without bytes it has also
    /// lost the name.
    pub(crate) fn decode(bytes: &[u8], boot: u128) -> Result<State, DecodeError> {
        let lost = Some((!boot, 0, "", bytes)).filter(|_| bytes.is_empty());
        let (of_boot, last, name, entry) =
            lost.or_else(|| parts(bytes)).ok_or(DecodeError::Damaged { at: bytes.len() })?;
        let (name, entry) = (name.to_owned(), LockEntry::decode(entry, last));
        match entry {
            entry if of_boot == boot => Ok(State { name, last, entry: entry?, former: None }),
            Err(newer @ DecodeError::Newer { .. }) => Err(newer),
            former => {
                let (last, former) = (last.max(machine::first_number()), former.ok());
                let entry = former.as_ref().map(LockEntry::after_reboot).unwrap_or_default();
                Ok(State { name, last, entry, former })
            }
        }
    }

    /// Reads the file, which no other process writes meanwhile.
    pub(crate) fn read(file: &File, boot: u128) -> io::Result<(Content, State)> {
        let content = Content::read(file)?;
        let state = State::decode(&content.bytes, boot).map_err(unreadable)?;
        Ok((content, state))
    }

    /// Fails if the state is another lock's, or if a process lives that another boot left with a hold.
    pub(crate) fn check(&self, lock: &LockName, dir: &Dir) -> Result<(), BackendError> {
        if self.name != lock.as_str() && !self.name.is_empty() {
            let message = format!("the file that this name would have is that of the lock {:?}", self.name);
            return Err(BackendError::new(BackendErrorKind::InvalidName, message));
        }
        let nobody = OwnerId::new("");
        let holders = |entry| LockEntry::ahead_of(entry, &nobody, RequestId::new(0), usize::MAX);
        let lives = |owner: &&OwnerId| machine::lives(dir, owner.client()) == Some(true);
        let Some(owner) = self.former.iter().flat_map(holders).find(lives) else { return Ok(()) };
        let message = format!(
            "its holder {owner} lives and sees another boot_id: is one of the two processes in a container?"
        );
        Err(BackendError::new(BackendErrorKind::InvalidConfig, message))
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

#[cfg(test)]
mod tests;
