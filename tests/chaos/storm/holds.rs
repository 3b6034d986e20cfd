//! Every hold that was seen, by its token: which actors have guards of it, how it ended, and whether that was told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fairlock::stats::HeldLock;
use fairlock::waits::Receiver;
use fairlock::{FencingToken, Lost};
use fairlock_tests::look_until;

use crate::judge;
use crate::life::Life;
use crate::look::busy;
use crate::program::Terms;
use crate::server::name_of;
use crate::world::{Promise, World, locked};

/// For how long, in real time, the thread that runs callbacks is waited for.
const PATIENCE: Duration = Duration::from_secs(3);

type Key = (String, FencingToken);

#[derive(Default)]
pub struct Holds {
    holds: BTreeMap<Key, Seen>,
    /// Losses that a call reported: they are to be told on the other ways too.
    reported: Vec<(Arc<Life>, Lost)>,
    /// The channels that tell of a loss, each of one hold, or of the first among several.
    listeners: Vec<(Vec<Key>, Receiver<Lost>)>,
    /// The calls for several locks that are under way: they give back what they have if they fail.
    collecting: Vec<Collecting>,
    /// Owners whose task has gone: at the next look they hold nothing.
    gone: Vec<(Arc<Life>, String)>,
}

struct Collecting {
    life: Arc<Life>,
    actor: usize,
    /// `None` for a task, whose locks have an owner each.
    owner: Option<String>,
    locks: Vec<String>,
}

struct Seen {
    life: Arc<Life>,
    owner: String,
    /// Guards and leaked holds.
    guards: i64,
    /// By the terms of all its guards: only one of these was its first, which decides.
    ends_by_itself: bool,
    end: Option<End>,
    /// With a real clock, or while a call for several locks gives it back: since when its client speaks of it no more, and nothing says why.
    gone: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    GivenBack,
    Lost,
    ClientGone,
}

impl Holds {
    fn entry(&mut self, life: &Arc<Life>, lock: &str, owner: &str, token: FencingToken) -> &mut Seen {
        self.holds.entry((lock.to_owned(), token)).or_insert_with(|| Seen {
            life: Arc::clone(life),
            owner: owner.to_owned(),
            guards: 0,
            ends_by_itself: true,
            end: None,
            gone: None,
        })
    }

    /// A call with these terms returned a guard.
    pub fn guard_made(
        &mut self,
        life: &Arc<Life>,
        lock: &str,
        owner: &str,
        token: FencingToken,
        terms: Terms,
    ) {
        let seen = self.entry(life, lock, owner, token);
        seen.guards += 1;
        seen.ends_by_itself &= terms != Terms::Renewed;
        seen.end.take_if(|end| *end == End::GivenBack);
    }

    /// A call returned a guard of a hold that another client had.
    pub fn adopted(&mut self, life: &Arc<Life>, lock: &str, owner: &str, token: FencingToken) {
        self.holds.remove(&(lock.to_owned(), token));
        self.guard_made(life, lock, owner, token, Terms::Renewed);
    }

    /// Whether the hold ends though nobody gives it back.
    pub fn ends_by_itself(&self, lock: &str, token: FencingToken) -> bool {
        self.holds.get(&(lock.to_owned(), token)).is_some_and(|seen| seen.ends_by_itself)
    }

    /// The channel of a guard tells when the first of these is lost.
    pub fn listens(&mut self, holds: &[(usize, FencingToken)], channel: Receiver<Lost>) {
        let keys = holds.iter().map(|(lock, token)| (name_of(*lock), *token)).collect();
        self.listeners.push((keys, channel));
    }

    /// A guard of several locks closes its channel when it ends, though some of its holds may go on.
    pub fn listens_no_more(&mut self, channel: &Receiver<Lost>) {
        self.listeners.retain(|(_, other)| !other.as_crossbeam().same_channel(channel.as_crossbeam()));
    }

    /// This actor begins to take several locks.
    pub fn collects(&mut self, life: &Arc<Life>, actor: usize, owner: Option<String>, locks: &[String]) {
        let (life, locks) = (Arc::clone(life), locks.to_vec());
        self.collecting.push(Collecting { life, actor, owner, locks });
    }

    /// It has them all, or none.
    pub fn has_collected(&mut self, actor: usize) {
        let over: Vec<_> = self.collecting.extract_if(.., |one| one.actor == actor).collect();
        for Collecting { life, owner, locks, .. } in over {
            for lock in locks {
                match &owner {
                    Some(owner) => self.request_ends(&life, &lock, owner),
                    None => self.a_task_ends(&life, &lock),
                }
            }
        }
    }

    /// A guard, or a leaked hold, is about to be given up. Returns whether the loss of the hold was told before.
    pub fn guard_ends(&mut self, lock: &str, token: FencingToken) -> bool {
        let Some(seen) = self.holds.get_mut(&(lock.to_owned(), token)) else { return false };
        seen.guards -= 1;
        if seen.guards <= 0 && seen.end.is_none() {
            seen.end = Some(End::GivenBack);
        }
        seen.end == Some(End::Lost)
    }

