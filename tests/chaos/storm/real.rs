//! A program on a real server: with short times, and with faults that are done to the server itself.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use fairlock::admin::LockKind;
use fairlock_tests::dice::Dice;
use fairlock_tests::{PostgresServer, RedisServer, look_until};

use crate::files::Files;
use crate::generate::generate;
use crate::keeper::{self, Database, Keeper, Way};
use crate::program::{Actor, Ask, Crowd, End, Hurt, Op, Program, Settings, Terms, Unless, Wait, What};
use crate::rows::Rows;
use crate::server::name_of;
use crate::small::Small;
use crate::weather::{Fault, Harm, Loss};
use crate::world::{Promise, World};

/// A program has this long.
const LENGTH: Duration = Duration::from_secs(12);
/// No fault of the server lasts longer.
const LONGEST: Duration = Duration::from_millis(2500);
/// How many calls each actor makes that takes turns without a pause.
const TURNS: usize = 800;
/// How far away a client may be: half of the 5 ms that a round trip then takes.
const FAR: Duration = Duration::from_micros(2500);
/// The crowd has 500 locks: so many holds, as many shared ones, and as many waits.
const CROWD: usize = 167;
/// What others do to locks does not change the rest of the program.
const FOR_ROWS: u64 = 0x0036;
/// Nothing is held back for longer.
pub const LATEST: Duration = Duration::from_secs(10);
const MS: Duration = Duration::from_millis(1);

/// A server, and which of the faults have begun.
pub struct Real {
    keeper: Keeper,
    killed: Vec<Duration>,
    /// The faults of a world's network that have begun, by number.
    disturbed: HashSet<usize>,
    is_frozen: bool,
    /// The sessions that lock rows, and the processes that are to be killed, by the numbers of their faults.
    locking: HashMap<usize, JoinHandle<()>>,
}

impl Real {
    /// A server for this storm alone; the small one in a world.
    pub fn redis() -> Real {
        if Small::is_here() {
            Small.suffers(&["RESTART", "0", "empty"]); // of a program before this one
            return Real::on(Keeper::Small(Small));
        }
        // Killed, it loses nothing: what it acknowledged was written, and the system keeps it.
        let server = RedisServer::builder().arg("appendonly", "yes").arg("appendfsync", "no");
        Real::on(Keeper::Redis(server.start()))
    }

    /// A new database of this server.
    pub fn postgres(server: &Arc<PostgresServer>) -> Real {
        Real::on(Keeper::Postgres(Database::new(server)))
    }

    /// A new directory.
    pub fn files() -> Real {
        Real::on(Keeper::Files(Files::new()))
    }

    fn on(keeper: Keeper) -> Real {
        Real {
            keeper,
            killed: Vec::new(),
            disturbed: HashSet::new(),
            is_frozen: false,
            locking: HashMap::new(),
        }
    }

    /// One for each client, and those of the crowd.
    pub fn ways(&self, program: &Program) -> Vec<Way> {
        let crowd = program.crowd.iter().flat_map(|crowd| [crowd.distance, Duration::ZERO]);
        let distances = program.clients.iter().map(|client| client.distance).chain(crowd);
        distances.enumerate().map(|(client, distance)| self.keeper.way(client, distance)).collect()
    }

