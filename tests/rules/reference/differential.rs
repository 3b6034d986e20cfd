//! The scripts with their cases compared with the rule alone, on two servers in the same virtual time. Replies,
//! messages and keys must be equal, also after what the rules do not know ([`Harm`]).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::cast::Cast;
use crate::commands::{Command, Scale, Step};
use crate::lua::{Exchange, LuaServer};
use crate::lua_replies::{Numbers, answers, list, number, pairs, push, texts};
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
            assert!(fast * 100 > all * share, "{outcome}: {fast} of {all} by a case; {self:?}");
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
                return Err(format!("{story}  by the rule:\n{general}\n  but with the cases:\n{fast}"));
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

/// Queue and record are kept for longer than this (ms): their times to live are not raised by each command.
const KEPT_FOR: i64 = 86_400_000;

/// What must be equal. The numbers of an empty queue judge nothing, but for which tickets have had their turn. What a reply says of a
/// foreign holder follows from the lock.
fn shown(exchange: &Exchange, now: u64) -> String {
    let mut all = String::new();
    let _ = writeln!(all, "    {:?}\n    {:?}", exchange.reply, exchange.told);
    for (seen, dump) in &exchange.looks {
        let [lock, queue, record, parts @ .., ends] = list(dump) else { panic!("three keys or more") };
        let (places, mut record): (BTreeMap<_, _>, BTreeMap<_, _>) =
            pairs(record).into_iter().partition(|(field, _)| field.contains(':'));
        let numbers = Numbers::take(&mut record, now);
        let (clock, queue) = (numbers.clock_at(now), texts(queue));
        let places = places.into_iter().map(|(member, place)| {
            let mut words: Vec<String> = place.split(' ').map(str::to_owned).collect();
            let deadline = i128::from(words.remove(3).parse::<u64>().unwrap()) - i128::from(clock);
            // One that is left over from a lost queue is never judged.
            (queue.contains(&member).then_some(deadline), words, member)
        });
        let ends: Vec<i64> = list(ends).iter().map(number).collect();
        let parts = parts.first().map(texts).unwrap_or_default();
        // The keys of parts end a second after the last one or later: until then it does not matter whether they are there. Nor does
        // it for holds without their ends, which go with the next script.
        let last_end = parts.chunks_exact(2).map(|part| part[1].parse::<i64>().unwrap()).max();
        let lock = pairs(lock);
        let is_torn = last_end.is_none() && lock.contains_key("used");
        let are_over = is_torn || last_end.is_some_and(|last| last <= i64::try_from(now).unwrap());
        let (lock, parts) = if are_over { Default::default() } else { (lock, parts) };
        let _ = writeln!(all, "    {seen:?}\n    {lock:?} {parts:?} {queue:?}");
        let is_kept = |end: i64| end > i64::try_from(now).unwrap() + KEPT_FOR;
        let of_queue = if ends[1] < 0 { ends[1] } else { i64::from(is_kept(ends[1])) };
        let remembers = numbers.last > 0 || !queue.is_empty();
        let of_record = remembers.then_some(is_kept(ends[2]));
        let of_holds: Vec<_> = [Some(&ends[0]), ends.get(3)]
            .into_iter()
            .flatten()
            .map(|end| match last_end {
                _ if are_over => -2,
                // A case leaves it endless if it was made so by hand.
                Some(last) if *end == -1 || *end >= last + 1000 => last,
                _ => *end,
            })
            .collect();
        let _ =
            writeln!(all, "    {:?}\n    {of_holds:?} {of_queue} {of_record:?}", places.collect::<Vec<_>>());
        let Numbers { last, served, pulse, ttl, rests_until, .. } = numbers;
        let judges = (!queue.is_empty()).then(|| (pulse, ttl, rests_until.saturating_sub(clock)));
        let _ = writeln!(all, "    {record:?} {last} {served} {judges:?}");
    }
    all
}
