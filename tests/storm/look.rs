//! The oracle: looks at everything at each moment at which anything has happened, while all threads sleep.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fairlock::backend::{Backend, LockState, RequestId};
use fairlock::{HeldLock, LockKind, LostCause, MemoryBackend, WaitingRequest};

use crate::life::Life;
use crate::server::{ALL, name_of};
use crate::world::{Call, Limit, Promise, World, locked};

/// What is due in no time may take so long: a caller that gives up waits 50 ms for the answer to its withdrawal.
const SLACK: Duration = Duration::from_millis(60);
/// With a real clock: a busy machine is late with everything.
pub const BUSY: Duration = Duration::from_secs(5);
/// P5: what a dead holder's lease may be followed by.
const REPLACED: Duration = Duration::from_millis(250);
/// A retry comes a second after the last one at the latest.
const RETRY: Duration = Duration::from_secs(1);

/// What was seen at earlier moments.
#[derive(Default)]
pub struct Oracle {
    /// Since when something is as it should not be for long.
    since: HashMap<(String, &'static str), Duration>,
    seen: Vec<(String, &'static str)>,
    /// Who is the first in the line of each lock, and since when.
    first: HashMap<usize, (RequestId, Duration)>,
}

/// What one client says at this moment.
struct Said {
    life: Arc<Life>,
    /// When it was shut down, and what came of that.
    ended: Option<(Duration, Result<(), String>)>,
    held: Option<Vec<HeldLock>>,
    waiting: Vec<WaitingRequest>,
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
        self.calls(world);
        match world.store() {
            Some(store) => self.look_into(world, store, &said),
            None => {
                each_other(world, &said);
                self.shutdowns(world, &said, &[]);
            }
        }
    }

    /// What only a store in memory lets be seen.
    fn look_into(&mut self, world: &World, store: &MemoryBackend, said: &[Said]) {
        let (states, holders) = {
            let mut server = locked(&world.server);
            server.look(world);
            let holders =
                server.locks().iter().map(|lock| (lock.holder.clone(), lock.since, lock.forced.clone()));
            let states = server.locks().iter().map(|lock| store.inspect(&lock.id, ALL).expect("it answers"));
            (states.collect::<Vec<_>>(), holders.collect::<Vec<_>>())
        };
        for (lock, (state, (holder, since, forced))) in states.iter().zip(&holders).enumerate() {
            self.note_first(world, lock, state);
            self.exclusion(world, lock, said, state, holder.as_ref(), forced);
            self.free(world, lock, said, state, holder.is_none().then_some(*since));
            self.ghosts(world, lock, said, state, holder.as_ref());
        }
        self.shutdowns(world, said, &states);
        let seen = std::mem::take(&mut self.seen);
        self.since.retain(|key, _| seen.contains(key));
    }

    fn note_first(&mut self, world: &World, lock: usize, state: &LockState) {
        match state.line.first().and_then(|waiter| waiter.request) {
            Some(request) if self.first.get(&lock).is_some_and(|(first, _)| *first == request) => {}
            Some(request) => {
                self.first.insert(lock, (request, world.now()));
            }
            None => {
                self.first.remove(&lock);
            }
        }
    }

    /// Finds something once it has been so for longer than `bound`, counted from no earlier than `from`.
    fn not_for_long(
        &mut self,
        world: &World,
        key: (String, &'static str),
        (from, bound): (Duration, Duration),
        promise: Promise,
        what: impl FnOnce(Duration) -> String,
    ) {
        let now = world.now();
        let since = *self.since.entry(key.clone()).or_insert(now);
        let since = since.max(from);
        if now > since + bound {
            world.found(promise, what(since));
        }
        self.seen.push(key);
    }

    /// At most one owner believes that it holds the lock, and the server agrees.
    fn exclusion(
        &self,
        world: &World,
        lock: usize,
        said: &[Said],
        state: &LockState,
        holder: Option<&(String, fairlock::FencingToken)>,
        forced: &std::collections::HashSet<fairlock::FencingToken>,
    ) {
        let name = name_of(lock);
        for said in said {
            for hold in said.held.iter().flatten().filter(|hold| hold.lock.as_str() == name) {
                let believed = (hold.owner.as_str().to_owned(), hold.token);
                if hold.valid_for.is_zero() || forced.contains(&hold.token) {
                    continue;
                }
                let kept = state.holder().and_then(|holder| holder.lease_left).unwrap_or_default();
                if holder == Some(&believed) {
                    if hold.valid_for > kept {
                        let who = world.name_of(&believed.0);
                        let (token, believes) = (hold.token, hold.valid_for);
                        let what = format!(
                            "{name}: {who} believes in {token} for {believes:?}, the server for {kept:?}"
                        );
                        world.found(Promise::Exclusion, what);
                    }
                    continue;
                }
                let other = holder.map(|(owner, token)| format!("{} {token}", world.name_of(owner)));
                let what = format!(
                    "{name}: {} believes in {} for {:?} more; the server says {other:?}",
                    world.name_of(&believed.0),
                    hold.token,
                    hold.valid_for
                );
                world.found(Promise::Exclusion, what);
            }
        }
    }

    /// A lock that is free goes to a waiter that could be reached.
    fn free(&mut self, world: &World, lock: usize, said: &[Said], state: &LockState, free: Option<Duration>) {
        let Some(free) = free else { return };
        let (name, now) = (name_of(lock), world.now());
        let first = state.line.first().map(|waiter| waiter.owner.as_str());
        let first_since = self.first.get(&lock).map(|(_, since)| *since);
        for said in said {
            let life = &said.life;
            let Some(calm) = world.weather.calm_since(life.client, now) else { continue };
            for waiting in said.waiting.iter().filter(|waiting| waiting.lock.as_str() == name) {
                let began = now.saturating_sub(waiting.waiting_for);
                let ttl = world.program.longest_ttl();
                let next = first == Some(waiting.owner.as_str());
                // It was told when to look when it asked, if it was the first then; else with its next word, which comes
                // after a third of its place's time.
                // Within one moment it may have asked as the second, and have become the first then.
                let key = (name.clone(), waiting.owner.as_str().to_owned());
                let knows_when = locked(&life.fate).knows_when.get(&key).copied().unwrap_or_default();
                let was_first =
                    first_since.is_some_and(|first| first < began || first == began && knows_when);
                let informed = match calm <= began && was_first {
                    true => began,
                    false => {
                        calm.max(began).max(first_since.unwrap_or_default())
                            + life.settings.place_ttl / 2
                            + RETRY
                    }
                };
                let bound = if next && informed <= free { REPLACED } else { ttl + RETRY + REPLACED };
                let from = free.max(began).max(calm);
                let who = world.name_of(waiting.owner.as_str());
                if now > from + bound {
                    let what =
                        format!("{name}: free since {free:?}, and {who} waits, undisturbed since {calm:?}");
                    world.found(Promise::Liveness, what);
                }
            }
        }
    }

    /// What the server keeps of a client that knows nothing of it is gone soon; and a client that waits has a place.
    fn ghosts(
        &mut self,
        world: &World,
        lock: usize,
        said: &[Said],
        state: &LockState,
        holder: Option<&(String, fairlock::FencingToken)>,
    ) {
        let (name, now) = (name_of(lock), world.now());
        for said in said.iter().filter(|said| !said.life.is_shut_down()) {
            let (Some(held), Some(id)) = (&said.held, said.life.id()) else { continue };
            let Some(calm) = world.weather.calm_since(said.life.client, now) else { continue };
            let ttl = said.life.settings.place_ttl;
            let bound = (ttl / 3 + ttl / 9).max(RETRY + world.program.response) + REPLACED;
            let (is_ours, prefix) = (|owner: &str, id: &str| owner.starts_with(id), id.to_string());
            // A hold that its client knows to be lost stays until its guard is dropped, or its lease is over.
            let was_lost = |token| locked(&said.life.fate).losses.iter().any(|told| told.lost.token == token);
            if let Some((owner, token)) = holder.filter(|(owner, _)| is_ours(owner, &prefix))
                && !was_lost(*token)
                && !held.iter().any(|hold| hold.lock.as_str() == name && hold.token == *token)
            {
                let who = world.name_of(owner);
                self.not_for_long(world, (format!("{name} {token}"), "hold"), (calm, bound), Promise::Ghost, |since| {
                    format!("{name}: the server keeps hold {token} of {who} since {since:?}, which knows nothing of it")
                });
            }
            for waiter in state.line.iter().filter(|waiter| is_ours(waiter.owner.as_str(), &prefix)) {
                let owner = waiter.owner.as_str();
                let waits = |waiting: &&WaitingRequest| {
                    waiting.lock.as_str() == name && waiting.owner.as_str() == owner
                };
                // A withdrawal that was not answered for as long as lease and place last is given up: the place is
                // overdue, and goes when the line is looked at.
                let joined = now.saturating_sub(waiter.waiting.unwrap_or_default());
                let given_up = world.weather.trouble_since(said.life.client, joined) * 2 >= ttl;
                if !given_up && !said.waiting.iter().any(|waiting| waits(&waiting)) {
                    let who = world.name_of(owner);
                    let key = (format!("{name} {owner} {:?}", waiter.request), "place");
                    self.not_for_long(world, key, (calm, bound), Promise::Ghost, |since| {
                        format!(
                            "{name}: the server keeps a place of {who} since {since:?}, which does not wait"
                        )
                    });
                }
            }
            for waiting in said.waiting.iter().filter(|waiting| waiting.lock.as_str() == name) {
                let owner = waiting.owner.as_str();
                let in_line = state.line.iter().any(|waiter| waiter.owner.as_str() == owner);
                let holds = holder.is_some_and(|(other, _)| other == owner);
                let key = (name.clone(), owner.to_owned());
                let is_fair = locked(&said.life.fate).kinds.get(&key) == Some(&LockKind::Fair);
                if !in_line && !holds && is_fair {
                    let who = world.name_of(owner);
                    self.not_for_long(
                        world,
                        (format!("{name} {owner}"), "none"),
                        (calm, bound),
                        Promise::Liveness,
                        |since| format!("{name}: {who} waits and has no place since {since:?}"),
                    );
                }
            }
        }
    }

    fn calls(&self, world: &World) {
        let now = world.now();
        for (number, call) in locked(&world.calls).iter().enumerate() {
            let Some(call) = call else { continue };
            let cancelled = world.cancels.get(number).and_then(|cancel| {
                let cancel = locked(cancel);
                cancel.1.filter(|_| call.cancel.is_cancelled())
            });
            if let Some(why) = overdue(world, call, now, cancelled) {
                let what = format!(
                    "a{number} with {} is in {:?} since {:?}: {why}",
                    call.life, call.what, call.began
                );
                world.found(Promise::Bound, what);
            }
        }
    }

    /// After a shutdown the client has nothing, and the server keeps nothing of it if it could be told.
    fn shutdowns(&self, world: &World, said: &[Said], states: &[LockState]) {
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
            let kept = states.iter().enumerate().find_map(|(lock, state)| {
                let holder = state.holders.iter().filter(|holder| !was_lost(lock, holder.token));
                let holder = holder.map(|holder| ("a hold", holder.owner.as_str()));
                // A withdrawal that was not answered is repeated until the place is overdue: then no grant can go to it.
                let line = state.line.iter().filter(|waiter| waiter.place_left != Some(Duration::ZERO));
                let line = line.map(|waiter| ("a place", waiter.owner.as_str()));
                holder.chain(line).find(|(_, owner)| owner.starts_with(&id)).map(|(what, _)| (what, lock))
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

/// Two that believe at the same moment, as they say it one after the other: who is asked first may have lost its hold when
/// the second is asked, so it is asked again.
fn each_other(world: &World, said: &[Said]) {
    let all = || said.iter().flat_map(|said| said.held.iter().flatten().map(move |hold| (&said.life, hold)));
    for (one, hold) in all() {
        let others = all().filter(|(_, other)| other.lock == hold.lock && other.token > hold.token);
        for (other, newer) in others {
            let holds = |life: &Life, hold: &HeldLock| {
                let held = life.look(|client| client.held()).unwrap_or_default();
                held.iter()
                    .any(|now| now.token == hold.token && now.lock == hold.lock && !now.valid_for.is_zero())
            };
            if holds(other, newer) && holds(one, hold) && !world.was_forced(&hold.lock) {
                let what = format!(
                    "{}: {one} believes in {}, and {other} in {}",
                    hold.lock, hold.token, newer.token
                );
                world.found(Promise::Exclusion, what);
            }
        }
    }
}

/// Why the call should have ended by now, if it should have.
fn overdue(world: &World, call: &Call, now: Duration, cancelled: Option<Duration>) -> Option<String> {
    let (client, settings) = (call.life.client, call.life.settings);
    let response = world.program.response;
    let slack = if world.store().is_some() { SLACK } else { BUSY };
    let before = call.began.saturating_sub(3 * RETRY);
    let calm = world.weather.is_calm(client, before, now, true);
    let still = |from: Duration| world.weather.stood_still(client, from, now);
    let passed = |from: Duration, bound: Duration| now > from + bound + still(from);
    let ends = match (call.limit, calm) {
        (Limit::AtOnce, true) => Some(slack),
        (Limit::AtOnce, false) => Some(settings.outage_limit + 4 * response + 2 * RETRY + slack),
        (Limit::Timed(time), true) => Some(time + slack),
        (Limit::Timed(time), false) => Some(time + 3 * response + 2 * RETRY + slack),
        (Limit::Patient, _) => None,
    };
    if let Some(bound) = ends.filter(|bound| passed(call.began, *bound)) {
        return Some(format!("it should take {bound:?} at the most"));
    }
    let ended = if calm { slack } else { 4 * response + 2 * RETRY + slack };
    if let Some(at) = cancelled.filter(|at| passed((*at).max(call.began), ended)) {
        return Some(format!("it was cancelled at {at:?}"));
    }
    let shutdown = locked(&call.life.fate).shutdown.as_ref().map(|shutdown| shutdown.began);
    let settled = if calm { slack } else { settings.outage_limit + 4 * response + 2 * RETRY + slack };
    if let Some(at) = shutdown.filter(|at| passed((*at).max(call.began), settled)) {
        return Some(format!("its client is being shut down since {at:?}"));
    }
    if call.limit != Limit::Patient {
        return None;
    }
    let silent = world.weather.silent_since(client, now)?.max(call.began);
    let given_up = settings.outage_limit + 3 * response + 2 * RETRY + slack;
    passed(silent, given_up).then(|| format!("the server is silent since {silent:?}"))
}

impl Said {
    fn of(life: Arc<Life>) -> Said {
        // Before it says what it has: with a real clock a shutdown may end meanwhile.
        let ended = locked(&life.fate).shutdown.as_ref().and_then(|shutdown| shutdown.ended.clone());
        let (held, waiting) = match life.look(|client| (client.held(), client.waiting())) {
            Some((held, waiting)) => (Some(held), waiting),
            None => (None, Vec::new()),
        };
        Said { life, ended, held, waiting }
    }
}
