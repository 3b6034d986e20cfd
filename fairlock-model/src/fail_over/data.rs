//! The data of a server, which are copied: its life, holds, places, and what has ended.

use std::fmt;

/// The most holds of a lock.
pub const HOLDS: usize = 3;
/// The most places in the queue.
pub const PLACES: usize = 4;

/// The life of a server, a key in its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Life {
    /// The replication id of the server to which it belongs.
    pub replid: u8,
    /// The epoch under which the server was named.
    pub epoch: u8,
    /// What is left of the grace.
    pub left: u8,
}

/// A hold or a place: to whose request it belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry {
    /// The ticket or the token; 0 for no entry.
    pub number: u8,
    /// The client.
    pub client: u8,
    /// The number of its request.
    pub request: u8,
    /// Ticks until it expires.
    pub left: u8,
    /// For a hold that takes a part of the units: whether the holder was heard in this grace.
    pub heard: bool,
}

impl Entry {
    /// Whether it belongs to the same request.
    pub fn is_of(self, other: Entry) -> bool {
        (self.client, self.request) == (other.client, other.request)
    }

    fn tick(&mut self) {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            *self = Entry::default();
        }
    }
}

/// Some tokens, one bit each.
pub type Tokens = u64;

/// Which holds are over: their reclaims are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ended {
    /// All with tokens up to this one.
    pub last: u8,
    /// These.
    pub tokens: Tokens,
}

impl Ended {
    /// Whether this hold is over.
    pub fn has(&self, token: u8) -> bool {
        token <= self.last || self.tokens & (1 << token) != 0
    }

    /// All up to this token are over.
    pub fn all_to(&mut self, token: u8) {
        self.last = self.last.max(token);
        self.tokens &= !0 << self.last << 1;
    }

    /// This one is over.
    pub fn one(&mut self, token: u8) {
        if token > self.last {
            self.tokens |= 1 << token;
        }
    }
}

/// The data of a server, which are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Data {
    /// The life.
    pub life: Option<Life>,
    /// The holds, by their tokens. One with nothing left has expired, and is gone.
    pub holds: [Entry; HOLDS],
    /// The holds that were released in the grace. (For the properties only.)
    pub released: Tokens,
    /// The holds that were released or taken in the grace, as far as the server has noted them.
    pub ended: Ended,
    /// The last number that was drawn when the lock was taken by force in the grace. (For the properties only.)
    pub forced: u8,
    /// The places, by their tickets. One with nothing left is absent.
    pub places: [Entry; PLACES],
}

impl Data {
    /// Whether it is in a grace.
    pub fn is_in_grace(&self) -> bool {
        self.life.is_some_and(|life| life.left > 0)
    }

    /// A tick of the server's clock. What has expired is gone: an absent waiter comes back to its ticket by asking.
    pub fn tick(&mut self) {
        if let Some(life) = &mut self.life {
            life.left = life.left.saturating_sub(1);
        }
        self.holds.iter_mut().chain(&mut self.places).for_each(Entry::tick);
        sort(&mut self.holds);
        sort(&mut self.places);
    }

    /// The hold of this request.
    pub fn hold_of(&mut self, member: Entry) -> Option<&mut Entry> {
        self.holds.iter_mut().find(|hold| hold.number > 0 && hold.is_of(member))
    }
}

/// Adds a hold or a place.
pub fn add(entries: &mut [Entry], entry: Entry) {
    if let Some(free) = entries.iter_mut().find(|free| free.number == 0) {
        *free = entry;
    }
    sort(entries);
}

/// Removes holds or places. Whether there were any.
pub fn remove(entries: &mut [Entry], which: impl Fn(Entry) -> bool) -> bool {
    let mut found = false;
    for entry in entries.iter_mut().filter(|entry| entry.number > 0 && which(**entry)) {
        *entry = Entry::default();
        found = true;
    }
    sort(entries);
    found
}

/// By number, behind them those that are free.
fn sort(entries: &mut [Entry]) {
    entries.sort_unstable_by_key(|entry| entry.number.wrapping_sub(1));
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.life {
            Some(Life { replid, epoch, left: 0 }) => write!(f, "life {replid}/{epoch}")?,
            Some(Life { replid, epoch, left }) => write!(f, "life {replid}/{epoch} grace {left}")?,
            None => write!(f, "no life")?,
        }
        let there = |entry: &&Entry| entry.number > 0;
        for Entry { number, client, request, left, heard } in self.holds.iter().filter(there) {
            let mark = if *heard { ", heard" } else { "" };
            write!(f, ", hold {client}.{request} #{number} for {left}{mark}")?;
        }
        if self.ended.last > 0 {
            write!(f, ", ended to #{}", self.ended.last)?;
        }
        for token in (1..64).filter(|token| self.ended.tokens & (1 << token) != 0) {
            write!(f, ", ended #{token}")?;
        }
        for Entry { number, client, request, left, .. } in self.places.iter().filter(there) {
            write!(f, " [{client}.{request} #{number} for {left}]")?;
        }
        Ok(())
    }
}
