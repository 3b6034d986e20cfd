//! The scripts' answers and messages in the words of the comparison, and what the keys of a lock must be like.

use std::collections::BTreeMap;

use redis::{FromRedisValue, Value};

use crate::commands::{CLIENTS, Command};
use crate::lua::client;
use crate::words::{Answer, ClientNumber, Member, Millis, Push, Seen, SeenHolder, SeenPlace};

/// Redis may drop a queue, or the sequence, when no command has used it for so long.
const KEPT_FOR: Millis = 24 * 3600 * 1000;

fn answer(reply: &Value) -> Answer {
    let row = list(reply);
    let recheck = |index: usize| u64::try_from(number::<i64>(&row[index])).ok();
    match text(&row[0]).as_str() {
        "granted" => Answer::Granted { token: number(&row[1]), left: number(&row[2]) },
        "waiting" => Answer::Waiting { rank: number(&row[1]), recheck: recheck(2), latest: number(&row[3]) },
        "busy" => Answer::Busy { left: number(&row[1]) },
        "declined" if text(&row[1]) == "granted" => Answer::DeclinedSince { granted: number(&row[2]) },
        "declined" => Answer::DeclinedBehind { ahead: number(&row[2]) },
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
        (Some(Value::Int(0 | 1)), Command::Release { .. }) => return vec![Answer::Released],
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
fn seen(reply: &Value) -> Result<Seen, String> {
    let row = list(reply);
    let holder = |row: &[Value]| SeenHolder {
        member: member_of(&format!("{}:{}", text(&row[0]), text(&row[1]))),
        units: number(&row[2]),
        count: number(&row[4]),
        token: number(&row[3]),
        left: number(&row[6]),
        label: text(&row[5]),
    };
    let place = |row: &[Value]| SeenPlace {
        member: member_of(&format!("{}:{}", text(&row[0]), text(&row[1]))),
        units: number(&row[4]),
        capacity: text(&row[6]).parse().unwrap_or(0),
        waiting: number(&row[2]),
        left: number(&row[3]),
        label: text(&row[5]),
    };
    let mut holders: Vec<_> = list(&row[4]).iter().map(|row| holder(list(row))).collect();
    holders.sort_by_key(|holder| holder.token);
    let queue: Vec<_> = list(&row[7]).iter().map(|row| place(list(row))).collect();
    let told = [3, 5].map(|at| number::<usize>(&row[at]));
    if told != [holders.len(), queue.len()] {
        return Err(format!(
            "the numbers of holders and waiters are told as {told:?}: {holders:?}, {queue:?}"
        ));
    }
    Ok(Seen { holders, queue, absent: number(&row[6]) })
}

/// The record's fields `last` and `queue`.
pub(crate) struct Numbers {
    pub(crate) last: u64,
    pub(crate) served: u64,
    pub(crate) pulse: Millis,
    clock: Millis,
    pub(crate) ttl: Millis,
    pub(crate) rests_until: Millis,
}

impl Numbers {
    /// Takes them out of the record. One without them is new.
    pub(crate) fn take(record: &mut BTreeMap<String, String>, now: Millis) -> Numbers {
        let last = record.remove("last").unwrap_or_else(|| "0".to_owned());
        // With a note there are three numbers.
        let (last, note) =
            last.strip_prefix("v2 ").and_then(|all| all.split_once(' ')).unwrap_or((&last, ""));
        record.extend((!note.is_empty()).then(|| ("note".to_owned(), note.to_owned())));
        let last = last.parse().unwrap();
        let queue = record.remove("queue").unwrap_or_else(|| format!("0 {now} {now} 5000 0"));
        let numbers: Vec<u64> = queue.split(' ').map(|number| number.parse().unwrap()).collect();
        let [served, pulse, clock, ttl, rests_until] = numbers[..] else { panic!("five numbers: {queue}") };
        Numbers { last, served, pulse, clock, ttl, rests_until }
    }

    /// The queue's clock, while somebody waits.
    pub(crate) fn clock_at(&self, now: Millis) -> Millis {
        self.clock + now.saturating_sub(self.pulse).min(self.ttl / 2)
    }
}

/// A lock for who looks, and what of its keys nobody sees.
pub(crate) struct Stored {
    pub(crate) seen: Seen,
    pub(crate) last_number: u64,
    /// When the record ends.
    pub(crate) record_ends: Millis,
    /// Of each place.
    tickets: BTreeMap<Member, u64>,
}

impl Stored {
    /// # Errors
    /// If the keys contradict each other, or end too early or never.
    pub(crate) fn read(inspected: &Value, dump: &Value, now: Millis) -> Result<Stored, String> {
        let [lock, queue, record, parts @ .., ends] = list(dump) else { panic!("four keys' worth or five") };
        let (lock, mut record) = (pairs(lock), pairs(record));
        let ends: Vec<i64> = list(ends).iter().map(number).collect();
        let kept_until = |key: usize| u64::try_from(ends[key]).unwrap_or(0);
        if let Some(parts) = parts.first().map(pairs) {
            check_parts(&lock, &parts)?;
            let last = parts.values().map(|end| end.parse::<u64>().unwrap()).max();
            if last.is_some_and(|last| [0, 3].map(kept_until).iter().any(|end| *end < last + 1000)) {
                return Err(format!("the keys of holds end too early: {parts:?}, {ends:?}"));
            }
        } else if lock.contains_key("mode") && lock.len() != 2 {
            return Err(format!("the lock has one unit: {lock:?}"));
        }
        if (ends[2] < 0) != record.is_empty() {
            return Err(format!("a record has a TTL: {ends:?}"));
        }
        let Numbers { last, pulse, .. } = Numbers::take(&mut record, now);
        let tickets = tickets(&texts(queue), &record)?;
        let is_kept = |key, used: Millis| kept_until(key) >= used + KEPT_FOR;
        if last > 0 && !is_kept(2, last / 1000) || !tickets.is_empty() && !is_kept(1, pulse) {
            return Err(format!("a queue or a record ends within a day, at {ends:?}; it is {now}"));
        }
        Ok(Stored { seen: seen(inspected)?, last_number: last, record_ends: kept_until(2), tickets })
    }

    /// A wait that is counted from the ticket of its place becomes one that is counted by the rules.
    pub(crate) fn count_waits_alike(&mut self, expected: &Seen, now: Millis) {
        for place in &mut self.seen.queue {
            let since = self.tickets.get(&place.member).map_or(0, |ticket| ticket / 1000);
            let same = expected.queue.iter().find(|expected| expected.member == place.member);
            if let Some(same) = same.filter(|_| place.waiting == now.saturating_sub(since)) {
                place.waiting = same.waiting;
            }
        }
    }
}

/// The queue, and the places in the record, of which a lost queue leaves more than that.
fn tickets(queue: &[String], record: &BTreeMap<String, String>) -> Result<BTreeMap<Member, u64>, String> {
    let ticket = |entry: &[String]| {
        let (member, score) = (&entry[0], &entry[1]);
        let place =
            record.get(member).ok_or_else(|| format!("{member} stands in the queue without a place"))?;
        match place.split(' ').nth(2) {
            Some(told) if told == score => Ok((member_of(member), score.parse().unwrap())),
            _ => Err(format!("{member} stands in the queue as {score}, with the place {place}")),
        }
    };
    queue.chunks_exact(2).map(ticket).collect()
}

/// A lock of several units: how many are taken, and an end of each hold.
fn check_parts(lock: &BTreeMap<String, String>, parts: &BTreeMap<String, String>) -> Result<(), String> {
    let holds = || lock.iter().filter(|(member, _)| member.contains(':'));
    let units = |(_, hold): (_, &String)| hold.split(' ').next().unwrap().parse::<u64>().unwrap();
    let used: u64 = holds().map(units).sum();
    let told = lock.get("used").map_or(0, |used| used.parse().unwrap());
    if told != used || !holds().map(|(member, _)| member).eq(parts.keys()) {
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
