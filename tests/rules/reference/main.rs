//! The model of the hand-off (`support/reference/`) compared with its implementations: the memory backend, the Lua on a
//! real server, and the Redis backend with its Rust half. Same commands, same answers, same pushes, same state.
//!
//! proptest draws the commands, and shrinks a difference. `FAIRLOCK_CASES=5000` runs longer. `FAIRLOCK_SEED`, which a
//! failure prints, repeats a run.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy knows #[test] functions, not their helpers"
)]

mod backend;
mod cast;
mod commands;
mod differential;
mod lua;
mod lua_calls;
mod lua_replies;
mod mistakes;
mod model;
mod promises;
mod scenes;
mod subject;
mod world;

use std::cell::RefCell;
use std::hash::{BuildHasher, Hasher, RandomState};

use fairlock::{Discipline, MemoryBackend, RedisBackend};
use fairlock_tests::RedisServer;
use fairlock_tests::reference::{Answer, Ask, Kind, Member, Patience, Push};
use fairlock_tests::rows::Rows;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use backend::BackendSubject;
use commands::{Command, Scale, Step, Time, steps};
use differential::Ways;
use lua::{LuaServer, LuaSubject, Parts};
use mistakes::{FAST_MISTAKES, MISTAKES, SHARED_FAST_MISTAKES, SHARED_MISTAKES};
use model::Model;
use scenes::{play_scenes, rests_of_nobody};
use subject::{Both, Subject, differ};

const LUA: Scale = Scale {
    leases: [3_000, 12_000, 30_000],
    ttls: [6_000, 9_000],
    time: Time::Virtual,
    kind: Kind::Exclusive,
};
const MEMORY: Scale = Scale {
    leases: [3_000, 12_000, 30_000],
    ttls: [6_000, 9_000],
    time: Time::VirtualWithCare,
    kind: Kind::Exclusive,
};
/// A semaphore, and a read-write lock.
const SHARED: [Scale; 2] = [
    Scale { kind: Kind::Shared { capacity: 4 }, ..MEMORY },
    Scale { kind: Kind::Shared { capacity: u32::MAX }, ..MEMORY },
];
const HARM: Scale = Scale {
    leases: [3_000, 12_000, 30_000],
    ttls: [6_000, 9_000],
    time: Time::VirtualWithHarm,
    kind: Kind::Exclusive,
};
/// One time to live is what the scripts take for that of a line whose state was lost.
const SHARED_HARM: [Scale; 2] = [
    Scale { ttls: [5_000, 9_000], kind: SHARED[0].kind, ..HARM },
    Scale { ttls: [5_000, 9_000], kind: SHARED[1].kind, ..HARM },
];
const LIVE: Scale = Scale {
    leases: [600_000, 900_000, 1_200_000],
    ttls: [300_000, 300_000],
    time: Time::Real,
    kind: Kind::Exclusive,
};

#[test]
fn the_model_keeps_its_promises() {
    check(LUA, 800, &mut |steps| promises::are_kept(LUA, steps));
}

#[test]
fn the_model_of_several_units_keeps_its_promises() {
    for scale in SHARED {
        check(scale, 250, &mut |steps| promises::are_kept(scale, steps));
    }
}

#[test]
fn the_memory_backend_does_what_the_model_does() {
    hold_against_the_model(MEMORY, 1000, &mut || {
        Box::new(BackendSubject::memory::<MemoryBackend>(Kind::Exclusive))
    });
}

#[test]
fn semaphores_and_read_write_locks_in_memory_do_what_the_model_does() {
    for scale in SHARED {
        hold_against_the_model(scale, 250, &mut || {
            Box::new(BackendSubject::memory::<MemoryBackend>(scale.kind))
        });
    }
}

#[test]
fn a_store_that_keeps_bytes_does_what_the_model_does() {
    hold_against_the_model(MEMORY, 500, &mut || Box::new(BackendSubject::memory::<Rows>(Kind::Exclusive)));
    for scale in SHARED {
        hold_against_the_model(scale, 150, &mut || Box::new(BackendSubject::memory::<Rows>(scale.kind)));
    }
}

#[test]
fn the_lua_does_what_the_model_does() {
    let lua = LuaServer::start(Parts::Both);
    hold_against_the_model(LUA, 250, &mut || {
        Box::new(LuaSubject::new(&lua, Kind::Exclusive, Model::new(Kind::Exclusive).now))
    });
}

