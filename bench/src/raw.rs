//! The physical limits: the cost of the server and the client library without fairlock.

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use redis::{Connection, ConnectionLike};

use crate::Outcome;
use crate::peer::{Lock, Peer};
use crate::workload::Order;

thread_local! {
    /// Each thread has its own connection, as in the fastest program.
    static CONNECTION: std::cell::RefCell<Option<Connection>> = const { std::cell::RefCell::new(None) };
}

/// One PING, or fairlock's two scripts with their usual arguments.
pub struct Raw {
    url: String,
    ping: bool,
    acquire: String,
    release: String,
    lease: String,
}

pub struct Handle<'a> {
    raw: &'a Raw,
    name: String,
    keys: [String; 4],
    /// The channel of plain waiters; the keys of Redisson's line and its times.
    beside: [String; 3],
}

impl Raw {
    pub fn new(peer: &str, url: &str, order: &Order) -> Outcome<Raw> {
        let mut con = open(url)?;
        let mut load = |name| -> Outcome<String> {
            Ok(redis::cmd("SCRIPT").arg("LOAD").arg(crate::scripts::source(name)?).query(&mut con)?)
        };
        let (acquire, release) = (load("hand_off/acquire")?, load("hand_off/release")?);
        let lease = order.lease.as_millis().to_string();
        Ok(Raw { url: url.to_owned(), ping: peer == "raw-ping", acquire, release, lease })
    }

    fn call(&self, handle: &Handle<'_>, script: &str, arguments: &[&str]) -> Outcome<Vec<redis::Value>> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(script).arg(4).arg(&handle.keys).arg(arguments);
        self.on_connection(|con| Ok(command.query(con)?))
    }

    fn on_connection<T>(&self, use_it: impl FnOnce(&mut Connection) -> Outcome<T>) -> Outcome<T> {
        CONNECTION.with_borrow_mut(|con| {
            if con.is_none() {
                *con = Some(open(&self.url)?);
            }
            con.as_mut().map_or_else(|| Err("no connection".into()), use_it)
        })
    }
}

fn open(url: &str) -> Outcome<Connection> {
    Ok(redis::Client::open(url)?.get_connection()?)
}

const OWNER: &str = "2f1c9c34-7a2e-4d0e-9f0a-000000000000:1";
const REQUEST: &str = "00c0ffee00c0ffee";

impl<'a> Peer for &'a Raw {
    type Lock = Handle<'a>;

    fn lock(&self, name: &str) -> Outcome<Handle<'a>> {
        let keys =
            ["fairlock_queue", "fairlock_places", "fairlock_token"].map(|key| format!("{key}:{{{name}}}"));
        let [line, places, token] = keys;
        let beside = ["redisson_lock__channel", "redisson_lock_queue", "redisson_lock_timeout"]
            .map(|what| format!("{what}:{{{name}}}"));
        Ok(Handle { raw: self, name: name.to_owned(), keys: [name.to_owned(), line, places, token], beside })
    }
}

impl Lock for Handle<'_> {
    fn hold(&self, held: &mut dyn FnMut()) -> Outcome {
        if self.raw.ping {
            self.raw.on_connection(|con| Ok(con.req_command(&redis::cmd("PING"))?))?;
            return Ok(());
        }
        let lease = &self.raw.lease;
        let [channel, queue, times] = self.beside.each_ref().map(String::as_str);
        let prefix = "fairlock:";
        let ask = [
            OWNER, REQUEST, lease, "5000", "wait", "", "1", prefix, &self.name, "0", "0", channel, queue,
            times,
        ];
        let granted = self.raw.call(self, &self.raw.acquire, &ask)?;
        let [_, redis::Value::Int(token), _] = granted[..] else { return Err("not granted".into()) };
        held();
        let token = token.to_string();
        let give = [OWNER, REQUEST, &token, "1", prefix, &self.name, "", "", "", "", channel, queue, times];
        self.raw.call(self, &self.raw.release, &give).map(drop)
    }

    fn keep(&self) -> Outcome {
        Err("a baseline has no hold".into())
    }
}

/// From the publication of a message to its arrival in another thread, on its own connection.
pub fn push(url: &str, order: &Order) -> Outcome {
    let (mut publisher, mut listening) = (open(url)?, open(url)?);
    let (heard, hears) = channel();
    let ready = Mutex::new(false);
    thread::scope(|threads| {
        let ear = threads.spawn(|| -> Outcome {
            let mut ear = listening.as_pubsub();
            ear.subscribe("bench:push")?;
            if let Ok(mut ready) = ready.lock() {
                *ready = true;
            }
            loop {
                let message = ear.get_message()?;
                let at = Instant::now();
                if message.get_payload_bytes() == b"end" || heard.send(at).is_err() {
                    return Ok(());
                }
            }
        });
        while !ready.lock().is_ok_and(|ready| *ready) {
            thread::yield_now();
        }
        let publish =
            redis::cmd("PUBLISH").arg("bench:push").arg("granted 1 00c0ffee00c0ffee 1 name").clone();
        order.timed_cycles(|| {
            let sent = Instant::now();
            publisher.req_command(&publish)?;
            Ok(hears.recv()? - sent)
        })?;
        publisher.req_command(redis::cmd("PUBLISH").arg("bench:push").arg("end"))?;
        ear.join().map_err(|_| "the listener has panicked")?
    })
}
