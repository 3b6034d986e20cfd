//! The scripts with their fast parts compared with their general parts alone, on two servers in the same virtual time. Replies,
//! messages and keys must be equal, also after what the model does not know ([`Harm`]).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use redis::{Connection, Value};

use crate::cast::Cast;
use crate::commands::{Command, Harm, LOCKS, Scale, Slot, Step};
use crate::lua::{Exchange, LuaServer, LuaSubject, ear, keys};
use crate::lua_replies::{State, answer, list, number, pairs, push, state, text, texts};
use crate::model::Model;
use crate::subject::Outcome;

/// How many commands with each outcome were answered by the fast part, and how many in all.
#[derive(Debug, Default)]
pub(crate) struct Ways(BTreeMap<String, (u64, u64)>);

/// The outcomes of fast parts, and the least share of them in percent.
const FAST: [(&str, u64); 5] =
    [("granted", 10), ("queued", 10), ("busy", 10), ("released", 10), ("handed over", 10)];

impl Ways {
    fn count(&mut self, command: &Command, exchange: &Exchange) {
        let Some(reply) = &exchange.reply else { return };
        if !matches!(command, Command::Acquire { .. } | Command::Release { .. }) {
            return;
        }
        let word = text(&list(reply)[0]);
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
    let mut worlds = [fast, general].map(|lua| World::new(lua, model.now));
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
            cast.learn(&command, &outcome(&command, &results[0].0));
        }
    }
    Ok(())
}

/// What chance makes seldom, once each.
pub(crate) fn play_scenes(fast: &LuaServer, general: &LuaServer, scale: Scale) -> Result<(), String> {
    use Step::{Advance, Ask, Expire, GoesDeaf, Hears, LoseLine, Release, Repeat};
    // A lease that outlasts the scene, and two waiters with one time to live.
    let slot = |client, owner| Slot { client, owner, lock: 0, choice: 2 };
    let [a, b, c, d] = [slot(0, 0), slot(1, 0), slot(1, 1), slot(2, 0)];
    let half = scale.ttls[1] / 2;
    let ahead = Step::Harm(Harm::RunsAhead { lock: 0, by: 5000 });
    let redisson = Step::Harm(Harm::RedissonWaits(0));
    let scenes: [&[Step]; 11] = [
        &[Ask(b), Ask(c), Release(b), Release(c), Ask(b), Repeat],
        &[Ask(a), Ask(b), Repeat, Ask(c), Release(a)],
        &[Ask(a), Ask(b), Ask(c), Repeat, Release(a), Release(b)],
        // Overdue, deaf, and parked.
        &[Ask(a), Ask(b), Advance(half), Ask(c), Advance(half), Release(a)],
        &[Ask(a), Ask(b), GoesDeaf(1), Release(a)],
        &[Ask(a), Ask(b), GoesDeaf(1), Release(a), Ask(d), Hears(1), Release(d)],
        // The line clock is behind.
        &[Ask(a), Ask(b), Advance(half + 500), Release(a)],
        &[Ask(a), Ask(b), Advance(half + 500), Ask(c), Release(a)],
        // Numbers ahead of the clock.
        &[Ask(a), Ask(b), ahead, Release(a), Ask(c), Release(b), Release(c), Ask(d)],
        // Redisson's line.
        &[Ask(a), redisson, Release(a), Ask(b), Ask(c), Release(b)],
        &[Ask(a), Ask(b), Ask(c), LoseLine(0), Expire(0), Ask(c), Ask(b)],
    ];
    scenes.iter().try_for_each(|steps| differ(fast, general, &mut Ways::default(), scale, steps))
}

struct World<'a> {
    subject: LuaSubject<'a>,
    /// The waiters in Redisson's line are live.
    _ears: [Connection; LOCKS],
}

