//! The signals that are passed on to the program, as a channel.

use fairlock::crossbeam_channel::Receiver;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};

use crate::exit::Failure;
use crate::signals::channel_of;

/// The signals that users and programs send, to end a program or to notify it.
const PASSED_ON: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// From now on they arrive on the channel. A signal that was ignored when fairlock started (by `nohup`, or INT and QUIT in a
/// script's background job) stays ignored, for fairlock and for the program: its parent wants that, as for any command.
pub(super) fn listen() -> Result<Receiver<i32>, Failure> {
    let ignored = ignored();
    let wanted = PASSED_ON.into_iter().chain([SIGTSTP]).filter(|signal| !ignored.contains(signal));
    // Without a child's signal the program's end is not noticed, and where that was ignored the system keeps no status.
    channel_of(wanted.chain([SIGCHLD]))
}

/// Whether the program gets this signal.
pub(super) fn is_passed_on(signal: i32) -> bool {
    PASSED_ON.contains(&signal)
}

/// Read from /proc on Linux; elsewhere no signal counts as ignored.
fn ignored() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    (1..=63).filter(|signal| mask & (1 << (signal - 1)) != 0).collect()
}
