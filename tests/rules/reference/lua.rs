//! The Lua of the repository on a real server, in virtual time. Each script is an unchanged file of
//! `fairlock-redis/scripts/`, after `virtual_time.lua` and with the parts of `lib/` that it includes.
//!
//! Pushes are real messages: each client has a connection subscribed to its channel, so PUBSUB NUMSUB is right.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use fairlock_core::LockKind;
use fairlock_tests::{RedisServer, eventually};
use redis::{Connection, Value};

use crate::commands::{CLIENTS, Command, LOCKS};
use crate::lua_calls::call_of;
use crate::lua_replies::{Stored, answers, list, push, text};
use crate::mistakes::Mistake;
use crate::rules::{START, pass};
use crate::words::{ClientNumber, Millis, Outcome};

const NAMES: [&str; LOCKS] = ["orders", "{orders}"];
const OPERATIONS: [&str; 9] = [
    "hand_off/acquire",
    "hand_off/adopt",
    "hand_off/force_release",
    "hand_off/inspect",
    "hand_off/release",
    "hand_off/renew",
    "hand_off/renew_holds",
    "hand_off/withdraw",
    "redisson/acquire",
];

/// Which parts of a script run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parts {
    Both,
    /// The cases are left out.
    General,
}

/// A server with the scripts.
pub(crate) struct LuaServer {
    pub(crate) server: RedisServer,
    scripts: HashMap<&'static str, String>,
}

impl LuaServer {
    pub(crate) fn start(parts: Parts) -> LuaServer {
        let server = RedisServer::start();
        let mut lua = LuaServer { server, scripts: HashMap::new() };
        lua.load(parts, None);
        lua
    }

    /// Loads the scripts, with this mistake.
    pub(crate) fn load(&mut self, parts: Parts, mistake: Option<&Mistake>) {
        for operation in OPERATIONS {
            let sha = self.put(&joined(&format!("{operation}.lua"), parts, mistake));
            self.scripts.insert(operation, sha);
        }
        let sha = self.put(include_str!("dump.lua"));
        self.scripts.insert("dump", sha);
    }

    fn put(&self, script: &str) -> String {
        const NO_LIFE: &str = "local grace_left, kept = nil, 0\n";
        let source = format!("{}{NO_LIFE}{script}", include_str!("virtual_time.lua"));
        self.server.query(&["SCRIPT", "LOAD", &source])
    }
}

/// The file with the parts that it includes, joined as by `scripts.rs`. What follows the cases notes that it has run; a file
/// without cases always does.
fn joined(name: &str, parts: Parts, mistake: Option<&Mistake>) -> String {
    const GENERAL: &str = "\n-- All else.\n";
    const NOTE: &str = "redis.call('SET', 'virtual:general', '1')\n";
    let main = read(name, mistake);
    let text = match main.split_once(GENERAL) {
        None => format!("{NOTE}{main}"),
        Some((above, general)) => {
            let is_left_out = |line: &&str| parts == Parts::General && line.starts_with("-- @include case/");
            let above: Vec<&str> = above.lines().filter(|line| !is_left_out(line)).collect();
            format!("{}\n{NOTE}{general}", above.join("\n"))
        }
    };
    let publish = "-- @include lib/tell: publish\n";
    included(&format!("{publish}{text}"), mistake, &mut Vec::new())
}

/// Of each file those parts that define the names behind the colon. Each part comes once, after those that it
/// includes itself.
fn included(text: &str, mistake: Option<&Mistake>, present: &mut Vec<String>) -> String {
    let mut joined = String::new();
    for line in text.lines() {
        match line.trim_start().strip_prefix("-- @include ").and_then(|rest| rest.split_once(':')) {
            None => joined.extend([line, "\n"]),
            Some((file, names)) => {
                let names: Vec<&str> = names.split(',').map(str::trim).collect();
                for part in read(&format!("{file}.lua"), mistake).split("\n-- @part\n") {
                    let is_named = defined(part).any(|own| names.contains(&own));
                    if is_named && !present.iter().any(|other| other == part) {
                        present.push(part.to_owned());
                        joined.push_str(&included(part, mistake, present));
                    }
                }
            }
        }
    }
    joined
}