    /// Holds of this owner that no caller took end with their request.
    pub fn request_ends(&mut self, life: &Arc<Life>, lock: &str, owner: &str) {
        for ((name, _), seen) in &mut self.holds {
            let same = Arc::ptr_eq(&seen.life, life) && name == lock && seen.owner == owner;
            if same && seen.guards <= 0 && seen.end.is_none() {
                seen.end = Some(End::GivenBack);
            }
        }
    }

    /// The task that waited as this owner has gone.
    pub fn has_nothing(&mut self, life: &Arc<Life>, owner: String) {
        self.gone.push((Arc::clone(life), owner));
    }

    /// A wait of a task is over. Which owner it was is not known, so this may be any hold that no caller took.
    pub fn a_task_ends(&mut self, life: &Arc<Life>, lock: &str) {
        for ((name, _), seen) in &mut self.holds {
            if Arc::ptr_eq(&seen.life, life) && name == lock && seen.guards <= 0 && seen.end.is_none() {
                seen.end = Some(End::GivenBack);
            }
        }
    }

    /// A call said that this hold was lost.
    pub fn reported(&mut self, life: &Arc<Life>, lost: &Lost) {
        self.reported.push((Arc::clone(life), lost.clone()));
    }

    /// What every client says that it holds, at a moment at which nothing moves; with a real clock, at which no actor notes
    /// anything.
    pub fn look(&mut self, world: &World, held: &[(Arc<Life>, Option<Vec<HeldLock>>)]) {
        let gone = std::mem::take(&mut self.gone);
        for (life, held) in held {
            for hold in held.iter().flatten() {
                let is_gone = |(of, owner): &(Arc<Life>, String)| {
                    Arc::ptr_eq(of, life) && owner.as_str() == hold.owner.as_str()
                };
                if gone.iter().any(is_gone) {
                    let who = world.name_of(hold.owner.as_str());
                    let what = format!("{}: the task of {who} has gone, and its hold goes on", hold.lock);
                    world.found(Promise::Ghost, what);
                }
                self.entry(life, hold.lock.as_str(), hold.owner.as_str(), hold.token);
            }
        }
        let Holds { holds, listeners, collecting, .. } = self;
        for ((lock, token), seen) in holds {
            if seen.end.is_some() {
                continue;
            }
            let held = held.iter().find(|(life, _)| Arc::ptr_eq(life, &seen.life));
            let Some((life, Some(held))) = held else {
                seen.end = Some(End::ClientGone);
                continue;
            };
            if held.iter().any(|hold| hold.lock.as_str() == lock && hold.token == *token) {
                continue;
            }
            if is_being_shut_down(life) {
                continue; // its callbacks run when the server has been told
            }
            let who = world.name_of(&seen.owner);
            // A call for several locks may have given the hold back, and waits for the server's answer as long as that call may.
            let is_one = |one: &Collecting| {
                let is_its = one.owner.as_ref().is_none_or(|owner| *owner == seen.owner);
                is_its && Arc::ptr_eq(&one.life, life) && one.locks.contains(lock)
            };
            if seen.guards <= 0 && collecting.iter().any(is_one) {
                continue;
            }
            // With a real clock its actor may have given it back, and say so in a moment.
            let comes_soon = world.manual().is_none();
            if !is_told(life, lock, *token, if comes_soon { Duration::ZERO } else { PATIENCE }) {
                let now = world.now();
                if comes_soon && now < *seen.gone.get_or_insert(now) + busy(world) {
                    continue;
                }
                let what =
                    format!("{lock}: the hold of {who}, token {token}, is over, and no callback told it");
                world.found(Promise::Told, what);
            }
            seen.end = Some(End::Lost);
            if seen.guards > 0 && !seen.ends_by_itself {
                judge::lost(world, life, lock, *token);
            }
            let key = (lock.clone(), *token);
            for (keys, channel) in listeners.extract_if(.., |(keys, _)| keys.contains(&key)) {
                match channel.recv_timeout(PATIENCE) {
                    Ok(lost) if keys.contains(&(lost.lock.as_str().to_owned(), lost.token)) => {}
                    Ok(lost) => world.found(Promise::Told, format!("{lock}: channel of {token} says {lost}")),
                    Err(_) => {
                        let what =
                            format!("{lock}: the channel of {who}, token {token}, does not tell of its loss");
                        world.found(Promise::Told, what);
                    }
                }
            }
        }
        self.forget(held);
        for (life, lost) in std::mem::take(&mut self.reported) {
            if is_being_shut_down(&life) {
                self.reported.push((life, lost));
                continue;
            }
            if !is_told(&life, lost.lock.as_str(), lost.token, PATIENCE) {
                let what = format!("a call said {lost}, and no callback told it");
                world.found(Promise::Told, what);
            }
        }
    }

