//! A job of a fleet that is to run once in each period, over a thousand periods.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::time::Duration;

use fairlock_core::backend::{Acquire, Acquired, Backend, Hold, LockId, Place, RequestId, Since, Wait, only};
use fairlock_core::{FencingToken, LockKind, LockName, ManualClock, OwnerId};
use fairlock_memory::MemoryBackend;

const PERIOD: Duration = Duration::from_secs(3600);
const PERIODS: u64 = 1_000;
const LEASE: Duration = Duration::from_secs(30);

/// Numbers that look random.
struct Drawn(u64);

impl Drawn {
    /// A number below 1.
    fn part(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f64 / (1_u64 << 24) as f64
    }
}

/// It asks once in each period of its own clock.
struct Replica {
    owner: OwnerId,
    asks_at: Duration,
}

/// The jobs, by the period in which they began.
fn run(kind: LockKind, seed: u64) -> BTreeMap<u64, u32> {
    let (clock, mut drawn) = (ManualClock::new(), Drawn(seed));
    let store = MemoryBackend::with_clock(clock.clone());
    let (lock, start) = (LockId::new(LockName::new("hourly").unwrap(), kind), clock.now());
    let replica = |number: u32| {
        // Its schedule has a phase, and its clock is wrong by 40 % of the period at most.
        let asks_at = PERIOD.mul_f64(1.0 + drawn.part() + 0.8 * drawn.part() - 0.4);
        Replica { owner: OwnerId::new(&format!("{number}:1")), asks_at }
    };
    let mut replicas: Vec<_> = (0..3).map(replica).collect();
    let (mut jobs, mut ends): (BTreeMap<_, _>, Option<(Duration, OwnerId, RequestId, FencingToken)>) =
        (BTreeMap::new(), None);
    let go_to = |moment: Duration| {
        clock.advance((start + moment).saturating_duration_since(clock.now()));
    };
    for number in 1..=PERIODS * 3 {
        let next = replicas.iter_mut().min_by_key(|replica| replica.asks_at).unwrap();
        let (moment, request) = (next.asks_at, RequestId::new(number));
        next.asks_at += PERIOD;
        if let Some((end, owner, request, token)) = ends.take_if(|(end, ..)| *end <= moment) {
            go_to(end);
            only(store.release(&[Hold::new(&lock, &owner, request, token)])).unwrap();
        }
        go_to(moment);
        let mut place = Place::new(&lock, &next.owner, request);
        place.wait = Wait::No;
        let mut ask = Acquire::new(place, LEASE);
        ask.condition.not_granted = Some(Since::PeriodBegan(PERIOD));
        let answer = only(store.acquire(&[ask])).unwrap();
        let Acquired::Granted { token, .. } = answer else {
            assert!(matches!(answer, Acquired::Declined(_)), "{answer:?}");
            continue;
        };
        *jobs.entry(Duration::from_micros(token.get()).as_secs() / PERIOD.as_secs()).or_default() += 1;
        if drawn.part() < 0.2 {
            let again = only(store.acquire(&[ask])).unwrap(); // the answer was lost
            assert!(matches!(again, Acquired::Granted { token: same, .. } if same == token), "{again:?}");
        }
        // The job ends within the lease. Some are killed.
        if drawn.part() < 0.8 {
            ends = Some((moment + LEASE.mul_f64(drawn.part()), next.owner.clone(), request, token));
        }
    }
    jobs
}

/// Whatever the phases and clocks of the replicas are.
#[test]
fn a_fleets_job_runs_once_in_each_period() {
    for seed in 0..8 {
        for kind in [LockKind::Fair, LockKind::Plain] {
            let jobs = run(kind, seed);
            let (first, last) = (jobs.keys().next().unwrap(), jobs.keys().next_back().unwrap());
            assert!(last - first >= PERIODS - 2, "{} periods", last - first);
            let others: Vec<_> = (*first..=*last).filter(|period| jobs.get(period) != Some(&1)).collect();
            assert!(others.is_empty(), "seed {seed}, {kind}: not once in {others:?}");
        }
    }
}
