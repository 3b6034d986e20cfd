//! The clients of this process, and how they hear of their grants: at once from a step of this process, else by LISTEN or by polling.
//!
//! A client listens or polls only while it waits. A thread (`fairlock-pg-wake`) begins with its first request that has to wait, and
//! ends when none has waited for 30 s; so does its connection.
//!
//! | link of a client | moves to | by |
//! | --- | --- | --- |
//! | silent | starting | the first caller that has to wait: it starts the thread |
//! | starting | hearing | the thread: it listens, and a message to itself has come |
//! | starting, hearing | broken | the thread: the connection failed, or sits at another server than the commands |
//! | starting, broken | polling | the thread: it is set so, or a message to itself has not come |
//! | broken | hearing | the thread, after a pause; then it says `Gap` |
//! | starting, hearing, broken, polling | silent | the thread: nothing waits; it ends |
//! | any | over | the end of the subscription; the thread finds it, and ends |
//!
//! - **A grant between the step that queued and LISTEN is told to no connection**: each connection that hears has a number. A caller
//!   whose client did not hear by this one before its step asks again, which finds the grant.
//! - **The thread does not hear in time** for the caller: it says `Gap` when it does. A thread that polls looks at the rows, so it has
//!   missed nothing.
//! - **The thread ends while a caller's step queues**: both move the link under its mutex, and the caller starts another thread. The
//!   former one does not touch the link any more.
//! - **Another process sees a place before its client is present**, or one of a client that polls: `heads` in the row names only
//!   clients that were present when they asked, so no other is passed over.
//! - **A message between two connections is lost**: `Gap` comes after LISTEN, so what is sent from then on is heard.
//! - **The subscription ends while the thread connects**: the thread moves the link on under the mutex, and finds `over`.
//! - **A message comes after the end**: the thread has a weak pointer to the sink.
//! - **The old session still holds the client's presence** when the thread is back: it tries again at each check. Until then the
//!   client's own steps take it out of `heads`.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use fairlock_core::backend::{Acquired, BackendError, Place, Renewal, Wait, WakeSink};
use fairlock_line::{News, WakeUp};
use parking_lot::RwLock;

use crate::link::{Link, Phase, Waiting};
use crate::listener::Listener;
use crate::net::address::Address;
use crate::step::Store;

/// How a process hears that a lock was granted to it by another process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WakeUps {
    /// By LISTEN, on a connection that a client has from its first request that has to wait until none has waited for 30 s. Where
    /// that does not work, as behind a pooler in transaction mode, a warning says so, and the client polls every 20 ms.
    #[default]
    Listen,
    /// By looking at the locks that it waits for, all with one statement, each time so much time has gone by: from 1 ms to 1 min.
    ///
    /// No session shows that the process is alive. So a process that dies while it waits delays the others by one place TTL, and is
    /// not passed over at once. That a hold was taken by force shows with its next renewal.
    Poll(Duration),
}

/// The clients of this process.
pub(crate) struct Clients {
    all: RwLock<HashMap<String, Arc<Client>>>,
    /// Where they listen.
    pub(crate) listen_at: Address,
    /// How often they poll, if they do: it was set so, or a message was not heard.
    pub(crate) poll_every: OnceLock<Duration>,
}

pub(crate) struct Client {
    name: String,
    pub(crate) sink: Arc<dyn WakeSink>,
    pub(crate) link: Arc<Link>,
}

impl Clients {
    pub(crate) fn new(listen_at: Address, wake_ups: WakeUps) -> Clients {
        let poll_every = match wake_ups {
            WakeUps::Listen => OnceLock::new(),
            WakeUps::Poll(every) => OnceLock::from(every),
        };
        Clients { all: RwLock::default(), listen_at, poll_every }
    }

    pub(crate) fn add(&self, name: &str, sink: Arc<dyn WakeSink>) {
        let client = Arc::new(Client { name: name.to_owned(), sink, link: Arc::new(Link::new()) });
        let former = self.all.write().insert(name.to_owned(), client);
        if let Some(former) = former {
            former.link.set(Phase::Over);
        }
    }

