//! The master that sentinels name: found, verified, and left as soon as it is no longer the master.
//!
//! The `redis` crate's own client hangs on a frozen sentinel and goes on with a replaced master, which for locks means
//! two owners. Here all sentinels are asked at once, the answer with the highest configuration epoch counts (a sentinel
//! that was cut off names an old master), and ROLE verifies each connection to a master when it opens. The first failed
//! call reveals a fail-over, and so does a subscriber on `+switch-master`: an old master that is replaced while it works
//! would otherwise go on granting locks for seconds.

mod vote;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fairlock_core::backend::BackendError;
use parking_lot::Mutex;
use redis::cmd;

pub(crate) use vote::{SentinelAnswer, Surveyed};

use vote::{Electorate, Late, MasterReport, Named, question};

use super::{Answer, Arrangement, Failed, Route, Runs, Topology, fan_out};
use crate::net::commands::{ALL_ARE_BACK, Listeners, Pool};
use crate::net::connection::{Address, Failure, MustBe};
use crate::net::settings::Settings;
use crate::net::subscription::{Endpoints, Event, Subscriber};

/// The channel on which sentinels announce a new master.
const SWITCHED: &str = "+switch-master";
/// The pause after a failed search.
const PAUSE: Duration = Duration::from_millis(100);

/// A master by its name.
pub(crate) struct Sentinel {
    name: String,
    sentinels: Arc<Sentinels>,
    /// Login, TLS and database of all masters; host and port are a sentinel's.
    servers: Address,
    settings: Settings,
    state: Mutex<SentinelState>,
    /// Held while one caller searches, over I/O with time-outs: the others wait for its result.
    searching: Mutex<()>,
    subscriber: OnceLock<Subscriber>,
}

#[derive(Default)]
struct SentinelState {
    master: Option<Arc<Pool>>,
    /// Whether there was no doubt since the last search; otherwise the next caller searches.
    sure: bool,
    /// When this client found this master.
    since: Option<Instant>,
    /// How often the master was doubted: a search that began before a doubt does not settle it.
    doubts: u64,
    /// The highest configuration epoch accepted so far.
    epoch: u64,
    /// Where a majority counts: the sentinels that named this master (see [`Route`]), and the answers that are missing.
    voters: Option<Arc<str>>,
    late: Option<Late>,
    electorate: Electorate,
    runs: Runs,
    /// When the sentinels were last asked, and when they were asked that named this master.
    asked: Option<Instant>,
    named: Option<Instant>,
    failed: Option<(Failure, Instant)>,
}

impl Sentinel {
    /// Finds the master, and subscribes to its replacement.
    ///
    /// # Errors
    /// No sentinel answers or knows the name, or the master can't be used.
    pub(crate) fn connect(
        sentinels: Vec<Address>,
        mut servers: Address,
        name: &str,
        settings: &Settings,
    ) -> Result<Arc<Sentinel>, BackendError> {
        servers.must_be = MustBe::Master;
        let sentinel = Arc::new(Sentinel {
            name: name.to_owned(),
            state: Mutex::new(SentinelState::new(sentinels.len())),
            sentinels: Arc::new(Sentinels { all: sentinels, turn: Mutex::default() }),
            servers,
            settings: settings.clone(),
            searching: Mutex::new(()),
            subscriber: OnceLock::new(),
        });
        let explain = |failure: Failure| failure.explain_first(&*sentinel, "looking for the master");
        sentinel.master().map_err(|failure| explain(sentinel.with_known_masters(failure)))?;
        let weak = Arc::downgrade(&sentinel);
        let subscriber = Subscriber::start(
            Arc::clone(&sentinel.sentinels) as Arc<dyn Endpoints>,
            settings.timeouts,
            SWITCHED.to_owned(),
            Arc::new(move |heard| {
                if let Some(sentinel) = weak.upgrade() {
                    sentinel.on_event(heard);
                }
            }),
        );
        let subscriber =
            subscriber.map_err(|failure| failure.explain(&*sentinel, "listening to a sentinel"))?;
        let _ = sentinel.subscriber.set(subscriber);
        // An announcement between the search and the subscription was missed.
        sentinel.state.lock().doubt();
        sentinel.master().map_err(explain)?;
        Ok(sentinel)
    }

    /// The pool for the master, see [`find`](Self::find).
    fn master(&self) -> Result<Arc<Pool>, Failure> {
        self.find().map(|route| route.pool)
    }

    /// The way to the master. If the master is unknown or in doubt, or a majority named it too long ago, asks the sentinels: 2 ×
    /// connect + 2 × response time-out at most, half of it again if the votes took too long, and as much again if the caller first waits
    /// for another caller's search.
    fn find(&self) -> Result<Route, Failure> {
        let known = self.known();
        if let Some(known) = known {
            // One caller asks ahead of time, and the others go on.
            if self.state.lock().is_to_be_asked(self.proof_age())
                && let Some(_searching) = self.searching.try_lock()
                && self.state.lock().is_to_be_asked(self.proof_age())
            {
                // What was known may have ended meanwhile.
                let known = |failure| self.known().unwrap_or(Err(failure));
                return self.prove().or_else(known);
            }
            return known;
        }
        let bound = self.bound();
        let Some(_searching) = self.searching.try_lock_for(bound) else {
            return Err(Failure::NotSent("the master is still being looked for".into()));
        };
        // Another caller may have found it meanwhile.
        if let Some(known) = self.known() {
            return known;
        }
        self.prove()
    }