/// The functions, constants and numbers of a part, or the name of a case.
fn defined(part: &str) -> impl Iterator<Item = &str> {
    let locals =
        part.lines().filter_map(|line| line.strip_prefix("local ").or_else(|| line.strip_prefix("-- Case ")));
    let names =
        locals.filter_map(|local| local.trim_start_matches("function ").split(['(', '=', ':']).next());
    names.flat_map(|names| names.split(',').map(str::trim))
}

fn read(name: &str, mistake: Option<&Mistake>) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fairlock-redis/scripts");
    let text = fs::read_to_string(folder.join(name)).unwrap();
    match mistake.filter(|mistake| mistake.file == name) {
        None => text,
        Some(Mistake { from, to, .. }) => {
            assert_eq!(text.matches(from.as_str()).count(), 1, "{name} has `{from}` once");
            text.replace(from, to)
        }
    }
}

/// The end of an attempt that arrives in time.
pub(crate) const IN_TIME: &str = "9999999999999999";

/// One world on that server.
pub(crate) struct LuaSubject<'a> {
    pub(crate) lua: &'a LuaServer,
    kind: LockKind,
    pub(crate) con: Connection,
    pub(crate) now: Millis,
    pub(crate) micros: u64,
    tells_counts: bool,
    /// Attempts arrive after their end.
    pub(crate) arrives_late: bool,
    ears: [Option<Connection>; CLIENTS],
    /// The clients that say that they are deaf.
    pub(crate) say_deaf: BTreeSet<ClientNumber>,
}

/// What a command did, as the server says it.
pub(crate) struct Exchange {
    /// It may be the error that the lock is of another kind, or that the attempt came late.
    pub(crate) reply: Option<Value>,
    /// Channels and messages that were heard.
    pub(crate) told: Vec<(String, String)>,
    /// Each lock as `inspect` and `dump.lua` show it.
    pub(crate) looks: Vec<(Value, Value)>,
    /// Whether no case had it.
    pub(crate) is_general: bool,
}

