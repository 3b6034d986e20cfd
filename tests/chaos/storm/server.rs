//! What the server did, as it did it: who asked when, who was granted, and whether order and tokens were right.
//!
//! Everything here happens under the mutex that each call to the store takes, so it is in the store's own order.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fairlock::admin::LockState;
use fairlock::admin::{LockKind, LockName};
use fairlock::backend::{
    Acquire, Acquired, Backend, BackendError, BackendErrorKind, Condition, Declined, Hold, LockId, Place,
    Renew, Renewal, RequestId, Wait,
};
use fairlock::{FencingToken, MemoryBackend};

use crate::life::Life;
use crate::world::{Promise, World, locked};

pub struct Server {
    locks: Vec<LockAtServer>,
    asked: u64,
    grants: u64,
    /// Requests that a message may have begun which arrived after its client was shut down: nobody is left to withdraw them.
    pub orphans: HashSet<RequestId>,
    /// Holds that were handed over: until one is adopted no client knows of it, nor if an attempt to adopt it arrives late.
    pub handed_over: HashSet<FencingToken>,
}

/// What the server keeps of one lock, and what was seen of it.
pub struct LockAtServer {
    pub name: LockName,
    /// Who holds it, in the order of the tokens.
    pub holders: Vec<HeldAtServer>,
    last_token: u64,
    /// The last token since a request named a period; none before.
    noted: Option<u64>,
    /// Who waits in the queue, in the order in which they asked.
    queue: Vec<Waiter>,
    /// The number of each request that stood in the queue, and the ticket that it had then.
    numbers: HashMap<(String, RequestId), (u64, u64)>,
    /// The latest grant that an answer told of, and of which request it is: an owner may have two in the queue, one of which was
    /// withdrawn, and came back late.
    answered: Option<(FencingToken, RequestId)>,
    /// Until when the queue may rest: a place came back that the server does not know to have been withdrawn.
    pub rests_until: Duration,
    /// Holds that were taken by force from a client that may not have heard of it.
    pub forced: HashSet<FencingToken>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldAtServer {
    pub owner: String,
    pub token: FencingToken,
    pub units: u32,
}

struct Waiter {
    owner: String,
    request: RequestId,
    number: u64,
    since: Duration,
    life: Arc<Life>,
}

/// The whole queue: there are few actors.
pub const ALL: Range<u64> = 0..500;

pub fn name_of(lock: usize) -> String {
    format!("L{lock}")
}

impl Server {
    pub fn new(locks: usize) -> Server {
        let lock = |number| LockAtServer {
            name: LockName::new(&name_of(number)).expect("a good name"),
            holders: Vec::new(),
            last_token: 0,
            noted: None,
            queue: Vec::new(),
            numbers: HashMap::new(),
            answered: None,
            rests_until: Duration::ZERO,
            forced: HashSet::new(),
        };
        let locks = (0..locks).map(lock).collect();
        Server { locks, asked: 0, grants: 0, orphans: HashSet::new(), handed_over: HashSet::new() }
    }

    /// How many holds there were.
    pub fn grants(&self) -> u64 {
        self.grants
    }

    pub fn locks(&self) -> &[LockAtServer] {
        &self.locks
    }

    fn lock(&mut self, id: &LockId) -> &mut LockAtServer {
        let at = self.locks.iter().position(|lock| lock.name == id.name);
        &mut self.locks[at.expect("only locks of the program are asked for")]
    }

    /// Looks at all locks: leases end without a call.
    pub fn look(&mut self, world: &World) {
        for number in 0..self.locks.len() {
            let name = self.locks[number].name.clone();
            self.observe(world, &LockId::new(name, LockKind::Fair));
        }
    }