    pub(crate) fn remove(&self, name: &str) {
        let client = self.all.write().remove(name);
        if let Some(client) = client {
            client.link.set(Phase::Over);
        }
    }

    fn get(&self, name: &str) -> Option<Arc<Client>> {
        self.all.read().get(name).cloned()
    }

    /// Whether a client of this process shows others that it is there; none for others.
    pub(crate) fn is_present(&self, name: &str) -> Option<bool> {
        self.all.read().get(name).map(|client| client.link.is_present())
    }

    /// Tells a client of this process, if it is one.
    pub(crate) fn deliver(&self, wake_up: &WakeUp) {
        if let Some(client) = self.get(wake_up.owner.client()) {
            client.hear(wake_up);
        }
    }

    /// The revisions that polls of this client have seen, one for each request.
    #[cfg(test)]
    pub(crate) fn seen(&self, name: &str) -> Vec<i64> {
        let client = self.get(name);
        client.iter().flat_map(|client| client.link.waiting()).map(|(_, seen)| seen).collect()
    }

    /// The request waits no longer.
    pub(crate) fn waits_no_longer(&self, place: &Place<'_>) {
        if let Some(client) = self.get(place.owner.client()) {
            client.link.waits_no_longer(&Waiting::of(place));
        }
    }
}

impl Client {
    /// Hears a message, whether it waits for that or not.
    pub(crate) fn hear(&self, wake_up: &WakeUp) {
        if let News::Granted { request, .. } = wake_up.news {
            let (lock, owner) = (wake_up.lock.clone(), wake_up.owner.clone());
            self.link.waits_no_longer(&Waiting { lock, owner, request });
        }
        self.sink.wake(wake_up.as_wake());
    }

    /// See [`Link::waits`].
    fn waits(self: &Arc<Client>, store: &Arc<Store>, place: &Place<'_>, until: Instant) -> Option<u64> {
        self.link.waits(place, until, || {
            let listener = Listener::new(store, self, &self.name);
            let thread = thread::Builder::new().name("fairlock-pg-wake".to_owned());
            let started = thread.spawn(move || listener.run());
            if let Err(error) = &started {
                // Heartbeats find the grant, and start the thread if they can.
                log::warn!(target: "fairlock::net", "can't start the thread for wake-ups: {error}");
            }
            started.is_ok()
        })
    }
}

impl Store {
    /// Asks, and sees to it that the client hears of the grant if the request has to wait. At most half of the time goes by for that,
    /// so that it can ask again.
    pub(crate) fn ask_and_hear(
        self: &Arc<Store>,
        place: &Place<'_>,
        deadline: Instant,
        ask: impl Fn() -> Result<Acquired, BackendError>,
    ) -> Result<Acquired, BackendError> {
        let Some(client) = self.clients.get(place.owner.client()) else { return ask() };
        let before = client.link.session();
        let mut answer = ask()?;
        if waits(place, &answer) {
            let left = deadline.saturating_duration_since(Instant::now());
            let session = client.waits(self, place, Instant::now() + left / 2);
            if session.is_some() && session != before {
                answer = ask()?;
            }
        }
        if !waits(place, &answer) {
            client.link.waits_no_longer(&Waiting::of(place));
        }
        Ok(answer)
    }

    /// A heartbeat of a place was answered.
    pub(crate) fn place_renewed(self: &Arc<Store>, place: &Place<'_>, answer: &Renewal) {
        let Some(client) = self.clients.get(place.owner.client()) else { return };
        if matches!(answer, Renewal::Waiting { .. }) {
            client.waits(self, place, Instant::now());
        } else {
            client.link.waits_no_longer(&Waiting::of(place));
        }
    }
}

/// A waiter for a plain lock has no place, but is told when the lock is free.
fn waits(place: &Place<'_>, answer: &Acquired) -> bool {
    match answer {
        Acquired::Granted { .. } => false,
        Acquired::Queued { .. } => true,
        Acquired::Busy { .. } => place.wait != Wait::No,
    }
}
