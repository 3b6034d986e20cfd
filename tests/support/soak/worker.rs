//! The worker process: threads take turns on the locks and record what they see, from `go` to `rest`.

use std::error::Error;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, Discipline, Guard, Lock, LockKind, Ownership, RedisBackend, Request, TryLock};

use super::{ANSWER, Dice, LEASE, LOCKS, OUTAGE, PLACE, kind_of};
use crate::history::{Recorder, What, now_ns};
use crate::worker::say;

type Failure = Box<dyn Error>;

/// A false report or a wrong action that shows that the checkers work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// It believes in a hold that was never granted.
    Overlap,
    /// It believes in permits that were never granted.
    Permits,
    /// It reports a grant with an old token.
    Token,
    /// It reports an earlier place than those that got the lock before it.
    Order,
    /// It reports a release, and keeps the lock.
    Gap,
    /// It leaves a key behind.
    Residue,
}

impl Plant {
    /// All of them.
    pub const ALL: [Plant; 6] =
        [Plant::Overlap, Plant::Permits, Plant::Token, Plant::Order, Plant::Gap, Plant::Residue];
}

/// How the lock is asked for.
#[derive(Clone, Copy)]
enum Way {
    Request,
    Lock,
    For(Duration),
    Try,
    /// A request that is dropped.
    Drop,
}

/// What the threads share.
struct Shop {
    client: Client,
    /// The file of this round.
    recorder: Mutex<Arc<Recorder>>,
    rest: AtomicBool,
    /// All worker threads and the listening one: they start and end a round together.
    together: Barrier,
    plant: Option<Plant>,
    planted: AtomicU64,
}

/// Runs until its standard input ends. It says `ready`. For `go FILE` it takes turns and writes events to that file.
/// For `rest` it stops, and says `resting <client> <polled>`.
pub fn work(url: &str, threads: usize, seed: u64, plant: Option<Plant>) -> Result<(), Failure> {
    let backend = RedisBackend::builder(url)
        .discipline(Discipline::HandOff)
        .connect_timeout(ANSWER)
        .response_timeout(ANSWER)
        .connect()?;
    let client = Client::builder(backend).lease(LEASE).place_ttl(PLACE).outage_limit(OUTAGE).build()?;
    let shop = Arc::new(Shop {
        client,
        recorder: Mutex::new(Arc::new(Recorder::open(Path::new("/dev/null"))?)),
        rest: AtomicBool::new(true),
        together: Barrier::new(threads + 1),
        plant,
        planted: AtomicU64::new(0),
    });
    for number in 0..threads {
        let shop = Arc::clone(&shop);
        let dice = Dice::new(seed.wrapping_mul(1009).wrapping_add(number as u64));
        let who = format!("{}/{number}", shop.client.id());
        thread::spawn(move || take_turns(&shop, dice, &who));
    }
    say("ready")?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        match line.split_once(' ') {
            Some(("go", file)) => {
                *shop.recorder.lock().unwrap_or_else(PoisonError::into_inner) =
                    Arc::new(Recorder::open(&PathBuf::from(file))?);
                shop.rest.store(false, Ordering::Release);
                shop.together.wait();
            }
            _ => {
                shop.rest.store(true, Ordering::Release);
                shop.together.wait();
                say(&format!("resting {} {}", shop.client.id(), shop.client.stats().granted_by_polling))?;
            }
        }
    }
    Ok(())
}

fn take_turns(shop: &Shop, mut dice: Dice, who: &str) {
    loop {
        shop.together.wait();
        let recorder = Arc::clone(&shop.recorder.lock().unwrap_or_else(PoisonError::into_inner));
        while !shop.rest.load(Ordering::Acquire) {
            let name = shop.turn(&mut dice, &recorder, who);
            shop.lie(&recorder, who, name);
        }
        shop.together.wait();
    }
}

/// What a turn is about, and where it is recorded.
struct Diary<'a> {
    dice: &'a mut Dice,
    recorder: &'a Recorder,
    who: &'a str,
    name: &'a str,
}