    /// All actors have ended: the client holds nothing but what was leaked.
    pub fn check_ended(&self, world: &World, life: &Life) {
        for hold in life.look(|client| client.held()).into_iter().flatten() {
            let seen = self.holds.get(&(hold.lock.as_str().to_owned(), hold.token));
            if seen.is_none_or(|seen| seen.guards <= 0) {
                let what = format!("{life} holds {} by {}, and no actor has it", hold.lock, hold.token);
                world.found(Promise::Ghost, what);
            }
        }
    }

    /// Leaves out what is over. A hold that is about to be given back is still held: with a real clock, and while a guard of
    /// several locks gives back a later one.
    fn forget(&mut self, held: &[(Arc<Life>, Option<Vec<HeldLock>>)]) {
        let held: Vec<_> = held.iter().filter_map(|(_, held)| held.as_ref()).flatten().collect();
        let is_held =
            |(lock, token): &Key| held.iter().any(|hold| hold.lock.as_str() == lock && hold.token == *token);
        self.holds.retain(|key, seen| seen.end.is_none() || seen.guards > 0 || is_held(key));
        self.listeners.retain(|(keys, _)| keys.iter().any(|key| self.holds.contains_key(key)));
    }
}

fn is_being_shut_down(life: &Life) -> bool {
    locked(&life.fate).shutdown.as_ref().is_some_and(|shutdown| shutdown.ended.is_none())
}

/// No loss is told twice, and the statistics count what the callbacks told.
pub fn check_told(world: &World, life: &Life) {
    let is_complete = || {
        let counted = life.look(|client| client.stats().lost)?;
        let told = locked(&life.fate).losses.len() as u64;
        (counted == told).then_some(())
    };
    if life.look(|_| ()).is_some() && look_until(PATIENCE, is_complete).is_none() {
        let counted = life.look(|client| client.stats().lost).unwrap_or_default();
        let told = locked(&life.fate).losses.len();
        world.found(Promise::Told, format!("{life}: {told} losses were told and {counted} counted"));
    }
    let losses = locked(&life.fate).losses.clone();
    let mut keys: Vec<_> = losses.iter().map(|told| (told.lost.lock.as_str(), told.lost.token)).collect();
    keys.sort_unstable();
    if let Some(twice) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
        world.found(
            Promise::Told,
            format!("{life}: the loss of {} {} was told twice", twice[0].0, twice[0].1),
        );
    }
}

/// Whether a callback told of it; the thread that runs them may need a moment.
fn is_told(life: &Life, lock: &str, token: FencingToken, patience: Duration) -> bool {
    let is_it = |lost: &Lost| lost.token == token && lost.lock.as_str() == lock;
    look_until(patience, || locked(&life.fate).losses.iter().any(|told| is_it(&told.lost)).then_some(()))
        .is_some()
}

/// What the driver and an actor see of one hold with a real clock, in an order that a busy machine makes likely.
#[cfg(test)]
mod tests {
    use fairlock::{Client, Guard, MemoryBackend};

    use super::*;
    use crate::generate::generate;
    use crate::world::Place;

    struct Scene {
        world: Arc<World>,
        life: Arc<Life>,
        holds: Holds,
        guard: Guard,
        held: Vec<HeldLock>,
    }

    impl Scene {
        fn new() -> Scene {
            let program = generate(1);
            let world = World::new(&program, Place::Server { ways: Vec::new() });
            let life = Life::new(0, 0, program.clients[0]);
            let client = Client::new(MemoryBackend::new()).unwrap();
            let guard = client.fair_lock("L0").unwrap().lock().unwrap();
            Scene { world, life: Arc::new(life), holds: Holds::default(), guard, held: client.held() }
        }

        fn looks(&mut self, is_held: bool) {
            let held = if is_held { self.held.clone() } else { Vec::new() };
            self.holds.look(&self.world, &[(Arc::clone(&self.life), Some(held))]);
        }

        fn request_ends(&mut self) {
            self.holds.request_ends(&self.life, "L0", self.guard.owner().as_str());
        }
    }

    #[test]
    fn a_hold_that_is_still_there_when_its_request_ends_is_not_lost() {
        let mut scene = Scene::new();
        scene.request_ends();
        scene.looks(true);
        scene.looks(false);
        assert_eq!(scene.holds.holds.len(), 1, "it may have been lost");
        scene.request_ends();
        scene.looks(false);
        assert!(scene.world.findings().is_empty() && scene.holds.holds.is_empty());
    }

    #[test]
    fn a_hold_that_is_still_there_when_it_is_given_back_is_not_lost() {
        let mut scene = Scene::new();
        let (owner, token) = (scene.guard.owner().to_string(), scene.guard.token());
        scene.holds.guard_made(&scene.life, "L0", &owner, token, Terms::Renewed);
        scene.holds.guard_ends("L0", token);
        scene.looks(true);
        scene.looks(true);
        scene.looks(false);
        assert!(scene.world.findings().is_empty() && scene.holds.holds.is_empty());
    }
}
