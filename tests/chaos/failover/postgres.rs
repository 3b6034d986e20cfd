//! Fail-overs of PostgreSQL: a standby is promoted, while the primary is dead, frozen, cut off, or goes on.
//!
//! With a synchronous standby a primary that was deposed acknowledges nothing more: each grant, each renewal is a commit, and that waits
//! for a standby which has left. So holds must never overlap, whoever of the clients still reaches it. With an asynchronous one
//! they must: the control.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fairlock_tests::history::read;
use fairlock_tests::proxy::{Proxy, Rule, Traffic};
use fairlock_tests::soak::Dice;
use fairlock_tests::{Bound, PostgresServer, Worker, eventually};

use crate::Wanted;
use crate::faults::HOLDER;
use crate::held::{Held, Part};
use crate::judge::{Verdict, judge};
use crate::round::ask;
use crate::setting::{BOUND, LEASE, OF_FAULTS, SLACK, Setting};
use crate::side_by_side::{Watch, caught, each};

/// The name of the standby.
const STANDBY: &str = "standby";
/// The locks of a round: the one that is judged, the second one of `lock-all`, and the one that shows when locks are granted.
const LOCKS: [&str; 3] = ["lock", "other", "probe"];
/// One round of the control for so many others.
const CONTROL: usize = 10;
/// How many overlaps of a round are printed.
const SHOWN: usize = 3;
/// Between two looks for commits that wait.
const PAUSE: Duration = Duration::from_millis(20);

/// What becomes of the primary when its standby is promoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It goes on, and all reach both servers.
    Promote,
    /// It goes on, and the holder reaches it alone. The others reach the new one alone.
    Partition,
    /// It stands still until the new one has granted a lock.
    Freeze,
    /// It is killed.
    Kill,
    /// It is killed and starts again as a primary: what no standby has acknowledged can be seen by then.
    Restart,
    /// It goes on, and somebody cancels the commits that wait, or ends their sessions: they are done there by then.
    Cancel,
}

impl Fault {
    const ALL: [Fault; 6] =
        [Fault::Promote, Fault::Partition, Fault::Freeze, Fault::Kill, Fault::Restart, Fault::Cancel];

