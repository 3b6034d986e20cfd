//! The calls for threads: their beginning, their end, and where they sleep.

use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::clocks::{getrandom, nanos};
use crate::kernel::{State, UPTIME, WALL, dies, give_way, is, me, passes, take_over, wait, with};
use crate::real::{self, Real};

static CREATE: Real = Real::of(c"pthread_create");
static JOIN: Real = Real::of(c"pthread_join");
static DETACH: Real = Real::of(c"pthread_detach");

/// What a wake-up, a yield and a new thread cost.
const WAKE: u64 = 200;
const YIELD: u64 = 1_000;
const CREATES: u64 = 10_000;

type Body = extern "C" fn(*mut c_void) -> *mut c_void;

struct Start {
    body: Body,
    argument: *mut c_void,
    id: usize,
    park: &'static AtomicU32,
}

unsafe extern "C" {
    /// What the calling thread does when it ends.
    fn __cxa_thread_atexit_impl(
        end: unsafe extern "C" fn(*mut c_void),
        argument: *mut c_void,
        dso: *mut c_void,
    ) -> c_int;
    /// Stands for this library there.
    static __dso_handle: u8;
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    out: *mut u64,
    attributes: *const c_void,
    body: Body,
    argument: *mut c_void,
) -> c_int {
    type Create = unsafe extern "C" fn(*mut u64, *const c_void, Body, *mut c_void) -> c_int;
    // SAFETY: this is the type of libc's.
    let create = unsafe { std::mem::transmute::<usize, Create>(CREATE.address()) };
    let Some(me) = me() else {
        // SAFETY: the caller's.
        return unsafe { create(out, attributes, body, argument) };
    };
    let (id, park) = with(|world| world.add(State::Ready));
    let start = Box::into_raw(Box::new(Start { body, argument, id, park }));
    // SAFETY: the caller's; `begin` takes the box over.
    let failed = unsafe { create(out, attributes, begin, start.cast()) };
    assert!(failed == 0, "no thread: error {failed}");
    // SAFETY: libc has written the thread there. The new thread does not run before this one switches.
    unsafe { *out = with(|world| world.is_called(id, *out)) };
    passes(me, CREATES);
    0
}

/// The first and the last of each thread.
extern "C" fn begin(start: *mut c_void) -> *mut c_void {
    // SAFETY: `pthread_create` gives the box to this thread alone.
    let Start { body, argument, id, park } = *unsafe { Box::from_raw(start.cast::<Start>()) };
    take_over(park);
    is(Some(id));
    // SAFETY: registered first, `end` runs last, after the destructors of the thread's own variables.
    unsafe { __cxa_thread_atexit_impl(end, id as *mut c_void, (&raw const __dso_handle).cast_mut().cast()) };
    body(argument)
}

unsafe extern "C" fn end(id: *mut c_void) {
    is(None);
    dies(id as usize);
}

/// Waits until a thread that is dead has left libc.
pub fn join(thread: u64) {
    type Join = unsafe extern "C" fn(u64, *mut *mut c_void) -> c_int;
    // SAFETY: this is the type of libc's; nobody else joins or detaches a thread.
    unsafe { std::mem::transmute::<usize, Join>(JOIN.address())(thread, std::ptr::null_mut()) };
}

/// # Safety
/// As libc's, but for the result, which is always null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_join(thread: u64, out: *mut *mut c_void) -> c_int {
    let Some(me) = me() else {
        join(thread);
        return 0;
    };
    while with(|world| world.lives(thread)) {
        wait(me, State::End(thread), None);
    }
    if !out.is_null() {
        // SAFETY: the caller's.
        unsafe { *out = std::ptr::null_mut() };
    }
    0
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_detach(thread: u64) -> c_int {
    if me().is_some() {
        return 0; // `take_over` joins each thread
    }
    // SAFETY: this is the type of libc's, and the caller's call.
    unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(u64) -> c_int>(DETACH.address())(thread) }
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_yield() -> c_int {
    if let Some(me) = me() {
        with(|world| world.now += YIELD);
        give_way(me);
        return 0;
    }
    // SAFETY: has no arguments.
    unsafe { real::syscall(libc::SYS_sched_yield, [0; 6]) as c_int }
}

/// # Safety
/// As libc's, where this function has any number of arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    match (me(), number) {
        // SAFETY: the caller's.
        (Some(me), libc::SYS_futex) => unsafe { futex(me, a, b as c_int, c, d as *const libc::timespec) },
        // SAFETY: the caller's.
        (Some(_), libc::SYS_getrandom) => unsafe { getrandom(a as *mut c_void, b, c as u32) as c_long },
        // SAFETY: the caller's.
        _ => unsafe { real::syscall(number, [a, b, c, d, e, f]) },
    }
}

/// # Safety
/// The caller's of `syscall`.
unsafe fn futex(
    me: usize,
    address: usize,
    operation: c_int,
    value: usize,
    time: *const libc::timespec,
) -> c_long {
    let of_day = operation & libc::FUTEX_CLOCK_REALTIME != 0;
    let operation = operation & 0x7f;
    match operation {
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => {
            // SAFETY: the caller's: a futex is at this address.
            let found = unsafe { &*(address as *const AtomicU32) }.load(Ordering::SeqCst);
            if found != value as u32 {
                return real::fail(libc::EAGAIN).into();
            }
            let deadline = (!time.is_null()).then(|| {
                // SAFETY: the caller's.
                let time = unsafe { nanos(time) };
                match operation {
                    libc::FUTEX_WAIT => with(|world| world.now.saturating_add(time)),
                    _ => time.saturating_sub(if of_day { WALL } else { UPTIME }),
                }
            });
            if wait(me, State::Futex(address), deadline) { real::fail(libc::ETIMEDOUT).into() } else { 0 }
        }
        libc::FUTEX_WAKE => {
            let woken = with(|world| world.wake(State::Futex(address), value));
            passes(me, WAKE);
            woken as c_long
        }
        other => panic!("a futex with operation {other}"),
    }
}
