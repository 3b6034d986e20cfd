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
//!
//! The thread listens after it has seen that a message gets through, else it polls until one does: again and again one statement looks at
//! all locks for which the client waits. A look returns only the rows that were written since the last look. It misses nothing: the
//! grant stands in the row, and is found however many looks were late or failed.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use fairlock_core::backend::{
    Acquired, BackendError, LineLimit, Place, Renewal, Wait, Wake, log_safely, pause,
};
use fairlock_rules::WakeUp;

use crate::clients::{Client, Link, Phase, Waiting, WakeUps, channel_of, key_of};
use crate::net::statement::{NOTIFY, SERVER};
use crate::net::{Connection, Failure, Statement, open};
use crate::row::{AFTER, Loaded, changed};
use crate::store::Store;

/// How often a connection is checked. Short in tests.
const CHECKED_EVERY: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });
/// How often the thread looks whether it has to end.
const LOOKS_EVERY: Duration = Duration::from_secs(1);
/// For how long the thread waits for a message to itself.
const HEARD_WITHIN: Duration = Duration::from_secs(1);
/// How often the thread polls if that message does not come.
const POLLS_EVERY: Duration = Duration::from_millis(20);

/// The lines about lost connections, unreadable messages, and the first failed poll after a good one.
static LOST: LineLimit = LineLimit::new();
static UNREADABLE: LineLimit = LineLimit::new();
static UNPOLLED: LineLimit = LineLimit::new();
/// The lines about a thread that can't be started.
static NO_THREAD: LineLimit = LineLimit::new();

impl Client {
    /// See [`Link::waits`].
    fn waits(self: &Arc<Client>, store: &Arc<Store>, place: &Place<'_>, until: Instant) -> Option<u64> {
        let mut failed = None;
        let session = self.link.waits(place, until, || {
            let (store, client) = (Arc::downgrade(store), Arc::downgrade(self));
            let listener = Listener { store, client, link: Arc::clone(&self.link), name: self.name.clone() };
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
        Acquired::Queued { .. } => true,
        Acquired::Busy { .. } => place.wait != Wait::No,
        _ => false,
    }
}

struct Listener {
    store: Weak<Store>,
    client: Weak<Client>,
    link: Arc<Link>,
    name: String,
}

impl Listener {
    /// A panic costs the connection, as the server's end of it does.
    fn run(self) {
        let mut panics = 0_u32;
        while let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.hear_or_poll())) {
            std::mem::forget(panic); // its drop may panic as well
            panics = panics.saturating_add(1);
            log_safely(|| log::error!(target: "fairlock::net", "the thread for wake-ups panicked, going on"));
            if !self.goes_on_after(panics) {
                return;
            }
        }
    }

    /// Pauses after that many failures. Returns whether the thread goes on.
    fn goes_on_after(&self, failures: u32) -> bool {
        if !self.link.set(Phase::Broken) {
            return false;
        }
        self.link.rest(pause(failures));
        !self.link.has_to_end()
    }

    fn hear_or_poll(&self) {
        let mut failures = 0_u32;
        loop {
            let Some(store) = self.store.upgrade() else { return };
            let deaf_until = store.clients.deaf_until();
            let every = match store.clients.wake_ups {
                WakeUps::Poll(every) => Some(every),
                WakeUps::Listen => deaf_until.filter(|until| Instant::now() < *until).and(Some(POLLS_EVERY)),
            };
            if let Some(every) = every {
                drop(store);
                if self.poll(every, deaf_until) {
                    return;
                }
                continue;
            }
            let connected = self.connect(&store, deaf_until.is_some());
            if deaf_until.is_some() && connected.is_err() {
                store.clients.poll_for_a_while();
                continue;
            }
            drop(store);
            let heard = match connected {
                Ok(Some(con)) => {
                    failures = 0;
                    self.hear(con)
                }
                Ok(None) => continue,
                Err(failure) => Err(failure),
            };
            let Err(failure) = heard else { return };
            failures = failures.saturating_add(1);
            if !self.link.set(Phase::Broken) {
                return; // it is over, so nothing was lost
            }
            if failures == 1 {
                let lost = "lost the connection for wake-ups";
                warn(&LOST, |times| {
                    format!("{lost} {times} time(s), reconnecting: {}", BackendError::from(failure))
                });
            }
            if !self.goes_on_after(failures) {
                return;
            }
        }
    }

