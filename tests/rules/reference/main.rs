//! The rules of the hand-off are written twice: as fairlock-rules, and as the Lua, which runs here on a real server. Both get the same
//! commands, and must give the same answers and messages, and show the same lock.
#![cfg_attr(
    not(feature = "night"),
    allow(dead_code, unused_imports, reason = "mistakes are planted at night")
)]

mod cast;
mod commands;
mod days;
mod differential;
mod drawn;
mod lua;
mod lua_calls;
mod lua_replies;
mod mistakes;
mod rules;
mod scenes;
mod subject;
mod week;
mod words;
mod world;

use fairlock_core::LockKind;

use commands::{Command, Scale, Step, Time};
use differential::Ways;
use drawn::{KINDS, check, kinds, look_for_a_case, scale};
use lua::{LuaServer, LuaSubject, Parts};
use mistakes::{Mistake, Mistakes};
use scenes::{play_scenes, without_harm};
use subject::differ;
use words::{Answer, Ask, Member, Patience, Push};

#[test]
fn the_lua_does_what_the_rules_do() {
    let lua = LuaServer::start(Parts::Both);
    for (kind, cases) in kinds([80, 30, 30, 30]) {
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
    for (kind, cases) in kinds([40, 20, 20, 20]) {
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
        let ask = Ask { member, lease: 30_000, ttl: 6_000, label: "", ticket, units: 1, condition: None };
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
#[cfg(feature = "night")]
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
#[cfg(feature = "night")]
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