    pub fn observe(&mut self, world: &World, id: &LockId) -> LockState {
        let store = world.store().expect("only a store in memory is looked into");
        let state = state_of(store, &id.name);
        let now = world.now();
        let lock = self.lock(id);
        let holders = state.holders.iter().map(|holder| HeldAtServer {
            owner: holder.owner.as_str().to_owned(),
            token: holder.token.expect("holds in memory have tokens"),
            units: holder.units,
        });
        let holders: Vec<_> = holders.collect();
        for gone in lock.holders.iter().filter(|hold| !holders.contains(hold)) {
            let who = world.name_of(&gone.owner);
            world.note(format_args!("  {} is held no more by {who}, token {}", lock.name, gone.token));
        }
        let before = std::mem::replace(&mut lock.holders, holders.clone());
        // One that was adopted has the token that it had.
        let is_new = |hold: &&HeldAtServer| !before.iter().any(|was| was.token == hold.token);
        let new: Vec<_> = holders.iter().filter(is_new).collect();
        for hold in &new {
            lock.granted(world, now, &hold.owner, hold.token);
        }
        let (units, taken) = (units_of(&state), taken_of(&state));
        if taken > units {
            let all: Vec<_> = holders.iter().map(|hold| (world.name_of(&hold.owner), hold.units)).collect();
            world.found(Promise::Exclusion, format!("{}: {units} units, and {all:?} hold it", id.name));
        }
        self.grants += new.len() as u64;
        state
    }

    /// A client asked, and this was the answer.
    pub fn asked(&mut self, world: &World, life: &Arc<Life>, ask: &Acquire<'_>, answer: &Acquired) {
        let owner = ask.place.owner.as_str();
        let mut holds = |token| {
            let holders = &self.lock(ask.place.lock).holders;
            holders.iter().any(|hold| hold.token == token && hold.owner == owner)
        };
        let is_repeat = matches!(*answer, Acquired::Granted { token, .. } if holds(token));
        if let Acquired::Granted { token, .. } = *answer {
            self.lock(ask.place.lock).answered = Some((token, ask.place.request));
        }
        if !is_repeat && !matches!(answer, Acquired::Busy { .. } | Acquired::Declined(_)) {
            self.put_back(world, life, &ask.place);
        }
        if let Some(wrong) = self.lock(ask.place.lock).is_wrong(ask, answer, is_repeat) {
            world.found(Promise::Answer, format!("{}: {wrong}", ask.place.lock.name));
        }
        let state = self.observe(world, ask.place.lock);
        match answer {
            Acquired::Queued { ticket, .. } => self.queued(world, life, &ask.place, *ticket),
            Acquired::Busy { .. } => {
                let fits = u64::from(ask.place.units) <= free_of(&state, ask.place.lock.kind.capacity());
                let busy = !fits && state.holder().is_some() || !state.queue.is_empty();
                if ask.place.wait == Wait::No && !busy {
                    world.found(
                        Promise::Answer,
                        format!("{} is free and the server says busy", ask.place.lock.name),
                    );
                }
            }
            _ => {}
        }
    }

    /// A client asked, and this was the error.
    pub fn refused(&mut self, world: &World, ask: &Acquire<'_>, error: &BackendError) {
        let LockId { name, kind, .. } = ask.place.lock;
        let state = self.observe(world, ask.place.lock);
        if error.kind() != BackendErrorKind::Mismatch {
            return;
        }
        // A waiter for a plain lock keeps it in use, and can't be seen.
        let is_idle = state.holders.is_empty() && state.queue.is_empty() && state.capacity.is_some();
        if is_idle || is_of(&state, *kind) && kind.is_shared() {
            world.found(Promise::Answer, format!("{name}: a {kind} is refused, and it is one: {error}"));
        }
    }

    pub fn released(&mut self, world: &World, hold: &Hold<'_>) {
        // Before the lock is granted: a late repeat of the ask may have left a place behind.
        self.lock(hold.lock).leaves(hold.owner.as_str(), hold.request);
        self.observe(world, hold.lock);
    }

