//! Fail-overs of PostgreSQL: a standby is promoted, while the primary is dead, frozen, cut off, or goes on.
//!
//! With a synchronous standby a primary that was deposed acknowledges nothing more: each grant, each renewal is a commit, and that waits
//! for a standby which has left. So holds must never overlap, whichever clients still reach it. With an asynchronous one
//! they must: the control.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fairlock_tests::proxy::{Proxy, Rule, Traffic};
use fairlock_tests::{PostgresServer, eventually};
use postgres::Client;

use crate::clocks::Clock;
use crate::deployment::Servers;
use crate::faults::{About, Fault, HOLDER};
use crate::round::{Cell, WATCH};
use crate::setting::Setting;

/// The name of the standby.
const STANDBY: &str = "standby";
/// Between two looks for commits that wait.
const PAUSE: Duration = Duration::from_millis(20);

/// Two servers, and for each worker its own ways to both.
pub(crate) struct Pair {
    old: PostgresServer,
    new: PostgresServer,
    ways: Vec<[Proxy; 2]>,
    /// The new primary stands first in its address.
    prefers_new: Vec<bool>,
    /// Ends the thread that cancels, which goes on until then.
    cancels: Mutex<Option<(Sender<()>, JoinHandle<()>)>>,
}

impl Pair {
    pub(crate) fn start(cell: Cell, number: usize) -> Pair {
        let old = PostgresServer::builder().start();
        let new = old.standby(STANDBY);
        let is_synchronous = cell.setting == Setting::Synchronous;
        if is_synchronous {
            new.stop(); // so that commits are seen to wait for it
            old.set_standby(STANDBY);
            new.cont();
        }
        let mut con = old.con();
        let state = if is_synchronous { "sync" } else { "async" };
        let asked = "select 1 from pg_stat_replication where state = 'streaming' and sync_state = $1";
        eventually("the standby streams", || con.query(asked, &[&state]).is_ok_and(|rows| rows.len() == 1));
        let workers = 0..cell.held.parts().len();
        let ways = workers.clone().map(|_| [Proxy::start(old.port()), Proxy::start(new.port())]).collect();
        // The holder prefers the old primary, as some of the others do.
        let prefers_new = |at: usize| at != usize::from(HOLDER) && !(at + number).is_multiple_of(2);
        Pair { old, new, ways, prefers_new: workers.map(prefers_new).collect(), cancels: Mutex::default() }
    }
}

impl Servers for Pair {
    /// This process reaches both by no proxy, the standby first: that refuses until it is the primary.
    fn url(&self, worker: u8) -> String {
        let [first, then] = match usize::from(worker) {
            _ if worker == WATCH => [self.new.port(), self.old.port()],
            at => {
                let [old, new] = &self.ways[at];
                if self.prefers_new[at] { [new, old] } else { [old, new] }.map(Proxy::port)
            }
        };
        format!("postgres://fairlock@127.0.0.1:{first},127.0.0.1:{then}/fairlock")
    }

    fn locks(&self) -> [String; 3] {
        ["lock", "other", "probe"].map(str::to_owned)
    }

    fn prepare(&self, _: Fault) -> bool {
        true
    }

    fn inject(&self, about: About<'_>, _: Option<Clock>) -> bool {
        match about.fault {
            Fault::Partition => {
                for (at, [to_old, to_new]) in self.ways.iter().enumerate() {
                    let cut = if at == usize::from(HOLDER) { to_new } else { to_old };
                    cut.set_all(&Traffic::ALL, Rule::Hold);
                }
            }
            Fault::Freeze => self.old.stop(),
            Fault::Kill | Fault::Restart => self.old.kill(),
            _ => {}
        }
        self.new.promote();
        match about.fault {
            Fault::Restart => self.old.restart(),
            Fault::Cancel => {
                let (goes_on, is_over) = channel();
                let con = self.old.con();
                let thread = thread::spawn(move || end_waiting_commits(con, &is_over));
                *self.cancels.lock().unwrap_or_else(PoisonError::into_inner) = Some((goes_on, thread));
            }
            _ => {}
        }
        // A client that prefers the new one hears of it; the others stay where they are.
        let prefer_new = self.ways.iter().zip(&self.prefers_new).filter(|(_, prefers)| **prefers);
        prefer_new.for_each(|([to_old, _], _)| to_old.cut());
        true
    }

    fn settle(&self, fault: Fault) {
        if fault == Fault::Freeze {
            self.old.cont();
        }
    }

    fn heal(&self) {
        self.ways.iter().flatten().for_each(|proxy| proxy.set_all(&Traffic::ALL, Rule::Pass));
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let cancels = self.cancels.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((goes_on, thread)) = cancels {
            drop(goes_on);
            assert!(thread.join().is_ok() || thread::panicking(), "commits were not cancelled any more");
        }
    }
}

/// Until the round is over, commits that wait for the standby are cancelled, and their sessions ended, in turns. Those of messages are not:
/// a commit that was cancelled and the message about it, cancelled as well, would tell a waiter of a grant.
fn end_waiting_commits(mut con: Client, is_over: &Receiver<()>) {
    let mut ways = ["pg_cancel_backend", "pg_terminate_backend"].into_iter().cycle();
    while is_over.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
        let way = ways.next().unwrap_or_default();
        let sql = format!(
            "select {way}(pid) from pg_stat_activity where wait_event = 'SyncRep' and query !~ 'pg_notify'"
        );
        con.execute(&sql, &[]).expect("the old primary goes on");
    }
}
