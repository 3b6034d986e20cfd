//! The rules of the hand-off are written twice: as fairlock-rules, and as the Lua, which runs here on a real server. Both get the same
//! commands, and must give the same answers and messages, and show the same lock.
//!
//! proptest draws the commands, and shrinks a difference. `FAIRLOCK_CASES=5000` runs longer. `FAIRLOCK_SEED`, which a
//! failure prints, repeats a run.

mod cast;
mod commands;
mod days;
mod differential;
mod lua;
mod lua_calls;
mod lua_replies;
mod mistakes;
mod promises;
mod rules;
mod scenes;
mod subject;
mod week;
mod words;
mod world;

use std::cell::RefCell;
use std::hash::{BuildHasher, Hasher, RandomState};

use fairlock_core::LockKind;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use commands::{Command, Scale, Step, Time, steps};
use differential::Ways;
use lua::{LuaServer, LuaSubject, Parts};
use mistakes::{Mistake, Mistakes};
use scenes::{play_scenes, without_harm};
use subject::differ;
use words::{Answer, Ask, Member, Patience, Push};

/// A fair lock, a semaphore, and a read-write lock.
static KINDS: [LockKind; 3] = [LockKind::Fair, LockKind::Semaphore { permits: 4 }, LockKind::ReadWrite];

/// In the same order, and how many cases of each.
fn kinds(cases: [u32; 3]) -> impl Iterator<Item = (LockKind, u32)> {
    KINDS.into_iter().zip(cases)
}

fn scale(time: Time, kind: LockKind) -> Scale {
    let ttls = match time {
        // One time to live is what the scripts take for that of a queue whose state was lost.
        Time::VirtualWithHarm if kind.is_shared() => [5_000, 9_000],
        _ => [6_000, 9_000],
    };
    Scale { leases: [3_000, 12_000, 30_000], ttls, time, kind }
}

#[test]
fn the_rules_keep_their_promises() {
    for (kind, cases) in kinds([800, 250, 250]) {
        let scale = scale(Time::Virtual, kind);
        check(scale, cases, &mut |steps| promises::are_kept(scale, steps));
    }
}

#[test]
fn the_lua_does_what_the_rules_do() {
    let lua = LuaServer::start(Parts::Both);
    for (kind, cases) in kinds([250, 80, 80]) {
        let scale = scale(Time::Virtual, kind);
        check(scale, cases, &mut |steps| differ(LuaSubject::new(&lua, kind), scale, steps));
    }
}

#[test]
fn the_lua_does_in_scenes_what_the_rules_do() {
    let lua = LuaServer::start(Parts::Both);
    for kind in KINDS {
        play_without_harm(&lua, scale(Time::Virtual, kind)).unwrap_or_else(|story| panic!("{story}"));
    }
}

/// Beside the commands that the rules know: lost keys, clocks that are set back, plain locks on the same lock.
#[test]
fn the_cases_do_what_the_rule_does() {
    let (fast, general) = (LuaServer::start(Parts::Both), LuaServer::start(Parts::General));
    let mut ways = [Ways::default(), Ways::default()];
    for (kind, cases) in kinds([100, 60, 60]) {
        let (scale, ways) = (scale(Time::VirtualWithHarm, kind), &mut ways[usize::from(kind.is_shared())]);
        play_scenes(&fast, &general, ways, scale).unwrap_or_else(|story| panic!("{story}"));
        check(scale, cases, &mut |steps| differential::differ(&fast, &general, ways, scale, steps));
    }
    ways.iter().for_each(Ways::assert_fast);
}

/// Nobody barges past more absent waiters than one command looks at: a script can't know whether a live waiter is behind them.
/// (fairlock-rules looks at all.)
#[test]
fn nobody_barges_past_many_absent_waiters() {
    let lua = LuaServer::start(Parts::Both);
    let mut subject = LuaSubject::new(&lua, LockKind::Fair);
    let told = |client, request, patience, ticket| {
        let member = Member { client, owner: request, request };
        let ask = Ask { member, lease: 30_000, ttl: 6_000, label: "", ticket, units: 1 };
        Command::Acquire { lock: 0, ask, patience }
    };
    let ask = |client, request, patience| told(client, request, patience, 0);
    let mut run = |command| subject.run(&command).unwrap_or_else(|what| panic!("{what}")).0;
    for dies in 0..257 {
        // Those that may not know their tickets would be waited for.
        if let [Answer::Queued { ticket, .. }] = run(ask(0, dies, Patience::Wait)).answers[..] {
            run(told(0, dies, Patience::Wait, ticket));
        }
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

/// By the scenes, or within 400 cases of a fixed seed: so the result is not random.
#[test]
fn a_mistake_in_the_lua_is_found() {
    let mut lua = LuaServer::start(Parts::Both);
    let Mistakes { rule, rule_of_units, .. } = Mistakes::read();
    let mut missed = Vec::new();
    for (mistake, kinds) in with_kinds(&rule, &rule_of_units) {
        lua.load(Parts::Both, Some(mistake));
        let finds = |&kind: &LockKind| {
            let scale = scale(Time::Virtual, kind);
            let mut judge = |steps: &[Step]| differ(LuaSubject::new(&lua, kind), scale, steps);
            play_without_harm(&lua, scale).is_err() || look_for_a_case(scale, 400, 1, 0, &mut judge).is_err()
        };
        if !kinds.iter().any(finds) {
            missed.push(&mistake.mistake);
        }
    }
    assert!(missed.is_empty(), "not found: {missed:#?}");
}

/// By the scenes alone, so that the result is not random.
#[test]
fn a_mistake_in_a_case_is_found() {
    let (mut lua, general) = (LuaServer::start(Parts::Both), LuaServer::start(Parts::General));
    let Mistakes { case, case_of_units, .. } = Mistakes::read();
    let mut missed = Vec::new();
    for (mistake, kinds) in with_kinds(&case, &case_of_units) {
        lua.load(Parts::Both, Some(mistake));
        let finds = |&kind: &LockKind| {
            play_scenes(&lua, &general, &mut Ways::default(), scale(Time::VirtualWithHarm, kind)).is_err()
        };
        if !kinds.iter().any(finds) {
            missed.push(&mistake.mistake);
        }
    }
    assert!(missed.is_empty(), "not found: {missed:#?}");
}

fn play_without_harm(lua: &LuaServer, scale: Scale) -> Result<(), String> {
    let mut scenes = without_harm(scale).into_iter();
    scenes.try_for_each(|steps| differ(LuaSubject::new(lua, scale.kind), scale, &steps))
}

/// Mistakes about a lock with one holder, and those about several units, each with the kinds that find it.
fn with_kinds<'a>(
    of_one: &'a [Mistake],
    of_units: &'a [Mistake],
) -> impl Iterator<Item = (&'a Mistake, &'static [LockKind])> {
    let (one, units) = KINDS.split_at(1);
    of_one
        .iter()
        .map(move |mistake| (mistake, one))
        .chain(of_units.iter().map(move |mistake| (mistake, units)))
}

/// Draws sequences of commands until the judge rejects one, for at most `cases` cases.
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