    pub fn renewed(&mut self, world: &World, life: &Life, item: &Renew<'_>, answer: &Renewal) {
        let id = match item {
            Renew::Hold { hold, .. } => hold.lock,
            Renew::Place { place, .. } => place.lock,
        };
        self.observe(world, id);
        if let (Renew::Place { place, .. }, Renewal::Lost) = (item, answer) {
            let (now, lock) = (world.now(), self.lock(id));
            let key = (place.owner.as_str().to_owned(), place.request);
            if let Some(waiter) = lock.leaves(&key.0, key.1)
                && world.weather.is_calm(life.client, waiter.since, now, false)
            {
                let (who, lock) = (world.name_of(&waiter.owner), &id.name);
                world.found(Promise::Order, format!("{lock}: {who} spoke all the time and lost its place"));
            }
        }
    }

    /// The request left. A late message may put the request back where it stood.
    pub fn withdrawn(&mut self, world: &World, place: &Place<'_>) {
        self.lock(place.lock).leaves(place.owner.as_str(), place.request);
        self.observe(world, place.lock);
    }

    /// A late message may put this place back, which was withdrawn.
    pub fn may_come_back(&mut self, now: Duration, place: &Place<'_>) {
        let lock = self.lock(place.lock);
        if place.ticket > 0 {
            lock.rests_until = lock.rests_until.max(now + place.ttl);
        }
    }

    /// The holds that are about to be taken, or this one of them, may be believed in for longer, if their clients do not hear
    /// of it.
    pub fn will_be_forced(&mut self, world: &World, id: &LockId, only: Option<FencingToken>) {
        self.observe(world, id);
        let now = world.now();
        let lock = self.lock(id);
        for hold in lock.holders.iter().filter(|hold| only.is_none_or(|token| token == hold.token)) {
            let hears = |life: &Arc<Life>| world.weather.is_calm(life.client, now, now, false);
            if !world.life_of(&hold.owner).is_some_and(|life| hears(&life)) {
                lock.forced.insert(hold.token);
            }
        }
    }

    /// A grant that its client did not hear of in time is over: the request is back at its ticket, also if it is granted again
    /// by the same call.
    fn put_back(&mut self, world: &World, life: &Arc<Life>, place: &Place<'_>) {
        let (since, life) = (world.now(), Arc::clone(life));
        let (owner, request) = (place.owner.as_str().to_owned(), place.request);
        let lock = self.lock(place.lock);
        let stands = lock.queue.iter().any(|waiter| waiter.owner == owner && waiter.request == request);
        if let Some((number, _)) = lock.numbers.get(&(owner.clone(), request)).copied()
            && place.ticket != 0
            && !stands
        {
            lock.queue.push(Waiter { owner, request, number, since, life });
        }
    }