    /// How long one search takes at most.
    fn bound(&self) -> Duration {
        2 * (self.settings.timeouts.connect + self.settings.timeouts.response)
    }

    /// Searches, and once more where the votes took so long that they prove nothing now: a master may have been replaced meanwhile.
    fn prove(&self) -> Result<Route, Failure> {
        let end = Instant::now() + self.bound() / 2;
        loop {
            let route = self.search()?;
            if self.state.lock().is_proven(self.proof_age()) {
                return Ok(route);
            }
            if Instant::now() >= end {
                return Err(Failure::NotSent("the sentinels took longer to vote than a vote counts".into()));
            }
        }
    }

    fn search(&self) -> Result<Route, Failure> {
        let (doubts, sure_of) = {
            let mut state = self.state.lock();
            state.asked = Some(Instant::now());
            (state.doubts, state.sure_of())
        };
        let found = self.named_by(&self.sentinels.all).and_then(|mut named| {
            let (epoch, voters) = (named.epoch, named.voters.take());
            if let Some(route) = sure_of
                && route.epoch == epoch
                && route.pool.address().is_same_server(&named.address)
            {
                return Ok((Route { voters, ..route }, named));
            }
            // A new pool in any case: only a connection that opens now is verified to reach a master.
            let pool = Arc::new(Pool::new(named.address.clone(), &self.settings));
            pool.call(cmd("PING").get_packed_command())?;
            Ok((Route { epoch, voters, ..Route::to(&pool) }, named))
        });
        let mut state = self.state.lock();
        match found {
            Ok((route, named)) => {
                let pool = &route.pool;
                let before = state.master.replace(Arc::clone(pool));
                // A sentinel that announced a new master during this search may have answered with the old one before.
                (state.sure, state.epoch, state.failed) = (state.doubts == doubts, route.epoch, None);
                state.voters.clone_from(&route.voters);
                (state.named, state.late) = (Some(named.asked), named.late);
                let is_new = |before: &Arc<Pool>| !before.address().is_same_server(pool.address());
                if before.as_ref().is_none_or(is_new) {
                    state.since = Some(Instant::now());
                }
                drop(state);
                if before.as_ref().is_some_and(is_new) {
                    log::warn!(
                        target: "fairlock::net",
                        event = "master moved", master:% = self.name, server:% = pool.address();
                        "master {} is now at {}", self.name, pool.address()
                    );
                }
                Ok(route)
            }
            Err(failure) => {
                state.failed = Some((failure.clone(), Instant::now() + PAUSE));
                Err(failure)
            }
        }
    }

    /// The answer without a search, if there is one.
    fn known(&self) -> Option<Result<Route, Failure>> {
        let mut state = self.state.lock();
        self.hear_late(&mut state);
        state.known(self.proof_age())
    }

    fn proof_age(&self) -> Option<Duration> {
        self.settings.majority.map(|terms| terms.proof_age)
    }

    /// The master as these sentinels name it: a majority of them, or the one with the highest epoch.
    fn named_by(&self, sentinels: &[Address]) -> Result<Named, Failure> {
        if let Some(terms) = self.settings.majority {
            return self.vote(sentinels, terms);
        }
        let (known, asked) = (self.state.lock().epoch, Instant::now());
        let answers = fan_out(sentinels, self.settings.timeouts, &question(&self.name, false), 1);
        let mut failure = Failure::NotSent("no sentinel answers".into());
        let mut reports = Vec::new();
        for answer in answers {
            match self.report(answer) {
                Ok(report) => reports.push(report),
                Err(said) => failure = failure.or(said),
            }
        }
        let behind = reports.iter().filter(|named| named.epoch < known).count();
        // The first answer with the highest epoch.
        match reports.into_iter().rev().max_by_key(|named| named.epoch) {
            None => Err(failure),
            // A sentinel that was cut off from the others may still name the old master. When most sentinels are behind
            // the known epoch, they were set up anew.
            Some(named) if named.epoch < known && 2 * behind <= self.sentinels.all.len() => {
                Err(Failure::NotSent("only sentinels with an outdated configuration answer".into()))
            }
            Some(MasterReport { address, epoch, .. }) => {
                Ok(Named { address, epoch, asked, voters: None, late: None })
            }
        }
    }

    /// What a sentinel says of the master.
    fn report(&self, (sentinel, answer): Answer) -> Result<MasterReport, Failure> {
        let said = SentinelAnswer::read(&answer?, &self.servers, &sentinel);
        let report = MasterReport::of(&sentinel, said, self.settings.majority.is_some())?;
        self.sentinels.prefer(&sentinel);
        Ok(report)
    }