    /// Whether holds overlap where the standby is asynchronous: the holder goes on at the old primary.
    fn is_control(self) -> bool {
        matches!(self, Fault::Promote | Fault::Partition | Fault::Cancel)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Promote => "promote",
            Fault::Partition => "partition",
            Fault::Freeze => "freeze",
            Fault::Kill => "kill",
            Fault::Restart => "restart",
            Fault::Cancel => "cancel",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    fault: Fault,
    held: Held,
    is_synchronous: bool,
}

/// Runs all rounds. Returns whether nothing was found, and the control saw holds that overlap.
pub(crate) fn run(wanted: &Wanted, program: &str) -> bool {
    let (cells, watch) = (cells(wanted), Watch::start());
    let base = std::env::temp_dir().join(format!("fairlock-failover-{}", std::process::id()));
    let (found, control) = (Mutex::new(0), Mutex::new(Vec::new()));
    each(&cells, wanted, |number, cell| {
        let (began, dir) = (Instant::now(), base.join(number.to_string()));
        let verdict = caught(|| Round::start(*cell, program, &dir, number).run());
        let (stood, took) = (watch.stood_still_since(began), began.elapsed());
        let mut findings = Vec::new();
        let mut report = match &verdict {
            Ok(Verdict { overlaps, longest_gap, grants, .. }) => {
                format!("{} overlaps, no lock for {longest_gap:.1?}, {grants} grants", overlaps.len())
            }
            Err(message) => format!("broke off: {message}"),
        };
        report += &format!(", took {took:.1?}, stood still for {stood:.1?}\n");
        match verdict {
            Ok(verdict) => {
                if cell.is_synchronous {
                    findings
                        .extend(verdict.overlaps.iter().take(SHOWN).map(|overlap| overlap.sentence.clone()));
                } else {
                    locked(&control).push(!verdict.overlaps.is_empty());
                }
                findings.extend(verdict.findings);
                findings.extend(verdict.late.into_iter().filter(|_| stood < SLACK));
            }
            Err(message) if stood < SLACK => findings.push(message),
            Err(_) => {}
        }
        findings.iter().for_each(|finding| report += &format!("  FOUND: {finding}\n"));
        if findings.is_empty() {
            let _ = fs::remove_dir_all(&dir);
        } else {
            report += &format!("  the histories are in {}\n", dir.display());
        }
        let Cell { fault, held, is_synchronous } = cell;
        let standby = if *is_synchronous { "synchronous" } else { "asynchronous" };
        print!("{number}: postgres {fault} {held} {standby}: {report}");
        *locked(&found) += findings.len();
    });
    let _ = fs::remove_dir(&base);
    let (found, control) = (*locked(&found), locked(&control));
    let overlapped = control.iter().filter(|overlapped| **overlapped).count();
    println!(
        "seed {}: {} rounds, {found} findings; of {} of the control {overlapped} overlapped",
        wanted.seed,
        cells.len(),
        control.len()
    );
    found == 0 && (control.is_empty() || overlapped > 0)
}

/// The faults in turns, what is held too, and rounds of the control between them.
fn cells(wanted: &Wanted) -> Vec<Cell> {
    let mut dice = Dice::new(wanted.seed);
    let of = |fault: &Fault| wanted.only.is_empty() || wanted.only.contains(&fault.to_string());
    let faults: Vec<_> = Fault::ALL.into_iter().filter(of).collect();
    let controls: Vec<_> = faults.iter().copied().filter(|fault| fault.is_control()).collect();
    let (first_fault, first_held) = (dice.index(faults.len().max(1)), dice.index(wanted.held.len()));
    let mut cells = Vec::new();
    for number in 0..if faults.is_empty() { 0 } else { wanted.kills } {
        let held = |turn: usize| wanted.held[(first_held + turn) % wanted.held.len()];
        if number % CONTROL == 0 && !controls.is_empty() {
            let turn = number / CONTROL;
            let fault = controls[turn % controls.len()];
            cells.push(Cell { fault, held: held(turn), is_synchronous: false });
        }
        // Each pass of the faults has other kinds than the one before.
        let (pass, fault) = (number / faults.len(), faults[(first_fault + number) % faults.len()]);
        cells.push(Cell { fault, held: held(number + pass), is_synchronous: true });
    }
    cells
}

/// Two servers, and the workers, each with its own ways to both.
struct Round {
    cell: Cell,
    primary: PostgresServer,
    standby: PostgresServer,
    ways: Vec<[Proxy; 2]>,
    /// The new primary stands first in its address.
    prefers_new: Vec<bool>,
    workers: Vec<(Part, Worker)>,
    files: Vec<PathBuf>,
}

impl Round {
    fn start(cell: Cell, program: &str, dir: &Path, number: usize) -> Round {
        let primary = PostgresServer::builder().start();
        let standby = primary.standby(STANDBY);
        if cell.is_synchronous {
            let mut con = primary.con();
            con.execute(&format!("alter system set synchronous_standby_names = '{STANDBY}'"), &[])
                .expect("a running server");
            con.execute("select pg_reload_conf()", &[]).expect("a running server");
        }
        let state = if cell.is_synchronous { "sync" } else { "async" };
        let asked = "select 1 from pg_stat_replication where state = 'streaming' and sync_state = $1";
        let mut con = primary.con();
        eventually(BOUND, "the standby streams", || {
            con.query(asked, &[&state]).is_ok_and(|rows| rows.len() == 1)
        });
        let parts = cell.held.parts();
        let ways: Vec<_> =
            parts.iter().map(|_| [Proxy::start(primary.port()), Proxy::start(standby.port())]).collect();
        fs::create_dir_all(dir).expect("a dir can be made");
        let files: Vec<_> = (0..parts.len()).map(|number| dir.join(number.to_string())).collect();
        // The holder prefers the old primary, as some of the others do.
        let prefers_new: Vec<_> = (0..parts.len())
            .map(|at| at != usize::from(HOLDER) && !(at + number).is_multiple_of(2))
            .collect();
        let mut workers = Vec::new();
        for (at, part) in parts.iter().enumerate() {
            let [old, new] = &ways[at];
            let [first, then] = if prefers_new[at] { [new, old] } else { [old, new] }.map(Proxy::port);
            let url = format!("postgres://fairlock@127.0.0.1:{first},127.0.0.1:{then}/fairlock");
            let (setting, held, part_word) =
                (Setting::None.to_string(), cell.held.to_string(), part.to_string());
            let (history, [lock, other, probe]) = (files[at].to_string_lossy(), LOCKS);
            let words = ["worker", &setting, &url, &history, &held, lock, other, probe, &part_word];
            workers.push((*part, Worker::start(program, &words)));
        }
        Round { cell, primary, standby, ways, prefers_new, workers, files }
    }

