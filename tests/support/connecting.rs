//! Connects to a server that can't take it yet.

use std::fmt::Debug;
use std::thread;

use crate::eventually::eventually;
use crate::log_lines::{keep_log_lines, log_lines};

/// Calls `connect`, and once its first attempt has failed `then`, which makes the server ready. Panics unless it connects after that.
#[track_caller]
pub fn connects_after<E: Debug + Send>(connect: impl FnOnce() -> Result<(), E> + Send, then: impl FnOnce()) {
    keep_log_lines(log::LevelFilter::Warn);
    thread::scope(|scope| {
        let connecting = scope.spawn(connect);
        eventually("an attempt has failed", || {
            assert!(!connecting.is_finished(), "it was not tried again");
            !log_lines("not connected yet, trying again").is_empty()
        });
        then();
        connecting.join().expect("no panic").expect("it connects");
        assert_eq!(log_lines("not connected yet").len(), 1, "one line, however many attempts");
    });
}
