//! What a person reads of a lock's state.

use std::fmt;
use std::time::Duration;

use super::LockState;
use crate::ids::{OwnerId, write_escaped};

/// How many holders, and how many waiters, `Display` lists.
const LISTED: usize = 10;

impl fmt::Display for LockState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.unlisted_holders.saturating_add(self.holders.len() as u64);
        match self.capacity {
            _ if count == 0 => f.write_str("free")?,
            None => f.write_str("held")?,
            Some(u32::MAX) if self.taken() == u32::MAX => f.write_str("held for writing")?,
            Some(u32::MAX) => f.write_str("held for reading")?,
            Some(permits) => write!(f, "{} of {permits} permits held", self.taken())?,
        }
        match self.waiting() {
            0 => f.write_str(", nobody waits")?,
            1 => f.write_str(", 1 waits")?,
            n => write!(f, ", {n} wait")?,
        }
        if self.absent > 0 {
            write!(f, ", {} absent", self.absent)?;
        }
        let has_permits = self.capacity.is_some_and(|capacity| capacity != u32::MAX);
        for holder in self.holders.iter().take(LISTED) {
            write_name(f, "holder", holder.label.as_deref(), &holder.owner)?;
            if has_permits {
                write!(f, ", takes {}", holder.units)?;
            }
            write_time(f, "for", holder.held_for)?;
            write_time(f, "lease left", holder.lease_left)?;
            match holder.hold_count {
                0 => f.write_str(", kept after its end")?,
                1 => {}
                count => write!(f, ", hold count {count}")?,
            }
            if let Some(token) = holder.token {
                write!(f, ", token {token}")?;
            }
        }
        if let Some(more @ 1..) = count.checked_sub(LISTED as u64) {
            write!(f, "\n  and {more} more")?;
        }
        for waiter in self.queue.iter().take(LISTED) {
            write_name(f, "waiter", waiter.label.as_deref(), &waiter.owner)?;
            match waiter.units {
                u32::MAX => f.write_str(", writes")?,
                n if has_permits => write!(f, ", wants {n}")?,
                _ => {}
            }
            write_time(f, "for", waiter.waiting)?;
            if waiter.is_absent() {
                f.write_str(", absent")?;
            }
        }
        match self.queue.len().checked_sub(LISTED) {
            Some(more @ 1..) => write!(f, "\n  and {more} more"),
            _ => Ok(()),
        }
    }
}

fn write_name(f: &mut fmt::Formatter<'_>, what: &str, label: Option<&str>, owner: &OwnerId) -> fmt::Result {
    write!(f, "\n  {what} ")?;
    write_escaped(f, label.unwrap_or(owner.as_str()))
}

fn write_time(f: &mut fmt::Formatter<'_>, what: &str, time: Option<Duration>) -> fmt::Result {
    time.map_or(Ok(()), |time| write!(f, ", {what} {time:.1?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Holder, Waiter};
    use crate::ids::FencingToken;

    const S: Duration = Duration::from_secs(1);

    fn holder(owner: &str, units: u32, hold_count: u32) -> Holder {
        Holder { units, ..Holder::new(OwnerId::new(owner), hold_count) }
    }

    #[test]
    fn a_free_lock_is_one_line() {
        assert_eq!(LockState::default().to_string(), "free, nobody waits");
    }

    #[test]
    fn holders_and_waiters_have_a_line_each() {
        let mut state = LockState { queue_length: 3, absent: 1, ..LockState::default() };
        let (token, lease_left, held_for) = (Some(FencingToken::new(7)), Some(28 * S), Some(3 * S / 2));
        let label = Some("worker\n3".to_owned());
        state.holders = vec![Holder { token, lease_left, held_for, label, ..holder("c:1", 1, 2) }];
        let waiter = Waiter::new(OwnerId::new("d:1"));
        let absent = Waiter { place_left: Some(Duration::ZERO), waiting: Some(S), ..waiter.clone() };
        state.queue = vec![waiter, absent];
        assert_eq!(
            state.to_string(),
            "held, 2 wait, 1 absent\n  \
             holder `worker\\n3`, for 1.5s, lease left 28.0s, hold count 2, token 7\n  \
             waiter `d:1`\n  \
             waiter `d:1`, for 1.0s, absent"
        );
    }

    #[test]
    fn units_are_told_where_they_matter_and_of_many_the_first_ten() {
        let mut state = LockState { capacity: Some(50), ..LockState::default() };
        state.holders = (0..12).map(|n| holder(&format!("c:{n}"), 2, 1)).collect();
        (state.unlisted_holders, state.unlisted_units) = (3, 6);
        let waiter = Waiter::new(OwnerId::new("d:1"));
        state.queue = vec![Waiter { units: 21, ..waiter.clone() }; 11];
        (state.queue_length, state.holders[0].hold_count) = (11, 0);
        let text = state.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0]), (23, "30 of 50 permits held, 11 wait"));
        assert_eq!(lines[1..3], ["  holder `c:0`, takes 2, kept after its end", "  holder `c:1`, takes 2"]);
        assert_eq!(
            [lines[11], lines[12], lines[22]],
            ["  and 5 more", "  waiter `d:1`, wants 21", "  and 1 more"]
        );
    }

    #[test]
    fn no_line_has_the_number_that_stands_for_all_units() {
        let waiter = Waiter { units: u32::MAX, ..Waiter::new(OwnerId::new("d:1")) };
        for (units, how) in [(1, "held for reading"), (u32::MAX, "held for writing")] {
            let state = LockState {
                capacity: Some(u32::MAX),
                holders: vec![holder("c:1", units, 1)],
                queue_length: 1,
                queue: vec![waiter.clone()],
                ..LockState::default()
            };
            assert_eq!(state.to_string(), format!("{how}, 1 waits\n  holder `c:1`\n  waiter `d:1`, writes"));
        }
    }
}
