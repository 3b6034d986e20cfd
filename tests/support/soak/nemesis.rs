//! The faults: one after the other and some at the same time, by the seed.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use super::crew::Crew;
use super::{Dice, LOCKS, LONGEST_FAULT};
use crate::history::{Event, What, now_ns};
use crate::proxy::{Rule, Traffic};
use crate::{RedisServer, signals};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A worker is killed (SIGKILL), and another one is started.
    Kill,
    /// A worker is stopped (SIGSTOP), often for longer than its lease, and continues.
    Stop,
    /// A worker runs a tenth of the time (SIGSTOP and SIGCONT in turn).
    Starve,
    /// All connections of a worker are cut.
    Cut,
    /// A worker's subscription is cut.
    CutEar,
    /// Nothing passes between a worker and the server, and neither is told.
    BlackHole,
    /// Nothing from the server passes.
    InwardHole,
    /// Nothing to the server passes.
    OutwardHole,
    /// Everything is delayed.
    Latency,
    /// Everything arrives byte by byte.
    Bytes,
    /// Published messages are lost.
    Deaf,
    /// A command is executed, and its reply lost with the connection.
    LoseReply,
    /// A command is repeated, late.
    Replay,
    /// The server closes all connections for commands.
    KillNormal,
    /// The server closes all subscriptions.
    KillPubsub,
    /// The server forgets all scripts.
    ScriptFlush,
    /// The server is stopped, and continues.
    StopServer,
    /// The server answers nothing for a while (CLIENT PAUSE).
    PauseServer,
    /// The server is killed and restarted with everything that it had acknowledged.
    RestartServer,
    /// An administrator deletes the key of a held lock.
    DeleteLock,
}

/// Each fault as often as it is listed.
const MENU: [Fault; 32] = [
    Fault::Kill,
    Fault::Kill,
    Fault::Kill,
    Fault::Kill,
    Fault::Stop,
    Fault::Stop,
    Fault::Stop,
    Fault::Stop,
    Fault::Starve,
    Fault::Cut,
    Fault::Cut,
    Fault::Cut,
    Fault::CutEar,
    Fault::CutEar,
    Fault::BlackHole,
    Fault::BlackHole,
    Fault::InwardHole,
    Fault::OutwardHole,
    Fault::Latency,
    Fault::Bytes,
    Fault::Deaf,
    Fault::LoseReply,
    Fault::LoseReply,
    Fault::Replay,
    Fault::Replay,
    Fault::KillNormal,
    Fault::KillPubsub,
    Fault::ScriptFlush,
    Fault::StopServer,
    Fault::PauseServer,
    Fault::RestartServer,
    Fault::DeleteLock,
];

/// The target of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whom {
    /// That process.
    Process(u32),
    /// All processes.
    Everybody,
    /// The holder of a lock at that time.
    HolderOf {
        /// The lock.
        lock: String,
        /// The greatest token that the holder can have: tokens are the server's time in microseconds.
        token: u64,
    },
}

/// A completed fault, for the checkers.
#[derive(Clone, Debug)]
pub struct Done {
    /// The kind.
    pub fault: Fault,
    /// The target.
    pub whom: Whom,
    /// The start, by [`now_ns`].
    pub from: u64,
    /// The end.
    pub until: u64,
}

/// A fault in progress.
#[derive(Debug)]
struct Open {
    fault: Fault,
    whom: Whom,
    seat: Option<usize>,
    from: u64,
    ends: Instant,
    piece: Option<Vec<u8>>,
    asleep: bool,
}

/// The calm at the start of a round. In it everything must work as without faults.
pub const CALM: Duration = Duration::from_secs(2);
/// How many faults run at the same time.
const AT_ONCE: usize = 3;

/// Injects the faults of one round.
#[derive(Debug)]
pub struct Nemesis<'a> {
    server: &'a RedisServer,
    crew: &'a mut Crew,
    round: &'a Path,
    open: Vec<Open>,
    /// The completed faults.
    pub done: Vec<Done>,
    /// When killed processes ended.
    pub gone: Vec<Event>,
    /// How many commands were repeated.
    pub replays: u64,
}

