//! The scripts' answers and messages in the words of the comparison, and what the keys of a lock must be like.

use std::collections::BTreeMap;

use redis::{FromRedisValue, Value};

use crate::commands::{CLIENTS, Command};
use crate::lua::client;
use crate::words::{Answer, ClientNumber, Member, Millis, Push, Seen, SeenHolder, SeenPlace};

/// Added to the ticket of a parked place.
const PARKED: u64 = 1 << 52;
/// Redis may drop a line, or the sequence, when no command has used it for so long.
const KEPT_FOR: Millis = 24 * 3600 * 1000;

fn answer(reply: &Value) -> Answer {
    let row = list(reply);
    let recheck = |index: usize| u64::try_from(number::<i64>(&row[index])).ok();
    match text(&row[0]).as_str() {
        "granted" => Answer::Granted { token: number(&row[1]), left: number(&row[2]) },
        "waiting" => Answer::Waiting { rank: number(&row[1]), recheck: recheck(2), latest: number(&row[3]) },
        "busy" => Answer::Busy { left: number(&row[1]) },
        "not_held" => Answer::NotHeld,
        // Then the positions of the holds that are lost; there is one hold here.
        "renewed" if row.len() == 1 => Answer::Renewed,
        "renewed" => Answer::Lost,
        "lost" => Answer::Lost,
        "left" => Answer::Left,
        "was_granted" => Answer::WasGranted { token: number(&row[1]), left: number(&row[2]) },
        "taken" => Answer::Taken,
        word => panic!("unknown answer {word}"),
    }
}

/// The rows of a reply; an error has none.
pub(crate) fn answers(command: &Command, reply: Option<&Value>) -> Vec<Answer> {
    match (reply, command) {
        (Some(Value::Int(token)), Command::Acquire { ask, .. }) => {
            return vec![Answer::Granted { token: u64::try_from(*token).unwrap(), left: ask.lease }];
        }
        (Some(Value::Int(0..=3)), Command::Release { .. }) => return vec![Answer::Released],
        _ => {}
    }
    match reply {
        None | Some(Value::ServerError(_)) => Vec::new(),
        Some(Value::Array(row)) if matches!(row.first(), Some(Value::Int(_))) => vec![Answer::Queued {
            rank: number(&row[0]),
            recheck: u64::try_from(number::<i64>(&row[1])).ok(),
            ticket: number(&row[2]),
            latest: number(&row[3]),
        }],
        Some(reply) => match list(reply) {
            rows @ [Value::Array(_), ..] => rows.iter().map(answer).collect(),
            _ => vec![answer(reply)],
        },
    }
}

pub(crate) fn push(channel: &str, message: &str) -> Push {
    let client = client_of(channel.strip_prefix("fairlock:").unwrap());
    let words: Vec<&str> = message.split(' ').collect();
    match words.as_slice() {
        ["granted", member, token, _lock] => {
            let to = member_of(member);
            assert_eq!(to.client, client, "on its own channel");
            Push::Granted { to, token: token.parse().unwrap() }
        }
        ["taken", owner, token, _lock] => {
            Push::Taken { client, owner: owner.parse().unwrap(), token: token.parse().unwrap() }
        }
        _ => panic!("unknown push {message}"),
    }
}

/// `inspect`'s reply.
fn seen(reply: &Value) -> Seen {
    let row = list(reply);
    let holder = |row: &[Value]| SeenHolder {
        member: member_of(&format!("{}:{}", text(&row[0]), text(&row[1]))),
        takes: number(&row[2]),
        count: number(&row[4]),
        token: number(&row[3]),
        left: number(&row[6]),
        label: text(&row[5]),
    };
    let place = |row: &[Value]| {
        let label = text(&row[4]);
        let (units, label) = label.split_once(' ').unwrap();
        SeenPlace {
            member: member_of(&format!("{}:{}", text(&row[0]), text(&row[1]))),
            takes: units.split_once('/').unwrap().0.parse().unwrap(),
            waiting: number(&row[2]),
            left: number(&row[3]),
            label: label.to_owned(),
        }
    };
    let mut holders: Vec<_> = list(&row[4]).chunks_exact(8).map(holder).collect();
    assert_eq!(number::<u64>(&row[3]), holders.len() as u64, "the number of holders");
    holders.sort_by_key(|holder| holder.token);
    let line: Vec<_> = list(&row[7]).chunks_exact(5).map(place).collect();
    assert_eq!(number::<u64>(&row[5]), line.len() as u64, "the length of the line");
    Seen { holders, line, absent: number(&row[6]) }
}

/// The line clock, as far as the keys tell.
pub(crate) struct LineClock {
    shown: Millis,
    pub(crate) pulse: Millis,
    pub(crate) ttl: Millis,
    pub(crate) ttl_until: Millis,
}

impl LineClock {
    pub(crate) fn at(&self, now: Millis) -> Millis {
        self.shown + now.saturating_sub(self.pulse).min(self.ttl / 2)
    }
}

/// The sequence's field `state`.
pub(crate) struct State {
    pub(crate) last: u64,
    pub(crate) born: u64,
    pub(crate) line_clock: LineClock,
    /// 0 if it does not rest.
    pub(crate) rests_until: u64,
}

/// A sequence without a state is new.
pub(crate) fn state(text: Option<&String>, now: Millis) -> State {
    let new = format!("0 0 {now} 0 5000 0");
    let words: Vec<&str> = text.unwrap_or(&new).trim_start_matches('!').split(' ').collect();
    let word = |index: usize| words.get(index).map_or(0, |word| word.parse::<i64>().unwrap());
    let number = |index: usize| u64::try_from(word(index)).unwrap();
    let line_clock = LineClock {
        shown: number(2).checked_add_signed(-word(3)).unwrap(),
        pulse: number(2),
        ttl: number(4),
        ttl_until: number(5),
    };
    State { last: number(0), born: number(1), line_clock, rests_until: number(6) }
}

