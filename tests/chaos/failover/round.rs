//! One round: its own deployment, four or five workers, one fault, and what they believed.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use fairlock_tests::history::read;
use fairlock_tests::word::word;
use fairlock_tests::{Bound, Worker, eventually, look_until};

use crate::clocks::Clock;
use crate::deployment::{Kind, Servers};
use crate::faults::{About, Fault, HOLDER};
use crate::held::{Held, Part};
use crate::judge::{Verdict, judge};
use crate::setting::{BOUND, LEASE, OUTAGE, PLACE, SLACK, Setting};

/// The number of this process, when it locks.
pub(crate) const WATCH: u8 = 7;
/// Longer than all waits of a round together.
const LONGEST_ROUND: Duration = Duration::from_secs(300);

/// A round's place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    pub(crate) kind: Kind,
    pub(crate) fault: Fault,
    pub(crate) held: Held,
    pub(crate) setting: Setting,
}

/// Runs it, with the histories in `dir`. There is no verdict if the first server was replaced before the fault.
pub(crate) fn run(
    cell: Cell,
    all: &dyn Servers,
    clock: Option<Clock>,
    program: &str,
    dir: &Path,
) -> Option<Verdict> {
    let _bound = Bound::here(LONGEST_ROUND);
    let Cell { fault, held, setting, .. } = cell;
    let [lock, other, probe] = all.locks();
    fs::create_dir_all(dir).expect("a dir can be made");
    let mut workers: Vec<(Part, Worker)> = (0..)
        .zip(held.parts())
        .map(|(number, part)| {
            let history = dir.join(number.to_string());
            let (url, history) = (all.url(number), history.to_string_lossy());
            let [setting, held, part_word] = [word(&setting), word(&held), word(part)];
            let words = ["worker", &setting, &url, &history, &held, &lock, &other, &probe, &part_word];
            (*part, Worker::start(program, &words))
        })
        .collect();
    workers.iter_mut().for_each(|(_, worker)| worker.go());
    let probing = workers.iter().filter(|(part, _)| part.probes());
    probing.for_each(|(_, worker)| worker.expect("warm", BOUND));

    // Before the fault is prepared: an old file, or a replica that misses the first hold, has an earlier one beside it.
    let second = workers.iter_mut().find(|(part, _)| *part == Part::Second);
    second.into_iter().for_each(|(_, second)| drop(ask(second)));
    if !all.prepare(fault) {
        return None;
    }
    let holder = ask(&mut workers[usize::from(HOLDER)].1);
    // After the hold: a server that misses it knows nothing else of this lock that could stand for it.
    let probing = workers.iter_mut().filter(|(part, _)| part.probes());
    probing.for_each(|(_, worker)| worker.say("ask"));
    let seen =
        look_until(BOUND, || setting.client(&all.url(WATCH)).ok()).expect("the servers answer in time");
    eventually("the waiters stand in the queue", || {
        held.queue_length(&seen, &lock).is_ok_and(|length| length >= 2)
    });
    if !all.inject(About { fault, lock: &lock, holder: &holder, held, setting }, clock) {
        return None;
    }
    eventually("the servers grant a lock again", || {
        let granted = setting.lock(&all.url(WATCH), &probe).and_then(|lock| lock.try_lock_for(LEASE));
        granted.is_ok_and(|granted| granted.granted().is_some())
    });
    all.settle(fault);
    // The run itself, until the holder's lease at the new server is over and the next waiter there was heard. Where a server keeps
    // a hold for longer than a lease, the grace was as long.
    thread::sleep(LEASE + 2 * PLACE);
    all.heal();

    workers.iter_mut().for_each(|(_, worker)| worker.say("rest"));
    let bound = OUTAGE + LEASE + 2 * SLACK;
    let mut stuck = Vec::new();
    for (part, worker) in &workers {
        if worker.next_or_none(bound).as_deref() != Some("resting") {
            stuck.push(format!("a {} did not come to rest within {bound:?}: a call hangs", word(part)));
        }
    }
    let files = (0..workers.len()).map(|number| dir.join(number.to_string()));
    let events: Vec<_> = files.flat_map(|file| read(&file).expect("a history can be read")).collect();
    // A server that has forgotten the last tokens begins at its clock, and that may be behind them, unless it waits for a grace, which
    // is longer. So does one that was deposed and grants locks again: it has not heard of the last tokens.
    let tokens_grow = match setting {
        Setting::Asynchronous => false,
        _ if clock.is_none() => true,
        Setting::None => !fault.forgets() && !fault.deposes(),
        _ => true,
    };
    let mut verdict = judge(&events, &probe, held.capacity(), tokens_grow);
    verdict.late.extend(stuck);
    verdict.deposed = all.is_deposed(fault);
    Some(verdict)
}

/// Lets a holder ask. Returns the owner of its hold.
fn ask(holder: &mut Worker) -> String {
    holder.say("ask");
    let said = holder.next(BOUND);
    said.strip_prefix("held ").unwrap_or_else(|| panic!("a holder says {said}")).to_owned()
}
