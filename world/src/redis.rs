//! The small Redis: sessions, subscriptions, and the scripts that clients load, which run as they are. `compare` compares it with a real one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::rc::Rc;

use mlua::{Function, Lua, MultiValue, Value};

pub use crate::store::Reply;
use crate::store::{Bytes, Key, Store, number, printed};

/// The version of Redis that scripts are told.
const VERSION: u32 = 0x0007_000f;

pub struct Redis {
    lua: Lua,
    store: Rc<RefCell<Store>>,
    scripts: BTreeMap<Bytes, Function>,
    /// By connection: what came of a command whose rest is on its way, and its channels.
    sessions: BTreeMap<usize, (Bytes, Vec<Bytes>)>,
    older: BTreeMap<Bytes, Key>,
    /// What happened, for `compare`, if that was asked for.
    pub record: Option<String>,
}

/// What goes to which connection.
type Said = Vec<(usize, Bytes)>;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl Default for Redis {
    fn default() -> Redis {
        let (lua, store) = (Lua::new(), Rc::<RefCell<Store>>::default());
        globals(&lua, &store).expect("a Lua with memory");
        let record = std::env::var_os("WORLD_RECORD").map(|_| String::new());
        let (scripts, sessions, older) = Default::default();
        Redis { lua, store, scripts, sessions, older, record }
    }
}

impl Redis {
    fn note(&mut self, line: std::fmt::Arguments<'_>) {
        if let Some(record) = &mut self.record {
            let _ = writeln!(record, "{line}");
        }
    }

    pub fn open(&mut self, con: usize) {
        self.note(format_args!("open {con}"));
        self.sessions.insert(con, Default::default());
    }

    pub fn close(&mut self, con: usize) {
        if self.sessions.remove(&con).is_some() {
            self.note(format_args!("close {con}"));
            let mut store = self.store.borrow_mut();
            store.subscribers.values_mut().for_each(|cons| cons.retain(|other| *other != con));
        }
    }

    pub fn snapshot(&mut self, clock: u64) {
        self.note(format_args!("snapshot {clock}"));
        self.older.clone_from(&self.store.borrow().keys);
    }

    /// With the same data, an older copy or none. The connections are closed already.
    pub fn restart(&mut self, with: &str) {
        self.note(format_args!("restart {with}"));
        self.scripts.clear();
        match with {
            "older" => self.store.borrow_mut().keys.clone_from(&self.older),
            "empty" => self.store.borrow_mut().keys.clear(),
            _ => {}
        }
    }

    /// What it says to these bytes, and what they ask of the world.
    pub fn feed(&mut self, con: usize, bytes: &[u8], clock: u64, uptime: u64) -> (Said, Vec<Vec<Bytes>>) {
        self.store.borrow_mut().clock = clock;
        self.store.borrow_mut().uptime = uptime;
        let (mut said, mut asked) = (BTreeMap::<usize, Bytes>::new(), Vec::new());
        if let Some((rest, _)) = self.sessions.get_mut(&con) {
            rest.extend(bytes);
        }
        while let Some(words) = self.sessions.get_mut(&con).and_then(|(rest, _)| command(rest)) {
            if words[0] == b"WORLD" {
                asked.push(words);
                continue;
            }
            let replies = self.answer(con, &words);
            for (to, channel, message) in std::mem::take(&mut self.store.borrow_mut().told) {
                let push = Reply::List([b"message".to_vec(), channel, message].map(Reply::Text).into());
                said.entry(to).or_default().extend(push.packed());
            }
            said.entry(con).or_default().extend(replies.iter().flat_map(Reply::packed));
        }
        said.retain(|_, bytes| !bytes.is_empty());
        if asked.is_empty() {
            self.note(format_args!("feed {con} {clock} {}", hex(bytes)));
            for (to, bytes) in &said {
                self.note(format_args!("said {to} {}", hex(bytes)));
            }
        }
        (said.into_iter().collect(), asked)
    }

    fn answer(&mut self, con: usize, words: &[Bytes]) -> Vec<Reply> {
        let Some((_, channels)) = self.sessions.get_mut(&con) else { return Vec::new() };
        match words[0].to_ascii_uppercase().as_slice() {
            b"EVALSHA" => vec![self.evaluate(words)],
            b"SCRIPT" => vec![self.load(&words[2])],
            b"PING" if !channels.is_empty() => {
                let echo = words.get(1).cloned().unwrap_or_default();
                vec![Reply::List([b"pong".to_vec(), echo].map(Reply::Text).into())]
            }
            name @ (b"SUBSCRIBE" | b"UNSUBSCRIBE") => {
                let mut store = self.store.borrow_mut();
                let mut change = |channel: &Bytes| {
                    let all = store.subscribers.entry(channel.clone()).or_default();
                    all.retain(|other| *other != con);
                    channels.retain(|other| other != channel);
                    if name == b"SUBSCRIBE" {
                        all.push(con);
                        channels.push(channel.clone());
                    }
                    let [word, which] = [name.to_ascii_lowercase(), channel.clone()].map(Reply::Text);
                    Reply::List(vec![word, which, Reply::Number(channels.len() as i64)])
                };
                words[1..].iter().map(&mut change).collect()
            }
            _ => vec![self.store.borrow_mut().run(words)],
        }
    }

