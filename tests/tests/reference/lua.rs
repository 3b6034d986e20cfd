//! The Lua of the repository on a real server, in virtual time. Each script is an unchanged file of
//! `fairlock-redis/scripts/`, after `virtual_time.lua` and the parts of `lib/` that its first line names.
//!
//! Pushes are real messages: each client has a connection subscribed to its channel, so PUBSUB NUMSUB is right.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use fairlock_tests::reference::{Ask, ClientNumber, Lock, Member, Millis, Patience};
use fairlock_tests::{RedisServer, eventually};
use redis::{Connection, Value};
use std::time::Duration;

use crate::commands::{CLIENTS, Command};
use crate::lua_replies::{answer, kept, list, push, seen, text};
use crate::subject::{Outcome, Seen, Subject};

const NAMES: [&str; 2] = ["orders", "{orders}"];
const OPERATIONS: [&str; 7] =
    ["acquire", "force_release", "inspect", "release", "renew", "renew_holds", "withdraw"];

/// A change to a script file: a mistake that a person could make.
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

    /// Loads the scripts, with this mistake.
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

/// The file, after the parts that it uses.
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
    tells_counts: bool,
    ears: [Option<Connection>; CLIENTS],
    /// The locks after the last command.
    last: Vec<(Seen, Lock)>,
}

impl<'a> LuaSubject<'a> {
    pub(crate) fn new(lua: &'a LuaServer, now: Millis) -> LuaSubject<'a> {
        let con = lua.server.con();
        let (tells_counts, ears) = (false, [const { None }; CLIENTS]);
        let mut subject = LuaSubject { lua, con, now, tells_counts, ears, last: Vec::new() };
        let _: () = redis::cmd("FLUSHALL").query(&mut subject.con).unwrap();
        (0..CLIENTS).for_each(|client| subject.hears(client));
        subject
    }

    fn hears(&mut self, client: ClientNumber) {
        if self.ears[client].is_none() {
            let mut ear = self.lua.server.con();
            ear.send_packed_command(&redis::cmd("SUBSCRIBE").arg(channel(client)).get_packed_command())
                .unwrap();
            ear.recv_response().unwrap(); // subscribed from now on
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

    /// In one round trip: runs the command and reads the locks afterwards.
    fn run_and_look(&mut self, command: &Command) -> Result<Outcome, String> {
        let mut pipe = redis::pipe();
        pipe.cmd("SET").arg("virtual:clock").arg(self.now).ignore();
        pipe.cmd("DEL").arg("virtual:told").ignore();
        let mut asks = script_of(command);
        if let Some(("renew_holds", _, arguments)) = &mut asks {
            // As the backend does: the counts are told only once one of them was not that of a grant.
            self.tells_counts |= arguments[0] != "1";
            if !self.tells_counts {
                arguments[0].clear();
            }
        }
        if let Some((script, lock, arguments)) = &asks {
            let keys = keys(*lock);
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let keys = if *script == "renew_holds" { &keys[..1] } else { &keys };
            self.call(&mut pipe, script, keys, arguments);
        } else if let Command::LoseHold { lock } = command {
            pipe.cmd("DEL").arg(NAMES[*lock]).ignore();
        } else if let Command::LoseLine { lock } = command {
            pipe.cmd("DEL").arg(&keys(*lock)[1..3]).ignore();
        }
        pipe.cmd("LRANGE").arg("virtual:told").arg(0).arg(-1);
        for lock in 0..NAMES.len() {
            let keys = keys(lock);
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            self.call(&mut pipe, "inspect", &keys, &["0", "1000"].map(str::to_owned));
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

/// The script, the lock and the arguments, as in the headers of the scripts.
fn script_of(command: &Command) -> Option<(&'static str, usize, Vec<String>)> {
    const KNOWS: &str = "1";
    const HEARS: &str = "0"; // no client says that it is deaf
    let told = |lock: usize| [KNOWS, "fairlock:", NAMES[lock]].map(str::to_owned);
    let asker = |ask: &Ask| [hex(ask.member), ask.lease.to_string(), ask.ttl.to_string()];
    Some(match command {
        Command::Acquire { lock, ask, patience } => {
            let mode = if *patience == Patience::Once { "once" } else { "wait" };
            let [request, lease, ttl] = asker(ask);
            let mut arguments =
                vec![owner(ask.member), request, lease, ttl, mode.to_owned(), ask.label.to_owned()];
            arguments.extend(told(*lock));
            arguments.extend([HEARS.to_owned(), ask.ticket.to_string()]);
            arguments.extend(beside(*lock));
            ("acquire", *lock, arguments)
        }
        Command::RenewPlaces { lock, ttl, places } => {
            let mut arguments = vec![ttl.to_string()];
            arguments.extend(told(*lock));
            arguments.push(HEARS.to_owned());
            arguments.extend(beside(*lock));
            for (member, lease, ticket) in places {
                arguments.extend([owner(*member), hex(*member), lease.to_string(), ticket.to_string()]);
            }
            ("renew", *lock, arguments)
        }
        Command::RenewHold { lock, member, token, count, lease } => {
            let hold = format!("{}:{} {token}", owner(*member), hex(*member));
            ("renew_holds", *lock, vec![count.to_string(), lease.to_string(), hold])
        }
        Command::Release { lock, member, token } => {
            let mut arguments = vec![owner(*member), hex(*member), token.to_string()];
            arguments.extend(told(*lock));
            arguments.extend([const { String::new() }; 4]);
            arguments.extend(beside(*lock));
            ("release", *lock, arguments)
        }
        Command::Bump { lock, member, token, again } => {
            let mut arguments = vec![owner(*member), hex(*member), token.to_string()];
            arguments.extend(told(*lock));
            arguments.extend(asker(again));
            arguments.push(again.label.to_owned());
            arguments.extend(beside(*lock));
            ("release", *lock, arguments)
        }
        Command::Withdraw { lock, member } | Command::Kick { lock, member } => {
            let mut arguments = vec![owner(*member), hex(*member)];
            arguments.extend(told(*lock));
            let by_operator = matches!(command, Command::Kick { .. });
            arguments.push(u8::from(by_operator).to_string());
            arguments.extend(beside(*lock));
            ("withdraw", *lock, arguments)
        }
        Command::ForceRelease { lock } => {
            let arguments = told(*lock).into_iter().chain(beside(*lock));
            ("force_release", *lock, arguments.collect())
        }
        Command::LoseHold { .. }
        | Command::LoseLine { .. }
        | Command::GoesDeaf(_)
        | Command::Hears(_)
        | Command::Advance(_) => return None,
    })
}

/// The channel of plain waiters, and the keys of Redisson's line, which is empty.
fn beside(lock: usize) -> [String; 3] {
    ["redisson_lock__channel", "redisson_lock_queue", "redisson_lock_timeout"]
        .map(|what| format!("{what}:{}", NAMES[lock]))
}

pub(crate) fn keys(lock: usize) -> [String; 4] {
    let name = NAMES[lock];
    let own = |kind: &str| match lock {
        0 => format!("fairlock_{kind}:{{{name}}}"),
        _ => format!("fairlock_{kind}_raw:{name}"),
    };
    [name.to_owned(), own("queue"), own("places"), own("token")]
}

pub(crate) fn client(number: ClientNumber) -> String {
    format!("00000000-0000-4000-8000-00000000000{number}")
}

fn channel(number: ClientNumber) -> String {
    format!("fairlock:{}", client(number))
}

pub(crate) fn owner(member: Member) -> String {
    format!("{}:{}", client(member.client), member.owner)
}

fn hex(member: Member) -> String {
    format!("{:016x}", member.request)
}