    /// The rows of the locks, if it has such.
    pub fn rows(&self) -> Option<Rows> {
        self.keeper.rows()
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
            self.keeper.kill_connections(self.killed.len());
        }
        for (number, fault) in faults.iter().enumerate().filter(|(_, fault)| fault.at <= now) {
            if matches!(fault.harm, Harm::Sever | Harm::Hush { .. } | Harm::Forget(_))
                && self.disturbed.insert(number)
            {
                world.note(format_args!("the network: {fault:?}"));
                let all = if fault.harm.forgets() { 1 } else { world.program.clients.len() };
                let clients = (0..all).filter(|client| fault.hits(*client));
                clients.for_each(|client| self.keeper.disturb(keeper::number(client), fault));
            }
            let Some(lock) = fault.harm.row() else { continue };
            let Entry::Vacant(locking) = self.locking.entry(number) else { continue };
            let lasts = fault.end().saturating_sub(now);
            if let Some(trouble) = self.keeper.trouble(&name_of(lock), fault, lasts) {
                world.count("locks used by others");
                world.note(format_args!("others lock the row of L{lock}, or take the lock: {fault:?}"));
                locking.insert(trouble);
            }
        }
    }

    /// What ends by itself may take as long as a lease and a place.
    pub fn look_for_residue(&mut self, world: &World) {
        for (_, locking) in self.locking.drain() {
            if locking.join().is_err() {
                world.found(Promise::Answer, "a session or a process of others failed");
            }
        }
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
fn scaled(program: &Program) -> Program {
    let mut program = program.clone();
    let longest = program.ends().max(MS);
    let scale = |time: Duration| time.mul_f64((LENGTH.as_secs_f64() / longest.as_secs_f64()).min(1.0));
    for client in &mut program.clients {
        let short = client.lease < Duration::from_secs(10);
        *client = Settings {
            lease: if short { 1000 * MS } else { 3000 * MS },
            place_ttl: if short { 600 * MS } else { 1500 * MS },
            outage_limit: 3000 * MS,
            distance: Duration::ZERO,
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
            What::With { ask, wait, lasts, dropped } => {
                shorten(ask);
                shorten_wait(wait);
                *lasts = (*lasts).min(3000 * MS);
                *dropped = dropped.map(|after| after.min(3000 * MS));
            }
            What::Lead { ask, lasts, dropped } => {
                shorten(ask);
                *lasts = (*lasts).min(3000 * MS);
                *dropped = dropped.map(|after| after.min(3000 * MS));
            }
            What::TakeAll { wait, dropped, .. } => {
                shorten_wait(wait);
                *dropped = dropped.map(|after| after.min(3000 * MS));
            }
            What::Request(ask) => shorten(ask),
            What::Await { wait, .. } => shorten_wait(wait),
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

/// The same in a world: its network cuts off and silences single clients, and up to 28 actors wait.
fn in_world(seed: u64) -> Program {
    let mut program = generate(seed);
    let dice = &mut Dice::new(seed ^ FOR_ROWS);
    for fault in &mut program.faults {
        fault.harm = match fault.harm {
            Harm::Cut => Harm::Sever,
            Harm::Silence | Harm::LoseRequests(_) => Harm::Hush { new: dice.roll(2) == 0 },
            Harm::Refuse => Harm::Kill,
            harm => harm,
        };
        fault.client = fault.client.filter(|_| fault.harm != Harm::Kill);
    }
    // One connection is held back at the moment of an ask, or the ask alone is.
    let times: Vec<Duration> = program.actors.iter().flat_map(|actor| &actor.ops).map(|op| op.at).collect();
    for _ in 0..dice.pick(&[0, 2, 4]) {
        let (at, client) = (dice.pick(&times), Some(dice.index(program.clients.len())));
        program.faults.push(Fault {
            at,
            lasts: dice.millis(800..=2500),
            client,
            harm: Harm::Hush { new: false },
        });
    }
    for op in program.actors.iter_mut().flat_map(|actor| &mut actor.ops) {
        if matches!(op.what, What::Take { .. } | What::Request(_))
            && program.faults.len() > 2
            && dice.roll(12) == 0
        {
            op.hurt = Some(Hurt::HoldsBack(dice.millis(1050..=6000)));
        }
    }
    for number in 0..dice.pick(&[0, 0, 0, 4, 16]) {
        let Actor { client, ops } = &program.actors[number % program.actors.len()];
        let stays = |op: &&Op| !matches!(op.what, What::Shutdown | What::Drain(_) | What::DropClient);
        let later =
            ops.iter().filter(stays).take(4).map(|op| Op { at: op.at + dice.millis(0..=2000), ..*op });
        let more = Actor { client: (client + 1) % program.clients.len(), ops: later.collect() };
        program.actors.push(more);
    }
    let mut program = scaled(&program);
    if dice.roll(6) == 0 {
        let harm = Harm::Forget(dice.pick(&[Loss::Older, Loss::Empty, Loss::Step]));
        program.faults.push(Fault {
            at: dice.millis(0..=10_000),
            lasts: dice.millis(0..=1500),
            client: None,
            harm,
        });
        program.faults.sort_by_key(|fault| fault.at);
    }
    program
}

/// The same, where in half of the programs the actors also take turns without a pause.
pub fn on_redis(seed: u64) -> Program {
    if Small::is_here() {
        return in_world(seed);
    }
    let mut program = scaled(&generate(seed));
    for actor in program.actors.iter_mut().filter(|_| seed.is_multiple_of(2)) {
        let asks = actor
            .ops
            .iter()
            .filter_map(|op| if let What::Take { ask, .. } = op.what { Some(ask) } else { None });
        let pair = |ask| {
            let take = What::Take { ask, wait: Wait::UpTo(50 * MS), listens: false };
            [take, What::GiveBack { guard: usize::MAX, end: End::Unlock }]
        };
        let pairs: Vec<What> = asks.flat_map(pair).collect();
        let turns = pairs.iter().cycle().take(if pairs.is_empty() { 0 } else { TURNS });
        let turn = |(number, what): (usize, &What)| Op {
            at: LENGTH * (number as u32) / TURNS as u32,
            what: *what,
            hurt: None,
        };
        actor.ops.extend(turns.enumerate().map(turn));
        actor.ops.sort_by_key(|op| op.at);
    }
    program
}

/// The same on files, where other processes take locks and are killed. No network holds a message back: what does not arrive in time
/// never does.
pub fn on_files(seed: u64) -> Program {
    let mut program = on_redis(seed);
    for op in program.actors.iter_mut().flat_map(|actor| &mut actor.ops) {
        if let Some(Hurt::HoldsBack(_)) = op.hurt {
            op.hurt = Some(Hurt::LosesRequest);
        }
    }
    for fault in &mut program.faults {
        if let Harm::HoldBack(percent) = fault.harm {
            fault.harm = Harm::LoseRequests(percent);
        }
    }
    let dice = &mut Dice::new(seed ^ FOR_ROWS);
    for lock in (0..program.locks.len()).filter(|lock| program.locks[*lock] == LockKind::Fair) {
        for _ in 0..dice.pick(&[0, 1, 2, 4]) {
            let (at, lasts, harm) = (dice.millis(0..=10_000), dice.millis(50..=2500), Harm::Block { lock });
            program.faults.push(Fault { at, lasts, client: None, harm });
        }
    }
    program.faults.sort_by_key(|fault| fault.at);
    program
}

/// The same, where others lock rows, and some clients are far away, one of them with hundreds of locks.
pub fn on_postgres(seed: u64) -> Program {
    let mut program = scaled(&generate(seed));
    let dice = &mut Dice::new(seed ^ FOR_ROWS);
    for client in &mut program.clients {
        client.distance = dice.pick(&[Duration::ZERO, Duration::ZERO, FAR]);
    }
    for _ in 0..dice.pick(&[0, 1, 2, 4]) {
        let (lock, at) = (dice.index(program.locks.len()), dice.millis(0..=10_000));
        let fault = |harm, lasts| Fault { at, lasts, client: None, harm };
        program.faults.push(match dice.roll(3) {
            0 => fault(Harm::Block { lock }, dice.millis(200..=2500)),
            _ => {
                let each = dice.millis(100..=2500);
                fault(Harm::Chain { lock, each }, (each * dice.pick(&[1, 2, 4, 8])).min(LENGTH))
            }
        });
    }
    if program.faults.iter().any(|fault| fault.harm.row().is_some()) {
        // One call renews all that a client has, and waits for a row that is locked.
        for client in &mut program.clients {
            client.lease = client.lease.max(3 * program.response);
            client.place_ttl = client.place_ttl.max(3 * program.response);
        }
    }
    program.faults.sort_by_key(|fault| fault.at);
    program.crowd = (dice.roll(3) == 0).then_some(Crowd { each: CROWD, distance: FAR });
    program
}

fn shorten(ask: &mut Ask) {
    // Order holds within one kind, and none is promised between them: see the guide.
    if !ask.kind.is_shared() {
        ask.kind = if ask.lock % 2 == 1 { LockKind::Plain } else { LockKind::Fair };
    }
    if ask.kind == LockKind::Plain && matches!(ask.unless, Some(Unless::MostWaiting(_))) {
        ask.unless = None; // a plain lock has no queue
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