    fn load(&mut self, text: &Bytes) -> Reply {
        match self.lua.load(text.as_slice()).set_name("@user_script").into_function() {
            Ok(function) => {
                let hash = sha1_smol::Sha1::from(text).digest().to_string().into_bytes();
                self.scripts.insert(hash.clone(), function);
                Reply::Text(hash)
            }
            Err(error) => Reply::Error(format!("ERR Error compiling script: {error}")),
        }
    }

    fn evaluate(&mut self, words: &[Bytes]) -> Reply {
        let Some(script) = words.get(1).and_then(|hash| self.scripts.get(hash)) else {
            return Reply::Error("NOSCRIPT No matching script. Please use EVAL.".to_owned());
        };
        let keys = words.get(2).and_then(|keys| number(keys).ok()).unwrap_or(0) as usize;
        let list = |words: &[Bytes]| {
            let words =
                words.iter().map(|word| self.lua.create_string(word)).collect::<mlua::Result<Vec<_>>>()?;
            self.lua.create_sequence_from(words)
        };
        let call = || {
            self.lua.globals().raw_set("KEYS", list(&words[3..3 + keys])?)?;
            self.lua.globals().raw_set("ARGV", list(&words[3 + keys..])?)?;
            script.call::<Value>(())
        };
        call().map_or_else(failure, from_lua)
    }
}

fn failure(error: mlua::Error) -> Reply {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    Reply::Error(line.trim_start_matches("runtime error: ").to_owned())
}

fn globals(lua: &Lua, store: &Rc<RefCell<Store>>) -> mlua::Result<()> {
    let redis = lua.create_table()?;
    for (name, raises) in [("call", true), ("pcall", false)] {
        let store = Rc::clone(store);
        let call = move |lua: &Lua, words: MultiValue| {
            let word = |word: Value| match word {
                Value::String(word) => Ok(word.as_bytes().to_vec()),
                Value::Integer(number) => Ok(number.to_string().into_bytes()),
                Value::Number(number) => Ok(printed(number).into_bytes()),
                _ => Err(mlua::Error::runtime("ERR command arguments must be strings or integers")),
            };
            let words: Vec<Bytes> = words.into_iter().map(word).collect::<mlua::Result<_>>()?;
            match store.borrow_mut().run(&words) {
                Reply::Error(error) if raises => Err(mlua::Error::runtime(error)),
                reply => to_lua(lua, reply),
            }
        };
        redis.set(name, lua.create_function(call)?)?;
    }
    let error_reply = |lua: &Lua, text: mlua::String| one(lua, "err", &text.as_bytes());
    redis.set("error_reply", lua.create_function(error_reply)?)?;
    redis.set("REDIS_VERSION_NUM", VERSION)?;
    lua.globals().set("redis", redis)
}

fn one(lua: &Lua, name: &str, text: &[u8]) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    table.raw_set(name, lua.create_string(text)?)?;
    Ok(Value::Table(table))
}

fn to_lua(lua: &Lua, reply: Reply) -> mlua::Result<Value> {
    Ok(match reply {
        Reply::Number(number) => Value::Number(number as f64),
        Reply::Text(text) => Value::String(lua.create_string(text)?),
        Reply::Nil => Value::Boolean(false),
        Reply::Status(status) => one(lua, "ok", status.as_bytes())?,
        Reply::Error(error) => one(lua, "err", error.as_bytes())?,
        Reply::List(list) => {
            let items = list.into_iter().map(|item| to_lua(lua, item)).collect::<mlua::Result<Vec<_>>>()?;
            Value::Table(lua.create_sequence_from(items)?)
        }
    })
}

fn from_lua(value: Value) -> Reply {
    match value {
        Value::Integer(number) => Reply::Number(number),
        Value::Number(number) => Reply::Number(number as i64),
        Value::String(text) => Reply::Text(text.as_bytes().to_vec()),
        Value::Boolean(true) => Reply::Number(1),
        Value::Table(table) => match table.raw_get::<Value>("err") {
            Ok(Value::String(error)) => Reply::Error(error.to_string_lossy()),
            _ => Reply::List(table.sequence_values().map_while(Result::ok).map(from_lua).collect()),
        },
        _ => Reply::Nil,
    }
}

/// Takes the first command out of these bytes, if it is there as a whole.
fn command(bytes: &mut Bytes) -> Option<Vec<Bytes>> {
    let line = |from: usize| {
        let end = from + bytes.get(from..)?.windows(2).position(|two| two == b"\r\n")?;
        Some((number(&bytes[from + 1..end]).ok()? as usize, end + 2))
    };
    let (count, mut at) = line(0)?;
    let mut words = Vec::new();
    for _ in 0..count {
        let (length, from) = line(at)?;
        at = from + length + 2;
        words.push(bytes.get(from..at)?[..length].to_vec());
    }
    bytes.drain(..at);
    Some(words)
}
