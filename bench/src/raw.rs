//! The physical limits: the cost of the server and the client library without fairlock.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use redis::{Cmd, Connection, ConnectionLike, FromRedisValue};

use crate::Outcome;
use crate::peer::{Lock, Peer};
use crate::recorded::{Recorded, token};
use crate::workload::Order;

thread_local! {
    /// Each thread has its own connection, as in the fastest program.
    static CONNECTION: std::cell::RefCell<Option<Connection>> = const { std::cell::RefCell::new(None) };
}

pub struct Raw {
    url: String,
    what: What,
}

enum What {
    /// One PING.
    Ping,
    /// fairlock's two scripts with their usual arguments.
    Scripts(Recorded),
    /// A lock without any promise: `SET NX PX`, and a script that compares and deletes.
    SetNx { release: String, lease: u128, values: AtomicU64 },
}

/// As in the documentation of Redis.
const COMPARE_AND_DELETE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

pub struct Handle<'a> {
    raw: &'a Raw,
    name: String,
}

impl Raw {
    pub fn new(peer: &str, url: &str, order: &Order) -> Outcome<Raw> {
        let what = match peer {
            "raw-ping" => What::Ping,
            "raw-scripts" => What::Scripts(Recorded::new(url, order.lease)?),
            _ => {
                let load = redis::cmd("SCRIPT").arg("LOAD").arg(COMPARE_AND_DELETE).query(&mut open(url)?)?;
                What::SetNx { release: load, lease: order.lease.as_millis(), values: AtomicU64::new(0) }
            }
        };
        Ok(Raw { url: url.to_owned(), what })
    }

    fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Outcome<T> {
        CONNECTION.with_borrow_mut(|con| {
            if con.is_none() {
                *con = Some(open(&self.url)?);
            }
            con.as_mut().map_or_else(|| Err("no connection".into()), |con| Ok(command.query(con)?))
        })
    }
}

fn open(url: &str) -> Outcome<Connection> {
    Ok(redis::Client::open(url)?.get_connection()?)
}

impl<'a> Peer for &'a Raw {
    type Lock = Handle<'a>;

    fn lock(&self, name: &str) -> Outcome<Handle<'a>> {
        Ok(Handle { raw: self, name: name.to_owned() })
    }
}

impl Lock for Handle<'_> {
    fn hold(&self, held: &mut dyn FnMut()) -> Outcome {
        match &self.raw.what {
            What::Ping => self.raw.ask(&redis::cmd("PING")),
            What::Scripts(Recorded { acquire, release }) => {
                let reply: redis::Value = self.raw.ask(&acquire.command(&self.name, ""))?;
                let token = token(&reply).ok_or("not granted")?.to_string();
                held();
                self.raw.ask(&release.command(&self.name, &token))
            }
            What::SetNx { release, lease, values } => {
                let value = values.fetch_add(1, Ordering::Relaxed).to_string();
                let mut set = redis::cmd("SET");
                set.arg(&self.name).arg(&value).arg("NX").arg("PX").arg(*lease as u64);
                // In workload 6 a quick thread meets the names of the next one.
                while !self.raw.ask::<bool>(&set)? {}
                held();
                match self.raw.ask(redis::cmd("EVALSHA").arg(release).arg(1).arg(&self.name).arg(&value))? {
                    1 => Ok(()),
                    _ => Err("not held".into()),
                }
            }
        }
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
        let publish = redis::cmd("PUBLISH")
            .arg("bench:push")
            .arg("granted 2f1c9c34-7a2e-4d0e-9f0a-000000000000:1:00c0ffee00c0ffee 1 name")
            .clone();
        order.timed_cycles(|| {
            let sent = Instant::now();
            publisher.req_command(&publish)?;
            Ok(hears.recv()? - sent)
        })?;
        publisher.req_command(redis::cmd("PUBLISH").arg("bench:push").arg("end"))?;
        ear.join().map_err(|_| "the listener has panicked")?
    })
}
