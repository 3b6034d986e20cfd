//! The calls for threads: their beginning, their end, and where they sleep.

use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::AtomicU32;

use crate::clocks::{getrandom, nanos};
use crate::kernel::{State, UPTIME, WALL, dies, give_way, is, me, passes, take_over, wait, with};
use crate::real::{Real, fail, get, put, system};

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

#[unsafe(no_mangle)]
extern "C" fn pthread_create(out: usize, attributes: usize, body: Body, argument: *mut c_void) -> c_int {
    type Create = extern "C" fn(usize, usize, Body, *mut c_void) -> c_int;
    // SAFETY: this is the type of libc's.
    let create = unsafe { std::mem::transmute::<usize, Create>(CREATE.address()) };
    let Some(me) = me() else { return create(out, attributes, body, argument) };
    let (id, park) = with(|world| world.add(State::Ready));
    let start = Box::into_raw(Box::new(Start { body, argument, id, park }));
    let failed = create(out, attributes, begin, start.cast());
    assert!(failed == 0, "no thread: error {failed}");
    // The new thread does not run before this one switches.
    put(out, with(|world| world.is_called(id, get(out))));
    passes(me, CREATES);
    0
}

/// The first and the last of each thread.
extern "C" fn begin(start: *mut c_void) -> *mut c_void {
    // SAFETY: `pthread_create` gives the box to this thread alone.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    // Before the box is freed: a thread's first use of the heap chooses its part of the heap.
    take_over(start.park);
    let Start { body, argument, id, .. } = *start;
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
    // SAFETY: this is the type of libc's; nobody else joins or detaches a thread.
    let join = unsafe { std::mem::transmute::<usize, extern "C" fn(u64, usize) -> c_int>(JOIN.address()) };
    join(thread, 0);
}

/// What the thread returned is lost: std asks for nothing.
#[unsafe(no_mangle)]
extern "C" fn pthread_join(thread: u64, _out: usize) -> c_int {
    let Some(me) = me() else {
        join(thread);
        return 0;
    };
    while with(|world| world.lives(thread)) {
        wait(me, State::End(thread), None);
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn pthread_detach(thread: u64) -> c_int {
    if me().is_some() {
        return 0; // `take_over` joins each thread
    }
    // SAFETY: this is the type of libc's.
    let detach = unsafe { std::mem::transmute::<usize, extern "C" fn(u64) -> c_int>(DETACH.address()) };
    detach(thread)
}

#[unsafe(no_mangle)]
extern "C" fn sched_yield() -> c_int {
    let Some(me) = me() else { return system(libc::SYS_sched_yield, &[]) as c_int };
    with(|world| world.now += YIELD);
    give_way(me);
    0
}

/// Libc's has any number of arguments.
#[unsafe(no_mangle)]
extern "C" fn syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
    match (me(), number) {
        (Some(me), libc::SYS_futex) => futex(me, a, b as c_int, c, d),
        (Some(_), libc::SYS_getrandom) => getrandom(a, b, c),
        _ => system(number, &[a, b, c, d, e, f]),
    }
}

fn futex(me: usize, address: usize, operation: c_int, value: usize, time: usize) -> c_long {
    let of_day = operation & libc::FUTEX_CLOCK_REALTIME != 0;
    let operation = operation & 0x7f;
    match operation {
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => {
            // Nobody changes the number now: who would has no turn.
            if get::<u32>(address) != value as u32 {
                return fail(libc::EAGAIN).into();
            }
            let deadline = (time != 0).then(|| match (nanos(get(time)), operation) {
                (time, libc::FUTEX_WAIT) => with(|world| world.now.saturating_add(time)),
                (time, _) => time.saturating_sub(if of_day { WALL } else { UPTIME }),
            });
            if wait(me, State::Futex(address), deadline) { fail(libc::ETIMEDOUT).into() } else { 0 }
        }
        libc::FUTEX_WAKE => {
            let woken = with(|world| world.wake(State::Futex(address), value));
            passes(me, WAKE);
            woken as c_long
        }
        other => panic!("a futex with operation {other}"),
    }
}
