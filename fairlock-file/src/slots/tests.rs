//! The content of a file that is damaged, cut off, crafted, or another program's.

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
use crate::machine::FILE_MODE;

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
        Content::read(&self.file()).ok().map(|content| content.bytes)
    }

    fn replace(&self, bytes: &[u8]) {
        Content::read(&self.file()).unwrap().replace(&self.file(), bytes).unwrap();
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
        if let Ok(content) = Content::read(&scratch.file()) {
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
    let content = Content::read(&scratch.file()).unwrap();
    assert_eq!(content.replace(&scratch.file(), &vec![0; MANY]).unwrap_err().kind(), ErrorKind::FileTooLarge);
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
        later[slot + 7] = b'3';
        let error = Content::read(&Scratch::with(&later).file()).err().unwrap();
        assert_eq!(error.downcast::<DecodeError>().unwrap(), DecodeError::Newer { found: 3, known: 2 });
    }
}
