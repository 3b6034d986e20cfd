//! One run of a program: moves the clock from one moment to the next, lets faults begin and end, and has the oracle look.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use fairlock::testing::ManualClock;
use fairlock_tests::{look_until, our_threads};

use crate::actor::Actor;
use crate::crowd;
use crate::holds::check_told;
use crate::in_hand::{ClientEnd, end_client};
use crate::logs;
use crate::look::Oracle;
use crate::noise::Noise;
use crate::post::{connect, deliver};
use crate::program::{End, Program, What};
use crate::real::Real;
use crate::small::Small;
use crate::weather::Harm;
use crate::world::{Finding, Place, Promise, World, locked};

/// After the last call has been due and the last fault is over, all actors end within this.
const DRAIN: Duration = Duration::from_secs(1800);
/// The end of all clients.
const CLOSING: Duration = Duration::from_secs(60);
/// The same with a real clock.
const REAL_DRAIN: Duration = Duration::from_secs(100);
/// How often it is looked at with a real clock.
const LOOK: Duration = Duration::from_millis(2);
/// In a world, where each look costs as much as ten milliseconds of the rest.
const LOOK_IN_WORLD: Duration = Duration::from_millis(50);
const MINUTE: Duration = Duration::from_secs(60);

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub findings: Vec<Finding>,
    pub journal: Vec<String>,
    pub simulated: Duration,
    pub counts: BTreeMap<String, u64>,
}

struct Driver {
    world: Arc<World>,
    oracle: Oracle,
    jumps: Vec<(Duration, Duration)>,
    /// The real server, and what is done to it.
    real: Option<Real>,
    /// How long the actors may take after all was due.
    drain: Duration,
    noise: Noise,
    moments: u64,
    /// Threads are left where they are.
    stuck: bool,
    threads_before: usize,
}

/// In memory.
pub fn run(program: &Program) -> Outcome {
    drive(program, World::memory(), None, DRAIN)
}

/// On a real server, with what can be done to it.
pub fn run_on(program: &Program, real: Real) -> Outcome {
    let ways = real.ways(program);
    drive(program, Place::Server { ways }, Some(real), REAL_DRAIN)
}

fn drive(program: &Program, place: Place, real: Option<Real>, drain: Duration) -> Outcome {
    logs::drain();
    let threads_before = our_threads().len(); // of a run that could not end
    let world = World::new(program, place);
    for client in 0..program.clients.len() {
        world.restart(client);
    }
    let jumps = world.weather.faults().iter().filter(|fault| fault.harm == Harm::Jump);
    let mut jumps: Vec<_> = jumps.map(|fault| (fault.at, fault.lasts)).collect();
    jumps.sort_unstable();
    let mut driver = Driver {
        world: Arc::clone(&world),
        oracle: Oracle::default(),
        jumps,
        real,
        drain,
        noise: Noise::default(),
        moments: 0,
        stuck: false,
        threads_before,
    };
    let done = Arc::new(AtomicUsize::new(0));
    let actors = (0..program.actors.len()).map(|number| {
        let world = Arc::clone(&world);
        attended(&world.clone(), &done, move || Actor::new(world, number).run())
    });
    let mut actors: Vec<_> = actors.collect();
    let rows = driver.real.as_ref().and_then(Real::rows);
    if let (Some(crowd), Some(rows)) = (program.crowd, rows) {
        let world = Arc::clone(&world);
        actors.push(attended(&world.clone(), &done, move || crowd::stand(&world, crowd.each, &rows)));
    }
    let ended = driver.drive(program.ends() + driver.drain, || done.load(Ordering::SeqCst) == actors.len());
    if !ended {
        world.found(Promise::Liveness, "actors are stuck");
    }
    // The end is to be seen in fair weather.
    let fair = program.ends() + program.response + Duration::from_secs(5);
    if !driver.stuck && driver.world.now() < fair {
        driver.drive(fair, || false);
    }
    if !driver.stuck {
        driver.close();
    }
    for actor in actors {
        if ended && actor.join().is_err() {
            world.found(Promise::Answer, "an actor panicked");
        }
    }
    driver.outcome()
}

