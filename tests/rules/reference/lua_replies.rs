//! The scripts' answers and pushes, and the keys of a lock, translated into the model's terms.

use std::collections::BTreeMap;

use fairlock_tests::reference::line_clock::LineClock;
use fairlock_tests::reference::sequence::Sequence;
use fairlock_tests::reference::{
    Answer, ClientNumber, Hold, KEPT_FOR, Kind, Line, Lock, Member, Millis, Place, Presence, Push,
};
use redis::{FromRedisValue, Value};

use crate::commands::{CLIENTS, Command, LABELS};
use crate::lua::client;
use crate::subject::{Seen, SeenHolder, SeenPlace};

/// Added to the ticket of a parked place.
const PARKED: u64 = 1 << 52;

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
pub(crate) fn seen(reply: &Value) -> Seen {
    let row = list(reply);
    let holder = |row: &[Value]| SeenHolder {
        owner: owner_of(&text(&row[0])),
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

/// The sequence's field `state`.
pub(crate) struct State {
    pub(crate) is_marked: bool,
    pub(crate) last: u64,
    pub(crate) turn: String,
    pub(crate) born: u64,
    pub(crate) line_clock: LineClock,
    pub(crate) reserved_until: u64,
    pub(crate) rests_until: u64,
    pub(crate) reserved_for: String,
}

/// A sequence without a state is new.
pub(crate) fn state(text: Option<&String>, now: Millis) -> State {
    let new = format!("0 A 0 {now} 0 5000 0");
    let text = text.unwrap_or(&new);
    let (is_marked, rest) = text.strip_prefix('!').map_or((false, text.as_str()), |rest| (true, rest));
    let words: Vec<&str> = rest.splitn(10, ' ').collect();
    let word = |index: usize| words.get(index).map_or(0, |word| word.parse::<i64>().unwrap());
    let number = |index: usize| u64::try_from(word(index)).unwrap();
    let line_clock = LineClock {
        shown: Some(number(3).checked_add_signed(-word(4)).unwrap()),
        pulse: number(3),
        ttl: Some(number(5)),
        ttl_until: number(6),
    };
    State {
        is_marked,
        last: number(0),
        turn: words[1].to_owned(),
        born: number(2),
        line_clock,
        reserved_until: number(7),
        rests_until: number(8),
        reserved_for: words.get(9).map_or_else(String::new, |client| (*client).to_owned()),
    }
}

/// The keys as a lock of the model.
///
/// # Errors
/// If the keys contradict each other.
pub(crate) fn kept(kind: Kind, reply: &Value, now: Millis) -> Result<Lock, String> {
    let [lock, line, record, parts @ .., ends] = list(reply) else { panic!("four keys' worth or five") };
    let (lock, mut record) = (pairs(lock), pairs(record));
    let ends: Vec<i64> = list(ends).iter().map(number).collect();
    let kept_until = |key: usize| u64::try_from(ends[key]).unwrap_or(0);
    let parts = parts.first().map(pairs).unwrap_or_default();
    let holds = holds(&lock, &parts, kept_until(0), now)?;
    let last = parts.values().map(|end| end.parse::<u64>().unwrap()).max();
    if let Some(last) = last
        && [0, 3].map(kept_until).iter().any(|end| !(last + 1000..=last + 61_000).contains(end))
    {
        return Err(format!("the keys of holds do not end a second to a minute after {last}: {ends:?}"));
    }
    let state_text = record.remove("state");
    let kicked = record.remove("kicked").unwrap_or_default();
    if (ends[2] < 0) == state_text.is_some() {
        return Err(format!("a record has a TTL: {ends:?}"));
    }
    let line = texts(line);
    // A line that was lost leaves its places.
    let mut lost: Vec<(Member, u64)> = Vec::new();
    for (member, place) in record.iter().filter(|(member, _)| !line.contains(member)) {
        let ticket = place.split(' ').nth(2).map(|ticket| ticket.trim_end_matches(['d', 'p']).parse());
        let Some(Ok(ticket)) = ticket else { return Err(format!("{member} has no place: {place}")) };
        lost.push((member_of(member), ticket));
    }
    lost.sort_by_key(|(_, ticket)| *ticket);
    if line.len() != 2 * (record.len() - lost.len()) {
        return Err(format!("the line {line:?} does not match the places {record:?}"));
    }
    let mut waiting: Vec<Place> = line
        .chunks_exact(2)
        .map(|entry| {
            let (member, score): (&str, u64) = (&entry[0], entry[1].parse().unwrap());
            let [deadline, lease, ticket, units, label] =
                record[member].splitn(5, ' ').collect::<Vec<_>>()[..]
            else {
                panic!("a place has five parts")
            };
            let presence = if score >= PARKED { Presence::Parked } else { Presence::Present };
            let letter = if score >= PARKED { "p" } else { "" };
            assert_eq!(
                ticket,
                format!("{}{letter}", score % PARKED),
                "the ticket in the place is the line's"
            );
            Place {
                member: member_of(member),
                ticket: score % PARKED,
                takes: units.split_once('/').unwrap().0.parse().unwrap(),
                presence,
                deadline: deadline.parse().unwrap(),
                lease: lease.parse().unwrap(),
                since: 0,
                label: label_of(label),
            }
        })
        .collect();
    waiting.sort_by_key(|place| place.ticket);
    let State { last, line_clock, rests_until, .. } = state(state_text.as_ref(), now);
    let is_kept = |key, used: Millis| kept_until(key) >= used + KEPT_FOR;
    if state_text.is_some() && !is_kept(2, last / 1000)
        || !waiting.is_empty() && !is_kept(1, line_clock.pulse)
    {
        return Err(format!("a line or a record ends within a day, at {ends:?}; it is {now}"));
    }
    Ok(Lock {
        kind,
        holds,
        line: Line { places: waiting },
        line_clock,
        sequence: Sequence(last),
        lost,
        rests_until,
        kicked: kicked.lines().rev().map(kick).collect(),
        first_must_ask: false,
    })
}

/// One hold of all units, or those that take a part and are not over, by token.
fn holds(
    lock: &BTreeMap<String, String>,
    parts: &BTreeMap<String, String>,
    kept_until: Millis,
    now: Millis,
) -> Result<Vec<Hold>, String> {
    let Some(mode) = lock.get("mode") else { return Ok(Vec::new()) };
    let words: Vec<&str> = mode.splitn(5, ' ').collect();
    if let [capacity, member, token, count, label] = words[..]
        && capacity != "of"
    {
        if lock.len() != 1 {
            return Err(format!("a hold beside one of all units: {lock:?}"));
        }
        return Ok(vec![Hold {
            member: member_of(member),
            takes: capacity.parse().unwrap(),
            token: token.parse().unwrap(),
            count: count.parse().unwrap(),
            ends: kept_until,
            label: label_of(&label[1..]), // behind the mark
        }]);
    }
    let mut holds = Vec::new();
    let mut used = 0;
    for (member, hold) in lock.iter().filter(|(member, _)| *member != "mode") {
        let [takes, token, count, label] = hold.splitn(4, ' ').collect::<Vec<_>>()[..] else {
            panic!("a hold has four parts")
        };
        let end = parts.get(member).ok_or_else(|| format!("{member} has no end: {parts:?}"))?;
        let hold = Hold {
            member: member_of(member),
            takes: takes.parse().unwrap(),
            token: token.parse().unwrap(),
            count: count.parse().unwrap(),
            ends: end.parse().unwrap(),
            label: label_of(label),
        };
        used += hold.takes;
        holds.push(hold);
    }
    if words[2] != used.to_string() || holds.len() != parts.len() {
        return Err(format!("{used} units are taken, by {parts:?}: {lock:?}"));
    }
    holds.retain(|hold| hold.ends > now);
    holds.sort_by_key(|hold| hold.token);
    Ok(holds)
}

fn kick(entry: &str) -> (Member, u64) {
    let (member, last) = entry.rsplit_once(' ').unwrap();
    (member_of(member), last.parse().unwrap())
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

fn label_of(text: &str) -> &'static str {
    LABELS.into_iter().find(|label| *label == text).unwrap()
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