impl Diary<'_> {
    fn ask(&self, units: u32, way: Way) {
        let limit = match way {
            Way::For(wait) => Some(wait),
            Way::Try => Some(Duration::ZERO),
            Way::Request | Way::Lock | Way::Drop => None,
        };
        self.recorder.ask(self.who, self.name, limit);
        if units > 1 {
            self.recorder.note(now_ns(), self.who, What::Wants { units }, self.name);
        }
    }

    fn in_queue<O: Ownership>(
        &self,
        request: fairlock::Result<Request<O>>,
    ) -> fairlock::Result<Option<Guard<O>>> {
        let request = request?;
        self.recorder.now(self.who, What::InQueue { ticket: None }, self.name);
        request.wait().map(Some)
    }
}

impl Shop {
    /// Returns the name of the lock.
    fn turn(&self, dice: &mut Dice, recorder: &Recorder, who: &str) -> &'static str {
        let (client, name) = (&self.client, dice.pick(&LOCKS));
        let wait = dice.millis(1..=60);
        let way = match dice.roll(100) {
            0..50 => Way::Request,
            50..70 => Way::Lock,
            70..90 => Way::For(wait),
            90..95 => Way::Try,
            _ => Way::Drop,
        };
        let by = &mut Diary { dice, recorder, who, name };
        match kind_of(name) {
            LockKind::ReadWrite => {
                let lock = client.rw_lock(name).unwrap();
                match by.dice.roll(4) {
                    0 => self.turn_on(by, lock.writer(), u32::MAX, way),
                    _ => self.turn_on(by, lock.reader(), 1, way),
                }
            }
            LockKind::Semaphore { permits } => {
                let (semaphore, most) = (client.semaphore(name, permits).unwrap(), u64::from(permits));
                let n = u32::try_from(1 + by.dice.roll(most).min(by.dice.roll(most))).unwrap_or(1);
                by.ask(n, way);
                let asked = match way {
                    Way::Request => by.in_queue(semaphore.request_many(n)),
                    Way::Lock => semaphore.acquire_many(n).map(Some),
                    Way::For(wait) => semaphore.try_acquire_many_for(n, wait).map(TryLock::guard),
                    Way::Try => semaphore.try_acquire_many(n).map(TryLock::guard),
                    Way::Drop => semaphore.request_many(n).map(|_| None),
                };
                self.take(by, asked, || {});
            }
            LockKind::Plain => self.turn_on(by, &client.plain_lock(name).unwrap(), 1, way),
            _ => self.turn_on(by, &client.fair_lock(name).unwrap(), 1, way),
        }
        name
    }

    fn turn_on(&self, by: &mut Diary<'_>, lock: &Lock, units: u32, way: Way) {
        by.ask(units, way);
        let asked = match way {
            Way::Request => by.in_queue(lock.request()),
            Way::Lock => lock.lock().map(Some),
            Way::For(wait) => lock.try_lock_for(wait).map(TryLock::guard),
            Way::Try => lock.try_lock().map(TryLock::guard),
            Way::Drop => lock.request().map(|_| None),
        };
        self.take(by, asked, || drop(lock.try_lock()));
    }

    /// `again` takes the lock once more.
    fn take<O: Ownership>(
        &self,
        by: &mut Diary<'_>,
        asked: fairlock::Result<Option<Guard<O>>>,
        again: impl Fn(),
    ) {
        let Diary { recorder, who, name, .. } = *by;
        match asked {
            Ok(Some(guard)) => self.hold(by, guard, again),
            Ok(None) => recorder.failed(who, name),
            Err(error) => {
                eprintln!("{who}: {error}");
                recorder.unknown(who, name);
                // Without a server nothing can go on.
                thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// Each time is read *before* the guard is asked. If the process is stopped in between, the recorded validity is
    /// too short, never too long.
    fn hold<O: Ownership>(&self, by: &mut Diary<'_>, guard: Guard<O>, again: impl Fn()) {
        let Diary { ref mut dice, recorder, who, name } = *by;
        let Some((at, mut until)) = look(&guard) else {
            // Stopped after the grant for longer than its validity: there was no hold.
            recorder.unknown(who, name);
            return;
        };
        recorder.note(at, who, What::Granted { token: guard.token().get() }, name);
        recorder.note(at, who, What::Valid { until }, name);
        let work = match dice.roll(2000) {
            0 => dice.millis(200..=1500), // longer than a renewal interval
            1..20 => dice.millis(5..=20),
            20..120 => dice.millis(1..=3),
            _ => Duration::ZERO,
        };
        let started = Instant::now();
        while started.elapsed() < work {
            thread::sleep(Duration::from_millis(10).min(work));
            let Some((at, now_until)) = look(&guard) else { break };
            if now_until > until {
                until = now_until;
                recorder.note(at, who, What::Valid { until }, name);
            }
        }
        if work > Duration::from_millis(5) {
            again(); // a re-entry is counted here and never recorded
        }
        let asked = now_ns();
        match look(&guard) {
            Some((at, _)) => {
                recorder.note(at, who, What::Release, name);
                match guard.unlock() {
                    Ok(()) => recorder.released(who, name),
                    Err(error) => {
                        eprintln!("{who}: {error}");
                        recorder.unknown(who, name);
                    }
                }
            }
            None => recorder.lost(who, name, asked.min(until).max(at)),
        }
    }

    /// Misbehaves, without its own hold. A recorded lie needs no real hold beside it, since on a busy machine there
    /// may be none for a second. It is told again and again, since a fault can excuse one. A misdeed is done once.
    fn lie(&self, recorder: &Recorder, who: &str, name: &str) {
        let Some(plant) = self.plant else { return };
        let kind = if plant == Plant::Permits { LockKind::Semaphore { permits: 5 } } else { LockKind::Fair };
        if kind_of(name) != kind {
            return;
        }
        let turns = self.planted.fetch_add(1, Ordering::Relaxed);
        let once = matches!(plant, Plant::Gap | Plant::Residue);
        if turns % 100 != 99 || once && turns > 100 {
            return;
        }
        let now = now_ns();
        let moment = 100_000_000;
        let [liar, other] = ["planted", "other"].map(|liar| format!("{who}/{liar}"));
        let note_of = |liar: &str, at, what| recorder.note(at, liar, what, name);
        let note = |at, what| note_of(&liar, at, what);
        let hold = |liar: &str, from, until, token| {
            note_of(liar, from, What::Granted { token });
            note_of(liar, from, What::Valid { until });
            note_of(liar, until, What::Release);
            note_of(liar, until, What::Released);
        };
        let fair = || self.client.fair_lock(name).unwrap();
        match plant {
            Plant::Overlap => {
                hold(&other, now - 2 * moment, now, u64::MAX - 1);
                hold(&liar, now - moment, now, u64::MAX);
            }
            Plant::Permits => {
                hold(&other, now - 2 * moment, now, u64::MAX - 1);
                note(now - 2 * moment, What::Ask { limit: None });
                note(now - 2 * moment, What::Wants { units: 5 });
                hold(&liar, now - moment, now, u64::MAX);
            }
            Plant::Token => {
                hold(&other, now - moment, now - moment, u64::MAX);
                hold(&liar, now, now, u64::MAX - 1);
            }
            Plant::Order => {
                for (liar, asked, granted) in [(&liar, 4, 1), (&other, 3, 2)] {
                    note_of(liar, now - asked * moment, What::Ask { limit: None });
                    note_of(liar, now - asked * moment, What::InQueue { ticket: None });
                    hold(liar, now - granted * moment, now - granted * moment, u64::MAX - granted);
                }
            }
            Plant::Gap => {
                let hidden = fair().owned_by(&self.client.new_owner()).unwrap().lock();
                note(now_ns(), What::Ask { limit: None });
                note(now_ns(), What::Release);
                thread::sleep(Duration::from_secs(12)); // longer than any delay
                drop(hidden);
                note(now_ns(), What::Failed);
            }
            Plant::Residue => {
                let owner = self.client.new_owner();
                drop(fair().owned_by(&owner).unwrap().lock().map(fairlock::OwnedGuard::leak));
            }
        }
    }
}

/// The time, and the end of the guard's validity; `None` if it is over.
fn look<O: Ownership>(guard: &Guard<O>) -> Option<(u64, u64)> {
    let now = now_ns();
    let left = guard.valid_for();
    if left.is_zero() {
        return None;
    }
    Some((now, now.saturating_add(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX))))
}
