//! A program on a real server: with short times, and with faults that are done to the server itself.

use std::time::Duration;

use fairlock::LockKind;
use fairlock_tests::{Proxy, RedisServer, keys_without_ttl, look_until};

use crate::program::{Ask, End, Hurt, Program, Settings, Terms, Wait, What};
use crate::weather::{Fault, Harm};
use crate::world::{Promise, World, locked};

/// A program has this long.
const LENGTH: Duration = Duration::from_secs(12);
/// No fault of the server lasts longer.
const LONGEST: Duration = Duration::from_millis(2500);
/// Nothing is held back for longer.
pub const LATEST: Duration = Duration::from_secs(10);
const MS: Duration = Duration::from_millis(1);

/// A server, and which of the faults have begun.
pub struct Real {
    server: RedisServer,
    killed: Vec<Duration>,
    is_frozen: bool,
}

impl Real {
    pub fn start() -> Real {
        Real { server: RedisServer::start(), killed: Vec::new(), is_frozen: false }
    }

    /// One for each client.
    pub fn proxies(&self, clients: usize) -> Vec<Proxy> {
        (0..clients).map(|_| Proxy::start(self.server.port())).collect()
    }

    /// What begins or ends now.
    pub fn change(&mut self, world: &World, now: Duration) {
        let faults = world.weather.faults();
        let is_on = faults.iter().any(|fault| fault.harm == Harm::Freeze && fault.is_on(now));
        if is_on != self.is_frozen {
            world.note(if is_on { "the server stands still" } else { "the server goes on" });
            if is_on {
                self.server.stop()
            } else {
                self.server.cont()
            }
            self.is_frozen = is_on;
        }
        for fault in faults.iter().filter(|fault| fault.harm == Harm::Kill && fault.at <= now) {
            if self.is_frozen || self.killed.contains(&fault.at) {
                continue;
            }
            self.killed.push(fault.at);
            world.note("all connections are killed");
            for kind in ["normal", "pubsub"] {
                let _: i64 = self.server.query(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
            }
        }
    }

    /// What ends by itself may take as long as a lease and a place.
    pub fn look_for_residue(&self, world: &World) {
        if look_until(2 * LATEST, || (world.bytes_held_back() == 0).then_some(())).is_none() {
            world.found(Promise::Bound, "a command that was held back does not arrive");
        }
        let bound = world.program.longest_lease() + world.program.longest_ttl() + LENGTH;
        let may_be_left =
            |key: &String| key.starts_with("fairlock_record") || self.has_only_orphans(world, key);
        let is_empty = || {
            let keys: Vec<String> = self.server.query(&["KEYS", "*"]);
            keys.iter().all(may_be_left).then_some(())
        };
        if look_until(bound, is_empty).is_none() {
            let keys: Vec<String> = self.server.query(&["KEYS", "*"]);
            world.found(Promise::Residue, format!("keys are left: {}", keys.join(", ")));
        }
        let forever = keys_without_ttl(&self.server);
        if !forever.is_empty() {
            world.found(Promise::Residue, format!("keys without a time to live: {}", forever.join(", ")));
        }
    }

    /// Whether it is a line of places that messages made which arrived after the end of their clients: nobody is left to withdraw them.
    fn has_only_orphans(&self, world: &World, key: &str) -> bool {
        let is_orphan = |member: &String| {
            let owner = member.rsplit_once(':').map_or("", |(owner, _)| owner);
            world.life_of(owner).is_some_and(|life| locked(&life.fate).sends_late)
        };
        let members = || self.server.query::<Vec<String>>(&["ZRANGE", key, "0", "-1"]);
        key.starts_with("fairlock_line:") && members().iter().all(is_orphan)
    }
}

/// The same program in seconds, with settings that fit; faults that only a store in memory can have become those of a
/// server.
pub fn scaled(program: &Program) -> Program {
    let mut program = program.clone();
    let longest = program.ends().max(MS);
    let scale = |time: Duration| time.mul_f64((LENGTH.as_secs_f64() / longest.as_secs_f64()).min(1.0));
    for client in &mut program.clients {
        let short = client.lease < Duration::from_secs(10);
        *client = Settings {
            lease: if short { 1000 * MS } else { 3000 * MS },
            place_ttl: if short { 600 * MS } else { 1500 * MS },
            outage_limit: 3000 * MS,
        };
    }
    for op in program.actors.iter_mut().flat_map(|actor| &mut actor.ops) {
        op.at = scale(op.at);
        if let Some(Hurt::HoldsBack(by)) = &mut op.hurt {
            *by = (*by).clamp(1050 * MS, LATEST);
        }
        match &mut op.what {
            What::Take { ask, wait, .. } => {
                shorten(ask);
                shorten_wait(wait);
            }
            What::With { ask, wait, lasts } => {
                shorten(ask);
                shorten_wait(wait);
                *lasts = (*lasts).min(3000 * MS);
            }
            What::TakeAll { wait, .. } => shorten_wait(wait),
            What::Request { ask } => shorten(ask),
            What::Await { wait, .. } => shorten_wait(wait),
            What::GiveBack { end: End::Keep(at_least), .. } => *at_least = (*at_least).min(3000 * MS),
            _ => {}
        }
    }
    for fault in &mut program.faults {
        fault.at = scale(fault.at);
        fault.lasts = fault.lasts.min(LONGEST);
        let everybody = |harm| (harm, None);
        (fault.harm, fault.client) = match fault.harm {
            Harm::Cut => everybody(Harm::Kill),
            Harm::Silence | Harm::Jump => everybody(Harm::Freeze),
            harm => (harm, fault.client),
        };
    }
    program.faults.sort_by_key(|fault: &Fault| fault.at);
    program.response = 1000 * MS;
    program
}

fn shorten(ask: &mut Ask) {
    // Order holds within one kind, and none is promised between them: see the guide.
    if !ask.kind.is_shared() {
        ask.kind = if ask.lock % 2 == 1 { LockKind::Plain } else { LockKind::Fair };
    }
    ask.terms = match ask.terms {
        Terms::Renewed => Terms::Renewed,
        Terms::Fixed(lease) => Terms::Fixed(lease.clamp(300 * MS, 3000 * MS)),
        Terms::Capped(limit) => Terms::Capped(limit.clamp(300 * MS, 5000 * MS)),
    };
}

fn shorten_wait(wait: &mut Wait) {
    if let Wait::UpTo(time) = wait {
        *time = (*time).min(3000 * MS);
    }
}
