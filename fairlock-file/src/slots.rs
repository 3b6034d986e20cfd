//! What a file keeps, in two slots that are written in turn: a writer that is killed leaves the old content or the new one.
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

use fairlock_rules::DecodeError;

use crate::dir::{hash, is_of_new_file};
use crate::machine;

/// Its last byte is the number of the layout, as a digit. See `docs/versions.md` before you change what is written.
const MAGIC: u64 = u64::from_le_bytes(*b"fairloc1");
const SLOT: usize = 2048;
const HEAD: usize = 40;
/// The longest content, of about 200,000 waiters. Any user of the directory's group may write a head that names a longer one.
const LONGEST: usize = 64 << 20;

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
    pub(crate) fn read(file: &File) -> io::Result<Result<Content, DecodeError>> {
        let mut slots = [0; 2 * SLOT];
        file.read_at(&mut slots, 0)?; // what a shorter file does not have is 0
        let mut heads = [0, 1].map(|slot| (slot, numbers::<5>(&slots[slot * SLOT..])));
        // The later one first. They wrap: no generation that anybody has written is the last one.
        if (heads[1].1[1].wrapping_sub(heads[0].1[1]) as i64) > 0 {
            heads.swap(0, 1);
        }
        let is_newer = |magic: &u64| magic << 8 == MAGIC << 8 && *magic > MAGIC;
        if let Some(magic) = heads.iter().map(|(_, [magic, ..])| *magic).find(is_newer) {
            return Ok(Err(DecodeError::Newer { found: (magic >> 56) as u8 - b'0' }));
        }
        for (slot, [magic, generation, at, length, sum]) in heads {
            if magic != MAGIC {
                continue;
            }
            let range = usize::try_from(at).ok().zip(usize::try_from(length).ok());
            let bytes = match range.and_then(|(at, length)| slots.get(at..at.checked_add(length)?)) {
                Some(near) => Some(near.to_vec()),
                None => read_far(file, at, length)?,
            };
            if let Some(bytes) = bytes.filter(|bytes| checksum(generation, at, bytes) == sum) {
                return Ok(Ok(Content { slot, generation, at, bytes }));
            }
        }
        let found = file.metadata()?;
        let is_blank = slots == [0; 2 * SLOT] && found.len() <= slots.len() as u64;
        let was_a_lock =
            is_blank && is_of_new_file(&found) || heads.iter().any(|(_, [magic, ..])| *magic == MAGIC);
        // No process of this boot leaves a file so, and all others have ended.
        let was_cut = was_a_lock && found.modified()? < machine::began();
        Ok(if was_cut { Ok(Content::EMPTY) } else { Err(DecodeError::Damaged { at: 0 }) })
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

fn numbers<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let (words, _) = bytes.as_chunks();
    std::array::from_fn(|at| u64::from_le_bytes(words[at]))
}

fn checksum(generation: u64, at: u64, bytes: &[u8]) -> u64 {
    hash(bytes) ^ hash(&[generation, at].map(u64::to_le_bytes).concat())
}

