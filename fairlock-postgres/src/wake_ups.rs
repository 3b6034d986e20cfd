//! The clients of this process, and how messages reach them: at once from a step of this process, else by LISTEN.
//!
//! A client listens on its own connection and thread (`fairlock-pg-listen`) from its subscription on.
//!
//! | link of a client | moves to | by |
//! | --- | --- | --- |
//! | starting | listening, or broken | the thread: it connected, or failed to: then the subscription fails |
//! | listening | broken | the thread: the connection ended |
//! | broken | listening | the thread, after a pause; then it says `Gap` |
//! | any | over | the end of the subscription |
//!
//! - **Another client's step sees a place before its client is present** and would pass it over: subscribing returns once the
//!   presence is held, and core asks for nothing before that.
//! - **A message between two connections is lost**: `Gap` comes after LISTEN, so what is sent from then on is heard.
//! - **The subscription ends while the thread connects**: the thread moves the link on under the mutex, and finds `over`.
//! - **A message comes after the end**: the thread has a weak pointer to the sink.
//! - **The old session still holds the client's presence** when the thread is back: it tries again at each check.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use fairlock_core::backend::{BackendError, BackendErrorKind, Wake, WakeSink, pause};
use fairlock_line::WakeUp;
use fairlock_net::Timeouts;
use parking_lot::{Condvar, Mutex, RwLock};

use crate::net::address::Address;
use crate::net::{Connection, Failure, Statement, Value, open};
use crate::presence::{channel_of, key_of};

/// How often a silent connection is checked.
const CHECKED_EVERY: Duration = Duration::from_secs(10);
/// How often the thread looks whether the subscription is over.
const LOOKS_EVERY: Duration = Duration::from_secs(1);

/// The clients of this process.
#[derive(Default)]
pub(crate) struct Clients(RwLock<HashMap<String, Arc<Client>>>);

pub(crate) struct Client {
    name: String,
    sink: Arc<dyn WakeSink>,
    link: Arc<Link>,
}

/// What the thread and the callers share.
struct Link {
    state: Mutex<State>,
    changed: Condvar,
}

enum State {
    Starting,
    Listening,
    Broken(BackendError),
    Over,
}

impl Clients {
    pub(crate) fn add(&self, name: &str, sink: Arc<dyn WakeSink>) -> Arc<Client> {
        let link = Arc::new(Link { state: Mutex::new(State::Starting), changed: Condvar::new() });
        let client = Arc::new(Client { name: name.to_owned(), sink, link });
        let former = self.0.write().insert(name.to_owned(), Arc::clone(&client));
        if let Some(former) = former {
            former.end();
        }
        client
    }

    pub(crate) fn remove(&self, name: &str) {
        let client = self.0.write().remove(name);
        if let Some(client) = client {
            client.end();
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.read().contains_key(name)
    }

    /// Tells a client of this process, if it is one.
    pub(crate) fn deliver(&self, wake_up: &WakeUp) {
        let client = self.0.read().get(wake_up.owner.client()).cloned();
        if let Some(client) = client {
            client.sink.wake(wake_up.as_wake());
        }
    }
}

impl Client {
    /// Begins to listen. Returns once a message would arrive and other clients see this one as present.
    ///
    /// # Errors
    /// Why it can't listen.
    pub(crate) fn listen(
        self: &Arc<Client>,
        address: &Address,
        timeouts: Timeouts,
    ) -> Result<(), BackendError> {
        let listener = Listener {
            client: Arc::downgrade(self),
            link: Arc::clone(&self.link),
            name: self.name.clone(),
            address: address.clone(),
            timeouts,
        };
        let spawned =
            thread::Builder::new().name("fairlock-pg-listen".to_owned()).spawn(move || listener.run());
        spawned.map_err(|error| {
            unavailable(format!("can't start the thread that listens: {error}")).with_source(error)
        })?;
        let until = Instant::now() + timeouts.connect + timeouts.response * 2;
        let mut state = self.link.state.lock();
        loop {
            match &*state {
                State::Listening => return Ok(()),
                State::Broken(error) => return Err(error.clone()),
                State::Starting | State::Over => {}
            }
            if self.link.changed.wait_until(&mut state, until).timed_out() {
                return Err(unavailable("no connection for wake-ups in time".to_owned()));
            }
        }
    }

