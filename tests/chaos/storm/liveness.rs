//! The oracle for what has to happen: who is next is served, and what no client knows of goes away.

use std::time::Duration;

use fairlock::admin::LockState;
use fairlock::admin::{LockKind, Waiter};
use fairlock::stats::WaitingRequest;

use crate::look::{BUSY, Oracle, RETRY, Said};
use crate::real::LATEST;
use crate::server::{free_of, is_of, name_of};
use crate::world::{Promise, World, locked};

/// P5: what a dead holder's lease may be followed by.
const REPLACED: Duration = Duration::from_millis(250);

impl Oracle {
    /// Units that are free go to the first waiter that could be reached, if it fits. One that can't be reached is passed when its
    /// place is over, also if it does not fit. Not before the queue has rested.
    pub fn served(
        &mut self,
        world: &World,
        (lock, rests_until): (usize, Duration),
        said: &[Said],
        state: &LockState,
    ) {
        let (name, now) = (name_of(lock), world.now());
        let fits = |units: u32, capacity: u32| u64::from(units) <= free_of(state, capacity);
        let first = state.queue.first().map(|waiter| waiter.owner.as_str());
        let first_since = self.first_since(lock);
        let waits = |said: &Said, owner: &str| {
            let mut of_lock = said.waiting.iter().filter(|waiting| waiting.lock.as_str() == name);
            of_lock.any(|waiting| waiting.owner.as_str() == owner)
        };
        // One that could be reached, or one that may be there and does not fit.
        let is_before_others = |waiter: &&Waiter| {
            said.iter().any(|said| {
                let is_calm = world.weather.calm_since(said.life.client, now).is_some();
                let fits = fits(waiter.units, waiter.capacity.unwrap_or(1));
                (is_calm || !fits) && waits(said, waiter.owner.as_str())
            })
        };
        let next = state.queue.iter().find(is_before_others);
        for said in said {
            let life = &said.life;
            let Some(calm) = world.weather.calm_since(life.client, now) else { continue };
            for waiting in said.waiting.iter().filter(|waiting| waiting.lock.as_str() == name) {
                let owner = waiting.owner.as_str();
                let is_passed = next.is_some_and(|next| next.owner.as_str() != owner);
                let is_of_its_kind = state.capacity.is_none() || is_of(state, waiting.kind);
                if is_passed || !is_of_its_kind || !fits(waiting.units, waiting.kind.capacity()) {
                    continue;
                }
                let began = now.saturating_sub(waiting.waiting_for);
                let key = (format!("{name} {owner}"), "served");
                let free = self.since(world, key);
                let ttl = world.program.longest_ttl();
                // It was told when to look when it asked, if it was the first then; else with its next word, which comes
                // after a third of its place's time.
                // Within one moment it may have asked as the second, and have become the first then.
                let key = (name.clone(), owner.to_owned());
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
                let bound = match first == Some(owner) && informed <= free {
                    true => REPLACED,
                    // The place of one that does not fit may have to be over first, and then it is the next word that finds it.
                    false if state.capacity.is_some() => ttl + ttl / 2 + RETRY + REPLACED,
                    false => ttl + RETRY + REPLACED,
                };
                let from = free.max(began).max(calm).max(rests_until);
                let who = world.name_of(owner);
                if now > from + bound {
                    let what =
                        format!("{name}: {who} fits since {free:?}, and waits, undisturbed since {calm:?}");
                    world.found(Promise::Liveness, what);
                }
            }
        }
    }

    /// On a real server, of which only the clients are seen: a lock in whose holds no client believes goes to one of its waiters. The hold
    /// of a client that died or could not give it back ends with its lease, that of a late message 10 s after it, and waiters before this
    /// one may be dead.
    pub fn handed_on(&mut self, world: &World, said: &[Said]) {
        let late = if world.program.sends_late() { LATEST } else { Duration::ZERO };
        let bound = world.program.longest_lease() + 2 * world.program.longest_ttl() + late + BUSY;
        let now = world.now();
        for lock in 0..world.program.locks.len() {
            let name = name_of(lock);
            let is_held = |said: &Said| said.held.iter().flatten().any(|hold| hold.lock.as_str() == name);
            if said.iter().any(is_held)
                || !world.weather.rows_are_free(Some(lock), now.saturating_sub(bound), now)
            {
                continue;
            }
            for said in said {
                let Some(calm) = world.weather.calm_since(said.life.client, now) else { continue };
                for waiting in said.waiting.iter().filter(|waiting| waiting.lock.as_str() == name) {
                    let (who, owner) = (&said.life, waiting.owner.as_str());
                    let key = (format!("{name} {owner}"), "free");
                    self.not_for_long(world, key, (calm, bound), Promise::Liveness, |since| {
                        format!("{name}: nobody believes in a hold of it since {since:?}, and {who} waits")
                    });
                }
            }
        }
    }