#[test]
fn the_lua_of_semaphores_and_read_write_locks_does_what_the_model_does() {
    let lua = LuaServer::start(Parts::Both);
    for Scale { kind, .. } in SHARED {
        hold_against_the_model(Scale { kind, ..LUA }, 80, &mut || {
            Box::new(LuaSubject::new(&lua, kind, Model::new(kind).now))
        });
    }
}

/// The clock of an empty line judges nothing, except how much longer a line rests. Chance seldom comes there.
#[test]
fn a_line_that_rests_and_has_nobody_moves_its_clock_alike() {
    let lua = LuaServer::start(Parts::Both);
    for scale in [LUA, Scale { kind: SHARED[0].kind, ..LUA }, Scale { kind: SHARED[1].kind, ..LUA }] {
        for steps in rests_of_nobody(scale) {
            let mut scripts = LuaSubject::new(&lua, scale.kind, Model::new(scale.kind).now);
            let mut memory = BackendSubject::memory::<MemoryBackend>(scale.kind);
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
    let mut ways = Ways::default();
    play_scenes(&fast, &general, &mut ways, HARM).unwrap_or_else(|story| panic!("{story}"));
    check(HARM, 100, &mut |steps| differential::differ(&fast, &general, &mut ways, HARM, steps));
    ways.assert_fast();
}

/// The same of semaphores and read-write locks.
#[test]
fn the_fast_parts_of_locks_with_several_holders_do_what_the_general_parts_do() {
    let (fast, general) = (LuaServer::start(Parts::Both), LuaServer::start(Parts::General));
    let mut ways = Ways::default();
    for scale in SHARED_HARM {
        play_scenes(&fast, &general, &mut ways, scale).unwrap_or_else(|story| panic!("{story}"));
        check(scale, 60, &mut |steps| differential::differ(&fast, &general, &mut ways, scale, steps));
    }
    ways.assert_fast();
}

#[test]
fn the_redis_backend_does_what_the_model_does() {
    let server = RedisServer::start();
    let backend = RedisBackend::builder(&server.url()).discipline(Discipline::HandOff).connect().unwrap();
    hold_against_the_model(LIVE, 20, &mut || Box::new(BackendSubject::redis(&server, &backend, LIVE.kind)));
    for Scale { kind, .. } in SHARED {
        let scale = Scale { kind, ..LIVE };
        hold_against_the_model(scale, 8, &mut || Box::new(BackendSubject::redis(&server, &backend, kind)));
    }
}

/// More waiters died than one command examines: it can't know whether a live one is behind them.
#[test]
fn nobody_barges_past_more_absent_waiters_than_one_command_looks_at() {
    let lua = LuaServer::start(Parts::Both);
    let mut subject = LuaSubject::new(&lua, Kind::Exclusive, Model::new(Kind::Exclusive).now);
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
    let shared = SHARED.map(|scale| Scale { kind: scale.kind, ..LUA });
    let mistakes = MISTAKES.map(|mistake| (mistake, &[LUA][..]));
    let of_several = SHARED_MISTAKES.map(|mistake| (mistake, &shared[..]));
    for ((what, mistake), scales) in mistakes.into_iter().chain(of_several) {
        lua.load(Parts::Both, Some(mistake));
        let finds = |scale: &Scale| {
            let mut judge = |steps: &[Step]| {
                let now = Model::new(scale.kind).now;
                differ(&mut LuaSubject::new(&lua, scale.kind, now), *scale, steps)
            };
            look_for_a_case(*scale, 400, 1, 0, &mut judge).is_err()
        };
        assert!(scales.iter().any(finds), "not found: {what}");
    }
}

/// By the scenes alone, so that the result is not random.
#[test]
fn a_mistake_in_a_fast_part_is_found() {
    let (mut fast, general) = (LuaServer::start(Parts::Both), LuaServer::start(Parts::General));
    let mistakes = FAST_MISTAKES.map(|mistake| (mistake, &[HARM][..]));
    let shared = SHARED_FAST_MISTAKES.map(|mistake| (mistake, &SHARED_HARM[..]));
    for ((what, mistake), scales) in mistakes.into_iter().chain(shared) {
        fast.load(Parts::Both, Some(mistake));
        let finds = |scale: &Scale| play_scenes(&fast, &general, &mut Ways::default(), *scale).is_err();
        assert!(scales.iter().any(finds), "not found: {what}");
    }
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