    fn run(mut self) -> Verdict {
        let _bound = Bound::here(4 * BOUND);
        let [lock, _, probe] = LOCKS;
        self.workers.iter_mut().for_each(|(_, worker)| worker.go());
        let probes = |part: Part| matches!(part, Part::Waiter | Part::Poller);
        let probing = self.workers.iter().filter(|(part, _)| probes(*part));
        probing.for_each(|(_, worker)| worker.expect("warm", BOUND));
        let second = self.workers.iter_mut().find(|(part, _)| *part == Part::Second);
        second.into_iter().for_each(|(_, second)| drop(ask(second)));
        ask(&mut self.workers[usize::from(HOLDER)].1);
        let probing = self.workers.iter_mut().filter(|(part, _)| probes(*part));
        probing.for_each(|(_, worker)| worker.say("ask"));
        let seen = Setting::None.client(&self.primary.url(), OF_FAULTS).expect("a running server");
        eventually(BOUND, "the waiters stand in line", || {
            self.cell.held.line_length(&seen, lock).is_ok_and(|length| length >= 2)
        });
        drop(seen);

        let late = thread::scope(|scope| {
            // Dropped at the end, also that of a round that breaks off.
            let (_goes_on, is_over) = channel::<()>();
            let old = &self.primary;
            self.inject();
            if self.cell.fault == Fault::Cancel {
                scope.spawn(move || end_waiting_commits(old, &is_over));
            }
            eventually(BOUND, "the new primary grants a lock", || {
                let lock = Setting::None.lock(&self.standby.url(), OF_FAULTS, probe);
                let granted = lock.and_then(|lock| lock.try_lock_for(LEASE));
                granted.is_ok_and(|granted| granted.guard().is_some())
            });
            if self.cell.fault == Fault::Freeze {
                old.cont();
            }
            // Until the lease of the first hold is over at the new primary, and the next waiter there was heard.
            thread::sleep(LEASE + 2 * OF_FAULTS.place);
            self.ways.iter().flatten().for_each(|proxy| proxy.set_all(&Traffic::ALL, Rule::Pass));
            self.workers.iter_mut().for_each(|(_, worker)| worker.say("rest"));
            let bound = OF_FAULTS.outage + LEASE + 2 * SLACK;
            let stuck = self
                .workers
                .iter()
                .filter(|(_, worker)| worker.next_or_none(bound).as_deref() != Some("resting"));
            let sentence = |(part, _): &(Part, _)| {
                format!("a {part} did not come to rest within {bound:?}: a call hangs")
            };
            stuck.map(sentence).collect::<Vec<_>>()
        });
        let read = |file| read(file).expect("a history can be read");
        let events: Vec<_> = self.files.iter().flat_map(|file| read(file)).collect();
        let mut verdict = judge(&events, probe, self.cell.held.capacity(), self.cell.is_synchronous);
        verdict.late.extend(late);
        verdict
    }

    fn inject(&self) {
        let (old, new) = (&self.primary, &self.standby);
        match self.cell.fault {
            Fault::Promote | Fault::Cancel => {}
            Fault::Partition => {
                for (at, [to_old, to_new]) in self.ways.iter().enumerate() {
                    let cut = if at == usize::from(HOLDER) { to_new } else { to_old };
                    cut.set_all(&Traffic::ALL, Rule::Hold);
                }
            }
            Fault::Freeze => old.stop(),
            Fault::Kill | Fault::Restart => old.kill(),
        }
        new.promote();
        if self.cell.fault == Fault::Restart {
            old.restart();
        }
        // Whoever prefers the new one hears of it; the others stay where they are.
        let prefer_new = self.ways.iter().zip(&self.prefers_new).filter(|(_, prefers)| **prefers);
        prefer_new.for_each(|([to_old, _], _)| to_old.cut());
    }
}

/// Until the round is over, commits that wait for the standby are cancelled, and their sessions ended, in turns. Those of messages are not:
/// a commit that was cancelled and the message about it, cancelled as well, would tell a waiter of a grant.
fn end_waiting_commits(server: &PostgresServer, is_over: &Receiver<()>) {
    let mut con = server.con();
    let mut ways = ["pg_cancel_backend", "pg_terminate_backend"].into_iter().cycle();
    while is_over.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
        let way = ways.next().unwrap_or_default();
        let sql = format!(
            "select {way}(pid) from pg_stat_activity where wait_event = 'SyncRep' and query !~ 'pg_notify'"
        );
        con.execute(&sql, &[]).expect("the old primary goes on");
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
