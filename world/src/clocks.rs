//! The calls for time and chance.

use std::ffi::{c_int, c_void};

use libc::timespec;

use crate::kernel::{SEC, UPTIME, WALL, me, passes, sleep_until, with};
use crate::real;

/// What a look at the clock costs.
const LOOK: u64 = 40;

/// # Safety
/// `time` can be read.
pub unsafe fn nanos(time: *const timespec) -> u64 {
    // SAFETY: the caller's.
    let time = unsafe { &*time };
    (time.tv_sec as u64).saturating_mul(SEC).saturating_add(time.tv_nsec as u64)
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: c_int, out: *mut timespec) -> c_int {
    let begin = match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => Some(WALL),
        libc::CLOCK_MONOTONIC | libc::CLOCK_MONOTONIC_COARSE | libc::CLOCK_BOOTTIME => Some(UPTIME),
        _ => None, // what the processor was used for
    };
    let (Some(me), Some(begin)) = (me(), begin) else {
        // SAFETY: the caller's.
        return unsafe { real::syscall(libc::SYS_clock_gettime, [clock as usize, out as usize, 0, 0, 0, 0]) }
            as c_int;
    };
    passes(me, LOOK);
    let now = begin + with(|world| world.now);
    // SAFETY: the caller's.
    unsafe { *out = timespec { tv_sec: (now / SEC) as i64, tv_nsec: (now % SEC) as i64 } };
    0
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int {
    // SAFETY: the caller's.
    unsafe { clock_nanosleep(libc::CLOCK_MONOTONIC, 0, time, left) }
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_nanosleep(
    clock: c_int,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    let Some(me) = me() else {
        let arguments = [clock as usize, flags as usize, time as usize, left as usize, 0, 0];
        // SAFETY: the caller's.
        return unsafe { real::syscall(libc::SYS_clock_nanosleep, arguments) } as c_int;
    };
    // SAFETY: the caller's.
    let time = unsafe { nanos(time) };
    let begin = if clock == libc::CLOCK_REALTIME { WALL } else { UPTIME };
    let at = if flags & libc::TIMER_ABSTIME != 0 {
        time.saturating_sub(begin)
    } else {
        with(|world| world.now.saturating_add(time))
    };
    sleep_until(me, at);
    0
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(out: *mut c_void, length: usize, flags: u32) -> isize {
    if me().is_none() {
        // SAFETY: the caller's.
        return unsafe { real::syscall(libc::SYS_getrandom, [out as usize, length, flags as usize, 0, 0, 0]) }
            as isize;
    }
    for at in 0..length {
        // SAFETY: the caller's: `length` bytes can be written.
        unsafe { *out.cast::<u8>().add(at) = with(|world| world.chance()) };
    }
    length as isize
}
