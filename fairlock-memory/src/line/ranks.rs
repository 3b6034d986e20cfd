//! How many tickets are ahead of a ticket, without a walk along the whole line: they are counted in blocks.

use std::collections::VecDeque;

/// Tickets in a block. A rank is the sum of the blocks ahead, and a walk within its own.
const BLOCK: u64 = 64;

/// How many tickets of each block are in the line.
#[derive(Default)]
pub(crate) struct Ranks {
    counts: VecDeque<u32>,
    /// The number of the first block in `counts`.
    first: u64,
}

impl Ranks {
    pub(crate) fn add(&mut self, ticket: u64) {
        let block = ticket / BLOCK;
        if self.counts.is_empty() {
            self.first = block;
        }
        while block < self.first {
            self.counts.push_front(0); // a parked or restored place is back at its ticket
            self.first -= 1;
        }
        let at = self.index_of(block);
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
        }
        if let Some(count) = self.counts.get_mut(at) {
            *count += 1;
        }
    }

    /// Removes a ticket that was added.
    pub(crate) fn remove(&mut self, ticket: u64) {
        let at = self.index_of(ticket / BLOCK);
        if let Some(count) = self.counts.get_mut(at) {
            *count = count.saturating_sub(1);
        }
        while self.counts.front() == Some(&0) {
            self.counts.pop_front();
            self.first += 1;
        }
    }

    /// How many tickets the blocks before this ticket's block have, and the first ticket of its block.
    pub(crate) fn before_block_of(&self, ticket: u64) -> (u64, u64) {
        let block = ticket / BLOCK;
        let ahead = self.counts.iter().take(self.index_of(block));
        (ahead.map(|&count| u64::from(count)).sum(), block * BLOCK)
    }

    /// How many tickets the blocks before the one with this rank have, and the first ticket of that block; beyond the end,
    /// the first ticket of the next block.
    pub(crate) fn block_at(&self, rank: u64) -> (u64, u64) {
        let (mut ahead, mut block) = (0, self.first);
        for &count in &self.counts {
            if ahead + u64::from(count) > rank {
                break;
            }
            ahead += u64::from(count);
            block += 1;
        }
        (ahead, block * BLOCK)
    }

    fn index_of(&self, block: u64) -> usize {
        usize::try_from(block.saturating_sub(self.first)).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_count_the_blocks_ahead_even_if_a_ticket_comes_back_to_the_front() {
        let mut ranks = Ranks::default();
        for ticket in 0..200 {
            ranks.add(ticket);
        }
        assert_eq!(ranks.before_block_of(130), (128, 128));
        assert_eq!([0, 63, 64, 199].map(|rank| ranks.block_at(rank)), [(0, 0), (0, 0), (64, 64), (192, 192)]);
        for ticket in 0..100 {
            ranks.remove(ticket);
        }
        assert_eq!(ranks.before_block_of(130), (28, 128));
        assert_eq!(ranks.before_block_of(3), (0, 0));
        assert_eq!(
            [0, 27, 28, 100].map(|rank| ranks.block_at(rank)),
            [(0, 64), (0, 64), (28, 128), (100, 256)]
        );
        ranks.add(3);
        assert_eq!(ranks.before_block_of(130), (29, 128));
        ranks.remove(3);
        for ticket in 100..200 {
            ranks.remove(ticket);
        }
        assert!(ranks.counts.is_empty());
    }
}
