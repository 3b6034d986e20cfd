//! Throw-away: other ways to share connections, to be measured beside the lanes. Chosen by `FAIRLOCK_VARIANT`.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};
use redis::{ConnectionAddr, Value};

use super::lane::Lane;
use super::slot::{Answers, Work};
use super::{Address, Failure, Timeouts};

/// N connections; a call takes one, or waits until one comes back. Nobody serves others.
pub(super) struct Pool {
    idle: Mutex<Vec<Lane>>,
    back: Condvar,
}

impl Pool {
    pub(super) fn new(count: usize) -> Pool {
        Pool { idle: Mutex::new((0..count).map(|_| Lane::new()).collect()), back: Condvar::new() }
    }

    pub(super) fn turn(
        &self,
        work: &Work,
        timeouts: &Timeouts,
        ready: impl Fn(&mut Lane) -> Result<(), Failure>,
    ) -> Answers {
        let end = Instant::now() + timeouts.response;
        let mut idle = self.idle.lock();
        let mut lane = loop {
            if let Some(lane) = idle.pop() {
                break lane;
            }
            if self.back.wait_until(&mut idle, end).timed_out() {
                return work.failed(&Failure::NotSent("all connections are busy".to_owned()));
            }
        };
        drop(idle);
        let mut answers = Answers::with_capacity(work.commands);
        let done = ready(&mut lane).and_then(|()| {
            lane.exchange(&work.packed, work.commands, timeouts.response, |reply| answers.push(reply))
        });
        if let Err(failure) = done {
            answers.resize(work.commands, Err(failure));
        }
        let mut idle = self.idle.lock();
        // Those with a connection on top.
        let place = if lane.is_connected() { idle.len() } else { 0 };
        idle.insert(place, lane);
        drop(idle);
        self.back.notify_one();
        answers
    }
}

/// One connection; callers write their own commands one after the other, and replies are handed out in that order.
pub(super) struct Pipe {
    has_thread: bool,
    /// Whether the right to write goes to who has waited longest.
    is_fair: bool,
    link: Mutex<Option<Arc<Link>>>,
}

struct Link {
    writer: Mutex<TcpStream>,
    reader: Mutex<Reader>,
    line: Mutex<Line>,
    is_dead: AtomicBool,
    to_wake: Condvar,
}

struct Line {
    waiting: VecDeque<Arc<Waiter>>,
    /// Whether somebody reads: with a thread of its own, always.
    is_read: bool,
}

struct Waiter {
    commands: usize,
    stage: Mutex<Stage>,
    changed: Condvar,
}

enum Stage {
    Waiting,
    Reads,
    Done(Answers),
}

struct Reader {
    stream: TcpStream,
    bytes: Vec<u8>,
    start: usize,
    /// Answers of the first who waits.
    answers: Answers,
}

impl Pipe {
    pub(super) fn new(has_thread: bool, is_fair: bool) -> Pipe {
        Pipe { has_thread, is_fair, link: Mutex::new(None) }
    }

    pub(super) fn turn(&self, work: &Work, address: &Address, timeouts: &Timeouts) -> Answers {
        let link = match self.link(address, timeouts) {
            Ok(link) => link,
            Err(failure) => return work.failed(&failure),
        };
        let end = Instant::now() + timeouts.response;
        let waiter = Arc::new(Waiter {
            commands: work.commands,
            stage: Mutex::new(Stage::Waiting),
            changed: Condvar::new(),
        });
        let Some(mut writer) = link.writer.try_lock_until(end) else {
            return work.failed(&Failure::NotSent("the connection is busy".to_owned()));
        };
        // In line before it is written, and both under the writer's mutex: replies come in the order of the line.
        let mut line = link.line.lock();
        if link.is_dead.load(Ordering::SeqCst) {
            return work.failed(&Failure::NotSent("the link failed".to_owned()));
        }
        line.waiting.push_back(Arc::clone(&waiter));
        let mut reads = !line.is_read;
        line.is_read = true;
        drop(line);
        if self.has_thread {
            reads = false;
        }
        let written = writer.write_all(&work.packed);
        if self.is_fair {
            MutexGuard::unlock_fair(writer);
        } else {
            drop(writer);
        }
        if written.is_err() {
            link.fail("the link failed");
        }
        if reads {
            return link.read_for(&waiter);
        }
        if self.has_thread {
            link.to_wake.notify_one();
        }
        let mut stage = waiter.stage.lock();
        while matches!(*stage, Stage::Waiting) {
            if waiter.changed.wait_until(&mut stage, end).timed_out() {
                drop(stage);
                link.fail("no answer in time");
                return work.failed(&Failure::Broken("no answer in time".to_owned()));
            }
        }
        match std::mem::replace(&mut *stage, Stage::Waiting) {
            Stage::Done(answers) => answers,
            Stage::Reads | Stage::Waiting => {
                drop(stage);
                link.read_for(&waiter)
            }
        }
    }

    fn link(&self, address: &Address, timeouts: &Timeouts) -> Result<Arc<Link>, Failure> {
        let mut link = self.link.lock();
        if let Some(link) = link.as_ref().filter(|link| !link.is_dead.load(Ordering::SeqCst)) {
            return Ok(Arc::clone(link));
        }
        let fresh = Link::open(address, timeouts).map_err(|error| Failure::NotSent(error.to_string()))?;
        let fresh = Arc::new(fresh);
        if self.has_thread {
            fresh.line.lock().is_read = true;
            let link = Arc::clone(&fresh);
            std::thread::spawn(move || link.read_always());
        }
        *link = Some(Arc::clone(&fresh));
        Ok(fresh)
    }
}

