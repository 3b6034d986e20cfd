//! Numbers of which only the order counts.

/// Replaces each number of a state by its rank among them, from 1; 0 stands for none. Returns the last rank.
pub fn to_ranks<S>(state: &mut S, each: impl Fn(&mut S, &mut dyn FnMut(&mut u8))) -> u8 {
    let mut in_use = 0_u64;
    each(state, &mut |number| in_use |= 1 << *number);
    in_use &= !1;
    each(state, &mut |number| {
        if *number > 0 {
            *number = (in_use & ((1 << *number) - 1)).count_ones() as u8 + 1;
        }
    });
    in_use.count_ones() as u8
}
