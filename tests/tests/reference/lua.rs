//! The Lua of the repository on a real server, in virtual time: each script is a file of `fairlock-redis/scripts/`, behind
//! the parts of `lib/` that its first line names, behind `virtual_time.lua`. Not a word of it is changed.
//!
//! A push is what somebody really hears: each client has a connection that is subscribed to its channel, and PUBSUB
//! NUMSUB tells the truth.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use fairlock_tests::reference::line_clock::LineClock;
use fairlock_tests::reference::sequence::Sequence;
use fairlock_tests::reference::{
    Answer, Ask, ClientNumber, Hold, Line, Lock, Member, Millis, Patience, Place, Presence, Push,
};
use fairlock_tests::{RedisServer, eventually};
use redis::{Connection, FromRedisValue, Value};
use std::time::Duration;

use crate::commands::{CLIENTS, Command, LABELS};
use crate::subject::{Outcome, Seen, SeenHolder, SeenPlace, Subject};

const NAMES: [&str; 2] = ["orders", "{orders}"];
const PARKED: u64 = 1 << 52;
const OPERATIONS: [&str; 7] =
    ["acquire", "force_release", "inspect", "release", "renew", "renew_hold", "withdraw"];

/// A change to a file of the scripts: a mistake that a person could make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mistake {
    pub(crate) file: &'static str,
    pub(crate) right: &'static str,
    pub(crate) wrong: &'static str,
}

/// A server with the scripts.
pub(crate) struct LuaServer {
    server: RedisServer,
    scripts: HashMap<&'static str, String>,
}

impl LuaServer {
    pub(crate) fn start() -> LuaServer {
        let server = RedisServer::start();
        let mut lua = LuaServer { server, scripts: HashMap::new() };
        lua.load(None);
        lua
    }

    /// Puts the scripts on the server, with this mistake in them.
    pub(crate) fn load(&mut self, mistake: Option<Mistake>) {
        for operation in OPERATIONS {
            let sha = self.put(&joined(&format!("hand_off/{operation}.lua"), mistake));
            self.scripts.insert(operation, sha);
        }
        let sha = self.put(include_str!("dump.lua"));
        self.scripts.insert("dump", sha);
    }

    fn put(&self, script: &str) -> String {
        let source = format!("{}{script}", include_str!("virtual_time.lua"));
        self.server.query(&["SCRIPT", "LOAD", &source])
    }
}

/// The file, behind the parts that it uses.
fn joined(name: &str, mistake: Option<Mistake>) -> String {
    let main = read(name, mistake);
    let header = main.lines().next().unwrap().strip_prefix("-- uses: ").unwrap();
    let parts = header.split(' ').filter(|part| *part != "nothing");
    let parts: String = parts.map(|part| read(&format!("{part}.lua"), mistake)).collect();
    parts + &main
}

fn read(name: &str, mistake: Option<Mistake>) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fairlock-redis/scripts");
    let text = fs::read_to_string(folder.join(name)).unwrap();
    match mistake.filter(|mistake| mistake.file == name) {
        None => text,
        Some(Mistake { right, wrong, .. }) => {
            assert_eq!(text.matches(right).count(), 1, "{name} has `{right}` once");
            text.replace(right, wrong)
        }
    }
}

/// One world on that server.
pub(crate) struct LuaSubject<'a> {
    lua: &'a LuaServer,
    con: Connection,
    now: Millis,
    ears: [Option<Connection>; CLIENTS],
    /// What the locks looked like after the last command.
    last: Vec<(Seen, Lock)>,
}

