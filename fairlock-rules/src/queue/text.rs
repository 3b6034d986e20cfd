//! A text of a place. As it was read, it stays among the bytes of its queue until somebody asks for it: a store that keeps bytes reads and
//! writes a long queue as a whole in each step, and looks at few of its waiters.

use std::cell::OnceCell;
use std::sync::Arc;

use fairlock_core::OwnerId;

use crate::bytes::{read_text, write_text};

/// What a text is made into for who asks.
pub(crate) trait Made: AsRef<str> {
    fn of(text: &str) -> Self;
}

impl Made for OwnerId {
    fn of(text: &str) -> OwnerId {
        OwnerId::new(text)
    }
}

impl Made for Arc<str> {
    fn of(text: &str) -> Arc<str> {
        text.into()
    }
}

#[derive(Clone)]
pub(crate) struct Text<T> {
    made: OnceCell<T>,
    /// The bytes of the queue, and where the text begins and ends in them.
    read: Option<(Arc<Vec<u8>>, [u32; 2])>,
}

impl<T: Made> Text<T> {
    pub(super) fn new(made: T) -> Text<T> {
        Text { made: OnceCell::from(made), read: None }
    }

    pub(crate) fn get(&self) -> &T {
        self.made.get_or_init(|| T::of(str::from_utf8(self.bytes()).unwrap_or_default()))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        let read =
            || self.read.as_ref().map_or(&[][..], |(bytes, [from, to])| &bytes[*from as usize..*to as usize]);
        self.made.get().map_or_else(read, |made| made.as_ref().as_bytes())
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        write_text(self.bytes(), out);
    }

    /// The text that stands next. `from` is the end of these bytes.
    pub(super) fn read(from: &mut &[u8], bytes: &Arc<Vec<u8>>) -> Option<Text<T>> {
        let length = read_text(from)?.len() as u32;
        let end = u32::try_from(bytes.len() - from.len()).ok()?;
        Some(Text { made: OnceCell::new(), read: Some((Arc::clone(bytes), [end - length, end])) })
    }
}
