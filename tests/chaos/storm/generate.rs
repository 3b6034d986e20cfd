//! A program from a seed.

use std::time::Duration;

use fairlock::admin::LockKind;
use fairlock_tests::dice::Dice;

use crate::program::{Actor, Ask, End, Hurt, Op, Program, Settings, Several, Terms, Unless, Wait, What};
use crate::weather::{Fault, Harm};

const MS: Duration = Duration::from_millis(1);

/// The same program for the same seed.
pub fn generate(seed: u64) -> Program {
    let mut dice = Dice::new(seed);
    let dice = &mut dice;
    let minutes = dice.pick(&[1, 1, 1, 3, 3, 10, 60]);
    let length = Duration::from_secs(60) * minutes;
    let clients: Vec<Settings> = (0..dice.pick(&[1, 2, 2, 3, 4])).map(|_| settings(dice)).collect();
    let locks: Vec<LockKind> = (0..dice.pick(&[1, 2, 2, 3])).map(|_| kind(dice)).collect();
    let threads = dice.pick(&[1, 2, 3]);
    let response = dice.pick(&[200 * MS, 1000 * MS, 1000 * MS]);
    let plan = Plan {
        length,
        locks: locks.clone(),
        mixes: dice.roll(6) == 0,
        actors: clients.len() * threads,
        response,
        hurts: dice.roll(4) > 0,
        plain: dice.pick(&[0, 0, 10, 50, 100]),
        // How dense the program is: long pauses show what happens to a hold that is left alone.
        busy: dice.pick(&[1, 3, 10, 30]),
    };
    let ops = dice.pick(&[4, 8, 16, 30]);
    let mut actors: Vec<_> = (0..plan.actors)
        .map(|number| Actor { client: number % clients.len(), ops: plan.ops(dice, ops) })
        .collect();
    deploy(&mut actors, Dice::new(!seed).pick(&[0, 0, 1, 3]));
    let times: Vec<Duration> = actors.iter().flat_map(|actor| actor.ops.iter().map(|op| op.at)).collect();
    let faults = match plan.hurts {
        false => Vec::new(), // nothing is late, and nothing is found by polling
        true => (0..=dice.roll(7)).map(|_| fault(dice, &times, clients.len(), response)).collect(),
    };
    Program { seed, clients, actors, locks, faults, crowd: None, response }
}

/// As in a rolling deploy, every other client names so many additional permits.
fn deploy(actors: &mut [Actor], more: u32) {
    for op in actors.iter_mut().filter(|actor| actor.client % 2 == 1).flat_map(|actor| &mut actor.ops) {
        if let What::Take { ask, .. } | What::Request(ask) | What::With { ask, .. } | What::Lead { ask, .. } =
            &mut op.what
            && let LockKind::Semaphore { permits: permits @ 2.. } = &mut ask.kind
        {
            *permits += more;
        }
    }
}

fn settings(dice: &mut Dice) -> Settings {
    let defaults = Settings {
        lease: Duration::from_secs(30),
        place_ttl: Duration::from_secs(5),
        outage_limit: Duration::from_secs(10),
        distance: Duration::ZERO,
    };
    if dice.roll(2) == 0 {
        return defaults;
    }
    Settings {
        lease: MS * dice.pick(&[100, 300, 1000, 3000, 10_000, 30_000, 120_000]),
        place_ttl: MS * dice.pick(&[500, 1000, 5000, 20_000, 60_000]),
        outage_limit: MS * dice.pick(&[500, 2000, 10_000, 30_000]),
        ..defaults
    }
}

fn kind(dice: &mut Dice) -> LockKind {
    match dice.roll(10) {
        0..=3 => LockKind::Fair,
        4..=6 => LockKind::ReadWrite,
        _ => LockKind::Semaphore { permits: dice.pick(&[1, 2, 3, 5]) },
    }
}

struct Plan {
    length: Duration,
    locks: Vec<LockKind>,
    /// Now and then a name is asked for as another kind than it is.
    mixes: bool,
    actors: usize,
    response: Duration,
    /// Calm programs have calls that suffer neither.
    hurts: bool,
    /// How many of a hundred asks for an exclusive lock are for the plain one.
    plain: u64,
    busy: u32,
}

