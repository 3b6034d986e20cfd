//! The faults of a program: who suffers what from when to when, and what becomes of one call.

use std::sync::Mutex;
use std::time::Duration;

use crate::program::{Hurt, Program};
use crate::world::locked;

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub at: Duration,
    pub lasts: Duration,
    /// All of them if none.
    pub client: Option<usize>,
    pub harm: Harm,
}

/// What a fault does. Percentages are of calls or of wake-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// Requests get lost: no answer within the response time-out.
    LoseRequests(u64),
    /// Requests get no answer within the response time-out, and reach the server later, up to a minute after they were sent:
    /// when their repeats were answered on another way.
    HoldBack(u64),
    /// They are carried out, and the replies get lost.
    LoseReplies(u64),
    /// Each call fails at once: no server listens at that address.
    Refuse,
    /// No call is answered and no wake-up arrives; the server does not notice. At the end there is a gap.
    Silence,
    /// The same at once, and the server sees that the connection is gone.
    Cut,
    /// Wake-ups get lost.
    Deafen(u64),
    /// Answers take up to so long.
    Slow(Duration),
    /// Wake-ups take up to so long.
    LateWakeUps(Duration),
    /// The client's process stands still: its calls and its wake-ups wait, and its actors make no call.
    Stop,
    /// On a real server: all connections are killed, at the beginning. On files: all sockets are removed.
    Kill,
    /// In a world: some of the client's connections are reset, at the beginning.
    Sever,
    /// In a world: what the client and the server send each other arrives when the fault is over. Where `new` is not so, connections that
    /// are made meanwhile work.
    Hush { new: bool },
    /// In a world: the server comes back with an older copy of its data, or with none, or its clock is stepped. What it granted may be gone:
    /// from then on only the promises hold that need no memory.
    Forget(Loss),
    /// On a real server: its process stands still. On files: a step stands still that has the file of each lock.
    Freeze,
    /// Everything stands still, also the server: the clock is stepped by as long as the fault lasts.
    Jump,
    /// On PostgreSQL: the row of this lock is locked by other sessions, one transaction after the other, each of which lasts for so long
    /// and asks `still_held` first.
    Chain { lock: usize, each: Duration },
    /// On PostgreSQL: another session locks the row of this lock, and sits. On files: another process takes the lock, and is killed at the
    /// end.
    Block { lock: usize },
}

/// How a server forgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    Older,
    Empty,
    Step,
}

impl Harm {
    /// The lock whose row is locked, or that others take. Nothing is done to clients then: each lives, and can be reached.
    pub fn row(self) -> Option<usize> {
        match self {
            Harm::Chain { lock, .. } | Harm::Block { lock } => Some(lock),
            _ => None,
        }
    }

    /// Whether what was granted may be gone.
    pub fn forgets(self) -> bool {
        matches!(self, Harm::Forget(_))
    }

    /// How long each transaction takes.
    pub fn each(self) -> Option<Duration> {
        if let Harm::Chain { each, .. } = self { Some(each) } else { None }
    }
}

/// What becomes of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// What passes before it reaches the server, and before the answer is back.
    pub there: Duration,
    pub back: Duration,
    pub request: Trip,
    pub reply: Trip,
}

/// Whether a message arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trip {
    #[default]
    Arrives,
    /// Its sender hears nothing until the response time-out.
    Lost,
    /// Its sender is told at once.
    Refused,
    /// Its sender hears nothing until the response time-out. It arrives so long after it was sent.
    HeldBack(Duration),
}

/// Nothing is held back for longer than this.
pub const LATEST: Duration = Duration::from_secs(60);
/// Of a held-back message: for how long after the response time-out the server may still begin what it asks for.
const MARGIN: Duration = Duration::from_secs(5);

impl Fault {
    pub fn end(&self) -> Duration {
        self.at + self.lasts
    }

    pub fn is_on(&self, now: Duration) -> bool {
        self.harm != Harm::Jump && self.at <= now && now < self.end()
    }

    pub fn hits(&self, client: usize) -> bool {
        self.harm.row().is_none() && self.client.is_none_or(|other| other == client)
    }
}

/// The faults of a program, and the questions that are put to them.
#[derive(Debug)]
pub struct Weather {
    seed: u64,
    response: Duration,
    faults: Vec<Fault>,
    /// What single calls suffered, when they did.
    hurts: Mutex<Vec<Fault>>,
}