fn read_far(file: &File, at: u64, length: u64) -> io::Result<Option<Vec<u8>>> {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let end = at.checked_add(length as u64);
    if length > LONGEST || end.is_none_or(|end| file.metadata().is_ok_and(|file| file.len() < end)) {
        return Ok(None);
    }
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at)?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::time::SystemTime;

    use fairlock_core::{ClientId, LockName};
    use fairlock_rules::LockEntry;
    use proptest::array::uniform3;
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    use super::*;
    use crate::dir::FILE_MODE;
    use crate::state::State;

    /// A length that no content has.
    const MANY: usize = LONGEST + 1;
    const EDGES: &[u64] = &[
        0,
        1,
        40,
        300,
        SLOT as u64,
        2 * SLOT as u64,
        9000,
        LONGEST as u64,
        MANY as u64,
        i64::MAX as u64,
        1 << 63,
        u64::MAX - 1,
        u64::MAX,
    ];

    /// A file in the temp dir, with the mode of a lock's.
    struct Scratch(std::path::PathBuf);

    impl Scratch {
        fn with(content: &[u8]) -> Scratch {
            let path = std::env::temp_dir().join(format!("fairlock-slots-{}", ClientId::random()));
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(FILE_MODE)).unwrap();
            Scratch(path)
        }

        fn file(&self) -> File {
            File::options().read(true).write(true).open(&self.0).unwrap()
        }

        fn of_another_boot(self) -> Scratch {
            self.file().set_modified(SystemTime::UNIX_EPOCH).unwrap();
            self
        }

        /// A head with the right checksum of this content.
        fn write_head(&self, slot: usize, [generation, at, length]: [u64; 3], content: &[u8]) {
            let head = [MAGIC, generation, at, length, checksum(generation, at, content)];
            self.file().write_all_at(&head.map(u64::to_le_bytes).concat(), (slot * SLOT) as u64).unwrap();
        }

        fn read(&self) -> Option<Vec<u8>> {
            Content::read(&self.file()).unwrap().ok().map(|content| content.bytes)
        }

        fn replace(&self, bytes: &[u8]) {
            Content::read(&self.file()).unwrap().unwrap().replace(&self.file(), bytes).unwrap();
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn scratch(bytes: &[u8]) -> Scratch {
        let scratch = Scratch::with(b"");
        Content::begin(&scratch.file(), bytes).unwrap();
        scratch
    }

    /// Contents that fit into a slot, and contents that do not, after each other.
    #[test]
    fn a_write_that_is_cut_anywhere_leaves_the_old_or_the_new() {
        let far = 2 * SLOT;
        for (old, new) in [(300, 310), (300, 5000), (5000, 300), (5000, 4000), (4000, 6000)] {
            let (old, new) = (vec![7; old], vec![8; new]);
            let scratch = scratch(b"first");
            scratch.replace(&old);
            let mut before = fs::read(&scratch.0).unwrap();
            scratch.replace(&new);
            let after = fs::read(&scratch.0).unwrap();
            before.resize(after.len(), 0);
            // As they are written: what fits into no slot, and then the slot.
            let changed = |at: &usize| before[*at] != after[*at];
            let order: Vec<usize> = (far..after.len()).chain(0..far).filter(changed).collect();
            let mut cut = before.clone();
            for (done, at) in order.iter().enumerate() {
                if done % 97 == 0 || done + 45 > order.len() {
                    assert_eq!(Scratch::with(&cut).read().as_ref(), Some(&old), "{done} of {}", order.len());
                }
                cut[*at] = after[*at];
            }
            assert_eq!(Scratch::with(&cut).read(), Some(new));
        }
    }

    #[test]
    fn contents_of_any_length_follow_each_other() {
        let scratch = scratch(b"");
        for round in 0..300_usize {
            let bytes = vec![round as u8; round * 7919 % 20_000];
            scratch.replace(&bytes);
            assert_eq!(scratch.read(), Some(bytes));
        }
        assert!(fs::metadata(&scratch.0).unwrap().len() < 100_000);
    }

    proptest! {
        /// Whatever stands there, reading it neither panics nor finds another content, in a slot or far.
        #[test]
        fn damaged_files_have_the_content_or_none(
            contents in vec((any::<u8>(), prop_oneof![0..60_usize, 1990..2020_usize, 2020..7000_usize]), 1..4),
            damage in vec((any::<Index>(), any::<bool>(), select(vec![0, 1, 40, 2048, 4096, u64::MAX]), 1..9_usize), 0..4),
            end in option::weighted(0.3, any::<Index>()),
        ) {
            let scratch = scratch(b"first");
            let contents: Vec<_> = contents.into_iter().map(|(byte, length)| vec![byte; length]).collect();
            contents.iter().for_each(|content| scratch.replace(content));
            prop_assert_eq!(scratch.read(), contents.last().cloned());
            let mut bytes = fs::read(&scratch.0).unwrap();
            for (at, is_in_head, number, length) in damage {
                let at = at.index(if is_in_head { 2 * HEAD } else { bytes.len() });
                let at = if is_in_head && at >= HEAD { SLOT + at - HEAD } else { at };
                let end = bytes.len().min(at + length);
                bytes[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
            }
            bytes.truncate(end.map_or(bytes.len(), |end| end.index(bytes.len() + 1)));
            let read = Scratch::with(&bytes).read();
            prop_assert!(read.is_none_or(|read| read == b"first" || contents.contains(&read)));
        }

        /// Somebody has written them on purpose, with right checksums.
        #[test]
        fn wrong_numbers_in_whole_slots_do_no_harm(
            heads in vec((0..2_usize, uniform3(select(EDGES))), 1..4),
            new in select(vec![10, SLOT, 9000]),
        ) {
            let scratch = scratch(b"first");
            for (slot, numbers) in heads {
                let bytes = fs::read(&scratch.0).unwrap();
                let [_, at, length] = numbers.map(|number| usize::try_from(number).unwrap());
                let content = at.checked_add(length).and_then(|end| bytes.get(at..end));
                scratch.write_head(slot, numbers, content.unwrap_or_default());
            }
            if let Ok(content) = Content::read(&scratch.file()).unwrap() {
                // What the file system refuses is an error, and the old content stays.
                let new = vec![8; new];
                let is_written = content.replace(&scratch.file(), &new).is_ok();
                prop_assert_eq!(scratch.read(), Some(if is_written { new } else { content.bytes }));
            }
        }

        /// So it is with the state of a lock: the content is another lock's state, damaged, or any bytes.
        #[test]
        fn damaged_states_are_states_or_errors(
            name in ".{1,20}",
            (boot, last) in (any::<u128>(), 0..1_u64 << 53),
            damage in vec((any::<Index>(), any::<u8>()), 0..4),
            end in option::weighted(0.3, any::<Index>()),
        ) {
            let lock = LockName::new(&name).unwrap();
            let mut bytes = State::encode(&lock, boot, last, &LockEntry::default());
            let state = State::decode(&bytes, boot).unwrap();
            prop_assert_eq!((&*state.name, state.last, state.entry.is_empty()), (&*name, last, true));
            for (at, byte) in damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes.truncate(end.map_or(bytes.len(), |end| end.index(bytes.len() + 1)));
            for boot in [boot, 0] {
                if let Ok(State { name, last, entry, .. }) = State::decode(&bytes, boot) {
                    let Ok(lock) = LockName::new(&name) else { continue };
                    let again = State::decode(&State::encode(&lock, boot, last, &entry), boot);
                    prop_assert!(again.is_ok_and(|again| again.name == name && again.last == last));
                }
            }
        }
    }

    /// Without the pages that the system had not written yet. Files of this boot are damaged, and those of other programs stay.
    #[test]
    fn what_a_power_cut_left_is_empty() {
        let torn = scratch(b"first");
        [6000, 7000].iter().for_each(|length| torn.replace(&vec![8; *length]));
        let mut torn = fs::read(&torn.0).unwrap();
        torn[2 * SLOT..].fill(0);
        for (content, was_cut) in [
            (vec![], true),
            (vec![0; 40], true),
            (vec![0; 2 * SLOT], true),
            (torn, true),
            (vec![0; 9000], false),
            (b"a shopping list".to_vec(), false),
        ] {
            assert!(Scratch::with(&content).read().is_none());
            let read = Scratch::with(&content).of_another_boot().read();
            assert_eq!(read, was_cut.then(Vec::new), "{} bytes", content.len());
        }
        // The first write makes the file a lock's.
        let scratch = Scratch::with(b"").of_another_boot();
        scratch.replace(b"second");
        assert_eq!(scratch.read().unwrap(), b"second");
    }

    /// And none can be written, since it could not be read.
    #[test]
    fn a_content_longer_than_any_is_not_read() {
        let scratch = scratch(b"first");
        scratch.file().set_len((2 * SLOT + MANY) as u64).unwrap();
        scratch.write_head(1, [9, 2 * SLOT as u64, MANY as u64], &vec![0; MANY]);
        assert_eq!(scratch.read().unwrap(), b"first");
        let content = Content::read(&scratch.file()).unwrap().unwrap();
        assert_eq!(
            content.replace(&scratch.file(), &vec![0; MANY]).unwrap_err().kind(),
            ErrorKind::FileTooLarge
        );
    }

    #[test]
    fn another_file_has_no_content() {
        assert!(Scratch::with(b"a shopping list\n").read().is_none());
        assert!(Scratch::with(&[b'x'; 3 * SLOT]).read().is_none());
    }

    /// Also where the other slot is of this layout.
    #[test]
    fn a_slot_of_a_later_layout_is_refused() {
        let scratch = scratch(b"first");
        scratch.replace(b"second");
        for slot in [0, SLOT] {
            let mut later = fs::read(&scratch.0).unwrap();
            later[slot + 7] = b'2';
            let read = Content::read(&Scratch::with(&later).file()).unwrap();
            assert_eq!(read.err(), Some(DecodeError::Newer { found: 2 }));
        }
    }
}
