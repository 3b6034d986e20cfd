//! One round: a deployment of its own, four workers, one fault, and what they believed.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use fairlock_tests::history::read;
use fairlock_tests::{Bound, Worker, eventually, look_until};

use crate::clocks::Clock;
use crate::deployment::{Deployment, Kind};
use crate::faults::{Fault, HOLDER};
use crate::judge::{Verdict, judge};
use crate::setting::{BOUND, LEASE, OF_FAULTS, SLACK, Setting};

/// The parts of the workers, by their numbers. Number 0 is the holder.
const PARTS: [&str; 4] = ["holder", "poller", "waiter", "waiter"];
/// The number of this process, when it locks.
const WATCH: u8 = 7;
/// Longer than all waits of a round together.
const LONGEST_ROUND: Duration = Duration::from_secs(300);

/// A round's place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    pub(crate) kind: Kind,
    pub(crate) fault: Fault,
    pub(crate) setting: Setting,
}

/// Runs it, with the histories in `dir`. There is no verdict if server 0 was replaced before the fault.
pub(crate) fn run(
    cell: Cell,
    all: &Deployment,
    clock: Option<Clock>,
    program: &str,
    dir: &Path,
) -> Option<Verdict> {
    let _bound = Bound::here(LONGEST_ROUND);
    let Cell { fault, setting, .. } = cell;
    let [lock, probe] = all.locks();
    fs::create_dir_all(dir).expect("a dir can be made");
    let mut workers: Vec<Worker> = (0..)
        .zip(PARTS)
        .map(|(number, part)| {
            let history = dir.join(number.to_string());
            let history = history.to_string_lossy();
            let (setting, url) = (setting.to_string(), all.url(number));
            Worker::start(program, &["worker", &setting, &url, &history, &lock, &probe, part])
        })
        .collect();
    workers.iter_mut().for_each(Worker::go);
    workers[1..].iter().for_each(|worker| worker.expect("warm", BOUND));

    fault.prepare(all);
    let holder = &mut workers[usize::from(HOLDER)];
    holder.say("ask");
    holder.expect("held", BOUND);
    // After the hold: a server that misses it knows nothing else of this lock that could stand for it.
    workers[1..].iter_mut().for_each(|worker| worker.say("ask"));
    let seen = look_until(BOUND, || setting.lock(&all.url(WATCH), OF_FAULTS, &lock).ok())
        .expect("the servers answer in time");
    eventually(BOUND, "the waiters stand in line", || {
        seen.inspect().is_ok_and(|state| state.line_length == 2)
    });
    if !fault.inject(all, &lock, setting, clock) {
        return None;
    }
    eventually(BOUND, "the servers grant a lock again", || {
        let granted =
            setting.lock(&all.url(WATCH), OF_FAULTS, &probe).and_then(|lock| lock.try_lock_for(LEASE));
        granted.is_ok_and(|granted| granted.guard().is_some())
    });
    // The run itself, until the holder's lease at the new server is over and the next waiter there was heard. Where a server keeps
    // a hold for longer than a lease, the grace was as long.
    thread::sleep(LEASE + OF_FAULTS.place);
    all.network.heal();

    workers.iter_mut().for_each(|worker| worker.say("rest"));
    let bound = OF_FAULTS.outage + LEASE + 2 * SLACK;
    let mut stuck = Vec::new();
    for (worker, part) in workers.iter().zip(PARTS) {
        if worker.next_or_none(bound).as_deref() != Some("resting") {
            stuck.push(format!("a {part} did not come to rest within {bound:?}: a call hangs"));
        }
    }
    let files = (0..PARTS.len()).map(|number| dir.join(number.to_string()));
    let events: Vec<_> = files.flat_map(|file| read(&file).expect("a history can be read")).collect();
    // A server that has forgotten the last tokens begins at its clock, and that may be behind them. A grace is longer than that.
    let tokens_grow = clock.is_none() || !fault.forgets() || setting != Setting::None;
    let mut verdict = judge(&events, &probe, tokens_grow);
    verdict.late.extend(stuck);
    verdict.deposed = all.fail_overs() > fault.fail_overs();
    Some(verdict)
}
