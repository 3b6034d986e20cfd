//! What all processes of the machine have in common: a clock, and the identity of the boot.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fairlock_rules::Moment;
use rustix::time::{ClockId, clock_gettime};

/// The time since some moment of this boot. No user can set this clock, and holders measure their leases by it too: while the machine
/// sleeps, both stand still.
pub(crate) fn now() -> Moment {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// The identity of this boot. Other systems than Linux tell theirs through C libraries only: there it is always 0, and what an earlier
/// boot left is over as its processes are, but for a kept lock.
pub(crate) fn boot() -> u128 {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    u128::from_str_radix(&id.trim().replace('-', ""), 16).unwrap_or_default()
}

/// Where the tokens of a new lock begin: past those of any former lock of its name, if the wall clock is right.
pub(crate) fn first_number() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX)
}