/// A thread that the clock waits for from now on, and that is counted when it has done what it is to do.
fn attended(
    world: &World,
    done: &Arc<AtomicUsize>,
    act: impl FnOnce() + Send + 'static,
) -> thread::JoinHandle<()> {
    /// Also when it panics.
    struct Done(Arc<AtomicUsize>);
    impl Drop for Done {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (say, said) = channel();
    let (clock, done) = (world.manual().cloned(), Done(Arc::clone(done)));
    let thread = thread::spawn(move || {
        let _here = clock.as_ref().map(ManualClock::attend_here);
        let _done = done; // dropped first: a thread that sees the clock move sees it counted
        let _ = say.send(());
        act();
    });
    let _ = said.recv();
    thread
}

impl Driver {
    /// Goes on until `is_done` or the limit; says whether it was done.
    fn drive(&mut self, limit: Duration, is_done: impl Fn() -> bool) -> bool {
        let world = Arc::clone(&self.world);
        let mut limit = limit;
        let mut is_over = false;
        loop {
            if self.is_stuck() {
                return false;
            }
            self.change();
            self.step(Duration::ZERO); // all sleep
            if self.is_stuck() {
                return false;
            }
            self.oracle.look(&world);
            self.moments += 1;
            if is_done() {
                return true;
            }
            let now = world.now();
            if world.is_over() && !std::mem::replace(&mut is_over, true) {
                limit = limit.min(now + CLOSING);
            }
            if is_over {
                self.let_go();
            }
            if now >= limit {
                return false;
            }
            let jump = self.jumps.first().map(|(at, _)| *at);
            let mail = world.lives().iter().filter_map(|life| Some(locked(&life.fate).mail.front()?.0)).min();
            let late = world.next_late();
            let minute = Some(self.noise.since + MINUTE);
            let next = [world.weather.next_change(now), jump, mail, late, minute, Some(limit)];
            let next = next.into_iter().flatten().filter(|at| *at > now).min().unwrap_or(limit);
            self.step(next - now);
        }
    }

    /// To the next moment at which something happens, but no further; with a real clock a few milliseconds.
    fn step(&self, at_most: Duration) {
        match self.world.manual() {
            Some(clock) => {
                clock.step(at_most);
            }
            None => {
                thread::sleep(at_most.min(if Small::is_here() { LOOK_IN_WORLD } else { LOOK }));
                self.world.beat();
            }
        }
    }

    /// Whether the clock gave up on a thread: it does not sleep on the clock, and ten seconds have passed.
    fn is_stuck(&mut self) -> bool {
        if !self.stuck && logs::clock_gave_up() {
            self.world.found(Promise::Bound, "a thread waits for something that is not the clock");
            self.stuck = true;
        }
        self.stuck
    }

    /// What begins or ends at this moment.
    fn change(&mut self) {
        let world = Arc::clone(&self.world);
        let mut now = world.now();
        while let Some((_, by)) = self.jumps.first().copied().filter(|(at, _)| *at <= now) {
            self.jumps.remove(0);
            world.note(format_args!("the clock jumps by {by:?}"));
            if let Some(clock) = world.manual() {
                clock.jump(by);
            }
            now = world.now();
        }
        if let Some(real) = &mut self.real {
            real.change(&world, now);
        }
        world.deliver_late();
        for life in world.lives() {
            connect(&world, &life, now);
            deliver(&world, &life, now);
        }
        if now >= self.noise.since + MINUTE {
            self.noise.minute_is_over(&world, now);
        }
    }

    /// Something was found: all actors come to an end soon.
    fn let_go(&self) {
        for cancel in &self.world.cancels {
            locked(cancel).0.cancel();
        }
    }

    /// Ends all clients, one half by `shutdown`, the other by dropping them, and looks for leftovers.
    fn close(&mut self) {
        let world = Arc::clone(&self.world);
        for life in world.lives() {
            check_told(&world, &life);
            locked(&world.holds).check_ended(&world, &life);
        }
        self.check_polling();
        let before = world.now();
        let clients = world.program.clients.len();
        let first = world.program.actors.len();
        let done = Arc::new(AtomicUsize::new(0));
        let closers: Vec<_> = (0..clients)
            .map(|client| {
                let world = Arc::clone(&world);
                attended(&world.clone(), &done, move || {
                    if let Some(using) = world.client(client).filter(|_| client % 2 == 0) {
                        end_client(&world, &using, first + client, ClientEnd::Shutdown);
                    }
                    world.drop_client(client);
                })
            })
            .collect();
        let closed = self.drive(before + CLOSING, || done.load(Ordering::SeqCst) == closers.len());
        if !closed {
            return world.found(Promise::Bound, "clients do not end");
        }
        if let Some(real) = &mut self.real {
            real.look_for_residue(&world);
        }
        // What was held back may begin something until then.
        let late = world.next_late().map_or(Duration::ZERO, |_| world.weather.attempt_ttl());
        let rest = late + world.program.longest_lease() + world.program.longest_ttl();
        if world.manual().is_some() {
            self.drive(world.now() + rest, || false);
        }
        self.noise.minute_is_over(&world, world.now());
        for lock in locked(&world.server).locks() {
            for hold in &lock.holders {
                let who = world.name_of(&hold.owner);
                let what = format!("{} is still held by {who}, token {}", lock.name, hold.token);
                world.found(Promise::Residue, what);
            }
        }
        world.put_the_bell_away();
        let are_gone = || (our_threads().len() <= self.threads_before).then_some(());
        if look_until(Duration::from_secs(20), are_gone).is_none() {
            world.found(Promise::Residue, format!("threads are left: {}", our_threads().join(", ")));
        }
    }

    /// Without a fault or a lost hold, each grant came at once or by a wake-up.
    fn check_polling(&self) {
        let world = &self.world;
        let lives = world.lives();
        let lost = lives.iter().any(|life| !locked(&life.fate).losses.is_empty() || life.is_dropped());
        let mut ops = world.program.actors.iter().flat_map(|actor| &actor.ops);
        // Who waits behind a hold that nobody adopted finds out at the end of its lease.
        let lost = lost || ops.any(|op| matches!(op.what, What::GiveBack { end: End::HandOver, .. }));
        if lost || !world.program.faults.is_empty() || world.is_over() || world.was_late(Duration::ZERO) {
            return;
        }
        for life in lives {
            let polled = life.look(|client| client.stats().granted_by_polling);
            if let Some(polled) = polled.filter(|polled| *polled > 0) {
                world.found(
                    Promise::Polling,
                    format!("{life} was granted {polled} by polling, and nothing was wrong"),
                );
            }
        }
    }

    fn outcome(self) -> Outcome {
        let world = self.world;
        let losses = world.lives().iter().map(|life| locked(&life.fate).losses.len() as u64).sum();
        let mut counts = world.counts();
        let grants = locked(&world.server).grants();
        counts.extend(
            [("grants", grants), ("losses", losses), ("moments", self.moments)]
                .map(|(what, count)| (what.to_owned(), count)),
        );
        Outcome { findings: world.findings(), journal: world.journal(), simulated: world.now(), counts }
    }
}
