//! How clients hear of their grants: at once from a step of this process, else by LISTEN or by polling.
//!
//! A client listens or polls only while it waits. Its thread (`fairlock-pg-wake`) and connection begin with the first request
//! that has to wait, and end 30 s after the last wait.
//!
//! | link of a client | moves to | by |
//! | --- | --- | --- |
//! | silent | starting | the first caller that has to wait: it starts the thread |
//! | starting | hearing | the thread: it listens, and a message to itself has come |
//! | starting, hearing | broken | the thread: the connection failed, or sits at another server than the commands |
//! | starting, broken | polling | the thread: it is set so, or a message to itself has not come |
//! | polling | hearing | the thread: it has tried again, and a message to itself has come; it says `Gap` |
//! | broken | hearing | the thread, after a pause; then it says `Gap` |
//! | starting, hearing, broken, polling | silent | the thread, which ends: no request waits |
//! | any | over | the end of the subscription; the thread finds it, and ends |
//!
//! - **A grant between the step that queued and LISTEN is told to no connection**: each listening connection has a number. If the
//!   client did not listen by this connection before the caller's step, the caller asks again, and finds the grant.
//! - **The thread does not hear in time** for the caller: it says `Gap` when it does. A thread that polls looks at the rows, so it has
//!   missed nothing.
//! - **The thread ends while a caller's step queues**: both move the link under its mutex, and the caller starts another thread. The
//!   former one does not touch the link any more.
//! - **Another process sees a place before its client is present**, or the place of a client that polls: `heads` in the row names
//!   only clients that were present when they asked. No other client is passed over.
//! - **A logger panics, or a mistake of ours does**: lines are written under guard, and the thread goes on after a pause.
//! - **A message between two connections is lost**: `Gap` comes after LISTEN, so what is sent from then on is heard.
//! - **The subscription ends while the thread connects**: the thread moves the link on under the mutex, and finds `over`.
//! - **A message comes after the end**: the thread has a weak pointer to the sink.
//! - **The old session still holds the client's presence** when the thread is back: it tries again at each check. Until then the
//!   client's own steps take it out of `heads`.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use fairlock_core::backend::{Acquired, BackendError, LineLimit, Place, Renewal, Wait};

use crate::clients::Client;
use crate::link::Waiting;
use crate::listener::{Listener, warn};
use crate::store::Store;

/// The lines about a thread that can't be started.
static NO_THREAD: LineLimit = LineLimit::new();

impl Client {
    /// See [`Link::waits`](crate::link::Link::waits).
    fn waits(self: &Arc<Client>, store: &Arc<Store>, place: &Place<'_>, until: Instant) -> Option<u64> {
        let mut failed = None;
        let session = self.link.waits(place, until, || {
            let listener = Listener::new(store, self);
            let thread = thread::Builder::new().name("fairlock-pg-wake".to_owned());
            failed = thread.spawn(move || listener.run()).err();
            failed.is_none()
        });
        // Heartbeats find the grant, and start the thread if they can.
        if let Some(error) = failed {
            warn(&NO_THREAD, |times| {
                format!("can't start the thread for wake-ups, {times} time(s): {error}")
            });
        }
        session
    }
}

/// Asks for these places, by their numbers. If a place has to wait, its client is made to listen: this takes half of the time at
/// most, and the rest is left for another ask.
pub(crate) fn ask_and_hear(
    store: &Arc<Store>,
    places: &[Place<'_>],
    deadline: Instant,
    ask: impl Fn(&[usize]) -> Vec<Result<Acquired, BackendError>>,
) -> Vec<Result<Acquired, BackendError>> {
    let clients: Vec<_> = places.iter().map(|place| store.clients.get(place.owner.client())).collect();
    let session = |client: &Option<Arc<Client>>| client.as_ref().and_then(|client| client.link.session());
    let before: Vec<_> = clients.iter().map(session).collect();
    let mut answers = ask(&(0..places.len()).collect::<Vec<_>>());
    let until = Instant::now() + deadline.saturating_duration_since(Instant::now()) / 2;
    let has_begun_to_hear = |at: &usize| {
        let waits = answers[*at].as_ref().is_ok_and(|answer| waits(&places[*at], answer));
        let client = clients[*at].as_ref().filter(|_| waits);
        let session = client.and_then(|client| client.waits(store, &places[*at], until));
        session.is_some() && session != before[*at]
    };
    let again: Vec<_> = (0..places.len()).filter(has_begun_to_hear).collect();
    if !again.is_empty() {
        for (at, answer) in again.iter().zip(ask(&again)) {
            answers[*at] = answer.map_err(BackendError::maybe_sent);
        }
    }
    for ((place, client), answer) in places.iter().zip(&clients).zip(&answers) {
        if let (Some(client), Ok(answer)) = (client, answer)
            && !waits(place, answer)
        {
            client.link.waits_no_longer(&Waiting::of(place));
        }
    }
    answers
}

/// A heartbeat of a place was answered.
pub(crate) fn place_renewed(store: &Arc<Store>, place: &Place<'_>, answer: &Renewal) {
    let Some(client) = store.clients.get(place.owner.client()) else { return };
    if matches!(answer, Renewal::Waiting { .. }) {
        client.waits(store, place, Instant::now());
    } else {
        client.link.waits_no_longer(&Waiting::of(place));
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

#[cfg(feature = "servers")]
#[cfg(test)]
mod tests;