impl<'a> LuaSubject<'a> {
    pub(crate) fn new(lua: &'a LuaServer, kind: LockKind) -> LuaSubject<'a> {
        let mut subject = LuaSubject {
            lua,
            kind,
            con: lua.server.con(),
            now: START,
            micros: 0,
            tells_counts: false,
            arrives_late: false,
            ears: Default::default(),
            say_deaf: BTreeSet::new(),
        };
        let _: () = redis::cmd("FLUSHALL").query(&mut subject.con).unwrap();
        (0..CLIENTS).for_each(|client| subject.hears(client));
        subject
    }

    fn hears(&mut self, client: ClientNumber) {
        if self.ears[client].is_none() {
            self.ears[client] = Some(ear(&self.lua.server, &channel(client)));
        }
    }

    fn goes_deaf(&mut self, client: ClientNumber) {
        self.ears[client] = None;
        let listeners = || self.lua.server.query::<(String, u64)>(&["PUBSUB", "NUMSUB", &channel(client)]).1;
        eventually("the server knows that the client is deaf", || listeners() == 0);
    }

    pub(crate) fn call(
        &self,
        pipe: &mut redis::Pipeline,
        script: &str,
        keys: &[String],
        arguments: &[String],
    ) {
        let sha = &self.lua.scripts[script];
        pipe.cmd("EVALSHA").arg(sha).arg(keys.len()).arg(keys).arg(arguments);
    }

    /// The commands before a script: they set the clock, and forget what the last script noted.
    pub(crate) fn begin(&self) -> redis::Pipeline {
        let mut pipe = redis::pipe();
        pipe.cmd("MSET").arg("virtual:clock").arg(self.now).arg("virtual:micros").arg(self.micros).ignore();
        pipe.cmd("DEL").arg(&["virtual:told", "virtual:general"]).ignore();
        pipe
    }

    /// In one round trip: runs the command and reads the locks afterwards.
    pub(crate) fn exchange(&mut self, command: &Command) -> Result<Exchange, String> {
        pass(&mut self.now, &mut self.micros, command);
        match command {
            Command::GoesDeaf(client) => self.goes_deaf(*client),
            Command::Hears(client) => self.hears(*client),
            _ => {}
        }
        let mut pipe = self.begin();
        let last_moment = format!("{:016}", self.now * 1000 + self.micros - 1);
        let begin_by = if self.arrives_late { &last_moment } else { IN_TIME };
        let mut call = call_of(self.kind, &self.say_deaf, begin_by, command);
        if let Some(call) = call.as_mut().filter(|call| call.script == "hand_off/renew_holds") {
            // As the backend does: the counts are told only once one of them was not that of a grant.
            self.tells_counts |= call.arguments[0] != "1";
            if !self.tells_counts {
                call.arguments[0].clear();
            }
        }
        let (is_call, keys) = (call.is_some(), |lock| keys_of(self.kind, lock));
        if let Some(call) = call {
            let mut keys = keys(call.lock);
            if call.script == "hand_off/renew_holds" {
                keys.drain(1..3);
            }
            self.call(&mut pipe, &call.script, &keys, &call.arguments);
        } else if let Command::LoseHold { lock } = command {
            let mut keys = keys(*lock);
            keys.drain(1..3);
            pipe.cmd("DEL").arg(&keys).ignore();
        } else if let Command::LoseQueue { lock } = command {
            pipe.cmd("DEL").arg(&keys(*lock)[1]).ignore();
        }
        pipe.cmd("LRANGE").arg("virtual:told").arg(0).arg(-1);
        pipe.cmd("EXISTS").arg("virtual:general");
        let capacity = self.kind.capacity().to_string();
        let part = ["500", "0", "1000", "500", &capacity].map(str::to_owned);
        for lock in 0..LOCKS {
            self.call(&mut pipe, "hand_off/inspect", &keys(lock), &part);
            self.call(&mut pipe, "dump", &keys(lock), &[]);
        }
        let mut replies: Vec<Value> =
            pipe.ignore_errors().query(&mut self.con).map_err(|error| error.to_string())?;
        for reply in &replies {
            if let Value::ServerError(error) = reply {
                matches!(error.code(), "MISMATCH" | "LATE").then_some(()).ok_or_else(|| error.to_string())?;
            }
        }
        let rest = replies.split_off(usize::from(is_call));
        let told = list(&rest[0]).chunks_exact(2).map(|told| (text(&told[0]), text(&told[1]))).collect();
        let looks = rest[2..].chunks_exact(2).map(|look| (look[0].clone(), look[1].clone())).collect();
        Ok(Exchange { reply: replies.pop(), told, looks, is_general: rest[1] == Value::Int(1) })
    }

    /// The same in the words of the comparison, with each lock afterwards.
    pub(crate) fn run(&mut self, command: &Command) -> Result<(Outcome, Vec<Stored>), String> {
        let exchange = self.exchange(command)?;
        let answers = answers(command, exchange.reply.as_ref());
        let told = exchange.told.iter().filter(|(_, message)| !message.starts_with("look "));
        let pushes = told.map(|(channel, message)| push(channel, message)).collect();
        let look = |(inspected, dump): &(Value, Value)| Stored::read(inspected, dump, self.now);
        let stored = exchange.looks.iter().map(look).collect::<Result<_, String>>()?;
        Ok((Outcome { answers, pushes }, stored))
    }
}

/// A connection that is subscribed from now on.
fn ear(server: &RedisServer, channel: &str) -> Connection {
    let mut ear = server.con();
    ear.send_packed_command(&redis::cmd("SUBSCRIBE").arg(channel).get_packed_command()).unwrap();
    ear.recv_response().unwrap();
    ear
}

/// Lock, queue, record, and the ends of holds.
pub(crate) fn keys(lock: usize) -> [String; 4] {
    [NAMES[lock].to_owned(), own_key(lock, "queue"), own_key(lock, "record"), own_key(lock, "ends")]
}

/// The same as the scripts get them: a lock of one unit has no ends.
pub(crate) fn keys_of(kind: LockKind, lock: usize) -> Vec<String> {
    let n = if kind.is_shared() { 4 } else { 3 };
    keys(lock)[..n].to_vec()
}

fn own_key(lock: usize, kind: &str) -> String {
    let name = NAMES[lock];
    match lock {
        0 => format!("fairlock_{kind}:{{{name}}}"),
        _ => format!("fairlock_{kind}_raw:{name}"),
    }
}

pub(crate) fn client(number: ClientNumber) -> String {
    format!("00000000-0000-4000-8000-00000000000{number}")
}

fn channel(number: ClientNumber) -> String {
    format!("fairlock:{}", client(number))
}
