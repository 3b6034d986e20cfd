//! Readers, writers and permits at random, from threads of several clients. An oracle judges what they saw: how many units were
//! held at once, which waiter was passed, and the order of the tokens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::thread;
use std::time::{Duration, Instant};

use fairlock_core::{Client, FencingToken, OwnedGuard, OwnedLock, OwnedRequest, Result, Semaphore, TryLock};
use fairlock_memory::MemoryBackend;

const PERMITS: u32 = 5;
const THREADS: u64 = 8;
/// How long the threads begin new requests.
const RUN: Duration = Duration::from_millis(1200);
/// A wait that takes longer than this was forgotten.
const LONGEST_WAIT: Duration = Duration::from_secs(20);
/// The lease of holds that end by themselves.
const SHORT: Duration = Duration::from_millis(15);

/// A handle of some units, for a new owner.
enum Wish {
    Units(OwnedLock, u32),
    Permits(Semaphore, u32),
}

impl Wish {
    /// For the read-write lock or the semaphore.
    fn new(client: &Client, random: &mut Random) -> Wish {
        if random.one_in(2) {
            let lock = client.rw_lock("mix").unwrap().owned_by(&client.new_owner()).unwrap();
            return match random.one_in(4) {
                true => Wish::Units(lock.writer().clone(), u32::MAX),
                false => Wish::Units(lock.reader().clone(), 1),
            };
        }
        let n = if random.one_in(5) { PERMITS } else { 1 + random.below(2) as u32 };
        Wish::Permits(client.semaphore("permits", PERMITS).unwrap(), n)
    }

    fn fixed_lease(self) -> Wish {
        match self {
            Wish::Units(lock, takes) => Wish::Units(lock.fixed_lease(SHORT), takes),
            Wish::Permits(semaphore, n) => Wish::Permits(semaphore.fixed_lease(SHORT), n),
        }
    }

    fn request(&self) -> Result<OwnedRequest> {
        match self {
            Wish::Units(lock, _) => lock.request(),
            Wish::Permits(semaphore, n) => semaphore.request_many(*n),
        }
    }

    fn attempt(&self, timeout: Duration) -> Result<TryLock<OwnedGuard>> {
        match self {
            Wish::Units(lock, _) => lock.try_lock_for(timeout),
            Wish::Permits(semaphore, n) => semaphore.try_acquire_many_for(*n, timeout),
        }
    }

    /// The capacity of its lock, and what it takes of that.
    fn units(&self) -> (u32, u32) {
        match self {
            Wish::Units(_, takes) => (u32::MAX, *takes),
            Wish::Permits(_, n) => (PERMITS, *n),
        }
    }
}

/// A hold as its thread saw it. All times are of one clock.
#[derive(Debug)]
struct Seen {
    capacity: u32,
    takes: u32,
    token: FencingToken,
    /// Before the call.
    asked: Instant,
    /// By then it stood in line, and waited.
    in_line: Option<Instant>,
    /// From then on, and at least until then, its client believed to have it.
    held: (Instant, Instant),
    /// By then the server had heard of its end.
    over: Option<Instant>,
}

/// Makes one request at random. None if it was not granted.
fn act(client: &Client, random: &mut Random) -> Option<Seen> {
    let ends_by_itself = random.one_in(40);
    let wish = Wish::new(client, random);
    let wish = if ends_by_itself { wish.fixed_lease() } else { wish };
    let (asked, mut in_line) = (Instant::now(), None);
    let outcome = match random.below(8) {
        0 => wish.attempt(Duration::ZERO),
        1 => wish.attempt(random.up_to_millis(3)),
        how => {
            let mut request = wish.request().unwrap();
            in_line = request.rank().map(|_| Instant::now());
            if how == 2 {
                thread::sleep(random.up_to_millis(2));
                return None; // dropped, whether or not it was granted
            }
            let outcome = request.wait_for(LONGEST_WAIT);
            assert!(matches!(outcome, Ok(TryLock::Granted(_))), "forgotten, or {outcome:?}");
            outcome
        }
    };
    let (guard, from) = (outcome.unwrap().guard()?, Instant::now());
    let (token, (capacity, takes)) = (guard.token(), wish.units());
    if !random.one_in(3) {
        thread::sleep(random.up_to_millis(1));
    }
    let last = Instant::now();
    let valid_for = guard.valid_for();
    if ends_by_itself {
        guard.leak();
        // `in_line`: the hold may have ended before it was taken; then its request stood in line once more.
        return (!valid_for.is_zero()).then(|| Seen {
            capacity,
            takes,
            token,
            asked,
            in_line: None,
            held: (from, last + valid_for),
            over: None,
        });
    }
    assert!(!valid_for.is_zero(), "the machine stood still for longer than a place lives");
    guard.unlock().unwrap();
    Some(Seen { capacity, takes, token, asked, in_line, held: (from, last), over: Some(Instant::now()) })
}

