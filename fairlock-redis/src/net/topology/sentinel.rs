//! The master that sentinels name: found, proved, and left as soon as it is not the master any more.
//!
//! The crate's own client hangs on a frozen sentinel and goes on with a master that was replaced, which for locks means
//! two owners. Here all sentinels are asked at once, the answer with the highest configuration epoch counts (one that
//! was cut off tells of an old master), and every connection to a master is proved by ROLE when it opens. A fail-over
//! is noticed by the first call that fails, and by a subscriber on `+switch-master`: an old master that is merely replaced
//! would go on saying yes for seconds.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fairlock_core::backend::BackendError;
use parking_lot::Mutex;
use redis::cmd;

use self::report::{MasterReport, question};
use super::fan_out::fan_out;
use super::route::Listeners;
use crate::net::commands::{Pool, PoolSettings};
use crate::net::connection::{Address, Failure, Timeouts};
use crate::net::subscription::{Endpoints, Event, Subscriber};

mod report;

/// The channel on which sentinels tell of a new master.
const SWITCHED: &str = "+switch-master";
/// After so long the subscribers of all clients are taken to have followed to a new master.
const ALL_HAVE_MOVED: Duration = Duration::from_secs(10);
/// After a search in vain, so long nobody searches.
const PAUSE: Duration = Duration::from_millis(100);

/// A master by its name.
pub(crate) struct Sentinel {
    name: String,
    sentinels: Arc<Sentinels>,
    /// What all masters have in common: login, TLS, database. Host and port are a sentinel's.
    servers: Address,
    timeouts: Timeouts,
    settings: PoolSettings,
    state: Mutex<State>,
    /// Held while one caller searches, over I/O with time-outs: the others want just what he finds.
    searching: Mutex<()>,
    subscriber: OnceLock<Subscriber>,
}

#[derive(Default)]
struct State {
    master: Option<Arc<Pool>>,
    /// The master is taken for granted; otherwise the next caller searches.
    sure: bool,
    /// When this master was found, here.
    since: Option<Instant>,
    /// How often it was doubted: a search that began before a doubt does not settle it.
    doubts: u64,
    /// The highest configuration epoch that was believed.
    epoch: i64,
    failed: Option<(Failure, Instant)>,
}

impl Sentinel {
    /// Finds the master, and listens for its replacement from now on.
    ///
    /// # Errors
    /// No sentinel answers or knows the name, or the master can't be used.
    pub(crate) fn connect(
        sentinels: Vec<Address>,
        servers: Address,
        name: &str,
        timeouts: Timeouts,
        settings: PoolSettings,
    ) -> Result<Arc<Sentinel>, BackendError> {
        let sentinel = Arc::new(Sentinel {
            name: name.to_owned(),
            sentinels: Arc::new(Sentinels::new(sentinels)),
            servers: servers.of_master(),
            timeouts,
            settings,
            state: Mutex::default(),
            searching: Mutex::new(()),
            subscriber: OnceLock::new(),
        });
        let explain = |failure: Failure| failure.explain(&*sentinel, "looking for the master");
        sentinel.master().map_err(explain)?;
        let told = Arc::downgrade(&sentinel);
        let subscriber = Subscriber::start(
            Arc::clone(&sentinel.sentinels) as Arc<dyn Endpoints>,
            timeouts,
            SWITCHED.to_owned(),
            Arc::new(move |heard| {
                if let Some(sentinel) = told.upgrade() {
                    sentinel.told(heard);
                }
            }),
        );
        let subscriber =
            subscriber.map_err(|failure| failure.explain(&*sentinel, "listening to a sentinel"))?;
        let _ = sentinel.subscriber.set(subscriber);
        // What was said between the look and the subscriber's start was missed.
        sentinel.state.lock().doubt();
        sentinel.master().map_err(explain)?;
        Ok(sentinel)
    }

    /// See [`PoolSettings::reconnects`].
    pub(super) fn reconnects(&self) -> u64 {
        self.settings.reconnects()
    }

    /// The connections to the master. Searches if it is not known or in doubt; that takes at most 2 × connect + 2 ×
    /// response time-out, and as much again for who has to wait for another one's search.
    pub(super) fn master(&self) -> Result<Arc<Pool>, Failure> {
        if let Some(known) = self.state.lock().known() {
            return known;
        }
        let bound = 2 * (self.timeouts.connect + self.timeouts.response);
        let Some(_searching) = self.searching.try_lock_for(bound) else {
            return Err(Failure::NotSent("the master is still being looked for".to_owned()));
        };
        // Another one may have found it meanwhile.
        if let Some(known) = self.state.lock().known() {
            return known;
        }
        self.search()
    }

    /// After a failure there. The next caller asks the sentinels again, who may have named another one.
    pub(super) fn doubt(&self, pool: &Arc<Pool>) {
        let mut state = self.state.lock();
        // A failure that comes late is about a master that was left already.
        if state.master.as_ref().is_some_and(|master| Arc::ptr_eq(master, pool)) {
            state.doubt();
        }
    }

    /// After a fail-over the clients' subscribers come to the new master one by one. Who is not there yet must not be passed
    /// over by one who stood behind him.
    pub(super) fn view_of_listeners(&self) -> Listeners {
        match self.state.lock().since {
            Some(since) if since.elapsed() > ALL_HAVE_MOVED => Listeners::AllSeen,
            _ => Listeners::SomeUnseen,
        }
    }

    /// For how long a call may be asked again.
    pub(super) fn patience(&self) -> Duration {
        self.timeouts.response
    }