    /// On the subscriber's thread, which has nothing else to do, so it may search.
    fn on_event(&self, event: &Event<'_>) {
        let concerns_us = match event {
            Event::Gap => true,
            // `mymaster 127.0.0.1 6379 127.0.0.1 6380`
            Event::Message { payload, .. } => {
                payload.strip_prefix(self.name.as_bytes()).is_some_and(|rest| rest.starts_with(b" "))
            }
        };
        if concerns_us {
            self.state.lock().doubt();
            // At once rather than at the next call: the clients' subscribers move when the master's address changes.
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

impl SentinelState {
    fn new(configured: usize) -> SentinelState {
        SentinelState { electorate: Electorate::new(configured), ..SentinelState::default() }
    }

    fn doubt(&mut self) {
        self.sure = false;
        self.doubts += 1;
    }

    fn known(&self, proof_age: Option<Duration>) -> Option<Result<Route, Failure>> {
        let is_proven = self.is_proven(proof_age);
        match (self.sure_of(), &self.failed) {
            (Some(route), _) if is_proven => Some(Ok(route)),
            (_, Some((failure, until))) if Instant::now() < *until => Some(Err(failure.clone())),
            _ => None,
        }
    }

    /// The way to the master, unless it is in doubt.
    fn sure_of(&self) -> Option<Route> {
        let master = self.master.as_ref().filter(|_| self.sure)?;
        let voters = self.voters.clone();
        Some(Route { epoch: self.epoch, voters, ..Route::to(master) })
    }

    /// Whether the last vote is young enough, where a majority counts.
    fn is_proven(&self, proof_age: Option<Duration>) -> bool {
        proof_age.is_none_or(|age| self.named.is_some_and(|named| named.elapsed() <= age))
    }

    /// Whether half of the time is over within which the sentinels have to be asked.
    fn is_to_be_asked(&self, proof_age: Option<Duration>) -> bool {
        proof_age.is_some_and(|age| self.asked.is_none_or(|asked| asked.elapsed() > age / 2))
    }
}

/// The sentinels, as endpoints of the subscriber to new masters.
struct Sentinels {
    all: Vec<Address>,
    turn: Mutex<usize>,
}

impl Sentinels {
    /// The sentinel that the subscriber tries next: it has just answered.
    fn prefer(&self, sentinel: &Address) {
        if let Some(at) = self.all.iter().position(|known| known.is_same_server(sentinel)) {
            *self.turn.lock() = at;
        }
    }
}

impl Endpoints for Sentinels {
    fn next(&self) -> Result<Address, Failure> {
        let mut turn = self.turn.lock();
        let next = self.all.get(*turn % self.all.len().max(1)).cloned();
        *turn += 1;
        next.ok_or_else(|| Failure::NotSent("there is no sentinel".into()))
    }

    fn count(&self) -> usize {
        self.all.len()
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

impl Topology for Sentinel {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn arrangement(&self) -> Arrangement {
        Arrangement::Sentinels
    }

    fn route(&self, _: &str) -> Result<Route, Failure> {
        self.find()
    }

    /// One more attempt only: the sentinels are asked, and name another master or do not.
    fn next_route(&self, failed: &Failed<'_>) -> Option<Route> {
        let is_unexecuted = match failed.failure {
            Failure::NotSent(_) => true,
            Failure::Refused { code, .. } => self.was_not_executed(code),
            Failure::Broken(_) => false,
        };
        let may_try = failed.tried == 1 && Instant::now() <= failed.until;
        if is_unexecuted && may_try { self.find().ok() } else { None }
    }

    /// Codes that prove that the command did not run on this server: a replica takes no writes, and a script that is refused for
    /// its epoch does none.
    fn was_not_executed(&self, code: &str) -> bool {
        matches!(code, "READONLY" | "OLDEPOCH")
    }

    /// The next caller asks the sentinels again.
    fn doubt(&self, pool: &Arc<Pool>) {
        let mut state = self.state.lock();
        // A late failure concerns a master that was left already.
        if state.master.as_ref().is_some_and(|master| Arc::ptr_eq(master, pool)) {
            state.doubt();
        }
    }

    /// After a fail-over the clients' subscribers move to the new master one by one. A waiter whose client has not moved
    /// yet must not be passed over by one behind it. The same master may have restarted.
    fn listeners(&self) -> Listeners {
        let state = self.state.lock();
        let has_long = state.since.is_some_and(|since| since.elapsed() > ALL_ARE_BACK);
        let master = state.master.clone().filter(|_| has_long);
        drop(state);
        master.map_or(Listeners::Unknown, |master| master.listeners())
    }

    fn survey(&self) -> Vec<Surveyed> {
        self.ask_each()
    }

    fn commands(&self) -> &'static [&'static [&'static str]] {
        &[&["ROLE"]]
    }
}

/// A client subscribes at the master, whose scripts check the subscribers before they hand a lock on.
impl Endpoints for Sentinel {
    fn next(&self) -> Result<Address, Failure> {
        Ok(self.master()?.address().clone())
    }

    fn serves(&self, at: &Address) -> bool {
        self.state.lock().master.as_ref().is_some_and(|master| master.address().is_same_server(at))
    }
}

#[cfg(feature = "night")]
#[cfg(test)]
mod tests;