impl Weather {
    pub fn of(program: &Program) -> Weather {
        let mut faults = program.faults.clone();
        // A step of the clock that is planned within an earlier one comes when that one has moved the clock past it.
        let mut jumps: Vec<&mut Fault> = faults.iter_mut().filter(|fault| fault.harm == Harm::Jump).collect();
        jumps.sort_unstable_by_key(|fault| fault.at);
        let mut end = Duration::ZERO;
        for jump in jumps {
            jump.at = jump.at.max(end);
            end = jump.end();
        }
        Weather { seed: program.seed, response: program.response, faults, hurts: Mutex::default() }
    }

    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// How long after it was sent the server may begin what a message asks for.
    pub fn attempt_ttl(&self) -> Duration {
        self.response + MARGIN
    }

    /// One call of the client suffers now; its caller is told after the response time-out.
    pub fn hurt(&self, client: usize, now: Duration, hurt: Hurt) {
        // No other harms are these.
        let harm = match hurt {
            Hurt::LosesRequest | Hurt::LosesReply => Harm::LoseReplies(0),
            Hurt::HoldsBack(_) => Harm::HoldBack(0),
        };
        locked(&self.hurts).push(Fault {
            at: now,
            lasts: Duration::from_millis(1),
            client: Some(client),
            harm,
        });
    }

    /// The faults of the program, and what single calls suffered.
    fn all(&self) -> Vec<Fault> {
        let mut all = self.faults.clone();
        all.extend(locked(&self.hurts).iter());
        all
    }

    fn on(&self, client: usize, now: Duration) -> impl Iterator<Item = (usize, &Fault)> {
        self.faults.iter().enumerate().filter(move |(_, fault)| fault.hits(client) && fault.is_on(now))
    }

    /// What becomes of the `nth` call of this kind that the client makes at this moment.
    pub fn fate(&self, client: usize, operation: &str, now: Duration, nth: u64) -> Fate {
        let mut fate = Fate::default();
        for (number, fault) in self.on(client, now) {
            let dice = |salt: u64| self.roll(&[number as u64, client as u64, nth, salt], operation, now);
            match fault.harm {
                Harm::LoseRequests(percent) if dice(0) % 100 < percent => fate.request = Trip::Lost,
                Harm::HoldBack(percent) if dice(4) % 100 < percent => {
                    let longest = if dice(5) % 3 == 0 { LATEST } else { MARGIN };
                    let by = self.response + longest.mul_f64((dice(6) % 1000) as f64 / 1000.0);
                    fate.request = Trip::HeldBack(by);
                }
                Harm::LoseReplies(percent) if dice(1) % 100 < percent => fate.reply = Trip::Lost,
                Harm::Refuse | Harm::Cut => fate.request = Trip::Refused,
                Harm::Silence => fate.request = Trip::Lost,
                Harm::Slow(longest) => {
                    fate.there += longest.mul_f64((dice(2) % 1000) as f64 / 2000.0);
                    fate.back += longest.mul_f64((dice(3) % 1000) as f64 / 2000.0);
                }
                _ => {}
            }
        }
        fate
    }

    /// After how long a wake-up arrives; none if it gets lost.
    pub fn wake_up(&self, client: usize, now: Duration, nth: u64) -> Option<Duration> {
        let mut late = Duration::ZERO;
        for (number, fault) in self.on(client, now) {
            let roll = self.roll(&[number as u64, client as u64, nth], "wake-up", now);
            match fault.harm {
                Harm::Silence | Harm::Cut => return None,
                Harm::Deafen(percent) if roll % 100 < percent => return None,
                Harm::LateWakeUps(longest) => late += longest.mul_f64((roll % 1000) as f64 / 1000.0),
                _ => {}
            }
        }
        Some(late)
    }

    /// Until when the client's process stands still, if it does.
    pub fn stopped_until(&self, client: usize, now: Duration) -> Option<Duration> {
        let stops = self.on(client, now).filter(|(_, fault)| fault.harm == Harm::Stop);
        stops.map(|(_, fault)| fault.end()).max()
    }