impl<'a> LuaSubject<'a> {
    pub(crate) fn new(lua: &'a LuaServer, now: Millis) -> LuaSubject<'a> {
        let con = lua.server.con();
        let mut subject = LuaSubject { lua, con, now, ears: [const { None }; CLIENTS], last: Vec::new() };
        let _: () = redis::cmd("FLUSHALL").query(&mut subject.con).unwrap();
        (0..CLIENTS).for_each(|client| subject.hears(client));
        subject
    }

    fn hears(&mut self, client: ClientNumber) {
        if self.ears[client].is_none() {
            let mut ear = self.lua.server.con();
            ear.send_packed_command(&redis::cmd("SUBSCRIBE").arg(channel(client)).get_packed_command())
                .unwrap();
            ear.recv_response().unwrap(); // it is heard from now on
            self.ears[client] = Some(ear);
        }
    }

    fn goes_deaf(&mut self, client: ClientNumber) {
        self.ears[client] = None;
        let listeners = || self.lua.server.query::<(String, u64)>(&["PUBSUB", "NUMSUB", &channel(client)]).1;
        eventually(Duration::from_secs(5), "the server knows that the client is deaf", || listeners() == 0);
    }

    fn call(&self, pipe: &mut redis::Pipeline, script: &str, keys: &[&str], arguments: &[String]) {
        let sha = &self.lua.scripts[script];
        pipe.cmd("EVALSHA").arg(sha).arg(keys.len()).arg(keys).arg(arguments);
    }

    /// In one trip: the command, and what the locks look like after it.
    fn run_and_look(&mut self, command: &Command) -> Result<Outcome, String> {
        let mut pipe = redis::pipe();
        pipe.cmd("SET").arg("virtual:clock").arg(self.now).ignore();
        pipe.cmd("DEL").arg("virtual:told").ignore();
        let asks = script_of(command);
        if let Some((script, lock, arguments)) = &asks {
            let keys = keys(*lock);
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let keys = if *script == "renew_hold" { &keys[..1] } else { &keys };
            self.call(&mut pipe, script, keys, arguments);
        } else if let Command::LoseHold { lock } = command {
            pipe.cmd("DEL").arg(NAMES[*lock]).ignore();
        }
        pipe.cmd("LRANGE").arg("virtual:told").arg(0).arg(-1);
        for lock in 0..NAMES.len() {
            let keys = keys(lock);
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            self.call(&mut pipe, "inspect", &keys, &[]);
            self.call(&mut pipe, "dump", &keys, &[]);
        }
        let mut replies: Vec<Value> = pipe.query(&mut self.con).map_err(|error| error.to_string())?;
        let rest = replies.split_off(usize::from(asks.is_some()));
        let answers = match replies.first() {
            None => Vec::new(),
            Some(reply) if asks.is_some_and(|(script, ..)| script == "renew") => {
                list(reply).iter().map(answer).collect()
            }
            Some(reply) => vec![answer(reply)],
        };
        let pushes = list(&rest[0]).chunks_exact(2).map(|told| push(&text(&told[0]), &text(&told[1])));
        let outcome = Outcome { answers, pushes: pushes.collect() };
        let look = |look: &[Value]| Ok((seen(&look[0]), kept(&look[1])?));
        self.last = rest[1..].chunks_exact(2).map(look).collect::<Result<_, String>>()?;
        Ok(outcome)
    }
}

impl Subject for LuaSubject<'_> {
    fn run(&mut self, command: &Command, _expected: &Outcome) -> Result<Outcome, String> {
        match command {
            Command::GoesDeaf(client) => self.goes_deaf(*client),
            Command::Hears(client) => self.hears(*client),
            Command::Advance(by) => self.now += by,
            _ => {}
        }
        self.run_and_look(command)
    }

    fn seen(&mut self, lock: usize, _expected: &Seen) -> Seen {
        self.last[lock].0.clone()
    }

    fn kept(&mut self, lock: usize) -> Option<Lock> {
        Some(self.last[lock].1.clone())
    }
}

