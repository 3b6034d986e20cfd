//! The calls for time and chance.

use std::ffi::{c_int, c_long};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use libc::timespec;

use crate::kernel::{SEC, UPTIME, WALL, me, passes, sleep_until, with};
use crate::real::{get, put, put_bytes, system};

/// What a look at the clock costs.
const LOOK: u64 = 40;

/// For a real redis-server: a file in which `compare` writes what the wall clock says, in µs since 1970.
pub static SHOWN: OnceLock<File> = OnceLock::new();

pub fn nanos(time: timespec) -> u64 {
    (time.tv_sec as u64).saturating_mul(SEC).saturating_add(time.tv_nsec as u64)
}

/// What a clock says; none if the system has to tell.
fn now_of(clock: c_int) -> Option<u64> {
    let begin = match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => WALL,
        libc::CLOCK_MONOTONIC | libc::CLOCK_MONOTONIC_COARSE | libc::CLOCK_BOOTTIME => UPTIME,
        _ => return None, // what the processor was used for
    };
    if let (Some(file), WALL) = (SHOWN.get(), begin) {
        let mut micros = [0; 8];
        file.read_exact_at(&mut micros, 0).ok()?;
        return Some(u64::from_le_bytes(micros) * 1000);
    }
    passes(me()?, LOOK);
    Some(begin + with(|world| world.now))
}

#[unsafe(no_mangle)]
extern "C" fn clock_gettime(clock: c_int, out: usize) -> c_int {
    let Some(now) = now_of(clock) else {
        return system(libc::SYS_clock_gettime, &[clock as usize, out]) as c_int;
    };
    put(out, timespec { tv_sec: (now / SEC) as i64, tv_nsec: (now % SEC) as i64 });
    0
}

#[unsafe(no_mangle)]
extern "C" fn gettimeofday(out: usize, zone: usize) -> c_int {
    let Some(now) = now_of(libc::CLOCK_REALTIME) else {
        return system(libc::SYS_gettimeofday, &[out, zone]) as c_int;
    };
    put(out, libc::timeval { tv_sec: (now / SEC) as i64, tv_usec: (now % SEC / 1000) as i64 });
    0
}

#[unsafe(no_mangle)]
extern "C" fn nanosleep(time: usize, left: usize) -> c_int {
    clock_nanosleep(libc::CLOCK_MONOTONIC, 0, time, left)
}

#[unsafe(no_mangle)]
extern "C" fn clock_nanosleep(clock: c_int, flags: c_int, time: usize, left: usize) -> c_int {
    let Some(me) = me() else {
        return system(libc::SYS_clock_nanosleep, &[clock as usize, flags as usize, time, left]) as c_int;
    };
    let (time, now) = (nanos(get(time)), with(|world| world.now));
    let begin = if clock == libc::CLOCK_REALTIME { WALL } else { UPTIME };
    let is_until = flags & libc::TIMER_ABSTIME != 0;
    sleep_until(me, if is_until { time.saturating_sub(begin) } else { now.saturating_add(time) });
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn getrandom(out: usize, length: usize, flags: usize) -> c_long {
    if me().is_none() {
        return system(libc::SYS_getrandom, &[out, length, flags]);
    }
    put_bytes(out, &with(|world| (0..length).map(|_| world.chance()).collect::<Vec<u8>>()));
    length as c_long
}

/// The process's number is chance, too: it stands in labels, and the memory of the Lua depends on them.
#[unsafe(no_mangle)]
extern "C" fn getpid() -> c_int {
    if me().is_none() { system(libc::SYS_getpid, &[]) as c_int } else { with(|world| world.process()) }
}