    fn end(&self) {
        self.link.set(State::Over);
    }
}

impl Link {
    /// Moves on, unless it is over. Whether it has.
    fn set(&self, next: State) -> bool {
        let mut state = self.state.lock();
        let is_over = matches!(*state, State::Over);
        if !is_over {
            *state = next;
        }
        drop(state);
        self.changed.notify_all();
        !is_over
    }

    /// Waits; ends at once when it is over. Whether it is.
    fn rest(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        while !matches!(*state, State::Over) {
            if self.changed.wait_until(&mut state, until).timed_out() {
                return matches!(*state, State::Over);
            }
        }
        true
    }
}

struct Listener {
    client: Weak<Client>,
    link: Arc<Link>,
    name: String,
    address: Address,
    timeouts: Timeouts,
}

impl Listener {
    fn run(self) {
        let (mut failures, mut may_have_missed) = (0_u32, false);
        loop {
            let failed = match self.connect() {
                Ok(con) => {
                    failures = 0;
                    self.hear(con, may_have_missed)
                }
                Err(failure) => Err(failure),
            };
            may_have_missed = true;
            let Err(failure) = failed else { return };
            let error = BackendError::from(failure);
            if !self.link.set(State::Broken(error.clone())) {
                return;
            }
            failures = failures.saturating_add(1);
            if failures == 1 {
                log::warn!(target: "fairlock::net", "the connection for wake-ups is lost, and tried again: {error}");
            }
            if self.link.rest(pause(failures)) {
                return;
            }
        }
    }

    fn connect(&self) -> Result<Connection, Failure> {
        let mut con = open(&self.address, Instant::now() + self.timeouts.connect)?;
        let listen = format!("listen {}", channel_of(&self.name));
        con.flight(&[Statement::made_up(&listen)], Instant::now() + self.timeouts.response)?;
        Ok(con)
    }

    /// Hears messages until the subscription is over.
    fn hear(&self, mut con: Connection, may_have_missed: bool) -> Result<(), Failure> {
        let mut is_present = self.be_present(&mut con)?;
        if !self.link.set(State::Listening) {
            return Ok(());
        }
        if may_have_missed && let Some(client) = self.client.upgrade() {
            client.sink.wake(Wake::Gap);
        }
        let mut checked = Instant::now();
        loop {
            let messages = con.listen(Instant::now() + LOOKS_EVERY)?;
            let Some(client) = self.client.upgrade() else { return Ok(()) };
            if checked.elapsed() >= CHECKED_EVERY {
                checked = Instant::now();
                let check = [Statement::new("select 1", [])];
                con.flight(&check, Instant::now() + self.timeouts.response)?;
                is_present = is_present || self.be_present(&mut con)?;
            }
            for message in messages {
                match message.0.parse::<WakeUp>() {
                    Ok(wake_up) if wake_up.owner.client() == self.name => client.sink.wake(wake_up.as_wake()),
                    Ok(_) => {}
                    Err(error) => {
                        log::warn!(target: "fairlock::net", "a message that can't be read: {error}")
                    }
                }
            }
        }
    }

    /// Takes the advisory lock that shows the client's presence. Steps hold it, shared, for a moment; a session of this client that
    /// the server has not given up yet holds it for longer.
    fn be_present(&self, con: &mut Connection) -> Result<bool, Failure> {
        let deadline = Instant::now() + self.timeouts.response;
        let wait = (self.timeouts.response / 4).as_millis().max(1).to_string();
        let take = [
            Statement::new("begin", []),
            Statement::new("select set_config('lock_timeout', $1, true)", [Value::Text(&wait)]),
            Statement::new("select pg_advisory_lock($1)", [Value::Number(key_of(&self.name))]),
            Statement::new("commit", []),
        ];
        match con.flight(&take, deadline) {
            Ok(_) => Ok(true),
            Err(Failure::Server { code, .. }) if code == "55P03" => {
                con.flight(&[Statement::new("rollback", [])], deadline)?;
                Ok(false)
            }
            Err(failure) => Err(failure),
        }
    }
}

fn unavailable(message: String) -> BackendError {
    BackendError::new(BackendErrorKind::Unavailable, message)
}
