//! Waits for a lock in its own thread.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, FencingToken, Guard};

use crate::eventually;

/// Far longer than anything here takes on a busy machine.
const BOUND: Duration = Duration::from_secs(30);

/// A waiter that reports its grant and releases the lock on request.
pub struct Waiter {
    /// The client that waits.
    pub client: Client,
    got: Receiver<(Instant, FencingToken)>,
    go: Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl Waiter {
    /// Asks for the fair lock and returns when the waiter is in the queue.
    #[track_caller]
    pub fn start(client: Client, name: &str) -> Waiter {
        let lock = client.fair_lock(name).unwrap();
        let before = lock.admin().inspect().unwrap().queue_length;
        let (tell, got) = channel();
        let (go, told) = channel();
        let waiting = lock.clone();
        let thread = thread::spawn(move || {
            let guard = waiting.lock().unwrap();
            tell.send((Instant::now(), guard.token())).unwrap();
            told.recv_timeout(BOUND).unwrap();
            guard.unlock().unwrap();
        });
        eventually("the waiter stands in the queue", || {
            lock.admin().inspect().unwrap().queue_length > before
        });
        Waiter { client, got, go, thread }
    }

    /// Waits for the grant and returns its time and token.
    #[track_caller]
    pub fn has_it(&self) -> (Instant, FencingToken) {
        self.got.recv_timeout(BOUND).unwrap()
    }

    /// Releases the lock and ends the thread.
    #[track_caller]
    pub fn leaves(self) {
        self.go.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

/// Releases the lock: the waiters get it in their order, each with a greater token. Returns when the first one had it.
#[track_caller]
pub fn in_turn(guard: Guard, waiters: [Waiter; 2]) -> Instant {
    let (mut last, mut times) = (guard.token(), Vec::new());
    guard.unlock().unwrap();
    for waiter in waiters {
        let (got, token) = waiter.has_it();
        assert!(token > last, "{token} after {last}");
        (last, times) = (token, [times, vec![got]].concat());
        waiter.leaves();
    }
    times[0]
}