/// Which script, of which lock, and what for: as the headers of the scripts say.
fn script_of(command: &Command) -> Option<(&'static str, usize, Vec<String>)> {
    const KNOWS: &str = "1";
    let told = |lock: usize| [KNOWS, "fairlock:", NAMES[lock]].map(str::to_owned);
    let asker = |ask: &Ask| [hex(ask.member), ask.lease.to_string(), ask.ttl.to_string()];
    Some(match command {
        Command::Acquire { lock, ask, patience } => {
            let mode = if *patience == Patience::Once { "once" } else { "wait" };
            let [request, lease, ttl] = asker(ask);
            let mut arguments =
                vec![owner(ask.member), request, lease, ttl, mode.to_owned(), ask.label.to_owned()];
            arguments.extend(told(*lock));
            ("acquire", *lock, arguments)
        }
        Command::RenewPlaces { lock, ttl, places } => {
            let mut arguments = vec![ttl.to_string()];
            arguments.extend(told(*lock));
            arguments.push(String::new());
            for (member, lease) in places {
                arguments.extend([owner(*member), hex(*member), lease.to_string()]);
            }
            ("renew", *lock, arguments)
        }
        Command::RenewHold { lock, member, token, count, lease } => {
            let numbers = [*token, u64::from(*count), *lease].map(|number| number.to_string());
            ("renew_hold", *lock, [owner(*member), hex(*member)].into_iter().chain(numbers).collect())
        }
        Command::Release { lock, member, token } => {
            let mut arguments = vec![owner(*member), hex(*member), token.to_string()];
            arguments.extend(told(*lock));
            arguments.extend([const { String::new() }; 4]);
            ("release", *lock, arguments)
        }
        Command::Bump { lock, member, token, again } => {
            let mut arguments = vec![owner(*member), hex(*member), token.to_string()];
            arguments.extend(told(*lock));
            arguments.extend(asker(again));
            arguments.push(again.label.to_owned());
            ("release", *lock, arguments)
        }
        Command::Withdraw { lock, member } => {
            let mut arguments = vec![owner(*member), hex(*member)];
            arguments.extend(told(*lock));
            ("withdraw", *lock, arguments)
        }
        Command::ForceRelease { lock } => ("force_release", *lock, told(*lock).to_vec()),
        Command::LoseHold { .. } | Command::GoesDeaf(_) | Command::Hears(_) | Command::Advance(_) => {
            return None;
        }
    })
}

fn keys(lock: usize) -> [String; 4] {
    let name = NAMES[lock];
    let own = |kind: &str| match lock {
        0 => format!("fairlock_{kind}:{{{name}}}"),
        _ => format!("fairlock_{kind}_raw:{name}"),
    };
    [name.to_owned(), own("queue"), own("places"), own("token")]
}

fn client(number: ClientNumber) -> String {
    format!("00000000-0000-4000-8000-00000000000{number}")
}

fn channel(number: ClientNumber) -> String {
    format!("fairlock:{}", client(number))
}

fn owner(member: Member) -> String {
    format!("{}:{}", client(member.client), member.owner)
}

fn hex(member: Member) -> String {
    format!("{:016x}", member.request)
}

fn answer(reply: &Value) -> Answer {
    let row = list(reply);
    let look_again = |index: usize| u64::try_from(number::<i64>(&row[index])).ok();
    match text(&row[0]).as_str() {
        "granted" => Answer::Granted { token: number(&row[1]), left: number(&row[2]) },
        "queued" | "waiting" => Answer::Queued { rank: number(&row[1]), look_again: look_again(2) },
        "busy" => Answer::Busy { left: number(&row[1]) },
        "released" => Answer::Released,
        "not_held" => Answer::NotHeld,
        "kept" => Answer::Kept,
        "renewed" => Answer::Renewed,
        "lost" => Answer::Lost,
        "left" => Answer::Left,
        "was_granted" => Answer::WasGranted { token: number(&row[1]), left: number(&row[2]) },
        "taken" => Answer::Taken,
        word => panic!("no answer is called {word}"),
    }
}

fn push(channel: &str, message: &str) -> Push {
    let client = client_of(channel.strip_prefix("fairlock:").unwrap());
    let words: Vec<&str> = message.split(' ').collect();
    match words.as_slice() {
        ["granted", owner, request, token, _lock] => {
            let request = u64::from_str_radix(request, 16).unwrap();
            Push::Granted {
                to: Member { client, owner: owner.parse().unwrap(), request },
                token: token.parse().unwrap(),
            }
        }
        ["taken", owner, token, _lock] => {
            Push::Taken { client, owner: owner.parse().unwrap(), token: token.parse().unwrap() }
        }
        _ => panic!("no push is like {message}"),
    }
}

