//! The model of the hand-off (`support/reference/`) compared with its implementations: fairlock-line in memory, and the Lua
//! on a real server. Same commands, same answers, same pushes, same state.
//!
//! proptest draws the commands, and shrinks a difference. `FAIRLOCK_CASES=5000` runs longer. `FAIRLOCK_SEED`, which a
//! failure prints, repeats a run.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy knows #[test] functions, not their helpers"
)]

mod cast;
mod commands;
mod days;
mod differential;
mod lua;
mod lua_calls;
mod lua_replies;
mod memory;
mod mistakes;
mod model;
mod promises;
mod scenes;
mod subject;
mod world;

use std::cell::RefCell;
use std::hash::{BuildHasher, Hasher, RandomState};

use fairlock::MemoryBackend;
use fairlock_tests::reference::{Answer, Ask, Kind, Member, Patience, Push};
use fairlock_tests::rows::Rows;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use commands::{Command, Scale, Step, Time, steps};
use differential::Ways;
use lua::{LuaServer, LuaSubject, Parts};
use memory::MemorySubject;
use mistakes::{Mistake, Mistakes};
use scenes::{play_scenes, rests_of_nobody};
use subject::{Both, Subject, differ};

/// A fair lock, a semaphore, and a read-write lock.
static KINDS: [Kind; 3] =
    [Kind::Exclusive, Kind::Shared { capacity: 4 }, Kind::Shared { capacity: u32::MAX }];

/// In the same order, and how many cases of each.
fn kinds(cases: [u32; 3]) -> impl Iterator<Item = (Kind, u32)> {
    KINDS.into_iter().zip(cases)
}

fn scale(time: Time, kind: Kind) -> Scale {
    let ttls = match time {
        // One time to live is what the scripts take for that of a line whose state was lost.
        Time::VirtualWithHarm if kind != Kind::Exclusive => [5_000, 9_000],
        _ => [6_000, 9_000],
    };
    Scale { leases: [3_000, 12_000, 30_000], ttls, time, kind }
}

#[test]
fn the_model_keeps_its_promises() {
    for (kind, cases) in kinds([800, 250, 250]) {
        let scale = scale(Time::Virtual, kind);
        check(scale, cases, &mut |steps| promises::are_kept(scale, steps));
    }
}

#[test]
fn the_memory_backend_does_what_the_model_does() {
    for (kind, cases) in kinds([1000, 250, 250]) {
        hold_against_the_model(scale(Time::VirtualWithCare, kind), cases, &mut || {
            Box::new(MemorySubject::new::<MemoryBackend>(kind))
        });
    }
}

#[test]
fn a_store_that_keeps_bytes_does_what_the_model_does() {
    for (kind, cases) in kinds([500, 150, 150]) {
        hold_against_the_model(scale(Time::VirtualWithCare, kind), cases, &mut || {
            Box::new(MemorySubject::new::<Rows>(kind))
        });
    }
}

#[test]
fn the_lua_does_what_the_model_does() {
    let lua = LuaServer::start(Parts::Both);
    for (kind, cases) in kinds([250, 80, 80]) {
        hold_against_the_model(scale(Time::Virtual, kind), cases, &mut || {
            Box::new(LuaSubject::new(&lua, kind))
        });
    }
}

/// The clock of an empty line judges nothing, except how much longer a line rests. Chance seldom comes there.
#[test]
fn a_line_that_rests_and_has_nobody_moves_its_clock_alike() {
    let lua = LuaServer::start(Parts::Both);
    for kind in KINDS {
        let scale = scale(Time::Virtual, kind);
        for steps in rests_of_nobody(scale) {
            let mut scripts = LuaSubject::new(&lua, kind);
            let mut memory = MemorySubject::new::<MemoryBackend>(kind);
            let subjects: [&mut dyn Subject; 2] = [&mut scripts, &mut memory];
            for subject in subjects {
                differ(subject, scale, &steps).unwrap_or_else(|story| panic!("{story}"));
            }
        }
    }
}

/// Beside the model's commands: lost keys, clocks that are set back, plain locks and Redisson's line on the same lock.
#[test]
fn the_fast_parts_do_what_the_general_parts_do() {
    let (fast, general) = (LuaServer::start(Parts::Both), LuaServer::start(Parts::General));
    let mut ways = [Ways::default(), Ways::default()];
    for (kind, cases) in kinds([100, 60, 60]) {
        let (scale, ways) =
            (scale(Time::VirtualWithHarm, kind), &mut ways[usize::from(kind != Kind::Exclusive)]);
        play_scenes(&fast, &general, ways, scale).unwrap_or_else(|story| panic!("{story}"));
        check(scale, cases, &mut |steps| differential::differ(&fast, &general, ways, scale, steps));
    }
    ways.iter().for_each(Ways::assert_fast);
}

