//! Whose turn it is, what time it is, and chance. One thread of the process runs at a time: it has the baton, and only the holder of the
//! baton reads or changes the world. So the world needs no mutex.
//!
//! A thread is *ready*, *runs*, *waits* for something or until a time, or is *dead*. The running thread moves itself out of `Runs`, and
//! moves others from `Waits` to `Ready`; `choose` moves one from `Ready` to `Runs`. Time passes with each call, and jumps to
//! the next deadline when no thread is ready.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use crate::net::Net;
use crate::real::system;

pub const SEC: u64 = 1_000_000_000;
/// What the clocks say when the world begins.
pub const UPTIME: u64 = 1_000 * SEC;
pub const WALL: u64 = 1_700_000_000 * SEC;
/// A world that lasts so long hangs.
const LAST: u64 = 200_000 * SEC;
/// What a switch costs.
const SWITCH: u64 = 500;
const NOBODY: usize = usize::MAX;

static ON: AtomicBool = AtomicBool::new(false);
/// A thread is in `with`: what it calls there reaches the system.
static INSIDE: AtomicBool = AtomicBool::new(false);
static WORLD: AtomicPtr<World> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    static ME: Cell<usize> = const { Cell::new(NOBODY) };
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum State {
    Ready,
    Runs,
    /// For a wake-up of the futex at this address.
    Futex(usize),
    /// For something on this connection.
    Socket(usize),
    /// For the end of the thread with this name.
    End(u64),
    /// For a time.
    Sleeps,
    Dead,
}

struct Thread {
    /// 1 when it is handed the baton.
    park: &'static AtomicU32,
    /// What the program calls it: never used twice.
    name: u64,
    /// What libc calls it.
    real: u64,
    state: State,
    deadline: Option<u64>,
    /// Its last wait ended by the deadline.
    is_late: bool,
}

#[derive(Default)]
pub struct World {
    seed: u64,
    threads: Vec<Thread>,
    names: u64,
    ready: Vec<usize>,
    /// Since the world began, in ns.
    pub now: u64,
    dice: u64,
    /// What the program is given as chance. It does not depend on the dice: a program that asks for more has the same switches.
    chance: u64,
    /// How many of 65,536 calls are followed by a switch.
    restless: u64,
    /// A thread that is dead and has not left libc yet.
    leaving: Option<u64>,
    switches: u64,
    trace: u64,
    pub net: Net,
}

/// The next number of a sequence (xorshift64*).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
}

/// The world begins, on its only thread.
pub fn begin(seed: u64) {
    let mut dice = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..8).for_each(|_| _ = next(&mut dice));
    let restless = [0, 300, 3_000, 12_000][next(&mut dice) as usize % 4];
    let (chance, net) = (dice ^ 0xdead_beef_1234_5678, Net::new(next(&mut dice)));
    let mut world = World { seed, dice, chance, restless, net, ..World::default() };
    world.add(State::Runs);
    WORLD.store(Box::into_raw(Box::new(world)), Ordering::SeqCst);
    ME.set(0);
    ON.store(true, Ordering::SeqCst);
}

/// The calling thread, if it takes part.
pub fn me() -> Option<usize> {
    let takes_part = ON.load(Ordering::Relaxed) && !INSIDE.load(Ordering::Relaxed) && ME.get() != NOBODY;
    takes_part.then(|| ME.get())
}

/// What the calling thread is called here from now on.
pub fn is(id: Option<usize>) {
    ME.set(id.unwrap_or(NOBODY));
}

/// The world, for the thread that has the baton.
pub fn with<T>(act: impl FnOnce(&mut World) -> T) -> T {
    INSIDE.store(true, Ordering::Relaxed);
    // SAFETY: the world is never freed. Only the holder of the baton comes here, and keeps the baton meanwhile. What `act` calls of
    // this library passes the world by, since `me` knows nobody then. So there is no other reference.
    let result = act(unsafe { &mut *WORLD.load(Ordering::SeqCst) });
    INSIDE.store(false, Ordering::Relaxed);
    result
}

/// Hands the baton to a thread that is ready, and has it again when this returns: whether the deadline has passed.
fn switch(me: usize) -> bool {
    let (mine, other) = with(|world| {
        let next = world.choose();
        (world.threads[me].park, (next != me).then(|| world.threads[next].park))
    });
    if let Some(other) = other {
        hand_over(other);
        take_over(mine);
    }
    with(|world| world.threads[me].is_late)
}

fn hand_over(to: &AtomicU32) {
    to.store(1, Ordering::SeqCst);
    let wake = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as usize;
    system(libc::SYS_futex, &[to.as_ptr() as usize, wake, 1]);
}

/// Waits for the baton. A thread that died before this turn has left libc when this returns: else its stack and its part of the heap would
/// be given back while this one runs, and addresses would not follow the seed.
pub fn take_over(park: &AtomicU32) {
    let wait = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as usize;
    while park.load(Ordering::SeqCst) == 0 {
        system(libc::SYS_futex, &[park.as_ptr() as usize, wait]);
    }
    park.store(0, Ordering::SeqCst);
    if let Some(thread) = with(|world| world.leaving.take()) {
        crate::threads::join(thread);
    }
}

