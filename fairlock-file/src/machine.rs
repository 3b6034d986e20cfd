//! What all processes of the machine have in common: a clock, and the identity of the boot.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fairlock_core::backend::{BackendError, BackendErrorKind};
use fairlock_rules::Moment;
use rustix::time::{ClockId, clock_gettime};

use crate::failure::failure;

/// The longest wait for a file: a process may stand still in a step.
pub(crate) const BOUND: Duration = Duration::from_secs(1);

/// The machine, as a backend sees it.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) boot: u128,
    /// The longest wait for a file.
    pub(crate) bound: Duration,
    /// In tests: the time in microseconds, which only a test moves.
    #[cfg(test)]
    pub(crate) moved: Option<std::sync::Arc<std::sync::atomic::AtomicU64>>,
}

impl Machine {
    pub(crate) fn of_boot(boot: u128) -> Machine {
        Machine {
            boot,
            bound: BOUND,
            #[cfg(test)]
            moved: None,
        }
    }

    /// The time of a step, since some moment of this boot. No user can set this clock, and holders measure their leases by it too: while
    /// the machine sleeps, both stand still.
    pub(crate) fn now(&self) -> Moment {
        #[cfg(test)]
        if let Some(moved) = &self.moved {
            return Duration::from_micros(moved.load(std::sync::atomic::Ordering::SeqCst));
        }
        since(ClockId::Monotonic)
    }

    /// The wall clock, which is for periods alone.
    pub(crate) fn since_1970(&self) -> Moment {
        #[cfg(test)]
        if self.moved.is_some() {
            return self.now();
        }
        since_1970()
    }
}

fn since(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// When this boot began, by the wall clock as it is set now.
pub(crate) fn began() -> SystemTime {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime; // which goes on while the machine sleeps
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    SystemTime::now().checked_sub(since(clock)).unwrap_or(UNIX_EPOCH)
}

/// The identity of this boot. An error if it can't be read: else this process would take all holds of others for those of another boot.
/// Other systems than Linux tell theirs through C libraries only: there it is always 0, and what an earlier boot left is over as its
/// processes are, but for a kept lock.
pub(crate) fn boot() -> Result<u128, BackendError> {
    // Other systems, and kernels without time namespaces, have no such file.
    if std::fs::read_to_string("/proc/self/timens_offsets").is_ok_and(|offsets| is_apart(&offsets)) {
        let message = "this process is in a time namespace: by its clock it can share no locks on files";
        return Err(BackendError::new(BackendErrorKind::InvalidConfig, message));
    }
    if cfg!(target_os = "linux") { boot_in(Path::new("/proc/sys/kernel/random/boot_id")) } else { Ok(0) }
}

/// Whether the monotonic clock of a time namespace with these offsets differs from that of the machine.
fn is_apart(offsets: &str) -> bool {
    let monotonic = offsets.lines().find_map(|line| line.strip_prefix("monotonic"));
    monotonic.is_some_and(|offset| offset.split_whitespace().any(|number| number != "0"))
}

fn boot_in(path: &Path) -> Result<u128, BackendError> {
    let id = std::fs::read_to_string(path)
        .and_then(|id| u128::from_str_radix(&id.trim().replace('-', ""), 16).map_err(io::Error::other));
    id.map_err(|error| failure(format_args!("can't tell this boot from others by {}", path.display()), error))
}

/// Where the tokens of a new lock begin: past those of any former lock of its name, if the wall clock is right.
pub(crate) fn first_number() -> u64 {
    u64::try_from(since_1970().as_micros()).unwrap_or(u64::MAX)
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_boot_that_cannot_be_told_is_an_error() {
        for path in ["/proc/sys/kernel/random/no_boot_id", "/proc/version"] {
            let error = boot_in(Path::new(path)).unwrap_err();
            assert!(error.message().contains(path), "{error}");
        }
        assert!(boot().unwrap() > 0);
    }

    #[test]
    fn a_time_namespace_is_told_by_its_monotonic_clock() {
        let offsets = |seconds, nanos| format!("monotonic  {seconds}  {nanos}\nboottime  7  0\n");
        let offsets = [offsets(0, 0), offsets(-3, 0), offsets(0, 5), String::new()];
        assert_eq!(offsets.map(|offsets| is_apart(&offsets)), [false, true, true, false]);
    }
}
