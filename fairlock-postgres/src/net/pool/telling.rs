//! Messages that the server does not send at once. All NOTIFYs of a server commit in turn, whatever their database, and the
//! NOTIFY of another program may be stuck in its commit, for example behind a silent standby. Nothing depends on messages, so no
//! caller waits.
//!
//! A step sends its messages behind its COMMIT, in the same trip, and waits for their answer no longer than [`SOON`] after that
//! of the COMMIT. Then
//!
//! | what | goes on | until |
//! | --- | --- | --- |
//! | its connection | in a thread (`fairlock-pg-tell`), which waits for the answer, and sends later messages | all is sent: idle again |
//! | messages of later steps | waiting, in their order | that thread takes them; those beyond [`MOST`] are dropped |
//!
//! - **The server refuses them**, after `lock_timeout`: they are dropped, and heartbeats find what they said.
//! - **The last thread ends while a step adds messages**: both happen under the pool's mutex; a step that comes later sends its own.
//! - **Some steps are under way when the delay begins**: each leaves its connection to a thread. The pool does not count one of
//!   these connections, so even a client with a single connection goes on.
//! - **The backend ends**: so do the threads, within a second. What was sent by then is carried out all the same.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::{LOOKS, Pool, PoolInner};
use crate::net::connection::Connection;
use crate::net::statement::Statement;

/// How much later than that of the COMMIT the answer to its messages may come. It is sent right behind.
pub(crate) const SOON: Duration = Duration::from_millis(5);
/// The most messages that wait.
const MOST: usize = 256;

/// Counts as a connection whose messages are under way, until it is dropped.
struct Telling(Weak<PoolInner>);

impl Pool {
    /// Whether messages have to wait for earlier ones.
    pub(crate) fn is_telling(&self) -> bool {
        self.shared.state.lock().telling > 0
    }

    /// Sends these messages now, in their own trip; or later, behind messages that the server does not send yet.
    pub(crate) fn tell(
        &self,
        con: &mut Connection,
        mut messages: Vec<Statement>,
        soon: Duration,
        deadline: Instant,
    ) {
        let mut state = self.shared.state.lock();
        if state.telling == 0 {
            drop(state);
            con.tell(&messages, deadline);
            con.is_busy_at(deadline.min(Instant::now() + soon));
            return;
        }
        messages.truncate(MOST.saturating_sub(state.untold.len()));
        state.untold.append(&mut messages);
    }

    /// Leaves a connection, which is lent no longer, to a thread until its messages were sent.
    pub(super) fn leave_to_thread(&self, mut con: Connection) {
        self.shared.state.lock().telling += 1;
        let (mut telling, most, limit) =
            (Telling(Arc::downgrade(&self.shared)), self.most, self.timeouts.response);
        let thread = thread::Builder::new().name("fairlock-pg-tell".to_owned());
        // Without a thread it is closed.
        _ = thread.spawn(move || {
            loop {
                while telling.0.strong_count() > 0 && con.is_busy_at(Instant::now() + LOOKS) {}
                let Some(shared) = telling.0.upgrade().filter(|_| con.is_idle()) else { return };
                let mut state = shared.state.lock();
                let messages = std::mem::take(&mut state.untold);
                if messages.is_empty() {
                    // Another one may have been opened meanwhile.
                    if state.used() + state.idle.len() < most {
                        state.idle.push(con);
                    }
                    state.telling -= 1;
                    std::mem::take(&mut telling.0); // it counts no longer
                    drop(state);
                    shared.returned.notify_all();
                    return;
                }
                drop(state);
                con.tell(&messages, Instant::now() + limit);
            }
        });
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            let mut state = shared.state.lock();
            state.telling -= 1;
            if state.telling == 0 {
                state.untold.clear(); // nobody would send them
            }
            drop(state);
            shared.returned.notify_all();
        }
    }
}

#[cfg(feature = "servers")]
#[cfg(test)]
mod tests;