impl Plan {
    fn ops(&self, dice: &mut Dice, count: usize) -> Vec<Op> {
        let mut at = long(dice, self.length / (4 * self.busy));
        let mut ops = Vec::new();
        for _ in 0..count {
            let what = self.what(dice);
            let hurt = match dice.roll(20) {
                _ if !self.hurts => None,
                0 => Some(Hurt::LosesRequest),
                1 | 2 => Some(Hurt::LosesReply),
                19 => Some(Hurt::HoldsBack(self.response + late(dice))),
                _ => None,
            };
            ops.push(Op { at, what, hurt });
            at += long(dice, self.length / (2 * count as u32 * self.busy));
        }
        ops
    }

    fn what(&self, dice: &mut Dice) -> What {
        let nth = index(dice, 4);
        match dice.roll(114) {
            0..=32 => {
                let (ask, wait) = (self.ask_by_any(dice), wait(dice));
                let unless = self.unless(dice, ask.kind);
                let wait = match unless {
                    Some(Unless::Every(_) | Unless::NotWithin(_)) => Wait::No,
                    Some(Unless::MostWaiting(_)) => Wait::UpTo(time_out(dice)),
                    None => wait,
                };
                What::Take { ask: Ask { unless, ..ask }, wait, listens: dice.roll(2) == 0 }
            }
            33..=60 => {
                let end =
                    dice.pick(&[End::Drop, End::Drop, End::Unlock, End::Unlock, End::Leak, End::HandOver]);
                What::GiveBack { guard: nth, end }
            }
            61..=64 => What::Unleak(nth),
            65..=67 => What::Renew(nth),
            68..=70 => What::Outlive(nth),
            71..=77 => What::Request(self.ask_by_any(dice)),
            78..=84 => {
                let wait = match dice.roll(3) {
                    0 => Wait::No,
                    1 => Wait::UpTo(time_out(dice)),
                    _ => Wait::Forever,
                };
                What::Await { request: nth, wait }
            }
            85..=88 => What::Withdraw(nth),
            89..=90 => What::Cancel(index(dice, self.actors)),
            91 => match index(dice, self.locks.len()) {
                lock if self.locks[lock].is_shared() && dice.roll(2) == 0 => What::ForceOne { lock, nth },
                lock => What::Force(lock),
            },
            92..=93 => What::Look(index(dice, self.locks.len())),
            94 if dice.roll(2) == 0 => What::Shutdown,
            94 => What::Drain(long(dice, Duration::from_secs(60))),
            95 => What::DropClient,
            96..=99 => What::Restart,
            100..=106 => match self.several(dice) {
                Several(0) => What::Look(0),
                locks => What::TakeAll {
                    locks,
                    wait: wait(dice),
                    listens: dice.roll(2) == 0,
                    by_task: dice.roll(3) == 0,
                    dropped: dropped(dice),
                },
            },
            number => match (self.ask_by_any(dice), long(dice, Duration::from_secs(60))) {
                // A semaphore of threads has no closures.
                (ask, _) if matches!(ask.kind, LockKind::Semaphore { .. }) && !ask.by_task => {
                    What::Take { ask, wait: wait(dice), listens: false }
                }
                (ask, lasts) if number > 110 => What::Lead { ask, lasts, dropped: dropped(dice) },
                (ask, lasts) => What::With { ask, wait: wait(dice), lasts, dropped: dropped(dice) },
            },
        }
    }

    /// Exclusive locks, if there are any; in a program that mixes kinds, others too.
    fn several(&self, dice: &mut Dice) -> Several {
        let chosen = self.locks.iter().enumerate().filter(|(_, kind)| {
            let may_be = !kind.is_shared() || self.mixes && dice.roll(4) == 0;
            may_be && dice.roll(4) > 0
        });
        Several(chosen.fold(0, |several, (lock, _)| several | 1 << lock))
    }