    /// Polls until the thread has to end, or for a while. Returns whether the thread has to end.
    fn poll(&self, every: Duration, until: Option<Instant>) -> bool {
        let mut failures = 0_u32;
        if !self.link.set(Phase::Polling) {
            return true;
        }
        while until.is_none_or(|until| Instant::now() < until) {
            self.link.rest(every.max(pause(failures)));
            if self.link.has_to_end() {
                return true;
            }
            let (Some(store), Some(client)) = (self.store.upgrade(), self.client.upgrade()) else {
                return true;
            };
            let looked = look_for(&store, &client);
            failures = if looked.is_err() { failures.saturating_add(1) } else { 0 };
            if let Err(failure) = looked
                && failures == 1
            {
                let failed = "polling for wake-ups failed";
                warn(&UNPOLLED, |times| {
                    format!("{failed} {times} time(s), trying again: {}", BackendError::from(failure))
                });
            }
        }
        false
    }

    /// A connection by which a message to itself was heard. None if the message was not heard: then all clients of this process poll
    /// for a while. A client that polls already goes on polling meanwhile.
    ///
    /// A pooler gives each transaction any session, so LISTEN is carried out somewhere, and what that session hears gets lost. Hence
    /// the client is made present afterwards only: the pooler's session would keep that.
    fn connect(&self, store: &Store, polls: bool) -> Result<Option<Connection>, Failure> {
        let mut con = open(&store.clients.listen_at, Instant::now() + store.pool.timeouts.connect)?;
        let channel = channel_of(&self.name);
        con.flight(&[Statement::made_up(format!("listen {channel}"))], store.pool.deadline())?;
        check_server(&mut con, store)?;
        let tell = Statement::new(NOTIFY, [channel.as_str().into(), "test".into()]);
        store.pool.ask(tell, store.pool.deadline())?;
        let until = Instant::now() + HEARD_WITHIN;
        while Instant::now() < until {
            let next = if polls { until.min(Instant::now() + POLLS_EVERY) } else { until };
            if !con.listen(next)?.is_empty() {
                store.clients.listen_again();
                return Ok(Some(con));
            }
            if let Some(client) = self.client.upgrade().filter(|_| polls) {
                look_for(store, &client)?;
            }
        }
        if store.clients.poll_for_a_while() {
            log_safely(|| {
                log::warn!(
                    target: "fairlock::net",
                    "a NOTIFY to this process did not arrive within {HEARD_WITHIN:?}, so it polls for wake-ups, and tries that again now \
                     and then: behind a pooler in transaction mode, name the server itself with .listen_on(url)"
                );
            });
        }
        con.flight(&[Statement::new("unlisten *", [])], store.pool.deadline())?; // if the pooler happens to choose the same session
        Ok(None)
    }

    /// Hears messages until the thread has to end.
    fn hear(&self, mut con: Connection) -> Result<(), Failure> {
        let mut is_present = self.be_present(&mut con, Instant::now() + LOOKS_EVERY)?;
        let Some(has_missed) = self.link.hears(is_present) else { return Ok(()) };
        if has_missed && let Some(client) = self.client.upgrade() {
            client.sink.wake(Wake::Gap);
        }
        let (mut checked, mut broken) = (Instant::now(), 0);
        loop {
            let messages = con.listen(Instant::now() + LOOKS_EVERY)?;
            let Some(client) = self.client.upgrade() else { return Ok(()) };
            if messages.is_empty() && self.link.has_to_end() {
                return Ok(());
            }
            for message in messages {
                match message.parse::<WakeUp>() {
                    Ok(wake_up) if wake_up.owner.client() == self.name => client.hear(&wake_up),
                    Ok(_) => {}
                    // Anyone who may log in to the database can send it.
                    Err(error) => {
                        warn(&UNREADABLE, |times| format!("{times} unreadable message(s): {error}"))
                    }
                }
            }
            let Some(store) = self.store.upgrade() else { return Ok(()) };
            // Commands that have lost a connection may have gone elsewhere.
            let lost = std::mem::replace(&mut broken, store.pool.broken()) != broken;
            if lost || checked.elapsed() >= CHECKED_EVERY {
                checked = Instant::now();
                check_server(&mut con, &store)?;
                if !is_present && self.be_present(&mut con, store.pool.deadline())? {
                    is_present = true;
                    self.link.set_present();
                }
            }
        }
    }

