//! Backend of fairlock for the processes of one machine: locks are files in a directory, and there is no server.
//!
//! ```no_run
//! use fairlock_core::Client;
//! use fairlock_file::FileBackend;
//!
//! let client = Client::new(FileBackend::open("/run/lock/mine")?)?;
//! let guard = client.fair_lock("nightly")?.lock()?; // other processes of the machine stand in the same queue
//! guard.unlock()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The rules are those of `fairlock-rules`: what stands here is a store. `docs/writing-a-backend.md` walks through it.
//!
//! ```text
//!  <dir>/<name>.lock    a lock: its state in two slots, the last number, the boot. flock(2) for the length of one step
//!  <dir>/<client>.here  a client: the number of its process. flock(2) as long as the process lives
//!  <dir>/<client>.wake  a client: the socket where its wake-ups arrive
//!  <dir>/<uuid>.new     a file that gets its name when it is complete
//!  <dir>/fairlock-<user>.swept   when this user's unused files were removed last
//! ```
//!
//! # States, and who moves them
//!
//! **A lock's file** is absent → named (`hard_link`, by the first step that needs it) → without a name (`unlink`, by the sweep of any client of the
//! same user, a day after the last use). A step takes the `flock`, reads the file, writes the file, and frees it. A step that is killed:
//!
//! | killed | what the next step finds |
//! | --- | --- |
//! | before the file has its name | no file: it makes one. The sweep removes what was begun |
//! | between `flock` and the end of the write | the former state: the slot that was being written is not whole |
//! | after the write | the new state. A waiter that was not told finds its grant at its next heartbeat |
//!
//! The system frees the file in each case. Interleavings that are closed:
//!
//! - *The sweep removes a file that a newcomer has opened*: each step that gets the `flock` looks whether the name still leads to this
//!   file, and opens the name again if not. Whether the file has any name would not do: a process that is killed between `hard_link`
//!   and `unlink` leaves a second one, until the next open. The same look finds files and directories that a user removed or renamed.
//! - *Two newcomers make the file*: one `hard_link` wins, and the other process opens that file.
//! - *The directory is removed, and made again*: each open compares it with the one that was opened, and fails. What a client had there is
//!   lost, for certain: the thread of each client looks once a second, and has all renewed.
//! - *Two threads share an open file*, and so its `flock`: a mutex for each file lets in one at a time. A forked child opens its own.
//! - *A process stands still in a step*: a call about several locks waits a quarter of a second for all of them, and a quarter of that for a
//!   file for which the last step waited in vain. A file that is free is had at the first look, whatever time is left.
//! - *A list is made meanwhile*: it takes the `flock` too, since two steps may change both slots while a reader is between them.
//!
//! **A client** is present from before its first request until its end. The presence file gets its name once it is locked; when the
//! client ends well, the name goes before the lock. A file with a name that nobody has locked says that the client is *gone*: the
//! process has certainly ended. A gone waiter is passed over. A gone holder is replaced by the next waiter that is heard, and waiters
//! watch (`pidfd_open`, on Linux) the processes that they wait for: so a killed holder is replaced in milliseconds. A client that
//! stands still is present: its lease ends by the clock, as in any store. A child that is forked without `exec` keeps its parent
//! present until the leases end; its drop of the client leaves the files and the socket, which are the parent's.
//!
//! **The thread of a client** watches the processes of the clients that stand before its waiters, follows that list before each wait,
//! and sleeps until a message or the end of a process. An ended process is watched no more, even if a forked child has its presence or
//! its place still stands ahead: else each waiter that looks would be told again. If the system refuses the wait, the
//! client renews all it has (`Gap`), once a second.
//!
//! # Why nothing is synced to the disk
//!
//! All processes see what was written, synced or not, as long as the machine runs; and when the machine has stopped, all of them have
//! ended with their holds. A file of another boot is an unused lock. The last steps before a power cut may not have reached the disk, so
//! the lock's tokens begin at the clock. So do those of a file that a power cut left empty or torn: it was last written before this boot, and has a
//! mode that empty files of other programs do not have. A file that was damaged in this boot fails with `Corrupt`, and can be removed. A container with a `boot_id` of its
//! own would take the holds of all other processes for those of another boot: a step fails while such a holder lives.
//!
//! # Clock
//!
//! The time of a step is the system's monotonic clock, which nobody can set. It stands still while the machine sleeps, and so do the
//! clocks by which holders measure their leases.
//!
//! ```text
//!  backend   impl Backend: one step on one file; what operators ask: lists, the doctor
//!     ├► wake_ups     the thread of each client: a socket, the processes that waiters wait for, the sweep
//!     └► lock_files   opened, locked, kept open   └► slots   what a file keeps
//!          └► machine   the directory, names of files, modes, errors; clock, boot; which clients live
//! ```
#![cfg(unix)]

mod backend;
mod lock_files;
mod machine;
mod slots;
mod wake_ups;

#[cfg(test)]
mod tests;

pub use backend::FileBackend;

/// The example of the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