    /// What the server keeps of a client that knows nothing of it is gone soon; and a client that waits has a place.
    pub fn ghosts(&mut self, world: &World, lock: usize, said: &[Said], state: &LockState) {
        let (name, now) = (name_of(lock), world.now());
        for said in said.iter().filter(|said| !said.life.is_shut_down()) {
            let (Some(held), Some(id)) = (&said.held, said.life.id()) else { continue };
            let Some(calm) = world.weather.calm_since(said.life.client, now) else { continue };
            let ttl = said.life.settings.place_ttl;
            let bound = (ttl / 3 + ttl / 9).max(RETRY + world.program.response) + REPLACED;
            let (is_ours, prefix) = (|owner: &str, id: &str| owner.starts_with(id), id.to_string());
            // A hold that its client knows to be lost stays until its guard is dropped, or its lease is over.
            let was_lost = |token| locked(&said.life.fate).losses.iter().any(|told| told.lost.token == token);
            let ours = state.holders.iter().filter(|hold| is_ours(hold.owner.as_str(), &prefix));
            for (owner, token) in ours.filter_map(|hold| Some((hold.owner.as_str(), hold.token?))) {
                let is_known = held.iter().any(|hold| hold.lock.as_str() == name && hold.token == token);
                if is_known || was_lost(token) || locked(&world.server).handed_over.contains(&token) {
                    continue;
                }
                let who = world.name_of(owner);
                self.not_for_long(world, (format!("{name} {token}"), "hold"), (calm, bound), Promise::Ghost, |since| {
                    format!("{name}: the server keeps hold {token} of {who} since {since:?}, which knows nothing of it")
                });
            }
            for waiter in state.queue.iter().filter(|waiter| is_ours(waiter.owner.as_str(), &prefix)) {
                let owner = waiter.owner.as_str();
                let waits = |waiting: &&WaitingRequest| {
                    waiting.lock.as_str() == name && waiting.owner.as_str() == owner
                };
                // A withdrawal that was not answered for as long as lease and place last is given up: the place is
                // overdue, and goes when the queue is looked at.
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
                let in_queue = state.queue.iter().any(|waiter| waiter.owner.as_str() == owner);
                let holds = state.holders.iter().any(|hold| hold.owner.as_str() == owner);
                if !in_queue && !holds && waiting.kind != LockKind::Plain {
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
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fairlock::{Client, MemoryBackend};

    use super::*;
    use crate::generate::generate;
    use crate::life::Life;
    use crate::program::Program;

    /// A client waits for a lock that another one keeps, of which it is known or not that it holds the lock.
    #[test]
    fn a_waiter_for_a_lock_in_which_nobody_believes_is_found() {
        for (is_known, waits, expected) in [(false, true, 1), (true, true, 0), (false, false, 0)] {
            let program = Program { faults: Vec::new(), ..generate(1) };
            let (world, store) = (World::new(&program, World::memory()), MemoryBackend::new());
            let (holder, waiter) = (Client::new(store.clone()).unwrap(), Client::new(store).unwrap());
            let _guard = holder.fair_lock("L0").unwrap().lock().unwrap();
            let _request = waits.then(|| waiter.fair_lock("L0").unwrap().request().unwrap());
            let known: &[&Client] = if is_known { &[&holder, &waiter] } else { &[&waiter] };
            let says = |client: &&Client| {
                let life = Life::new(0, 0, program.clients[0]);
                *locked(&life.handle) = Some((*client).clone());
                Said::of(Arc::new(life))
            };
            let said: Vec<Said> = known.iter().map(says).collect();
            let mut oracle = Oracle::default();
            for _ in 0..2 {
                oracle.handed_on(&world, &said);
                world.manual().unwrap().advance(Duration::from_secs(3600));
            }
            assert_eq!(world.findings().len(), expected);
        }
    }
}