/// The units of live holds never were more than there are.
fn judge_units(seen: &[&Seen], capacity: u32) {
    let ends = seen.iter().flat_map(|hold| {
        let (from, until) = hold.held;
        [(from, true, hold.takes), (until, false, hold.takes)]
    });
    let mut ends: Vec<_> = ends.collect();
    ends.sort_by_key(|(at, begins, _)| (*at, *begins)); // of two at one time the end comes first
    let mut taken = 0_u64;
    for (_, begins, takes) in ends {
        if begins {
            taken += u64::from(takes);
            assert!(taken <= u64::from(capacity), "{taken} of {capacity} units are held");
        } else {
            taken -= u64::from(takes);
        }
    }
}

/// A request that asked when another one stood in line has a greater token.
fn judge_order(seen: &mut [&Seen]) -> usize {
    seen.sort_by_key(|hold| hold.token);
    assert!(seen.is_sorted_by(|one, next| one.token < next.token), "each grant has its own token");
    let mut last_asked: Option<Instant> = None;
    let mut waited = 0;
    for hold in seen {
        if let (Some(in_line), Some(last_asked)) = (hold.in_line, last_asked) {
            assert!(
                last_asked <= in_line,
                "a waiter was passed by one that asked at {last_asked:?}: {hold:#?}"
            );
            waited += 1;
        }
        last_asked = last_asked.max(Some(hold.asked));
    }
    waited
}

/// A hold that begins after the end of another one has a greater token.
fn judge_tokens(seen: &[&Seen]) {
    let mut over: Vec<_> = seen.iter().filter_map(|hold| Some((hold.over?, hold.token))).collect();
    over.sort();
    for at in 1..over.len() {
        over[at].1 = over[at].1.max(over[at - 1].1);
    }
    for hold in seen {
        let before = over.partition_point(|(over, _)| *over < hold.asked);
        assert!(
            before == 0 || over[before - 1].1 < hold.token,
            "a token that is not greater than an old one"
        );
    }
}

#[test]
fn units_are_never_too_many_and_no_waiter_is_passed() {
    let seed = std::env::var("FAIRLOCK_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("FAIRLOCK_TEST_SEED={seed}");
    let store = MemoryBackend::new();
    let clients = [(); 4].map(|()| Client::new(store.clone()).unwrap());
    let until = Instant::now() + RUN;
    let threads = (0..THREADS).map(|number| {
        let client = clients[number as usize % clients.len()].clone();
        let mut random = Random((seed << 8) + number + 1);
        thread::spawn(move || {
            let mut seen = Vec::new();
            while Instant::now() < until {
                seen.extend(act(&client, &mut random));
            }
            seen
        })
    });
    let threads: Vec<_> = threads.collect();
    let seen: Vec<Seen> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    for capacity in [u32::MAX, PERMITS] {
        let mut of_lock: Vec<_> = seen.iter().filter(|hold| hold.capacity == capacity).collect();
        judge_units(&of_lock, capacity);
        let waited = judge_order(&mut of_lock);
        judge_tokens(&of_lock);
        let leaked = of_lock.iter().filter(|hold| hold.over.is_none()).count();
        println!(
            "{} holds of {capacity} units; {waited} waited, {leaked} ended by themselves",
            of_lock.len()
        );
        assert!(of_lock.len() > 200 && waited > 100, "too few to judge: {} and {waited}", of_lock.len());
    }
    // What was left to itself has ended by now, and nothing else is there.
    thread::sleep(SHORT);
    let [client, ..] = &clients;
    drop(client.rw_lock("mix").unwrap().try_write_for(LONGEST_WAIT).unwrap().guard().expect("all is free"));
    let permits = client.semaphore("permits", PERMITS).unwrap();
    drop(permits.try_acquire_many_for(PERMITS, LONGEST_WAIT).unwrap().guard().expect("all is free"));
    for state in [client.rw_lock("mix").unwrap().inspect(), permits.inspect()].map(Result::unwrap) {
        assert!(state.holders.is_empty() && state.line.is_empty(), "{state:?}");
    }
}

/// Xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 8) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn up_to_millis(&mut self, n: u64) -> Duration {
        Duration::from_micros(self.below(n * 1000))
    }
}
