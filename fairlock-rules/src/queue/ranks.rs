//! How many tickets are ahead of a ticket, without a walk along the whole queue: they are counted in blocks.

use std::collections::{BTreeMap, VecDeque};

/// Tickets in a full block, and twice as many at most. A rank is the sum of the blocks ahead, and a walk within its own.
const BLOCK: u32 = 64;

/// Blocks of neighbours, in order: where each begins, and how many tickets it has.
#[derive(Default)]
pub(crate) struct Ranks(VecDeque<(u64, u32)>);

impl Ranks {
    /// Adds a ticket, which is among these.
    pub(crate) fn add<T>(&mut self, ticket: u64, all: &BTreeMap<u64, T>) {
        let at = self.index_of(ticket);
        let Some((first, count)) = self.0.get_mut(at) else { return self.0.push_back((ticket, 1)) };
        (*first, *count) = (ticket.min(*first), *count + 1);
        let (first, count) = (*first, *count);
        if count > 2 * BLOCK
            && let Some((&middle, _)) = all.range(first..).nth(BLOCK as usize)
        {
            self.0[at] = (first, BLOCK);
            self.0.insert(at + 1, (middle, count - BLOCK));
        }
    }

    /// Removes a ticket that was added.
    pub(crate) fn remove(&mut self, ticket: u64) {
        let at = self.index_of(ticket);
        match self.0.get_mut(at) {
            Some((_, count)) if *count > 1 => *count -= 1,
            _ => _ = self.0.remove(at),
        }
    }

    /// How many tickets the blocks before this ticket's block have, and where its block begins.
    pub(crate) fn before_block_of(&self, ticket: u64) -> (u64, u64) {
        let at = self.index_of(ticket);
        let ahead = self.0.iter().take(at).map(|(_, count)| u64::from(*count)).sum();
        (ahead, self.0.get(at).map_or(0, |(first, _)| *first))
    }

    /// How many tickets the blocks before the one with this rank have, and where that block begins; beyond the end, the greatest of
    /// all.
    pub(crate) fn block_at(&self, rank: u64) -> (u64, u64) {
        let mut ahead = 0;
        for (first, count) in &self.0 {
            if ahead + u64::from(*count) > rank {
                return (ahead, *first);
            }
            ahead += u64::from(*count);
        }
        (ahead, u64::MAX)
    }

    /// The block that has the ticket, or would have it: the last one that begins at it or before, or the first.
    fn index_of(&self, ticket: u64) -> usize {
        self.0.partition_point(|(first, _)| *first <= ticket).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tickets with their ranks, and the block at a rank, against a walk along all of them.
    fn assert_right(ranks: &Ranks, all: &BTreeMap<u64, ()>) {
        for (rank, ticket) in all.keys().enumerate() {
            let (before, first) = ranks.before_block_of(*ticket);
            assert_eq!(before + all.range(first..*ticket).count() as u64, rank as u64, "{ticket}");
            let (ahead, first) = ranks.block_at(rank as u64);
            assert_eq!(all.range(first..).nth(rank - ahead as usize), all.iter().nth(rank), "{rank}");
        }
        let blocks = ranks.0.iter().map(|(_, count)| *count);
        assert!(blocks.clone().all(|count| 0 < count && count <= 2 * BLOCK));
        assert_eq!(blocks.sum::<u32>() as usize, all.len());
        assert_eq!(ranks.block_at(all.len() as u64), (all.len() as u64, u64::MAX));
    }

    #[test]
    fn ranks_are_right_wherever_tickets_come_back_and_leave() {
        let (mut ranks, mut all) = (Ranks::default(), BTreeMap::new());
        // Far apart; and those that come back stand in one gap, backwards, and at both ends.
        let tickets = (0..300).map(|at| at * 1_000_000).chain((0..300).rev().map(|at| 5_000_001 + at));
        let tickets: Vec<u64> = tickets.chain([1 << 52, 1, (1 << 52) - 1]).collect();
        for ticket in &tickets {
            all.insert(*ticket, ());
            ranks.add(*ticket, &all);
            if all.len() % 50 == 0 {
                assert_right(&ranks, &all);
            }
        }
        assert!(ranks.0.len() > 4, "several blocks");
        for ticket in tickets.iter().step_by(3).chain(tickets.iter().skip(1).step_by(3)) {
            all.remove(ticket);
            ranks.remove(*ticket);
        }
        assert_right(&ranks, &all);
        tickets.iter().skip(2).step_by(3).for_each(|ticket| ranks.remove(*ticket));
        assert!(ranks.0.is_empty());
    }
}