    /// Takes the advisory lock that shows the client's presence. Steps hold this lock, shared, for a moment. An earlier session
    /// of this client holds it until the server gives that session up.
    fn be_present(&self, con: &mut Connection, deadline: Instant) -> Result<bool, Failure> {
        let key = [key_of(&self.name).into()];
        con.row(Statement::new("select pg_try_advisory_lock($1)", key), deadline)?.flag(0)
    }
}

/// Writes this line, unless one like it was written within a minute. It says how often that has happened.
fn warn(limit: &LineLimit, line: impl FnOnce(u64) -> String) {
    if let Some(times) = limit.count(1, Instant::now()) {
        let line = line(times);
        log_safely(|| log::warn!(target: "fairlock::net", "{line}"));
    }
}

/// After a fail-over the former primary may keep this connection open for long, and says nothing more.
///
/// # Errors
/// An error if this session's server is not the server of the commands, or takes no writes any more. If commands fail, their own
/// errors say why; a connection for commands to such a server is closed.
fn check_server(con: &mut Connection, store: &Store) -> Result<(), Failure> {
    let deadline = store.pool.deadline();
    let here = server_of(con, deadline)?;
    match store.pool.lend(deadline, |con| server_of(con, deadline)) {
        Ok(there) if there != here => {
            Err(Failure::broken("the server or database differs from that of the commands"))
        }
        _ => Ok(()),
    }
}

fn server_of(con: &mut Connection, deadline: Instant) -> Result<String, Failure> {
    let row = con.row(Statement::new(&SERVER, []), deadline)?;
    if row.flag(1)? {
        return Err(Failure::broken("the server takes no writes any more"));
    }
    Ok(row.text(0)?.to_owned())
}

/// Tells the client what stands in the rows of the locks that it waits for.
fn look_for(store: &Store, client: &Client) -> Result<(), Failure> {
    let waiting = client.link.waiting();
    let mut revs = BTreeMap::new();
    for (Waiting { lock, .. }, seen) in &waiting {
        let first_seen = revs.entry(lock.as_str().as_bytes()).or_insert(*seen);
        *first_seen = (*first_seen).min(*seen);
    }
    if revs.is_empty() {
        return Ok(());
    }
    for row in &store.pool.ask(changed(revs), store.pool.deadline())? {
        let (name, rev, has_standby) = (row.bytes(AFTER)?, row.number(AFTER + 1)?, row.flag(AFTER + 2)?);
        let of_lock = waiting.iter().map(|(one, _)| one);
        let mut of_lock = of_lock.filter(|one| one.lock.as_str().as_bytes() == name).peekable();
        let Some(lock) = of_lock.peek().map(|one| &one.lock) else { continue };
        let loaded = Loaded::read(row).ok(); // the next heartbeat says why it can't be read
        if loaded.as_ref().is_some_and(|loaded| loaded.entry.is_free_for_plain(loaded.now)) {
            client.sink.wake(Wake::Recheck { lock: lock.as_str(), owner: None });
        }
        for one in of_lock {
            client.link.saw(one, rev);
            let Waiting { lock, owner, request } = one;
            let token = loaded.as_ref().and_then(|is| is.entry.token_of(owner, *request, is.now));
            if token.is_some() && has_standby {
                // Perhaps no standby has the grant. The answer to the next ask is a commit.
                let (lock, owner) = (lock.as_str(), Some(owner.as_str()));
                client.sink.wake(Wake::Recheck { lock, owner });
                continue;
            }
            // The client may know of the grant by now, from an answer or a step of this process.
            if let Some(token) = token.filter(|_| client.link.waits_no_longer(one)) {
                let (lock, owner, request) = (lock.as_str(), owner.as_str(), *request);
                client.sink.wake(Wake::Granted { lock, owner, request, token });
            }
        }
    }
    Ok(())
}

#[cfg(feature = "servers")]
#[cfg(test)]
mod tests;