impl<'a> Nemesis<'a> {
    /// One round.
    pub fn new(server: &'a RedisServer, crew: &'a mut Crew, round: &'a Path) -> Nemesis<'a> {
        Nemesis { server, crew, round, open: Vec::new(), done: Vec::new(), gone: Vec::new(), replays: 0 }
    }

    /// Waits through the calm, injects faults for `time`, then ends them all.
    pub fn rage(&mut self, dice: &mut Dice, time: Duration) {
        std::thread::sleep(CALM); // the run itself
        let ends = Instant::now() + time;
        while Instant::now() < ends {
            if self.open.len() < AT_ONCE {
                self.begin(dice);
            }
            let pause = Instant::now() + dice.millis(300..=1600);
            while Instant::now() < pause {
                self.mend(Instant::now());
                self.chop();
                std::thread::sleep(Duration::from_millis(10)); // the run itself
            }
        }
        self.mend(ends + LONGEST_FAULT * 2);
    }

    fn begin(&mut self, dice: &mut Dice) {
        let fault = dice.pick(&MENU);
        let seat = dice.index(self.crew.seats.len());
        let time = dice.millis(300..=u64::try_from(LONGEST_FAULT.as_millis()).expect("it is short"));
        let short = dice.millis(300..=1500);
        let lock = dice.pick(&LOCKS);
        let server_only = matches!(
            fault,
            Fault::KillNormal
                | Fault::KillPubsub
                | Fault::ScriptFlush
                | Fault::StopServer
                | Fault::PauseServer
                | Fault::RestartServer
                | Fault::DeleteLock
        );
        // At most one fault per worker, so that each can be ended alone.
        let taken = |open: &Open| match (server_only, open.seat) {
            (true, None) => true,
            // The new process must find a server that answers.
            (false, None) => fault == Fault::Kill,
            (false, Some(other)) => other == seat,
            _ => false,
        };
        let spared = !server_only && self.crew.liar == Some(seat);
        if spared || self.open.iter().any(taken) {
            return;
        }
        let from = now_ns();
        let process = Whom::Process(self.crew.seats[seat].worker.child().id());
        let mut piece = None;
        let (whom, lasts) = if server_only {
            self.harm_server(fault, lock, short)
        } else {
            (process, self.harm_worker(fault, seat, time, &mut piece))
        };
        let seat = (!server_only).then_some(seat);
        self.open.push(Open { fault, whom, seat, from, ends: Instant::now() + lasts, piece, asleep: false });
    }

    fn harm_server(&self, fault: Fault, lock: &str, time: Duration) -> (Whom, Duration) {
        let server = self.server;
        match fault {
            Fault::KillNormal => drop(server.query::<i64>(&["CLIENT", "KILL", "TYPE", "normal"])),
            Fault::KillPubsub => drop(server.query::<i64>(&["CLIENT", "KILL", "TYPE", "pubsub"])),
            Fault::ScriptFlush => server.query::<()>(&["SCRIPT", "FLUSH"]),
            Fault::StopServer => {
                server.stop();
                return (Whom::Everybody, time);
            }
            Fault::PauseServer => {
                server.query::<()>(&["CLIENT", "PAUSE", &time.as_millis().to_string(), "ALL"]);
                return (Whom::Everybody, time);
            }
            Fault::RestartServer => server.restart(),
            _ => {
                server.query::<i64>(&["DEL", lock]);
                let (seconds, micros): (u64, u64) = server.query(&["TIME"]);
                let whom = Whom::HolderOf { lock: lock.to_owned(), token: seconds * 1_000_000 + micros };
                return (whom, Duration::ZERO);
            }
        }
        (Whom::Everybody, Duration::ZERO)
    }

    fn harm_worker(
        &mut self,
        fault: Fault,
        seat: usize,
        time: Duration,
        piece: &mut Option<Vec<u8>>,
    ) -> Duration {
        let (proxy, worker) = (&self.crew.seats[seat].proxy, &self.crew.seats[seat].worker);
        match fault {
            Fault::Kill => {
                let pid = self.crew.kill(seat);
                let (who, lock) = (String::new(), String::new());
                self.gone.push(Event { at: now_ns(), pid, who, lock, what: What::Gone });
                self.crew.refill(seat, self.round);
                return Duration::ZERO;
            }
            Fault::Stop => signals::stop(worker.child()),
            Fault::Starve => {}
            Fault::Cut => {
                proxy.cut();
                return Duration::ZERO;
            }
            Fault::CutEar => {
                proxy.cut_subscriptions();
                return Duration::ZERO;
            }
            Fault::BlackHole => proxy.set_all(&Traffic::ALL, Rule::Hold),
            Fault::InwardHole => proxy.set_all(&Traffic::INWARD, Rule::Hold),
            Fault::OutwardHole => proxy.set_all(&Traffic::OUTWARD, Rule::Hold),
            Fault::Latency => proxy.set_all(&Traffic::ALL, Rule::Delay(time / 20)),
            Fault::Bytes => proxy.set_all(&Traffic::ALL, Rule::Bytes),
            Fault::Deaf => proxy.set(Traffic::WakeUps, Rule::Swallow),
            Fault::LoseReply => {
                proxy.lose_reply_to("EVALSHA");
                return Duration::ZERO;
            }
            _ => {
                proxy.record("EVALSHA");
                // Some of its commands are repeated at the end.
                std::thread::sleep(Duration::from_millis(50));
                let heard = proxy.recorded();
                proxy.record("no command contains this");
                *piece = heard.into_iter().next_back();
            }
        }
        time
    }

    /// Ends the faults that are due.
    fn mend(&mut self, now: Instant) {
        let (over, open): (Vec<Open>, Vec<Open>) = self.open.drain(..).partition(|open| now >= open.ends);
        self.open = open;
        for Open { fault, whom, seat, from, piece, .. } in over {
            if let Some(seat) = seat.map(|seat| &self.crew.seats[seat]) {
                match fault {
                    Fault::Stop | Fault::Starve => signals::cont(seat.worker.child()),
                    Fault::Kill | Fault::Cut | Fault::CutEar | Fault::LoseReply => {}
                    Fault::Replay => {
                        if let Some(piece) = piece {
                            // A server that does not answer now has received it or will.
                            let _ = seat.proxy.try_replay(&piece);
                            self.replays += 1;
                        }
                    }
                    _ => seat.proxy.set_all(&Traffic::ALL, Rule::Pass),
                }
            } else if fault == Fault::StopServer {
                self.server.cont();
            }
            self.done.push(Done { fault, whom, from, until: now_ns() });
        }
    }

    /// Lets starved workers run for ten milliseconds of a hundred.
    fn chop(&mut self) {
        for open in &mut self.open {
            let (Fault::Starve, Some(seat)) = (open.fault, open.seat) else { continue };
            let asleep = !(now_ns() / 10_000_000).is_multiple_of(10);
            if asleep != open.asleep {
                let child = self.crew.seats[seat].worker.child();
                if asleep {
                    signals::stop(child)
                } else {
                    signals::cont(child)
                }
                open.asleep = asleep;
            }
        }
    }
}

/// How many of each kind.
pub fn by_kind<'a>(done: impl IntoIterator<Item = &'a Done>) -> BTreeMap<Fault, u64> {
    let mut kinds = BTreeMap::new();
    for done in done {
        *kinds.entry(done.fault).or_insert(0) += 1;
    }
    kinds
}
