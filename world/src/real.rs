//! The calls of libc itself, which stand behind those of this library.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A function of libc, looked up at its first use.
pub struct Real(&'static CStr, AtomicUsize);

pub static SYSCALL: Real = Real::of(c"syscall");

impl Real {
    pub const fn of(name: &'static CStr) -> Real {
        Real(name, AtomicUsize::new(0))
    }

    /// Its address.
    pub fn address(&self) -> usize {
        match self.1.load(Ordering::Relaxed) {
            0 => {
                // SAFETY: the name ends with a zero byte.
                let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.0.as_ptr()) } as usize;
                assert!(address != 0, "libc has no {:?}", self.0);
                self.1.store(address, Ordering::Relaxed);
                address
            }
            address => address,
        }
    }
}

/// A call of the system that reaches the system. Sets `errno`.
///
/// # Safety
/// As the call.
pub unsafe fn syscall(number: libc::c_long, arguments: [usize; 6]) -> libc::c_long {
    type Call = unsafe extern "C" fn(libc::c_long, ...) -> libc::c_long;
    // SAFETY: this is the type of libc's `syscall`.
    let call = unsafe { std::mem::transmute::<usize, Call>(SYSCALL.address()) };
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the caller's.
    unsafe { call(number, a, b, c, d, e, f) }
}

/// Fails a call with this error.
pub fn fail(error: libc::c_int) -> libc::c_int {
    // SAFETY: each thread has its `errno`.
    unsafe { *libc::__errno_location() = error };
    -1
}
