//! A program on a real server: with short times, and with faults that are done to the server itself.

use std::sync::Arc;
use std::time::Duration;

use fairlock::LockKind;
use fairlock_tests::{PostgresServer, RedisServer, look_until};

use crate::keeper::{Database, Keeper, Way};
use crate::program::{Ask, End, Hurt, Program, Settings, Terms, Wait, What};
use crate::weather::{Fault, Harm};
use crate::world::{Promise, World};

/// A program has this long.
const LENGTH: Duration = Duration::from_secs(12);
/// No fault of the server lasts longer.
const LONGEST: Duration = Duration::from_millis(2500);
/// Nothing is held back for longer.
pub const LATEST: Duration = Duration::from_secs(10);
const MS: Duration = Duration::from_millis(1);

/// A server, and which of the faults have begun.
pub struct Real {
    keeper: Keeper,
    killed: Vec<Duration>,
    is_frozen: bool,
}

impl Real {
    /// A server for this storm alone.
    pub fn redis() -> Real {
        Real::on(Keeper::Redis(RedisServer::start()))
    }

    /// A new database of this server.
    pub fn postgres(server: &Arc<PostgresServer>) -> Real {
        Real::on(Keeper::Postgres(Database::new(server)))
    }

    fn on(keeper: Keeper) -> Real {
        Real { keeper, killed: Vec::new(), is_frozen: false }
    }

    /// One for each client.
    pub fn ways(&self, clients: usize) -> Vec<Way> {
        (0..clients).map(|_| self.keeper.way()).collect()
    }

    /// What begins or ends now.
    pub fn change(&mut self, world: &World, now: Duration) {
        let faults = world.weather.faults();
        let is_on = faults.iter().any(|fault| fault.harm == Harm::Freeze && fault.is_on(now));
        if is_on != self.is_frozen {
            world.note(if is_on { "the server stands still" } else { "the server goes on" });
            if is_on {
                self.keeper.stop()
            } else {
                self.keeper.cont()
            }
            self.is_frozen = is_on;
        }
        for fault in faults.iter().filter(|fault| fault.harm == Harm::Kill && fault.at <= now) {
            if self.is_frozen || self.killed.contains(&fault.at) {
                continue;
            }
            self.killed.push(fault.at);
            world.note("all connections are killed");
            self.keeper.kill_connections();
        }
    }

    /// What ends by itself may take as long as a lease and a place.
    pub fn look_for_residue(&self, world: &World) {
        if look_until(2 * LATEST, || (world.bytes_held_back() == 0).then_some(())).is_none() {
            world.found(Promise::Bound, "a command that was held back does not arrive");
        }
        let bound = world.program.longest_lease() + world.program.longest_ttl() + LENGTH;
        if look_until(bound, || self.keeper.left(world).is_empty().then_some(())).is_none() {
            let left = self.keeper.left(world).join("; ");
            world.found(Promise::Residue, format!("left at the server: {left}"));
        }
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
            What::Request(ask) => shorten(ask),
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