impl Link {
    fn open(address: &Address, timeouts: &Timeouts) -> std::io::Result<Link> {
        let ConnectionAddr::Tcp(host, port) = address.place().addr() else {
            return Err(std::io::Error::other("only TCP"));
        };
        let stream = TcpStream::connect((host.as_str(), *port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeouts.response))?;
        stream.set_write_timeout(Some(timeouts.response))?;
        let reader =
            Reader { stream: stream.try_clone()?, bytes: Vec::new(), start: 0, answers: Answers::new() };
        Ok(Link {
            writer: Mutex::new(stream),
            reader: Mutex::new(reader),
            line: Mutex::new(Line { waiting: VecDeque::new(), is_read: false }),
            is_dead: AtomicBool::new(false),
            to_wake: Condvar::new(),
        })
    }

    /// Reads until the waiter's own answers are there, hands out what has come with them, then lets the next one read.
    fn read_for(&self, me: &Waiter) -> Answers {
        let mut reader = self.reader.lock();
        let mut mine = None;
        let mut done: Vec<(Arc<Waiter>, Answers)> = Vec::new();
        while mine.is_none() {
            if let Err(failure) = reader.fill() {
                drop(reader);
                self.fail("the link failed");
                return vec![Err(failure); me.commands];
            }
            reader.hand_out(&self.line, &mut done);
            for (waiter, answers) in done.drain(..) {
                if std::ptr::eq(&*waiter, me) {
                    mine = Some(answers)
                } else {
                    waiter.decide(Stage::Done(answers))
                }
            }
        }
        drop(reader);
        let mut line = self.line.lock();
        match line.waiting.front().cloned() {
            Some(next) => {
                drop(line);
                next.decide(Stage::Reads);
            }
            None => line.is_read = false,
        }
        mine.unwrap_or_default()
    }

    /// The reader's own thread.
    fn read_always(&self) {
        let mut reader = self.reader.lock();
        let mut done = Vec::new();
        loop {
            let mut line = self.line.lock();
            // So that a link that lies idle is not taken to be dead by its read time-out.
            while line.waiting.is_empty() && !self.is_dead.load(Ordering::SeqCst) {
                self.to_wake.wait(&mut line);
            }
            drop(line);
            if reader.fill().is_err() {
                self.fail("the link failed");
                return;
            }
            reader.hand_out(&self.line, &mut done);
            done.drain(..)
                .for_each(|(waiter, answers): (Arc<Waiter>, _)| waiter.decide(Stage::Done(answers)));
        }
    }

    fn fail(&self, why: &str) {
        let mut line = self.line.lock();
        self.is_dead.store(true, Ordering::SeqCst);
        let waiting = std::mem::take(&mut line.waiting);
        drop(line);
        self.to_wake.notify_one();
        let _ = self.writer.lock().shutdown(Shutdown::Both);
        for waiter in waiting {
            let failed = vec![Err(Failure::Broken(why.to_owned())); waiter.commands];
            waiter.decide(Stage::Done(failed));
        }
    }
}

impl Waiter {
    fn decide(&self, stage: Stage) {
        *self.stage.lock() = stage;
        self.changed.notify_one();
    }
}

impl Reader {
    /// One read from the socket.
    fn fill(&mut self) -> Result<(), Failure> {
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
        let old = self.bytes.len();
        self.bytes.resize(old + 16 * 1024, 0);
        let got = self.stream.read(&mut self.bytes[old..]);
        self.bytes.truncate(old + got.as_ref().map_or(0, |n| *n));
        match got {
            Ok(0) => Err(Failure::Broken("closed".to_owned())),
            Ok(_) => Ok(()),
            Err(error) => Err(Failure::Broken(error.to_string())),
        }
    }

    /// All replies that have come in whole.
    fn hand_out(&mut self, line: &Mutex<Line>, done: &mut Vec<(Arc<Waiter>, Answers)>) {
        let mut line = line.lock();
        while let Some((value, length)) = decode(&self.bytes[self.start..]) {
            self.start += length;
            self.answers.push(value.and_then(|value| value.extract_error().map_err(Failure::from)));
            if line.waiting.front().is_some_and(|first| first.commands == self.answers.len())
                && let Some(first) = line.waiting.pop_front()
            {
                done.push((first, std::mem::take(&mut self.answers)));
            }
        }
    }
}

/// One reply, if it is there in whole, and its length.
fn decode(bytes: &[u8]) -> Option<(Result<Value, Failure>, usize)> {
    let end = bytes.iter().position(|byte| *byte == b'\n')? + 1;
    let text = || std::str::from_utf8(&bytes[1..end - 2]).unwrap_or_default();
    let number = || text().parse::<i64>().unwrap_or(-1);
    match bytes[0] {
        b':' => Some((Ok(Value::Int(number())), end)),
        b'$' => {
            let Ok(length) = usize::try_from(number()) else { return Some((Ok(Value::Nil), end)) };
            let bulk = bytes.get(end..end + length + 2)?;
            Some((Ok(Value::BulkString(bulk[..length].to_vec())), end + length + 2))
        }
        b'*' => {
            let Ok(count) = usize::try_from(number()) else { return Some((Ok(Value::Nil), end)) };
            let (mut parts, mut at) = (Vec::with_capacity(count), end);
            for _ in 0..count {
                let (part, length) = decode(&bytes[at..])?;
                parts.push(part.ok()?);
                at += length;
            }
            Some((Ok(Value::Array(parts)), at))
        }
        _ => Some((redis::parse_redis_value(&bytes[..end]).map_err(Failure::from), end)),
    }
}