/// More waiters died than one command examines: it can't know whether a live one is behind them.
#[test]
fn nobody_barges_past_more_absent_waiters_than_one_command_looks_at() {
    let lua = LuaServer::start(Parts::Both);
    let mut subject = LuaSubject::new(&lua, Kind::Exclusive);
    let mut both = Both::new(&mut subject, Kind::Exclusive);
    let ask = |client, request, patience| {
        let member = Member { client, owner: request, request };
        let ask = Ask { member, lease: 30_000, ttl: 6_000, label: "", ticket: 0, takes: 1 };
        Command::Acquire { lock: 0, ask, patience }
    };
    let mut run = |command| both.run(&command).unwrap_or_else(|difference| panic!("{difference}"));
    for dies in 0..257 {
        run(ask(0, dies, Patience::Wait));
    }
    run(ask(1, 257, Patience::Wait));
    run(Command::GoesDeaf(0));
    run(Command::LoseHold { lock: 0 });
    // It examines dead waiters, and leaves the lock free: the next waiter is not known yet.
    assert_eq!(run(ask(2, 258, Patience::Once)).answers, [Answer::Busy { left: 0 }]);
    let outcome = run(ask(2, 259, Patience::Wait));
    assert!(matches!(outcome.answers[..], [Answer::Queued { rank: 0, .. }]), "{outcome:?}");
    assert!(
        matches!(outcome.pushes[..], [Push::Granted { to: Member { client: 1, .. }, .. }]),
        "{outcome:?}"
    );
}

/// Each within 400 cases of a fixed seed, so that the result is not random.
#[test]
fn a_mistake_in_the_lua_is_found() {
    let mut lua = LuaServer::start(Parts::Both);
    let Mistakes { general, general_of_units, .. } = Mistakes::read();
    for (mistake, kinds) in with_kinds(&general, &general_of_units) {
        lua.load(Parts::Both, Some(mistake));
        let finds = |&kind: &Kind| {
            let scale = scale(Time::Virtual, kind);
            let mut judge = |steps: &[Step]| differ(&mut LuaSubject::new(&lua, kind), scale, steps);
            look_for_a_case(scale, 400, 1, 0, &mut judge).is_err()
        };
        assert!(kinds.iter().any(finds), "not found: {}", mistake.mistake);
    }
}

/// By the scenes alone, so that the result is not random.
#[test]
fn a_mistake_in_a_fast_part_is_found() {
    let (mut lua, general) = (LuaServer::start(Parts::Both), LuaServer::start(Parts::General));
    let Mistakes { fast, fast_of_units, .. } = Mistakes::read();
    for (mistake, kinds) in with_kinds(&fast, &fast_of_units) {
        lua.load(Parts::Both, Some(mistake));
        let finds = |&kind: &Kind| {
            play_scenes(&lua, &general, &mut Ways::default(), scale(Time::VirtualWithHarm, kind)).is_err()
        };
        assert!(kinds.iter().any(finds), "not found: {}", mistake.mistake);
    }
}

/// Mistakes about a lock with one holder, and those about several units, each with the kinds that find it.
fn with_kinds<'a>(
    of_one: &'a [Mistake],
    of_units: &'a [Mistake],
) -> impl Iterator<Item = (&'a Mistake, &'static [Kind])> {
    let (one, units) = KINDS.split_at(1);
    of_one
        .iter()
        .map(move |mistake| (mistake, one))
        .chain(of_units.iter().map(move |mistake| (mistake, units)))
}

/// Draws sequences of commands until one makes a difference, for at most `cases` cases.
fn hold_against_the_model<'a>(scale: Scale, cases: u32, subject: &mut dyn FnMut() -> Box<dyn Subject + 'a>) {
    check(scale, cases, &mut |steps| differ(subject().as_mut(), scale, steps));
}

fn check(scale: Scale, cases: u32, judge: &mut dyn FnMut(&[Step]) -> Result<(), String>) {
    let cases = from_env("FAIRLOCK_CASES").map_or(cases, |cases| u32::try_from(cases).unwrap());
    let seed = from_env("FAIRLOCK_SEED").unwrap_or_else(|| RandomState::new().build_hasher().finish());
    if let Err(story) = look_for_a_case(scale, cases, seed, 2000, judge) {
        panic!("FAIRLOCK_SEED={seed}:\n{story}");
    }
}

/// The smallest case found that the judge rejects.
fn look_for_a_case(
    scale: Scale,
    cases: u32,
    seed: u64,
    max_shrink_iters: u32,
    judge: &mut dyn FnMut(&[Step]) -> Result<(), String>,
) -> Result<(), String> {
    let config = Config { cases, failure_persistence: None, max_shrink_iters, ..Config::default() };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let judge = RefCell::new(judge);
    let result =
        runner.run(&steps(scale, 60), |steps| (judge.borrow_mut())(&steps).map_err(TestCaseError::fail));
    match result {
        Ok(()) => Ok(()),
        Err(TestError::Fail(story, _)) => Err(story.to_string()),
        Err(TestError::Abort(reason)) => panic!("the drawing gave up: {reason}"),
    }
}

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}