    fn unless(&self, dice: &mut Dice, kind: LockKind) -> Option<Unless> {
        let period = long(dice, Duration::from_secs(90)).max(Duration::from_secs(1));
        match (kind, dice.roll(18)) {
            (LockKind::Fair | LockKind::Plain, 0) => Some(Unless::Every(period)),
            (LockKind::Fair | LockKind::Plain, 1) => Some(Unless::NotWithin(period)),
            (LockKind::Fair, 2) => Some(Unless::MostWaiting(1 + dice.roll(3) as u32)),
            _ => None,
        }
    }

    /// By a thread or a task.
    fn ask_by_any(&self, dice: &mut Dice) -> Ask {
        let ask = self.ask(dice);
        Ask { by_task: ask.owner.is_none() && dice.roll(3) == 0, ..ask }
    }

    fn ask(&self, dice: &mut Dice) -> Ask {
        let lock = index(dice, self.locks.len());
        let kind = match self.mixes && dice.roll(5) == 0 {
            true => kind(dice),
            false => self.locks[lock],
        };
        let units = match kind {
            LockKind::ReadWrite if dice.roll(5) < 2 => kind.capacity(),
            LockKind::Semaphore { permits } if dice.roll(2) == 0 => 1 + dice.roll(u64::from(permits)) as u32,
            _ => 1,
        };
        let is_plain = kind == LockKind::Fair && dice.roll(100) < self.plain;
        let kind = if is_plain { LockKind::Plain } else { kind };
        let terms = match dice.roll(8) {
            0 => Terms::Fixed(long(dice, Duration::from_secs(100)).max(10 * MS)),
            1 => Terms::Capped(long(dice, Duration::from_secs(200)).max(10 * MS)),
            _ => Terms::Renewed,
        };
        let owner = (dice.roll(4) == 0).then(|| index(dice, 2));
        Ask { lock, kind, units, terms, owner, by_task: false, unless: None }
    }
}

fn fault(dice: &mut Dice, times: &[Duration], clients: usize, response: Duration) -> Fault {
    let percent = dice.pick(&[20, 50, 100]);
    let harm = match dice.roll(11) {
        0 => Harm::LoseRequests(percent),
        1 => Harm::LoseReplies(percent),
        2 => Harm::Refuse,
        3 => Harm::Silence,
        4 => Harm::Cut,
        5 => Harm::Deafen(percent),
        6 => Harm::Slow(long(dice, response)),
        7 => Harm::LateWakeUps(long(dice, Duration::from_secs(3))),
        8 => Harm::Stop,
        9 => Harm::HoldBack(percent),
        _ => Harm::Jump,
    };
    let everybody = dice.roll(3) == 0;
    let client = (!everybody).then(|| index(dice, clients));
    // Shortly before a call, or while it waits.
    let (call, apart) = (dice.pick(times), long(dice, Duration::from_secs(20)));
    let at = if dice.roll(2) == 0 { call.saturating_sub(apart) } else { call + apart };
    Fault { at, lasts: long(dice, Duration::from_secs(90)), client, harm }
}

fn index(dice: &mut Dice, below: usize) -> usize {
    dice.roll(below as u64) as usize
}

fn wait(dice: &mut Dice) -> Wait {
    match dice.roll(10) {
        0..=1 => Wait::No,
        2..=4 => Wait::UpTo(time_out(dice)),
        _ => Wait::Forever,
    }
}

/// After what time a task drops its future, if it does.
fn dropped(dice: &mut Dice) -> Option<Duration> {
    (dice.roll(3) == 0).then(|| long(dice, Duration::from_secs(60)))
}

/// How long after its caller has given it up a message arrives: mostly as long as the server may begin what it asks for.
fn late(dice: &mut Dice) -> Duration {
    match dice.roll(3) {
        0 => long(dice, Duration::from_secs(60)),
        _ => dice.millis(1..=5_000),
    }
}

fn time_out(dice: &mut Dice) -> Duration {
    match dice.roll(2) {
        0 => long(dice, Duration::from_secs(60)),
        _ => dice.millis(2_000..=12_000), // some heartbeats, and less than most outage limits
    }
}

/// From a millisecond to `longest`; short ones as often as long ones.
fn long(dice: &mut Dice, longest: Duration) -> Duration {
    let longest = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX).max(1);
    let below = longest >> dice.roll(u64::from(longest.ilog2()) + 1);
    MS * (1 + dice.roll(below.max(1))) as u32
}