/// The thread waits: whether it ended by the deadline.
pub fn wait(me: usize, state: State, deadline: Option<u64>) -> bool {
    with(|world| (world.threads[me].state, world.threads[me].deadline) = (state, deadline));
    switch(me)
}

/// Another thread may go on.
pub fn give_way(me: usize) {
    with(|world| world.make_ready(me, false));
    switch(me);
}

/// A call of this length was made; chance may give way to another thread.
pub fn passes(me: usize, time: u64) {
    let gives_way = with(|world| {
        world.now += time;
        world.restless > 0 && world.roll(65_536) < world.restless
    });
    if gives_way {
        give_way(me);
    }
}

pub fn sleep_until(me: usize, at: u64) {
    while with(|world| world.now) < at {
        wait(me, State::Sleeps, Some(at));
    }
}

/// The thread is over, and comes back no more.
pub fn dies(me: usize) {
    let next = with(|world| {
        let thread = &mut world.threads[me];
        (thread.state, thread.deadline) = (State::Dead, None);
        world.leaving = Some(thread.real);
        let name = thread.name;
        world.wake(State::End(name), usize::MAX);
        let next = world.choose();
        world.threads[next].park
    });
    hand_over(next);
}

impl World {
    pub fn roll(&mut self, sides: u64) -> u64 {
        next(&mut self.dice) % sides.max(1)
    }

    /// The number of the process: another one in each world, as long as all.
    pub fn process(&self) -> i32 {
        1_000_000 + (self.seed % 1_000_000) as i32
    }

    pub fn chance(&mut self) -> u8 {
        next(&mut self.chance) as u8
    }

    /// Adds a thread; its number is used again when it is dead.
    pub fn add(&mut self, state: State) -> (usize, &'static AtomicU32) {
        self.names += 1;
        let dead = self.threads.iter().position(|thread| thread.state == State::Dead);
        let park = dead.map_or_else(|| &*Box::leak(Box::new(AtomicU32::new(0))), |id| self.threads[id].park);
        let new = Thread { park, name: self.names, real: 0, state, deadline: None, is_late: false };
        let id = dead.unwrap_or(self.threads.len());
        match dead {
            Some(id) => self.threads[id] = new,
            None => self.threads.push(new),
        }
        if state == State::Ready {
            self.ready.push(id);
        }
        (id, park)
    }

    /// Libc's name of a new thread: the program's.
    pub fn is_called(&mut self, id: usize, real: u64) -> u64 {
        self.threads[id].real = real;
        self.threads[id].name
    }

    pub fn lives(&self, name: u64) -> bool {
        self.threads.iter().any(|thread| thread.name == name && thread.state != State::Dead)
    }

    fn make_ready(&mut self, id: usize, is_late: bool) {
        let thread = &mut self.threads[id];
        (thread.state, thread.deadline, thread.is_late) = (State::Ready, None, is_late);
        self.ready.push(id);
    }

    /// Up to so many that wait in this state are ready, by chance: how many.
    pub fn wake(&mut self, state: State, at_most: usize) -> usize {
        let waiting = self.threads.iter().enumerate().filter(|(_, thread)| thread.state == state);
        let mut waiting: Vec<usize> = waiting.map(|(id, _)| id).collect();
        let mut woken = 0;
        while woken < at_most && !waiting.is_empty() {
            let one = self.roll(waiting.len() as u64) as usize;
            self.make_ready(waiting.swap_remove(one), false);
            woken += 1;
        }
        woken
    }

    /// The next thread, which runs from now on.
    fn choose(&mut self) -> usize {
        self.switches += 1;
        self.now += SWITCH;
        self.wake_the_due();
        while self.ready.is_empty() {
            let deadlines = self.threads.iter().filter_map(|thread| thread.deadline);
            match deadlines.chain(self.net.next()).min() {
                Some(at) if at <= LAST => self.now = self.now.max(at),
                Some(_) => self.stuck("the world does not end"),
                None => self.stuck("no thread can ever run again"),
            }
            self.wake_the_due();
        }
        let one = self.roll(self.ready.len() as u64) as usize;
        let next = self.ready.swap_remove(one);
        self.threads[next].state = State::Runs;
        let step = self.threads[next].name ^ (self.now << 8);
        self.trace = (self.trace ^ step).wrapping_mul(0x100_0000_01b3).rotate_left(5);
        next
    }

    fn wake_the_due(&mut self) {
        self.deliver();
        for id in 0..self.threads.len() {
            if self.threads[id].deadline.is_some_and(|deadline| deadline <= self.now) {
                self.make_ready(id, true);
            }
        }
    }

    fn stuck(&self, why: &str) -> ! {
        eprintln!("{}; STUCK: {why}", self.report());
        let waiting = self.threads.iter().filter(|thread| thread.state != State::Dead);
        waiting.for_each(|thread| eprintln!("  {}: {:?} {:?}", thread.name, thread.state, thread.deadline));
        // SAFETY: ends the process without running anything more of it.
        unsafe { libc::_exit(70) }
    }

    /// What tells two worlds apart: all switches with their times.
    pub fn report(&self) -> String {
        let World { seed, trace, switches, now, names, .. } = self;
        let time = std::time::Duration::from_nanos(*now);
        format!("world: seed {seed}, trace {trace:016x}, {switches} switches, {names} threads, {time:?}")
    }
}
