//! What all threads of one run share: the clock, the clients that live, what happened, and what was found.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use fairlock::CancelToken;
use fairlock::admin::LockName;
use fairlock::admin::LockState;
use fairlock::backend::Backend;
use fairlock::owner::ClientId;
use fairlock::settings::Clock;
use fairlock::testing::ManualClock;
use fairlock::{Client, MemoryBackend, RedisBackend};
use fairlock_tests::look_until;
pub use fairlock_tests::oracle::Promise;

use crate::bounds::Call;
pub use crate::finding::Finding;
use crate::holds::Holds;
use crate::judge;
use crate::keeper::Way;
use crate::late::{Late, Mark};
use crate::life::{Life, Told};
use crate::link::Link;
use crate::look::{BUSY, busy};
use crate::order::Order;
use crate::program::Program;
use crate::real::LATEST;
use crate::server::{Server, name_of, seen_in};
use crate::small::{Small, TEST};
use crate::task::Bell;
use crate::weather::Weather;

/// A machine that is on time lets the driver look more often than this.
const LATE: Duration = Duration::from_millis(50);

pub struct World {
    pub clock: Clock,
    start: Instant,
    place: Place,
    pub program: Program,
    pub weather: Weather,
    /// The client that each actor's calls are made with now.
    cells: Vec<Mutex<Option<Arc<Life>>>>,
    lives: Mutex<Vec<Arc<Life>>>,
    by_id: Mutex<HashMap<String, Arc<Life>>>,
    pub server: Mutex<Server>,
    /// On PostgreSQL.
    pub order: Mutex<Order>,
    pub holds: Mutex<Holds>,
    /// Messages that were held back and arrive later.
    late: Mutex<Vec<Late>>,
    /// When locks of a real server were taken by force.
    forced: Mutex<HashMap<String, Duration>>,
    /// With a real clock: when the driver looked last, and when and by how much the machine was seen late.
    pulse: Mutex<(Duration, Vec<(Duration, Duration)>)>,
    pub calls: Mutex<Vec<Option<Call>>>,
    pub cancels: Vec<Mutex<(CancelToken, Option<Duration>)>>,
    journal: Mutex<Vec<String>>,
    findings: Mutex<Vec<Finding>>,
    over: AtomicBool,
    bell: Mutex<Option<Arc<Bell>>>,
    /// By which a test looks into the small Redis.
    watcher: OnceLock<Box<dyn Backend>>,
    counts: Mutex<BTreeMap<String, u64>>,
}

/// Where the locks are kept.
pub enum Place {
    /// In memory, under a clock that the driver moves.
    Memory { clock: ManualClock, store: MemoryBackend },
    /// On a real server, under the system's clock. Each client has a separate way.
    Server { ways: Vec<Way> },
}

/// A use of a life's client; the client is dropped with its last user.
pub struct Using {
    world: Weak<World>,
    pub life: Arc<Life>,
    pub client: Client,
}

pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    pub fn new(program: &Program, place: Place) -> Arc<World> {
        let clock = match &place {
            Place::Memory { clock, .. } => clock.clone().into(),
            Place::Server { .. } => Clock::system(),
        };
        let world = World {
            start: clock.now(),
            clock,
            place,
            weather: Weather::of(program),
            cells: program.clients.iter().map(|_| Mutex::default()).collect(),
            lives: Mutex::default(),
            by_id: Mutex::default(),
            server: Mutex::new(Server::new(program.locks.len())),
            order: Mutex::default(),
            holds: Mutex::default(),
            late: Mutex::default(),
            forced: Mutex::default(),
            pulse: Mutex::default(),
            calls: Mutex::new(vec![None; program.actors.len() + program.clients.len()]),
            cancels: program.actors.iter().map(|_| Mutex::default()).collect(),
            journal: Mutex::default(),
            findings: Mutex::default(),
            over: AtomicBool::new(false),
            bell: Mutex::default(),
            watcher: OnceLock::new(),
            counts: Mutex::default(),
            program: program.clone(),
        };
        Arc::new(world)
    }

    /// In memory, with its own clock.
    pub fn memory() -> Place {
        let clock = ManualClock::new();
        Place::Memory { store: MemoryBackend::with_clock(clock.clone()), clock }
    }

    /// The store, if it is in memory: what it keeps can be seen at each moment.
    pub fn store(&self) -> Option<&MemoryBackend> {
        match &self.place {
            Place::Memory { store, .. } => Some(store),
            Place::Server { .. } => None,
        }
    }

    /// What the small Redis of a world keeps; none elsewhere.
    pub fn states(&self) -> Option<Vec<LockState>> {
        let (Place::Server { .. }, true) = (&self.place, Small::is_here()) else { return None };
        let watcher = self.watcher.get_or_init(|| {
            Box::new(RedisBackend::connect(&Small::url(TEST)).expect("the test's connection is never cut"))
        });
        (0..self.program.locks.len())
            .map(|lock| seen_in(&**watcher, &LockName::new(&name_of(lock)).ok()?))
            .collect()
    }

    /// The clock that the driver moves, if there is one.
    pub fn manual(&self) -> Option<&ManualClock> {
        match &self.place {
            Place::Memory { clock, .. } => Some(clock),
            Place::Server { .. } => None,
        }
    }

    /// A way to the server, for one client.
    pub fn backend(&self, client: usize) -> Arc<dyn Backend> {
        match &self.place {
            Place::Memory { store, .. } => Arc::new(store.clone()),
            Place::Server { ways } => {
                let connect = || ways[client].connect(self.program.response);
                // It may stand still now.
                look_until(2 * BUSY, connect).expect("the server of the test")
            }
        }
    }

    /// The time since the run began.
    pub fn now(&self) -> Duration {
        self.clock.now().saturating_duration_since(self.start)
    }

    /// Where tasks sleep.
    pub fn bell(&self) -> Arc<Bell> {
        Arc::clone(locked(&self.bell).get_or_insert_with(|| Arc::new(Bell::new(&self.clock))))
    }

    /// No task sleeps any more.
    pub fn put_the_bell_away(&self) {
        locked(&self.bell).take();
    }

    pub fn sleep_until(&self, at: Duration) {
        self.clock.sleep(at.saturating_sub(self.now()));
    }

    pub fn note(&self, what: impl fmt::Display) {
        let line = format!("{:>12} {what}", format!("{:?}", self.now()));
        locked(&self.journal).push(line);
    }

    /// Counts how calls ended: a storm in which nothing happens shows nothing.
    pub fn count(&self, what: &str) {
        *locked(&self.counts).entry(what.to_owned()).or_default() += 1;
    }

    pub fn counts(&self) -> BTreeMap<String, u64> {
        locked(&self.counts).clone()
    }

    pub fn journal(&self) -> Vec<String> {
        locked(&self.journal).clone()
    }

    pub fn found(&self, promise: Promise, what: impl Into<String>) {
        let needs_no_memory = matches!(promise, Promise::Bound | Promise::Liveness | Promise::Noise);
        if !needs_no_memory && self.weather.faults().iter().any(|fault| fault.harm.forgets()) {
            return;
        }
        let finding = Finding { promise, at: self.now(), what: what.into() };
        self.note(format_args!("FOUND {promise:?}: {}", finding.what));
        let mut findings = locked(&self.findings);
        if findings.len() < 50 {
            findings.push(finding);
        }
        drop(findings);
        self.over.store(true, Ordering::SeqCst);
    }

    pub fn findings(&self) -> Vec<Finding> {
        locked(&self.findings).clone()
    }

    /// Something was found: the rest of the program is of no interest.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// With a real clock the driver looks every few milliseconds. If it could not, the other threads could not go on either.
    pub fn beat(&self) {
        let now = self.now();
        let mut pulse = locked(&self.pulse);
        let last = std::mem::replace(&mut pulse.0, now);
        let is_late = !last.is_zero() && now > last + LATE;
        if is_late {
            pulse.1.push((now, now - last));
        }
        drop(pulse);
        if is_late {
            self.count("machine: late");
        }
    }

    /// Whether the machine was seen late since then. That is no fault of the program, and a reason for errors.
    pub fn was_late(&self, since: Duration) -> bool {
        self.stood_still(since) > LATE
    }

    /// For how long the driver could not look at most, since then.
    pub fn stood_still(&self, since: Duration) -> Duration {
        if self.manual().is_some() {
            return Duration::ZERO;
        }
        let pulse = locked(&self.pulse);
        let late = pulse.1.iter().filter(|(at, _)| *at >= since).map(|(_, by)| *by);
        late.chain([self.now().saturating_sub(pulse.0)]).max().unwrap_or_default()
    }

    /// The hold of this lock, if any, is taken by force now.
    pub fn force(&self, lock: &LockName) {
        locked(&self.forced).insert(lock.as_str().to_owned(), self.now());
    }

    /// Whether it was taken by force so late that its holder may not have been told: that is told at its next renewal.
    pub fn was_forced(&self, lock: &LockName) -> bool {
        let forced = locked(&self.forced).get(lock.as_str()).copied();
        forced.is_some_and(|at| self.now() < at + self.program.longest_lease() + busy(self))
    }

    /// Keeps a message until it arrives.
    pub fn hold_back(&self, late: Late) {
        locked(&self.late).push(late);
    }

    /// When the next message that was held back arrives.
    pub fn next_late(&self) -> Option<Duration> {
        locked(&self.late).iter().map(|late| late.at).min()
    }

    /// What was held back until now arrives.
    pub fn deliver_late(&self) {
        let now = self.now();
        let due: Vec<Late> = locked(&self.late).extract_if(.., |late| late.at <= now).collect();
        due.into_iter().for_each(|late| late.arrive(self));
    }

    /// On a real server: the proxy keeps the next command of this client that has this mark.
    pub fn hold_back_bytes(&self, client: usize, mark: &Mark, by: Duration) {
        if let Place::Server { ways } = &self.place {
            self.count("late: bytes");
            ways[client].hold_back(mark, by.min(LATEST));
        }
    }

    /// How many commands are on their way to a real server.
    pub fn bytes_held_back(&self) -> usize {
        match &self.place {
            Place::Memory { .. } => 0,
            Place::Server { ways } => ways.iter().map(Way::held_back).sum(),
        }
    }

    /// Has a new client made for this cell, unless there is one that was not shut down.
    pub fn restart(self: &Arc<Self>, client: usize) {
        let mut cell = locked(&self.cells[client]);
        if cell.as_ref().is_some_and(|life| !life.is_shut_down()) {
            return;
        }
        let generation = locked(&self.lives).iter().filter(|life| life.client == client).count();
        let settings = self.program.clients[client];
        let life = Arc::new(Life::new(client, generation, settings));
        locked(&self.lives).push(Arc::clone(&life));
        let link = Link::new(Arc::clone(self), Arc::clone(&life), self.backend(client));
        let built = Client::builder(link)
            .lease(settings.lease)
            .place_ttl(settings.place_ttl)
            .outage_limit(settings.outage_limit)
            .label(life.to_string())
            .clock(self.clock.clone())
            .build();
        let built = match built {
            Ok(built) => built,
            Err(error) => {
                if judge::is_calm(self, &life, self.now()) {
                    self.found(Promise::Answer, format!("no client can be made: {error}"));
                }
                locked(&life.fate).dropped = Some(self.now());
                return;
            }
        };
        let (world, told) = (Arc::downgrade(self), Arc::downgrade(&life));
        built.on_lost(move |lost| {
            let (Some(world), Some(life)) = (world.upgrade(), told.upgrade()) else { return };
            world.note(format_args!("{life} is told: {lost}"));
            let at = world.now();
            locked(&life.fate).losses.push(Told { at, lost: lost.clone() });
        });
        let _ = life.owners.set((0..2).map(|_| built.new_owner()).collect());
        *locked(&life.handle) = Some(built);
        self.note(format_args!("{life} is made"));
        let replaced = cell.replace(life);
        drop(cell);
        if let Some(replaced) = replaced {
            self.leave(&replaced);
        }
    }

    /// The cell's client is used no more, but by the guards and requests that there are.
    pub fn drop_client(&self, client: usize) {
        let life = locked(&self.cells[client]).take();
        if let Some(life) = life {
            self.leave(&life);
        }
    }

    /// The client of this cell, to be used; none if it was dropped.
    pub fn client(self: &Arc<Self>, client: usize) -> Option<Using> {
        let cell = locked(&self.cells[client]);
        self.using(cell.as_ref()?)
    }

    pub fn using(self: &Arc<Self>, life: &Arc<Life>) -> Option<Using> {
        let client = locked(&life.handle).clone()?;
        life.users.fetch_add(1, Ordering::SeqCst);
        Some(Using { world: Arc::downgrade(self), life: Arc::clone(life), client })
    }

    fn leave(&self, life: &Arc<Life>) {
        if life.users.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        let handle = locked(&life.handle).take();
        self.note(format_args!("{life} is dropped"));
        locked(&life.fate).dropped = Some(self.now());
        drop(handle);
    }

    pub fn introduce(&self, life: &Arc<Life>, id: ClientId) {
        let _ = life.id.set(id);
        locked(&self.by_id).insert(id.to_string(), Arc::clone(life));
    }

    pub fn lives(&self) -> Vec<Arc<Life>> {
        locked(&self.lives).clone()
    }

    /// Whose owner this is.
    pub fn life_of(&self, owner: &str) -> Option<Arc<Life>> {
        let (id, _) = owner.rsplit_once(':')?;
        locked(&self.by_id).get(id).cloned()
    }

    /// An owner as a person can read it.
    pub fn name_of(&self, owner: &str) -> String {
        let number = owner.rsplit_once(':').map_or(owner, |(_, number)| number);
        self.life_of(owner).map_or_else(|| owner.to_owned(), |life| format!("{life}:{number}"))
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        if let Some(world) = self.world.upgrade() {
            world.leave(&self.life);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::generate;

    /// A lock that is taken by force may have two holders for a while.
    #[test]
    fn a_forced_lock_may_have_two_holders_for_a_while() {
        let world = World::new(&generate(1), Place::Server { ways: Vec::new() });
        let [forced, other] = ["L0", "L1"].map(|name| LockName::new(name).unwrap());
        world.force(&forced);
        assert_eq!([forced, other].map(|lock| world.was_forced(&lock)), [true, false]);
    }
}