/// A lock for who looks, and what of its keys nobody sees.
pub(crate) struct Stored {
    pub(crate) seen: Seen,
    pub(crate) last_number: u64,
    /// Of each place.
    tickets: BTreeMap<Member, u64>,
}

impl Stored {
    /// # Errors
    /// If the keys contradict each other, or end too early or never.
    pub(crate) fn read(inspected: &Value, dump: &Value, now: Millis) -> Result<Stored, String> {
        let [lock, line, record, parts @ .., ends] = list(dump) else { panic!("four keys' worth or five") };
        let (lock, mut record) = (pairs(lock), pairs(record));
        let ends: Vec<i64> = list(ends).iter().map(number).collect();
        let kept_until = |key: usize| u64::try_from(ends[key]).unwrap_or(0);
        if let Some(parts) = parts.first().map(pairs) {
            check_parts(&lock, &parts)?;
            let last = parts.values().map(|end| end.parse::<u64>().unwrap()).max();
            if let Some(last) = last
                && [0, 3].map(kept_until).iter().any(|end| !(last + 1000..=last + 61_000).contains(end))
            {
                return Err(format!(
                    "the keys of holds do not end a second to a minute after {last}: {ends:?}"
                ));
            }
        }
        let state_text = record.remove("state");
        if (ends[2] < 0) == state_text.is_some() {
            return Err(format!("a record has a TTL: {ends:?}"));
        }
        record.remove("kicked");
        let tickets = tickets(&texts(line), &record)?;
        let State { last, line_clock, .. } = state(state_text.as_ref(), now);
        let is_kept = |key, used: Millis| kept_until(key) >= used + KEPT_FOR;
        if state_text.is_some() && !is_kept(2, last / 1000)
            || !tickets.is_empty() && !is_kept(1, line_clock.pulse)
        {
            return Err(format!("a line or a record ends within a day, at {ends:?}; it is {now}"));
        }
        Ok(Stored { seen: seen(inspected), last_number: last, tickets })
    }

    /// A wait that is counted from the ticket of its place becomes one that is counted by the rules.
    pub(crate) fn count_waits_alike(&mut self, expected: &Seen, now: Millis) {
        for place in &mut self.seen.line {
            let since = self.tickets.get(&place.member).map_or(0, |ticket| ticket / 1000);
            let same = expected.line.iter().find(|expected| expected.member == place.member);
            if let Some(same) = same.filter(|_| place.waiting == now.saturating_sub(since)) {
                place.waiting = same.waiting;
            }
        }
    }
}

/// The line, and the places in the record, of which a lost line leaves more than that.
fn tickets(line: &[String], record: &BTreeMap<String, String>) -> Result<BTreeMap<Member, u64>, String> {
    let ticket = |entry: &[String]| {
        let (member, score): (&str, u64) = (&entry[0], entry[1].parse().unwrap());
        let place = record.get(member).ok_or_else(|| format!("{member} stands in line without a place"))?;
        let letter = if score >= PARKED { "p" } else { "" };
        match place.split(' ').nth(2) {
            Some(told) if told == format!("{}{letter}", score % PARKED) => {
                Ok((member_of(member), score % PARKED))
            }
            _ => Err(format!("{member} stands in line as {score}, with the place {place}")),
        }
    };
    line.chunks_exact(2).map(ticket).collect()
}

/// A lock with several holds: their number and units, and an end of each.
fn check_parts(lock: &BTreeMap<String, String>, parts: &BTreeMap<String, String>) -> Result<(), String> {
    let Some(mode) = lock.get("mode") else { return Ok(()) };
    let words: Vec<&str> = mode.split(' ').collect();
    if words[0] != "of" {
        return if lock.len() == 1 {
            Ok(())
        } else {
            Err(format!("a hold beside one of all units: {lock:?}"))
        };
    }
    let holds = || lock.iter().filter(|(member, _)| *member != "mode");
    let takes = |(_, hold): (_, &String)| hold.split(' ').next().unwrap().parse::<u64>().unwrap();
    let used: u64 = holds().map(takes).sum();
    if words[2] != used.to_string() || !holds().map(|(member, _)| member).eq(parts.keys()) {
        return Err(format!("{used} units are taken, by {parts:?}: {lock:?}"));
    }
    Ok(())
}

fn member_of(text: &str) -> Member {
    let (owner, request) = text.rsplit_once(':').unwrap();
    let (client, owner) = owner_of(owner);
    Member { client, owner, request: u64::from_str_radix(request, 16).unwrap() }
}

fn owner_of(text: &str) -> (ClientNumber, u64) {
    let (client, owner) = text.rsplit_once(':').unwrap();
    (client_of(client), owner.parse().unwrap())
}

fn client_of(text: &str) -> ClientNumber {
    (0..CLIENTS).find(|number| client(*number) == text).unwrap()
}

pub(crate) fn list(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) => items,
        other => panic!("no list: {other:?}"),
    }
}

pub(crate) fn text(value: &Value) -> String {
    String::from_redis_value(value.clone()).unwrap()
}

pub(crate) fn texts(value: &Value) -> Vec<String> {
    list(value).iter().map(text).collect()
}

pub(crate) fn pairs(value: &Value) -> BTreeMap<String, String> {
    texts(value).chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

pub(crate) fn number<T: FromRedisValue>(value: &Value) -> T {
    T::from_redis_value(value.clone()).unwrap()
}
