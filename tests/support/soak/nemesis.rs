//! The faults: one after the other and some at the same time, by the seed.

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
    // From here on the server suffers.
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

/// Each fault, and how often it is drawn.
const MENU: [(Fault, usize); 20] = [
    (Fault::Kill, 4),
    (Fault::Stop, 4),
    (Fault::Starve, 1),
    (Fault::Cut, 3),
    (Fault::CutEar, 2),
    (Fault::BlackHole, 2),
    (Fault::InwardHole, 1),
    (Fault::OutwardHole, 1),
    (Fault::Latency, 1),
    (Fault::Bytes, 1),
    (Fault::Deaf, 1),
    (Fault::LoseReply, 2),
    (Fault::Replay, 2),
    (Fault::KillNormal, 1),
    (Fault::KillPubsub, 1),
    (Fault::ScriptFlush, 1),
    (Fault::StopServer, 1),
    (Fault::PauseServer, 1),
    (Fault::RestartServer, 1),
    (Fault::DeleteLock, 1),
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
    /// Of the worker; none if the server suffers.
    seat: Option<usize>,
    from: u64,
    ends: Instant,
    /// The command to repeat at the end.
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
        let menu: Vec<Fault> =
            MENU.iter().flat_map(|(fault, times)| std::iter::repeat_n(*fault, *times)).collect();
        let (fault, seat) = (dice.pick(&menu), dice.index(self.crew.seats.len()));
        let time = dice.millis(300..=u64::try_from(LONGEST_FAULT.as_millis()).expect("it is short"));
        let short = dice.millis(300..=1500);
        let lock = dice.pick(&LOCKS);
        let seat = (fault < Fault::KillNormal).then_some(seat);
        // At most one fault per worker and one of the server, so that each can be ended alone. And a new process must find a server
        // that answers.
        let taken = |open: &Open| open.seat == seat || open.seat.is_none() && fault == Fault::Kill;
        if seat.is_some() && self.crew.liar == seat || self.open.iter().any(taken) {
            return;
        }
        let from = now_ns();
        let (whom, lasts, piece) = match seat {
            Some(seat) => {
                let whom = Whom::Process(self.crew.seats[seat].worker.child().id());
                let (lasts, piece) = self.harm_worker(fault, seat, time);
                (whom, lasts, piece)
            }
            None => {
                let (whom, lasts) = self.harm_server(fault, lock, short);
                (whom, lasts, None)
            }
        };
        self.open.push(Open { fault, whom, seat, from, ends: Instant::now() + lasts, piece, asleep: false });
    }

    /// Whom it hits, and how long it lasts.
    fn harm_server(&self, fault: Fault, lock: &str, time: Duration) -> (Whom, Duration) {
        let server = self.server;
        let lasts = match fault {
            Fault::StopServer | Fault::PauseServer => time,
            _ => Duration::ZERO,
        };
        match fault {
            Fault::KillNormal => drop(server.query::<i64>(&["CLIENT", "KILL", "TYPE", "normal"])),
            Fault::KillPubsub => drop(server.query::<i64>(&["CLIENT", "KILL", "TYPE", "pubsub"])),
            Fault::ScriptFlush => server.query::<()>(&["SCRIPT", "FLUSH"]),
            Fault::StopServer => server.stop(),
            Fault::PauseServer => {
                server.query::<()>(&["CLIENT", "PAUSE", &time.as_millis().to_string(), "ALL"]);
            }
            Fault::RestartServer => server.restart(),
            _ => {
                server.query::<i64>(&["DEL", lock]);
                let (seconds, micros): (u64, u64) = server.query(&["TIME"]);
                let whom = Whom::HolderOf { lock: lock.to_owned(), token: seconds * 1_000_000 + micros };
                return (whom, lasts);
            }
        }
        (Whom::Everybody, lasts)
    }

    /// How long it lasts, and the command to repeat at its end.
    fn harm_worker(&mut self, fault: Fault, seat: usize, time: Duration) -> (Duration, Option<Vec<u8>>) {
        let (proxy, worker) = (&self.crew.seats[seat].proxy, &self.crew.seats[seat].worker);
        match fault {
            Fault::Kill => {
                let pid = self.crew.kill(seat);
                let (who, lock) = (String::new(), String::new());
                self.gone.push(Event { at: now_ns(), pid, who, lock, what: What::Gone });
                self.crew.refill(seat, self.round);
            }
            Fault::Stop => signals::stop(worker.child()),
            Fault::Starve => {}
            Fault::Cut => proxy.cut(),
            Fault::CutEar => proxy.cut_subscriptions(),
            Fault::BlackHole => proxy.set_all(&Traffic::ALL, Rule::Hold),
            Fault::InwardHole => proxy.set_all(&Traffic::INWARD, Rule::Hold),
            Fault::OutwardHole => proxy.set_all(&Traffic::OUTWARD, Rule::Hold),
            Fault::Latency => proxy.set_all(&Traffic::ALL, Rule::Delay(time / 20)),
            Fault::Bytes => proxy.set_all(&Traffic::ALL, Rule::Bytes),
            Fault::Deaf => proxy.set(Traffic::WakeUps, Rule::Swallow),
            Fault::LoseReply => proxy.lose_reply_to("EVALSHA"),
            _ => {
                proxy.record("EVALSHA");
                std::thread::sleep(Duration::from_millis(50)); // of its commands, one is repeated
                let heard = proxy.recorded();
                proxy.record("no command contains this");
                return (time, heard.into_iter().next_back());
            }
        }
        let is_over = matches!(fault, Fault::Kill | Fault::Cut | Fault::CutEar | Fault::LoseReply);
        (if is_over { Duration::ZERO } else { time }, None)
    }

    /// Ends the faults that are due.
    fn mend(&mut self, now: Instant) {
        for Open { fault, whom, seat, from, piece, .. } in self.open.extract_if(.., |open| now >= open.ends) {
            match (fault, seat.map(|seat| &self.crew.seats[seat])) {
                (Fault::StopServer, _) => self.server.cont(),
                (_, None) | (Fault::Kill | Fault::Cut | Fault::CutEar | Fault::LoseReply, _) => {}
                (Fault::Stop | Fault::Starve, Some(seat)) => signals::cont(seat.worker.child()),
                (Fault::Replay, Some(seat)) => {
                    if let Some(piece) = piece {
                        // A server that does not answer now has received it or will.
                        let _ = seat.proxy.try_replay(&piece);
                        self.replays += 1;
                    }
                }
                (_, Some(seat)) => seat.proxy.set_all(&Traffic::ALL, Rule::Pass),
            }
            self.done.push(Done { fault, whom, from, until: now_ns() });
        }
    }

    /// Lets starved workers run for ten milliseconds of a hundred.
    fn chop(&mut self) {
        for open in &mut self.open {
            let (Fault::Starve, Some(seat)) = (open.fault, open.seat) else { continue };
            let asleep = !(now_ns() / 10_000_000).is_multiple_of(10);
            if std::mem::replace(&mut open.asleep, asleep) != asleep {
                let signal = if asleep { signals::stop } else { signals::cont };
                signal(self.crew.seats[seat].worker.child());
            }
        }
    }
}