    fn search(&self) -> Result<Arc<Pool>, Failure> {
        let doubts = self.state.lock().doubts;
        let found = self.named_by(&self.sentinels.all).and_then(|(address, epoch)| {
            // New ones in any case: a connection that is proved to be to a master is one that opens now.
            let pool = Arc::new(Pool::new(address, self.timeouts, self.settings.clone()));
            pool.call(cmd("PING").get_packed_command())?;
            Ok((pool, epoch))
        });
        let mut state = self.state.lock();
        match found {
            Ok((pool, epoch)) => {
                let before = state.master.replace(Arc::clone(&pool));
                // Sentinels that spoke of a new master while this search was under way may have named the old one to it.
                (state.sure, state.epoch, state.failed) = (state.doubts == doubts, epoch, None);
                if before.as_ref().is_none_or(|before| !before.address().is_same_server(pool.address())) {
                    state.since = Some(Instant::now());
                }
                drop(state);
                if before.is_some_and(|before| !before.address().is_same_server(pool.address())) {
                    log::warn!(
                        target: "fairlock::net",
                        event = "master moved", master:% = self.name, server:% = pool.address();
                        "master {} is at {} now", self.name, pool.address()
                    );
                }
                Ok(pool)
            }
            Err(failure) => {
                state.failed = Some((failure.clone(), Instant::now() + PAUSE));
                Err(failure)
            }
        }
    }

    /// The master's address by the word of these sentinels, and its epoch.
    fn named_by(&self, sentinels: &[Address]) -> Result<(Address, i64), Failure> {
        let known = self.state.lock().epoch;
        let answers = fan_out(sentinels, self.timeouts, &question(&self.name));
        let mut failure = Failure::NotSent("no sentinel answers".to_owned());
        let (mut best, mut behind): (Option<MasterReport>, usize) = (None, 0);
        for answer in &answers {
            match MasterReport::read(answer, &self.servers) {
                Ok(named) => {
                    self.sentinels.begin_with(&answer.0);
                    behind += usize::from(named.epoch < known);
                    if best.as_ref().is_none_or(|best| best.epoch < named.epoch) {
                        best = Some(named);
                    }
                }
                // What a sentinel says is worth more than that another one is silent.
                Err(said @ Failure::Refused { .. }) => failure = said,
                Err(said) if !matches!(failure, Failure::Refused { .. }) => failure = said,
                Err(_) => {}
            }
        }
        match best {
            None => Err(failure),
            // One that was cut off from the others may still name the old master. When most of them have forgotten
            // the epoch, they were set up anew.
            Some(named) if named.epoch < known && 2 * behind <= self.sentinels.all.len() => {
                Err(Failure::NotSent("only sentinels that are behind the times answer".to_owned()))
            }
            Some(named) => Ok((named.address, named.epoch)),
        }
    }

    /// On the subscriber's thread, which has nothing else to do: it may search.
    fn told(&self, heard: &Event<'_>) {
        let concerns_us = match heard {
            Event::Gap => true,
            // `mymaster 127.0.0.1 6379 127.0.0.1 6380`
            Event::Message { payload, .. } => {
                payload.strip_prefix(self.name.as_bytes()).is_some_and(|rest| rest.starts_with(b" "))
            }
        };
        if concerns_us {
            self.state.lock().doubt();
            // At once, and not at the next call: the clients' subscribers move when the master has another address.
            if let Err(failure) = self.master() {
                log::debug!(
                    target: "fairlock::net",
                    event = "no master", master:% = self.name, error:% = failure;
                    "master {}: not found yet: {failure}", self.name
                );
            }
        }
    }
}

impl State {
    fn doubt(&mut self) {
        self.sure = false;
        self.doubts += 1;
    }

    /// What a caller gets without a search, if anything.
    fn known(&self) -> Option<Result<Arc<Pool>, Failure>> {
        match (&self.master, &self.failed) {
            (Some(master), _) if self.sure => Some(Ok(Arc::clone(master))),
            (_, Some((failure, until))) if Instant::now() < *until => Some(Err(failure.clone())),
            _ => None,
        }
    }
}

/// The sentinels: endpoints of the subscriber that hears of a new master.
struct Sentinels {
    all: Vec<Address>,
    turn: Mutex<usize>,
}

impl Sentinels {
    /// The subscriber goes to this one next: it has just answered.
    fn begin_with(&self, sentinel: &Address) {
        if let Some(at) = self.all.iter().position(|known| known.is_same_server(sentinel)) {
            *self.turn.lock() = at;
        }
    }

    fn new(all: Vec<Address>) -> Sentinels {
        Sentinels { all, turn: Mutex::new(0) }
    }
}

impl Endpoints for Sentinels {
    fn next(&self) -> Result<Address, Failure> {
        let mut turn = self.turn.lock();
        let next = self.all.get(*turn % self.all.len().max(1)).cloned();
        *turn += 1;
        next.ok_or_else(|| Failure::NotSent("there is no sentinel".to_owned()))
    }

    fn count(&self) -> usize {
        self.all.len()
    }
}

/// Where a client listens: at the master, which looks who listens before it makes somebody the holder.
impl Endpoints for Sentinel {
    fn next(&self) -> Result<Address, Failure> {
        Ok(self.master()?.address().clone())
    }

    fn serves(&self, at: &Address) -> bool {
        self.state.lock().master.as_ref().is_some_and(|master| master.address().is_same_server(at))
    }
}

impl fmt::Display for Sentinel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let master = self.state.lock().master.clone();
        match master {
            Some(master) => write!(f, "{} (master {})", master.address(), self.name),
            None => {
                let sentinels: Vec<String> = self.sentinels.all.iter().map(Address::to_string).collect();
                write!(f, "master {} by the sentinels {}", self.name, sentinels.join(", "))
            }
        }
    }
}

impl fmt::Debug for Sentinel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sentinel({self})")
    }
}

#[cfg(test)]
mod tests;