    fn queued(&mut self, world: &World, life: &Arc<Life>, place: &Place<'_>, ticket: u64) {
        self.asked += 1;
        let number = self.asked;
        let (owner, request) = (place.owner.as_str().to_owned(), place.request);
        let lock = self.lock(place.lock);
        // An attempt that arrived late may have moved it before.
        let known = lock.numbers.get(&(owner.clone(), request)).map(|(_, known)| *known);
        let is_moved = place.ticket != 0 && place.ticket != ticket && known != Some(ticket);
        if is_moved {
            lock.leaves(&owner, request); // it went to the tail
        }
        if lock.queue.iter().any(|waiter| waiter.owner == owner && waiter.request == request)
            || place.lock.kind == LockKind::Plain
        {
            return;
        }
        lock.numbers.insert((owner.clone(), request), (number, ticket));
        let (since, life) = (world.now(), Arc::clone(life));
        lock.queue.push(Waiter { owner, request, number, since, life });
    }
}

/// What the store keeps under this name, whatever kind of lock it is.
pub fn state_of(store: &MemoryBackend, name: &LockName) -> LockState {
    seen_in(store, name).expect("the store itself always answers")
}

/// The same of any store; none without an answer.
pub fn seen_in(store: &dyn Backend, name: &LockName) -> Option<LockState> {
    let as_kind = |kind| store.inspect(&LockId::new(name.clone(), kind), ALL);
    as_kind(LockKind::Fair).or_else(|_| as_kind(LockKind::ReadWrite)).ok()
}

/// How many units there are.
pub fn units_of(state: &LockState) -> u64 {
    state.capacity.unwrap_or(1).into()
}

/// How many units are free for a client that names this capacity.
pub fn free_of(state: &LockState, capacity: u32) -> u64 {
    u64::from(capacity).saturating_sub(taken_of(state))
}

/// Whether locks of this kind have this state. An exclusive lock has no capacity, nor has an unused name.
pub fn is_of(state: &LockState, kind: LockKind) -> bool {
    LockKind::Semaphore { permits: state.capacity.unwrap_or(1) }.agrees_with(kind)
}

/// How many units are held.
pub fn taken_of(state: &LockState) -> u64 {
    state.holders.iter().map(|holder| u64::from(holder.units)).sum()
}

impl LockAtServer {
    /// What the request's condition has against this answer. The token of a grant is the time by the server's clock.
    fn is_wrong(&mut self, ask: &Acquire<'_>, answer: &Acquired, is_repeat: bool) -> Option<String> {
        let Condition { not_granted, most_ahead, .. } = ask.condition;
        let before = self.noted;
        if not_granted.is_some() {
            self.noted.get_or_insert(0);
        }
        match (answer, not_granted, before) {
            (Acquired::Granted { token, .. }, Some(since), Some(before)) if !is_repeat => {
                let since = since.at(Duration::from_micros(token.get()));
                let is_done = before > 0 && Duration::from_micros(before) >= since;
                is_done.then(|| format!("granted with {token}, though with {before} since {since:?}"))
            }
            (Acquired::Declined(Declined::Granted(at)), _, before) => {
                let is_it = before.is_some_and(|before| Duration::from_micros(before) == *at);
                (!is_it).then(|| format!("declined for a grant at {at:?}, and the last one was {before:?}"))
            }
            (Acquired::Declined(Declined::Ahead(ahead)), ..) => {
                let is_so = most_ahead.is_some_and(|most| *ahead > most) && *ahead <= self.queue.len() as u64;
                (!is_so).then(|| format!("declined for {ahead} ahead, where {} wait", self.queue.len()))
            }
            (Acquired::Queued { rank, .. }, ..) if ask.place.ticket == 0 => {
                let key = (ask.place.owner.as_str().to_owned(), ask.place.request);
                let is_new = !self.numbers.contains_key(&key);
                (is_new && most_ahead.is_some_and(|most| *rank > most))
                    .then(|| format!("queued behind {rank}"))
            }
            _ => None,
        }
    }

    fn leaves(&mut self, owner: &str, request: RequestId) -> Option<Waiter> {
        let at = self.queue.iter().position(|waiter| waiter.owner == owner && waiter.request == request)?;
        Some(self.queue.remove(at))
    }

    fn granted(&mut self, world: &World, now: Duration, owner: &str, token: FencingToken) {
        let (name, who) = (&self.name, world.name_of(owner));
        world.note(format_args!("  {name} goes to {who}, token {token}"));
        if token.get() <= self.last_token {
            world.found(Promise::Token, format!("{name}: token {token} after {}", self.last_token));
        }
        self.last_token = self.last_token.max(token.get());
        self.noted = self.noted.map(|noted| noted.max(token.get()));
        // One that is not in the queue was granted at its first ask: it came after all of them.
        let of = self.answered.filter(|(answered, _)| *answered == token).map(|(_, request)| request);
        let is_its = |waiter: &Waiter| waiter.owner == owner && of.is_none_or(|of| of == waiter.request);
        let at = self.queue.iter().position(is_its);
        let number = at.map_or(u64::MAX, |at| self.queue[at].number);
        for waiter in self.queue.iter().filter(|waiter| waiter.number < number && waiter.owner != owner) {
            let (is_there, since) = {
                let fate = locked(&waiter.life.fate);
                (fate.shutdown.is_none() && fate.dropped.is_none(), waiter.since)
            };
            if is_there && world.weather.is_calm(waiter.life.client, since, now, false) {
                let passed = world.name_of(&waiter.owner);
                let what = format!(
                    "{name}: {who} goes before {passed}, which waits since {since:?} and was there all the time"
                );
                world.found(Promise::Order, what);
            }
        }
        if let Some(at) = at {
            self.queue.remove(at);
        }
    }
}
