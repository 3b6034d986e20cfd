//! The scripts with their fast parts compared with their general parts alone, on two servers in the same virtual time. Replies,
//! messages and keys must be equal, also after what the rules do not know ([`Harm`]).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::cast::Cast;
use crate::commands::{Command, Scale, Step};
use crate::lua::{Exchange, LuaServer};
use crate::lua_replies::{State, answers, list, number, pairs, push, state, texts};
use crate::rules::Rules;
use crate::words::{Answer, Outcome};
use crate::world::World;

/// How many commands with each outcome were answered by the fast part, and how many in all.
#[derive(Debug, Default)]
pub(crate) struct Ways(BTreeMap<String, (u64, u64)>);

/// The outcomes of fast parts, and the least share of them in percent.
const FAST: [(&str, u64); 5] =
    [("granted", 10), ("queued", 10), ("busy", 10), ("released", 10), ("handed over", 10)];

impl Ways {
    fn count(&mut self, command: &Command, exchange: &Exchange) {
        let is_told = || exchange.told.iter().any(|(_, message)| message.starts_with("granted"));
        let outcome = match (command, answers(command, exchange.reply.as_ref()).first()) {
            (Command::Acquire { .. }, Some(Answer::Granted { .. })) => "granted",
            (Command::Acquire { .. }, Some(Answer::Queued { .. })) => "queued",
            (Command::Acquire { .. }, Some(Answer::Busy { .. })) => "busy",
            (Command::Release { .. }, Some(Answer::Released)) if is_told() => "handed over",
            (Command::Release { .. }, Some(Answer::Released)) => "released",
            _ => return,
        };
        let (fast, all) = self.0.entry(outcome.to_owned()).or_default();
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
    let mut rules = Rules::new(scale.kind); // knows the time and who hears
    let mut worlds = [fast, general].map(|lua| World::new(lua, scale.kind));
    let (mut cast, mut story) = (Cast::new(scale), String::new());
    for step in steps.iter().flat_map(|step| step.parts(scale)) {
        for command in cast.commands(step, &rules) {
            let _ = writeln!(story, "  {command:?}");
            if matches!(command, Command::Advance(_) | Command::GoesDeaf(_) | Command::Hears(_)) {
                rules.run(&command);
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
            cast.learn(&command, &outcome(&command, &results[0].0));
        }
    }
    Ok(())
}

/// What the clients learn.
fn outcome(command: &Command, exchange: &Exchange) -> Outcome {
    let answers = answers(command, exchange.reply.as_ref());
    let ours = exchange.told.iter().filter(|(channel, message)| {
        channel.starts_with("fairlock:") && !message.starts_with("look") && !message.starts_with("taken 9 ")
    });
    Outcome { answers, pushes: ours.map(|(channel, message)| push(channel, message)).collect() }
}

/// Line and record are kept for longer than this (ms): their times to live are not raised by each command.
const KEPT_FOR: i64 = 86_400_000;

/// What must be equal. The clock of an empty line judges only how much longer a line rests. So a lost sequence may be left alone,
/// too, which then has nothing to remember.
fn shown(exchange: &Exchange, now: u64) -> String {
    let mut all = String::new();
    let _ = writeln!(all, "    {:?}\n    {:?}", exchange.reply, exchange.told);
    for (seen, dump) in &exchange.looks {
        let [lock, line, record, parts @ .., ends] = list(dump) else { panic!("three keys or more") };
        let (places, mut sequence): (BTreeMap<_, _>, BTreeMap<_, _>) =
            pairs(record).into_iter().partition(|(field, _)| field.contains(':'));
        let State { rests_until, last, born, line_clock } = state(sequence.remove("state").as_ref(), now);
        let clock = line_clock.at(now);
        // A record that has drawn no number is not born.
        let born = if last == 0 { 0 } else { born };
        let line = texts(line);
        let places = places.into_iter().map(|(member, place)| {
            let (deadline, rest) = place.split_once(' ').unwrap();
            let deadline = i128::from(deadline.parse::<u64>().unwrap()) - i128::from(clock);
            // One that is left over from a lost line is never judged.
            (line.contains(&member).then_some(deadline), rest.to_owned(), member)
        });
        let ends: Vec<i64> = list(ends).iter().map(number).collect();
        let parts = parts.first().map(texts).unwrap_or_default();
        // The keys of parts end a second to a minute after the last one: until then it does not matter whether they are there. Nor
        // does it for holds without their ends, which go with the next script.
        let last_end = parts.chunks_exact(2).map(|part| part[1].parse::<i64>().unwrap()).max();
        let lock = pairs(lock);
        let is_torn = last_end.is_none() && lock.get("mode").is_some_and(|mode| mode.starts_with("of "));
        let are_over = is_torn || last_end.is_some_and(|last| last <= i64::try_from(now).unwrap());
        let (lock, parts) = if are_over { Default::default() } else { (lock, parts) };
        let _ = writeln!(all, "    {seen:?}\n    {lock:?} {parts:?} {line:?}");
        let is_kept = |end: i64| end > i64::try_from(now).unwrap() + KEPT_FOR;
        let of_line = if ends[1] < 0 { ends[1] } else { i64::from(is_kept(ends[1])) };
        let remembers = last > 0 || !line.is_empty();
        let of_record = remembers.then_some(is_kept(ends[2]));
        let of_holds: Vec<_> = [Some(&ends[0]), ends.get(3)]
            .into_iter()
            .flatten()
            .map(|end| match last_end {
                _ if are_over => -2,
                // A fast part leaves it endless if it was made so by hand.
                Some(last) if *end == -1 || (last + 1000..=last + 61_000).contains(end) => last,
                _ => *end,
            })
            .collect();
        let _ =
            writeln!(all, "    {:?}\n    {of_holds:?} {of_line} {of_record:?}", places.collect::<Vec<_>>());
        let _ = writeln!(all, "    {sequence:?} {last} {born}");
        let rests = rests_until.saturating_sub(clock);
        let until = line_clock.ttl_until.saturating_sub(clock);
        let judges = (!line.is_empty()).then_some((line_clock.pulse, line_clock.ttl, until));
        let _ = writeln!(all, "    {rests} {judges:?}");
    }
    all
}