/// `inspect`'s reply.
fn seen(reply: &Value) -> Seen {
    let row = list(reply);
    let (holder, described) = (texts(&row[1]), texts(&row[3]));
    let holder = holder.first().map(|owner| {
        assert_eq!(owner, &described[0], "the description is of the holder");
        SeenHolder {
            owner: owner_of(owner),
            count: holder[1].parse().unwrap(),
            token: described[1].parse().unwrap(),
            left: number(&row[2]),
            label: described[2].clone(),
        }
    });
    let place = |row: &[Value]| SeenPlace {
        member: member_of(&format!("{}:{}", text(&row[0]), text(&row[1]))),
        waiting: number(&row[2]),
        left: number(&row[3]),
        label: text(&row[4]),
    };
    Seen { holder, line: list(&row[4]).chunks_exact(5).map(place).collect() }
}

/// The keys as the model would have them.
///
/// # Errors
/// With keys that don't fit together.
fn kept(reply: &Value) -> Result<Lock, String> {
    let [lock, line, places, sequence, ends] = list(reply) else { panic!("five keys' worth") };
    let (lock, places, sequence) = (pairs(lock), pairs(places), pairs(sequence));
    let ends: Vec<i64> = list(ends).iter().map(number).collect();
    let kept_until = |key: usize| u64::try_from(ends[key]).unwrap_or(0);
    let count = |member: Member| lock[&owner(member)].parse().unwrap();
    let hold = lock.get("fairlock").map(|named| {
        let (member, token) = named.rsplit_once(' ').unwrap();
        let member = member_of(member);
        let label = label_of(&sequence["label"]);
        Hold { member, token: token.parse().unwrap(), count: count(member), ends: kept_until(0), label }
    });
    if hold.is_some() && lock.len() != 2 {
        return Err(format!("more than one owner: {lock:?}"));
    }
    if kept_until(1) != kept_until(2) {
        return Err(format!("the line and its places live differently long: {ends:?}"));
    }
    if texts(line).len() != 2 * places.len() {
        return Err(format!("another line {line:?} than places {places:?}"));
    }
    let mut waiting: Vec<Place> = texts(line)
        .chunks_exact(2)
        .map(|entry| {
            let (member, score): (&str, u64) = (&entry[0], entry[1].parse().unwrap());
            let [deadline, lease, since, label] = places[member].splitn(4, ' ').collect::<Vec<_>>()[..]
            else {
                panic!("a place has four parts")
            };
            let presence = if score >= PARKED { Presence::Parked } else { Presence::Present };
            Place {
                member: member_of(member),
                ticket: score % PARKED,
                presence,
                deadline: deadline.parse().unwrap(),
                lease: lease.parse().unwrap(),
                since: since.parse().unwrap(),
                label: label_of(label),
            }
        })
        .collect();
    waiting.sort_by_key(|place| place.ticket);
    let named = |field: &str| sequence.get(field).map(|value| value.parse::<u64>().unwrap());
    Ok(Lock {
        hold,
        line: Line { places: waiting, kept_until: kept_until(1) },
        line_clock: LineClock {
            shown: named("clock"),
            pulse: named("pulse").unwrap_or(0),
            ttl: named("ttl"),
        },
        sequence: Sequence(named("token").unwrap_or(0)),
    })
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

fn list(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) => items,
        other => panic!("no list: {other:?}"),
    }
}

fn text(value: &Value) -> String {
    String::from_redis_value(value.clone()).unwrap()
}

fn texts(value: &Value) -> Vec<String> {
    list(value).iter().map(text).collect()
}

fn pairs(value: &Value) -> HashMap<String, String> {
    texts(value).chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

fn number<T: FromRedisValue>(value: &Value) -> T {
    T::from_redis_value(value.clone()).unwrap()
}
