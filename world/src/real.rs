//! The calls of libc itself, which stand behind those of this library, and what stands at the addresses that callers of libc give. The
//! functions here are safe to call with what such a caller has to give for the call in question, and are used for nothing else.

use std::ffi::{CStr, c_int, c_long};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A function of libc, looked up at its first use.
pub struct Real(&'static CStr, AtomicUsize);

static SYSCALL: Real = Real::of(c"syscall");

impl Real {
    pub const fn of(name: &'static CStr) -> Real {
        Real(name, AtomicUsize::new(0))
    }

    /// Its address.
    pub fn address(&self) -> usize {
        let known = self.1.load(Ordering::Relaxed);
        if known != 0 {
            return known;
        }
        // SAFETY: the name ends with a zero byte.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.0.as_ptr()) } as usize;
        assert!(address != 0, "libc has no {:?}", self.0);
        self.1.store(address, Ordering::Relaxed);
        address
    }
}

/// A call that reaches the system. Sets `errno`.
pub fn system(number: c_long, arguments: &[usize]) -> c_long {
    type Call = unsafe extern "C" fn(c_long, ...) -> c_long;
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    let [a, b, c, d, e, f] = all;
    // SAFETY: this is the type of libc's `syscall`; the arguments are those of the caller of libc.
    unsafe { std::mem::transmute::<usize, Call>(SYSCALL.address())(number, a, b, c, d, e, f) }
}

/// Fails a call with this error.
pub fn fail(error: c_int) -> c_int {
    // SAFETY: each thread has its `errno`.
    unsafe { *libc::__errno_location() = error };
    -1
}

pub fn get<T: Copy>(address: usize) -> T {
    // SAFETY: the caller of libc says that such a value stands there.
    unsafe { *(address as *const T) }
}

pub fn put<T>(address: usize, value: T) {
    // SAFETY: the caller of libc says that such a value may be written there.
    unsafe { (address as *mut T).write(value) }
}

pub fn get_bytes(address: usize, length: usize) -> Vec<u8> {
    // SAFETY: the caller of libc says that so many bytes stand there.
    unsafe { std::slice::from_raw_parts(address as *const u8, length) }.to_vec()
}

pub fn put_bytes(address: usize, bytes: &[u8]) {
    // SAFETY: the caller of libc says that so many bytes may be written there.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) }
}