    /// Since when nothing at all has happened to the client; none while something does. What a fault has begun is over
    /// after a response time-out.
    pub fn calm_since(&self, client: usize, now: Duration) -> Option<Duration> {
        let mut since = Duration::ZERO;
        for fault in self.all().iter().filter(|fault| fault.hits(client) || fault.harm == Harm::Jump) {
            let over = fault.end() + self.response + self.lateness(fault);
            if fault.at <= now {
                if now < over {
                    return None;
                }
                since = since.max(over);
            }
        }
        Some(since)
    }

    /// Whether nothing happened to the client from `from` to `to`. Steps of the clock count as happening or not.
    pub fn is_calm(&self, client: usize, from: Duration, to: Duration, with_jumps: bool) -> bool {
        self.all().iter().all(|fault| {
            let spares = match fault.harm {
                Harm::Jump => !with_jumps,
                _ => !fault.hits(client),
            };
            spares || to < fault.at || fault.end() + self.response + self.lateness(fault) < from
        })
    }

    /// Whether no row of these locks, or of any lock, was locked by others from `from` to `to`.
    pub fn rows_are_free(&self, lock: Option<usize>, from: Duration, to: Duration) -> bool {
        self.faults.iter().all(|fault| match fault.harm.row() {
            Some(row) if lock.is_none_or(|lock| lock == row) => {
                to < fault.at || fault.end() + self.response < from
            }
            _ => true,
        })
    }

    /// How long all faults since `from` lasted, one after the other.
    pub fn trouble_since(&self, client: usize, from: Duration) -> Duration {
        let all = self.all();
        let since = all.iter().filter(|fault| fault.hits(client) && fault.end() + self.response >= from);
        since.map(|fault| fault.lasts + self.response + self.lateness(fault)).sum()
    }

    fn lateness(&self, fault: &Fault) -> Duration {
        match fault.harm {
            Harm::LateWakeUps(longest) => longest,
            // What it still begins is undone after that, counted from when its caller is told.
            Harm::HoldBack(_) | Harm::Hush { .. } => MARGIN + self.told_late(fault),
            _ => Duration::ZERO,
        }
    }

    /// By how much the caller is told later, because it stands still at the end of the response time-out.
    fn told_late(&self, fault: &Fault) -> Duration {
        let told = fault.end() + self.response;
        let stops = self.faults.iter().filter(|stop| stop.harm == Harm::Stop && stop.at <= told);
        let hitting = stops.filter(|stop| fault.client.is_none_or(|client| stop.hits(client)));
        hitting.map(|stop| stop.end().saturating_sub(told)).max().unwrap_or_default()
    }

    /// For how long the client stood still between these moments.
    pub fn stood_still(&self, client: usize, from: Duration, to: Duration) -> Duration {
        let stops = self.faults.iter().filter(|fault| match fault.harm {
            Harm::Stop => fault.hits(client),
            Harm::Jump => true,
            _ => false,
        });
        stops.map(|fault| fault.end().min(to).saturating_sub(fault.at.max(from))).sum()
    }

    /// Since when no call of the client was answered, without a pause, up to now.
    pub fn silent_since(&self, client: usize, now: Duration) -> Option<Duration> {
        let mut since = None;
        let mut at = now;
        // Windows that touch each other are one silence.
        while let Some(fault) = self.faults.iter().find(|fault| {
            let silent = matches!(
                fault.harm,
                Harm::Refuse
                    | Harm::Cut
                    | Harm::Silence
                    | Harm::Freeze
                    | Harm::Hush { .. }
                    | Harm::LoseRequests(100)
                    | Harm::HoldBack(100)
                    | Harm::LoseReplies(100)
            );
            silent && fault.hits(client) && fault.at < at && at <= fault.end()
        }) {
            at = fault.at;
            since = Some(at);
        }
        since
    }

    /// The next moment after `now` at which a fault begins or ends.
    pub fn next_change(&self, now: Duration) -> Option<Duration> {
        let moments = self.faults.iter().flat_map(|fault| match fault.harm {
            Harm::Jump => [fault.at, fault.at],
            _ => [fault.at, fault.end()],
        });
        moments.filter(|at| *at > now).min()
    }

    fn roll(&self, numbers: &[u64], text: &str, now: Duration) -> u64 {
        let mut mixed = self.seed ^ u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        let bytes = text.bytes().map(u64::from);
        for number in numbers.iter().copied().chain(bytes) {
            mixed = (mixed ^ number).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            mixed ^= mixed >> 29;
        }
        mixed >> 8
    }
}