impl<'a> World<'a> {
    fn new(lua: &'a LuaServer, now: u64) -> World<'a> {
        let subject = LuaSubject::new(lua, now);
        let ears = redisson().map(|[_, _, channel]| ear(&lua.server, &format!("{channel}:{JAVA}")));
        World { subject, _ears: ears }
    }

    fn run(&mut self, command: &Command) -> Result<Exchange, String> {
        if let Command::Harm(harm) = command {
            self.harm(*harm);
        }
        self.subject.exchange(command)
    }

    fn harm(&mut self, harm: Harm) {
        let mut pipe = self.subject.begin();
        match harm {
            Harm::LoseKey { lock, key: 3 } => {
                let [_, _, places, sequence] = keys(lock);
                pipe.cmd("EVAL").arg(LOSE_SEQUENCE).arg(2).arg(places).arg(sequence).arg(self.subject.now)
            }
            Harm::LoseKey { lock, key } => pipe.cmd("DEL").arg(&keys(lock)[key]),
            Harm::LoseAll => pipe.cmd("FLUSHALL"),
            Harm::SetBack(by) => {
                self.subject.now -= by;
                &mut pipe
            }
            Harm::RunsAhead { lock, by } => {
                let ahead = (self.subject.now + by) * 1000;
                pipe.cmd("EVAL").arg(RUN_AHEAD).arg(1).arg(&keys(lock)[3]).arg(ahead)
            }
            Harm::PlainTakes(lock) => {
                let [name, _, _, sequence] = keys(lock);
                let arguments = [PLAIN, "1", "12000", "plain"].map(str::to_owned);
                self.subject.call(&mut pipe, "plain/acquire", &[name, sequence], &arguments);
                &mut pipe
            }
            Harm::PlainGives(lock) => {
                let [name, _, _, sequence] = keys(lock);
                let hold = format!("{PLAIN}:1 ");
                pipe.cmd("EVAL").arg(PLAIN_GIVES).arg(2).arg(name).arg(sequence).arg(PLAIN).arg(hold)
            }
            Harm::RedissonWaits(lock) => {
                let [queue, timeouts, _] = &redisson()[lock];
                // Its turn is next but one.
                pipe.cmd("EVAL").arg(LAST_TURN).arg(1).arg(&keys(lock)[3]);
                pipe.cmd("DEL").arg(queue);
                pipe.cmd("RPUSH").arg(queue).arg(JAVA);
                pipe.cmd("ZADD").arg(timeouts).arg(self.subject.now + 20_000).arg(JAVA)
            }
            Harm::RedissonLeaves(lock) => pipe.cmd("DEL").arg(&redisson()[lock][..2]),
            Harm::SaysDeaf(client) => {
                self.subject.say_deaf.insert(client);
                &mut pipe
            }
            Harm::SaysNothing(client) => {
                self.subject.say_deaf.remove(&client);
                &mut pipe
            }
            Harm::Intrudes(lock) => pipe.cmd("EVAL").arg(INTRUDES).arg(1).arg(&keys(lock)[1]),
        };
        pipe.query::<Value>(&mut self.subject.con).unwrap();
    }
}

const PLAIN: &str = "00000000-0000-4000-8000-000000000002:9";
const JAVA: &str = "11111111-0000-4000-8000-000000000000:1";
/// With the sequence the line clock is lost, which then is the server's. Deadlines are moved to it: how far a clock was behind
/// depends on how often an empty line was looked at, which may differ.
const LOSE_SEQUENCE: &str = "
    local state, now = redis.call('HGET', KEYS[2], 'state'), ARGV[1]
    redis.call('DEL', KEYS[2])
    local pulse, lag, ttl = string.match(state or '', '^!?%d+ %u %d+ (%d+) (%-?%d+) (%d+) ')
    if not pulse then return end
    local clock = pulse - lag + math.min(math.max(0, now - pulse), math.floor(ttl / 2))
    local places = redis.call('HGETALL', KEYS[1])
    for at = 1, #places, 2 do
        local deadline, rest = string.match(places[at + 1], '^(%d+)( .*)$')
        if deadline then
            redis.call('HSET', KEYS[1], places[at], string.format('%.0f', deadline - clock + now) .. rest)
        end
    end";
const RUN_AHEAD: &str = "
    local state = redis.call('HGET', KEYS[1], 'state')
    if state then redis.call('HSET', KEYS[1], 'state', (string.gsub(state, '%d+', ARGV[1], 1))) end";
const LAST_TURN: &str = "
    local state = redis.call('HGET', KEYS[1], 'state')
    if state then redis.call('HSET', KEYS[1], 'state', (string.gsub(state, ' %u ', ' P ', 1))) end";
const INTRUDES: &str =
    "if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('ZADD', KEYS[1], 5, 'intruder') end";
const PLAIN_GIVES: &str = "redis.call('HDEL', KEYS[1], ARGV[1])";

/// Queue, timeouts and channel, as Redisson spells them. Both locks have the same.
fn redisson() -> [[String; 3]; LOCKS] {
    let of = |_| ["queue", "timeout", "_channel"].map(|what| format!("redisson_lock_{what}:{{orders}}"));
    std::array::from_fn(of)
}

/// What the clients learn.
fn outcome(command: &Command, exchange: &Exchange) -> Outcome {
    let answers = match &exchange.reply {
        None => Vec::new(),
        Some(rows) if matches!(command, Command::RenewPlaces { .. }) => {
            list(rows).iter().map(answer).collect()
        }
        Some(reply) => vec![answer(reply)],
    };
    let ours = exchange.told.iter().filter(|(channel, message)| {
        channel.starts_with("fairlock:") && !message.starts_with("look") && !message.starts_with("taken 9 ")
    });
    Outcome { answers, pushes: ours.map(|(channel, message)| push(channel, message)).collect() }
}

/// What must be equal. The clock of an empty line judges nothing, and may be left alone. What a reply says of Redisson's
/// line may be left out.
fn shown(exchange: &Exchange, now: u64) -> String {
    let mut all = String::new();
    let reply = exchange.reply.as_ref().map(|reply| match reply {
        Value::Array(row) if row.len() == 6 => Value::Array(row[..5].to_vec()),
        other => other.clone(),
    });
    let _ = writeln!(all, "    {reply:?}\n    {:?}", exchange.told);
    for (seen, dump) in &exchange.looks {
        let [lock, line, places, sequence, ends] = list(dump) else { panic!("five keys' worth") };
        let mut sequence = pairs(sequence);
        let State { is_marked, last, turn, served, line_clock, reserved_until, rests_until, reserved_for } =
            state(sequence.remove("state").as_ref(), now);
        let clock = line_clock.at(now);
        let places = pairs(places).into_iter().map(|(member, place)| {
            let (deadline, rest) = place.split_once(' ').unwrap();
            (member, i128::from(deadline.parse::<u64>().unwrap()) - i128::from(clock), rest.to_owned())
        });
        let ends: Vec<i64> = list(ends).iter().map(number).collect();
        let _ = writeln!(all, "    {seen:?}\n    {:?} {:?}", pairs(lock), texts(line));
        let _ =
            writeln!(all, "    {:?}\n    {:?} {}", places.collect::<Vec<_>>(), &ends[..3], ends[3].signum());
        let _ = writeln!(
            all,
            "    {sequence:?} {is_marked} {last} {turn} {served} {reserved_until} {reserved_for}"
        );
        let rests = rests_until.saturating_sub(clock);
        let until = line_clock.ttl_until.saturating_sub(clock);
        let judges = (!texts(line).is_empty()).then_some((line_clock.pulse, line_clock.ttl, until));
        let _ = writeln!(all, "    {rests} {judges:?}");
    }
    all
}
