//! The oracle: looks at everything at each moment at which anything has happened, while all threads sleep.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fairlock::admin::LockState;
use fairlock::backend::RequestId;
use fairlock::stats::{HeldLock, WaitingRequest};
use fairlock::{LostCause, MemoryBackend};

use crate::life::Life;
use crate::server::{name_of, state_of};
use crate::small::Small;
use crate::world::{Promise, World, locked};
use crate::{bounds, exclusion};

/// What is due in no time may take so long: a caller that gives up waits 50 ms for the answer to its withdrawal.
pub const SLACK: Duration = Duration::from_millis(60);
/// With a real clock: a busy machine is late with everything.
pub const BUSY: Duration = Duration::from_secs(5);
/// But the machine of a world is never busy.
const NEVER_BUSY: Duration = Duration::from_millis(500);
/// A retry comes a second after the last one at the latest.
pub const RETRY: Duration = Duration::from_secs(1);

/// By how much anything may be late, for no fault of the program.
pub fn busy(world: &World) -> Duration {
    if world.store().is_none() && Small::is_here() { NEVER_BUSY } else { BUSY }
}

/// What was seen at earlier moments.
#[derive(Default)]
pub struct Oracle {
    /// Since when something is as it should not be for long.
    since: HashMap<(String, &'static str), Duration>,
    seen: Vec<(String, &'static str)>,
    /// Who is the first in the queue of each lock, and since when.
    first: HashMap<usize, (RequestId, Duration)>,
}

/// What one client says at this moment.
pub struct Said {
    pub life: Arc<Life>,
    /// When it was shut down, and what came of that.
    ended: Option<(Duration, Result<(), String>)>,
    pub held: Option<Vec<HeldLock>>,
    pub waiting: Vec<WaitingRequest>,
}

impl Oracle {
    pub fn look(&mut self, world: &World) {
        // Locked before the clients are asked: a guard that an actor notes between would have a hold of which no client
        // spoke.
        let mut holds = locked(&world.holds);
        let said: Vec<Said> =
            world.lives().into_iter().filter(|life| !life.is_dropped()).map(Said::of).collect();
        let held: Vec<_> = said.iter().map(|said| (Arc::clone(&said.life), said.held.clone())).collect();
        holds.look(world, &held);
        drop(holds);
        bounds::calls(world);
        match world.store() {
            Some(store) => self.look_into(world, store, &said),
            None => {
                exclusion::each_other(world, &said);
                self.handed_on(world, &said);
                // In a world the server can be looked into, too. What arrives late may begin something for nobody.
                let states = if world.program.sends_late() { None } else { world.states() };
                for (lock, state) in states.into_iter().flatten().enumerate() {
                    self.ghosts(world, lock, &said, &state);
                }
                self.shutdowns(world, &said, &[]);
            }
        }
        let seen = std::mem::take(&mut self.seen);
        self.since.retain(|key, _| seen.contains(key));
    }

    /// What only a store in memory lets be seen.
    fn look_into(&mut self, world: &World, store: &MemoryBackend, said: &[Said]) {
        let mut server = locked(&world.server);
        server.look(world);
        let states: Vec<_> = server.locks().iter().map(|lock| state_of(store, &lock.name)).collect();
        for (lock, state) in server.locks().iter().zip(&states) {
            exclusion::exclusion(world, lock, said, state);
        }
        let rests: Vec<_> = server.locks().iter().map(|lock| lock.rests_until).collect();
        drop(server);
        for (lock, state) in states.iter().enumerate() {
            self.note_first(lock, state, world.now());
            self.served(world, (lock, rests[lock]), said, state);
            self.ghosts(world, lock, said, state);
        }
        self.shutdowns(world, said, &states);
    }

    fn note_first(&mut self, lock: usize, state: &LockState, now: Duration) {
        match state.queue.first().and_then(|waiter| waiter.request) {
            Some(request) if self.first.get(&lock).is_some_and(|(first, _)| *first == request) => {}
            Some(request) => _ = self.first.insert(lock, (request, now)),
            None => _ = self.first.remove(&lock),
        }
    }

    pub fn first_since(&self, lock: usize) -> Option<Duration> {
        self.first.get(&lock).map(|(_, since)| *since)
    }

    /// Since when this is seen, at each moment up to now.
    pub fn since(&mut self, world: &World, key: (String, &'static str)) -> Duration {
        self.seen.push(key.clone());
        *self.since.entry(key).or_insert(world.now())
    }

    /// Finds something once it has been so for longer than `bound`, counted from no earlier than `from`.
    pub fn not_for_long(
        &mut self,
        world: &World,
        key: (String, &'static str),
        (from, bound): (Duration, Duration),
        promise: Promise,
        what: impl FnOnce(Duration) -> String,
    ) {
        let now = world.now();
        let since = self.since(world, key).max(from);
        if now > since + bound {
            world.found(promise, what(since));
        }
    }

    /// After a shutdown the client has nothing, and the server keeps nothing of it if it could be told.
    fn shutdowns(&self, world: &World, said: &[Said], states: &[LockState]) {
        let server = locked(&world.server);
        let (orphans, handed_over) = (server.orphans.clone(), server.handed_over.clone());
        drop(server);
        for said in said {
            let life = &said.life;
            let Some((ended, result)) = &said.ended else { continue };
            if let Some(hold) = said.held.iter().flatten().next() {
                let what =
                    format!("{life} was shut down at {ended:?} and holds {} {}", hold.lock, hold.token);
                world.found(Promise::Shutdown, what);
            }
            if let Some(waiting) = said.waiting.first() {
                world
                    .found(Promise::Shutdown, format!("{life} was shut down and waits for {}", waiting.lock));
            }
            let Some(id) = life.id().map(|id| id.to_string()) else { continue };
            // What was lost before is its guard's to give back, and ends by itself.
            let before: Vec<_> = locked(&life.fate)
                .losses
                .iter()
                .filter(|told| told.lost.cause != LostCause::Shutdown)
                .cloned()
                .collect();
            let was_lost = |lock: usize, token| {
                before
                    .iter()
                    .any(|told| Some(told.lost.token) == token && told.lost.lock.as_str() == name_of(lock))
            };
            let is_orphan =
                |request: &Option<RequestId>| request.is_some_and(|request| orphans.contains(&request));
            let kept = states.iter().enumerate().find_map(|(lock, state)| {
                let holder = state
                    .holders
                    .iter()
                    .filter(|holder| !was_lost(lock, holder.token) && !is_orphan(&holder.request))
                    .filter(|holder| holder.token.is_none_or(|token| !handed_over.contains(&token)));
                let holder = holder.map(|holder| ("a hold", holder.owner.as_str()));
                // A withdrawal that was not answered is repeated until the place is overdue: then no grant can go to it.
                let queue = state.queue.iter().filter(|waiter| {
                    waiter.place_left != Some(Duration::ZERO) && !is_orphan(&waiter.request)
                });
                let queue = queue.map(|waiter| ("a place", waiter.owner.as_str()));
                holder.chain(queue).find(|(_, owner)| owner.starts_with(&id)).map(|(what, _)| (what, lock))
            });
            if let (Ok(()), Some((what, lock))) = (result, kept) {
                let what = format!(
                    "shutdown of {life} said Ok at {ended:?}, and {what} of {} is left",
                    name_of(lock)
                );
                world.found(Promise::Shutdown, what);
            }
        }
    }
}

impl Said {
    pub fn of(life: Arc<Life>) -> Said {
        // Before it says what it has: with a real clock a shutdown may end meanwhile.
        let ended = locked(&life.fate).shutdown.as_ref().and_then(|shutdown| shutdown.ended.clone());
        let (held, waiting) = match life.look(|client| (client.held(), client.waiting())) {
            Some((held, waiting)) => (Some(held), waiting),
            None => (None, Vec::new()),
        };
        Said { life, ended, held, waiting }
    }
}
