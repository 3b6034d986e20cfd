//! The scripts with their fast parts compared with their general parts alone, on two servers in the same virtual time. Replies,
//! messages and keys must be equal, also after what the model does not know ([`Harm`]).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use redis::Value;

use crate::cast::Cast;
use crate::commands::{Command, Scale, Step};
use crate::lua::{Exchange, LuaServer};
use crate::lua_replies::{State, answers, list, number, pairs, push, state, text, texts};
use crate::model::Model;
use crate::subject::Outcome;
use crate::world::World;

/// How many commands with each outcome were answered by the fast part, and how many in all.
#[derive(Debug, Default)]
pub(crate) struct Ways(BTreeMap<String, (u64, u64)>);

/// The outcomes of fast parts, and the least share of them in percent.
const FAST: [(&str, u64); 5] =
    [("granted", 10), ("queued", 10), ("busy", 10), ("released", 10), ("handed over", 10)];

impl Ways {
    fn count(&mut self, command: &Command, exchange: &Exchange) {
        let Some(Value::Array(row)) = &exchange.reply else { return };
        if !matches!(command, Command::Acquire { .. } | Command::Release { .. }) {
            return;
        }
        let word = text(&row[0]);
        let is_told = exchange.told.iter().any(|(_, message)| message.starts_with("granted"));
        let outcome = if word == "released" && is_told { "handed over".to_owned() } else { word };
        let (fast, all) = self.0.entry(outcome).or_default();
        (*fast, *all) = (*fast + u64::from(!exchange.is_general), *all + 1);
    }

    /// Otherwise the comparison would show nothing.
    pub(crate) fn assert_fast(&self) {
        for (outcome, share) in FAST {
            let (fast, all) = self.0.get(outcome).copied().unwrap_or_default();
            assert!(fast * 100 > all * share, "{outcome}: {fast} of {all} by the fast part; {self:?}");
        }
    }
}

/// Runs the steps on both servers, and returns the first difference with the steps before it.
pub(crate) fn differ(
    fast: &LuaServer,
    general: &LuaServer,
    ways: &mut Ways,
    scale: Scale,
    steps: &[Step],
) -> Result<(), String> {
    let mut model = Model::new(scale.kind); // knows the time and who hears
    let mut worlds = [fast, general].map(|lua| World::new(lua, scale.kind, model.now));
    let (mut cast, mut story) = (Cast::new(scale), String::new());
    for step in steps.iter().flat_map(|step| step.parts(scale)) {
        for command in cast.commands(step, &model) {
            let _ = writeln!(story, "  {command:?}");
            if matches!(command, Command::Advance(_) | Command::GoesDeaf(_) | Command::Hears(_)) {
                model.run(&command);
            }
            let mut results = Vec::new();
            for world in &mut worlds {
                let exchange = world.run(&command).map_err(|error| format!("{story}  but: {error}"))?;
                results.push((exchange, world.subject.now));
            }
            let [fast, general] = [0, 1].map(|index| shown(&results[index].0, results[index].1));
            if fast != general {
                return Err(format!(
                    "{story}  by the general part:\n{general}\n  but by the fast part:\n{fast}"
                ));
            }
            ways.count(&command, &results[0].0);
            cast.learn(&command, &outcome(&results[0].0));
        }
    }
    Ok(())
}

/// What the clients learn.
fn outcome(exchange: &Exchange) -> Outcome {
    let answers = answers(exchange.reply.as_ref());
    let ours = exchange.told.iter().filter(|(channel, message)| {
        channel.starts_with("fairlock:") && !message.starts_with("look") && !message.starts_with("taken 9 ")
    });
    Outcome { answers, pushes: ours.map(|(channel, message)| push(channel, message)).collect() }
}

/// A sequence is kept for longer than this (ms): its time to live is not renewed by each command.
const KEPT_FOR: i64 = 72_000_000;

/// What must be equal. The clock of an empty line judges nothing, and may be left alone: so a lost sequence, too, which then
/// has nothing to remember. What a reply says of Redisson's line may be left out.
fn shown(exchange: &Exchange, now: u64) -> String {
    let mut all = String::new();
    let reply = exchange.reply.as_ref().map(|reply| match reply {
        Value::Array(row) if row.len() == 6 => Value::Array(row[..5].to_vec()),
        other => other.clone(),
    });
    let _ = writeln!(all, "    {reply:?}\n    {:?}", exchange.told);
    for (seen, dump) in &exchange.looks {
        let [lock, holds @ .., line, places, sequence, ends] = list(dump) else {
            panic!("four keys or more")
        };
        let mut sequence = pairs(sequence);
        let State { is_marked, last, turn, served, line_clock, reserved_until, rests_until, reserved_for } =
            state(sequence.remove("state").as_ref(), now);
        let clock = line_clock.at(now);
        let line = texts(line);
        let places = pairs(places).into_iter().map(|(member, place)| {
            let (deadline, rest) = place.split_once(' ').unwrap();
            let deadline = i128::from(deadline.parse::<u64>().unwrap()) - i128::from(clock);
            // One that is left over from a lost line is never judged.
            (line.contains(&member).then_some(deadline), rest.to_owned(), member)
        });
        let ends: Vec<i64> = list(ends).iter().map(number).collect();
        let holds: Vec<_> = holds.iter().map(texts).collect();
        let _ = writeln!(all, "    {seen:?}\n    {:?} {holds:?} {:?}", pairs(lock), line);
        let (of_sequence, ends) = ends.split_last().unwrap();
        let remembers = last > 0 || !line.is_empty();
        let of_sequence = remembers.then_some(*of_sequence > i64::try_from(now).unwrap() + KEPT_FOR);
        let _ = writeln!(all, "    {:?}\n    {ends:?} {of_sequence:?}", places.collect::<Vec<_>>());
        let _ = writeln!(
            all,
            "    {sequence:?} {is_marked} {last} {turn} {served} {reserved_until} {reserved_for}"
        );
        let rests = rests_until.saturating_sub(clock);
        let until = line_clock.ttl_until.saturating_sub(clock);
        let judges = (!line.is_empty()).then_some((line_clock.pulse, line_clock.ttl, until));
        let _ = writeln!(all, "    {rests} {judges:?}");
    }
    all
}
