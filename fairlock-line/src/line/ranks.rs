//! How many tickets are ahead of a ticket, without a walk along the whole line: they are counted in blocks.

use std::collections::VecDeque;

/// Tickets in a block. A rank is the sum of the blocks ahead, and a walk within its own.
const BLOCK: u64 = 64;

/// The blocks that have any ticket of the line, in order, and how many each has. A place may be back at an old ticket, far ahead of
/// all others.
#[derive(Default)]
pub(crate) struct Ranks(VecDeque<(u64, u32)>);

impl Ranks {
    pub(crate) fn add(&mut self, ticket: u64) {
        let block = ticket / BLOCK;
        let at = self.index_of(block);
        match self.0.get_mut(at) {
            Some((found, count)) if *found == block => *count += 1,
            _ => self.0.insert(at, (block, 1)),
        }
    }

    /// Removes a ticket that was added.
    pub(crate) fn remove(&mut self, ticket: u64) {
        let at = self.index_of(ticket / BLOCK);
        match self.0.get_mut(at) {
            Some((_, count)) if *count > 1 => *count -= 1,
            _ => _ = self.0.remove(at),
        }
    }

    /// How many tickets the blocks before this ticket's block have, and the first ticket of its block.
    pub(crate) fn before_block_of(&self, ticket: u64) -> (u64, u64) {
        let block = ticket / BLOCK;
        let ahead = self.0.iter().take(self.index_of(block));
        (ahead.map(|(_, count)| u64::from(*count)).sum(), block * BLOCK)
    }

    /// How many tickets the blocks before the one with this rank have, and the first ticket of that block; beyond the end,
    /// the greatest of all.
    pub(crate) fn block_at(&self, rank: u64) -> (u64, u64) {
        let mut ahead = 0;
        for (block, count) in &self.0 {
            if ahead + u64::from(*count) > rank {
                return (ahead, block * BLOCK);
            }
            ahead += u64::from(*count);
        }
        (ahead, u64::MAX)
    }

    /// Where the block stands, or would stand.
    fn index_of(&self, block: u64) -> usize {
        self.0.partition_point(|(other, _)| *other < block)
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
            [(0, 64), (0, 64), (28, 128), (100, u64::MAX)]
        );
        ranks.add(3);
        assert_eq!(ranks.before_block_of(130), (29, 128));
        ranks.remove(3);
        for ticket in 100..200 {
            ranks.remove(ticket);
        }
        assert!(ranks.0.is_empty());
        ranks.add(1 << 52); // no room for all between is taken
        ranks.add(1);
        assert_eq!((ranks.before_block_of(1 << 52), ranks.0.len()), ((1, 1 << 52), 2));
    }
}
