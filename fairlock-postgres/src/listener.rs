//! The thread that hears for a client: by LISTEN, after it has seen that a message gets through, else by polling, until one does.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fairlock_core::backend::{BackendError, LineLimit, Wake, log_safely, pause};
use fairlock_rules::WakeUp;

use crate::clients::Client;
use crate::link::{Link, Phase};
use crate::net::{Connection, Failure, Statement, open};
use crate::poller::look_for;
use crate::presence::{channel_of, key_of};
use crate::sql::{NOTIFY, SERVER};
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

pub(crate) struct Listener {
    store: Weak<Store>,
    client: Weak<Client>,
    link: Arc<Link>,
    name: String,
}

impl Listener {
    pub(crate) fn new(store: &Arc<Store>, client: &Arc<Client>) -> Listener {
        let (link, name) = (Arc::clone(&client.link), client.name.clone());
        Listener { store: Arc::downgrade(store), client: Arc::downgrade(client), link, name }
    }

    /// A panic costs the connection, as the server's end of it does.
    pub(crate) fn run(self) {
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
            let (every, deaf_until) = (store.clients.poll_every, store.clients.deaf_until());
            if every.is_some() || deaf_until.is_some_and(|until| Instant::now() < until) {
                drop(store);
                if self.poll(every.unwrap_or(POLLS_EVERY), deaf_until) {
                    return;
                }
                continue;
            }
            let connected = self.connect(&store, deaf_until.is_some());
            if deaf_until.is_some() && connected.is_err() {
                store.clients.is_deaf();
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
                store.clients.is_heard();
                return Ok(Some(con));
            }
            if let Some(client) = self.client.upgrade().filter(|_| polls) {
                look_for(store, &client)?;
            }
        }
        if store.clients.is_deaf() {
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
pub(crate) fn warn(limit: &LineLimit, line: impl FnOnce(u64) -> String) {
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
