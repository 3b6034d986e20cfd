//! Values as bytes, and back: numbers of seven bits a byte, the lowest first; texts and lists after their lengths.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fairlock_core::backend::{BackendError, BackendErrorKind, RequestId};
use fairlock_core::{FencingToken, OwnerId};

/// Why bytes are no state of a lock, or a text no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// A later version wrote them, in a layout that this version does not know. Leave them alone.
    Newer {
        /// The number of the layout.
        found: u8,
        /// The greatest number that this version knows.
        known: u8,
    },
    /// They are damaged, or something else.
    Damaged {
        /// How many bytes could be read.
        at: usize,
    },
    /// The text is no message.
    WakeUp,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Newer { found, .. } => write!(f, "the lock's state has layout {found}"),
            DecodeError::Damaged { at } => write!(f, "the lock's state is damaged at byte {at}"),
            DecodeError::WakeUp => f.write_str("the text is not a message to a client"),
        }
    }
}

impl Error for DecodeError {}

impl From<DecodeError> for BackendError {
    fn from(error: DecodeError) -> BackendError {
        match error {
            DecodeError::Newer { found, known } => BackendError::newer_layout(found, known),
            _ => BackendError::new(BackendErrorKind::Corrupt, error.to_string()),
        }
        .with_source(error)
    }
}

/// A value that can be written, and read from the front of bytes; none if they are damaged.
pub(crate) trait Coded: Sized {
    fn write(&self, out: &mut Vec<u8>);
    fn read(from: &mut &[u8]) -> Option<Self>;
}

/// The value that stands next.
pub(crate) fn read<T: Coded>(from: &mut &[u8]) -> Option<T> {
    T::read(from)
}

pub(crate) fn write_list<'a, T: Coded + 'a>(list: impl ExactSizeIterator<Item = &'a T>, out: &mut Vec<u8>) {
    (list.len() as u64).write(out);
    list.for_each(|item| item.write(out));
}

/// Hands each item to `take`, which may refuse it.
pub(crate) fn read_list<T: Coded>(from: &mut &[u8], mut take: impl FnMut(T) -> Option<()>) -> Option<()> {
    let length: u64 = read(from)?;
    (0..length).try_for_each(|_| take(read(from)?))
}

/// Seven bits a byte, the least first; the last byte has no bit more.
macro_rules! coded_by_sevens {
    ($($number:ident)*) => {$(
        impl Coded for $number {
            fn write(&self, out: &mut Vec<u8>) {
                let mut rest = *self;
                while rest > 0x7f {
                    out.push((rest & 0x7f) as u8 | 0x80);
                    rest >>= 7;
                }
                out.push(rest as u8);
            }

            fn read(from: &mut &[u8]) -> Option<$number> {
                let mut number = 0;
                for shift in (0..$number::BITS).step_by(7) {
                    let (byte, rest) = from.split_first()?;
                    let part = $number::from(byte & 0x7f);
                    *from = rest;
                    number |= part << shift;
                    if (part << shift) >> shift != part {
                        return None;
                    }
                    if *byte <= 0x7f {
                        return Some(number);
                    }
                }
                None
            }
        }
    )*};
}

// The nanoseconds of any duration fit 128 bits. 64 bits are several times as quick: a long queue is mostly numbers.
coded_by_sevens! { u64 u128 }

impl Coded for u32 {
    fn write(&self, out: &mut Vec<u8>) {
        u64::from(*self).write(out);
    }

    fn read(from: &mut &[u8]) -> Option<u32> {
        u32::try_from(read::<u64>(from)?).ok()
    }
}

impl Coded for Duration {
    fn write(&self, out: &mut Vec<u8>) {
        match u64::try_from(self.as_nanos()) {
            Ok(nanos) => nanos.write(out), // 584 years
            Err(_) => self.as_nanos().write(out),
        }
    }

    fn read(from: &mut &[u8]) -> Option<Duration> {
        const SECOND: u128 = 1_000_000_000;
        let mut rest = *from;
        if let Some(nanos) = read::<u64>(&mut rest) {
            *from = rest;
            return Some(Duration::from_nanos(nanos));
        }
        let nanos: u128 = read(from)?;
        Some(Duration::new(u64::try_from(nanos / SECOND).ok()?, (nanos % SECOND) as u32))
    }
}

impl Coded for Arc<str> {
    fn write(&self, out: &mut Vec<u8>) {
        write_text(self.as_bytes(), out);
    }

    fn read(from: &mut &[u8]) -> Option<Arc<str>> {
        read_text(from).map(Arc::from)
    }
}

impl Coded for OwnerId {
    fn write(&self, out: &mut Vec<u8>) {
        write_text(self.as_str().as_bytes(), out);
    }

    fn read(from: &mut &[u8]) -> Option<OwnerId> {
        read_text(from).map(OwnerId::new)
    }
}

impl Coded for RequestId {
    fn write(&self, out: &mut Vec<u8>) {
        self.get().write(out);
    }

    fn read(from: &mut &[u8]) -> Option<RequestId> {
        read(from).map(RequestId::new)
    }
}

impl Coded for FencingToken {
    fn write(&self, out: &mut Vec<u8>) {
        self.get().write(out);
    }

    fn read(from: &mut &[u8]) -> Option<FencingToken> {
        read(from).map(FencingToken::new)
    }
}

impl<A: Coded, B: Coded> Coded for (A, B) {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
    }

    fn read(from: &mut &[u8]) -> Option<(A, B)> {
        Some((read(from)?, read(from)?))
    }
}

impl<A: Coded, B: Coded, C: Coded> Coded for (A, B, C) {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
        self.2.write(out);
    }

    fn read(from: &mut &[u8]) -> Option<(A, B, C)> {
        Some((read(from)?, read(from)?, read(from)?))
    }
}

pub(crate) fn write_text(text: &[u8], out: &mut Vec<u8>) {
    (text.len() as u64).write(out);
    out.extend_from_slice(text);
}

pub(crate) fn read_text<'a>(from: &mut &'a [u8]) -> Option<&'a str> {
    let length = usize::try_from(read::<u64>(from)?).ok()?;
    let (text, rest) = from.split_at_checked(length)?;
    *from = rest;
    str::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers are read as they were written, and a number that is greater than fits is refused.
    #[test]
    fn numbers_are_read_as_written_and_too_great_ones_refused() {
        let written = |number: u128| {
            let mut bytes = Vec::new();
            number.write(&mut bytes);
            bytes
        };
        for number in [0, 1, 127, 128, 300, u128::from(u64::MAX), u128::MAX] {
            assert_eq!(read::<u128>(&mut &written(number)[..]), Some(number));
        }
        assert_eq!((written(127).len(), written(128)), (1, vec![0x80, 1]));
        assert_eq!(read::<u64>(&mut &written(1 << 64)[..]), None);
        assert_eq!(read::<u32>(&mut &written(1 << 32)[..]), None);
        assert_eq!(read::<u128>(&mut &[0xff; 30][..]), None);
        assert_eq!(read::<u128>(&mut &[&[0xff; 18][..], &[4]].concat()[..]), None, "more than 128 bits");
        for time in [Duration::ZERO, Duration::MAX, Duration::from_micros(1)] {
            assert_eq!(read(&mut &written(time.as_nanos())[..]), Some(time));
        }
        assert_eq!(read::<Duration>(&mut &written(Duration::MAX.as_nanos() + 1)[..]), None);
    }
}
