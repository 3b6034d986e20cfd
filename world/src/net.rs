//! The network between the process and the small Redis: each connection is two queues of bytes, with the times of their arrival.
//! A client is known by the address that it connects to, 10.0.0.CLIENT; 10.0.0.255 is for the test, and no fault hits it.
//!
//! The server speaks to the network by a command of its own, WORLD, which only the test uses:
//!
//! - `HUSH client ms all`: what the client and the server send each other arrives so much later. All of it, or what goes on
//!   the connections that exist, while new ones work.
//! - `LATE client text ms`: so does the client's next command with this text, and all that follows on its connection.
//! - `CUT client`: about half of the client's connections are reset.
//! - `FREEZE 1`, `FREEZE 0`: the server stands still, and goes on.
//! - `RESTART ms same|older|empty`: the server is killed, and is back after so long.
//! - `SNAPSHOT`: what an older copy is a copy of. `STEP ms`: the server's clock is stepped.
//! - `CLIENTS`: how many connections are open, but for the test's own.

use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use crate::kernel::{SEC, State, WALL, World};
use crate::redis::{Redis, Reply};

const MS: u64 = 1_000_000;
/// The client that the test is.
const TEST: u8 = 255;
/// What the server does with one delivery.
const SERVES: u64 = 20_000;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Link {
    #[default]
    Connecting,
    Up,
    Refused,
}

/// What follows the last bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum End {
    #[default]
    Open,
    Closed,
    Reset,
}

#[derive(Default)]
pub struct Con {
    client: u8,
    pub link: Link,
    /// Whether the client has it still, and whether the server has.
    pub is_ours: bool,
    is_theirs: bool,
    /// What the client can read, and what it reads then.
    pub inbox: VecDeque<u8>,
    pub end: End,
    /// How long a read waits; 0: without limit.
    pub patience: u64,
    pub resets: bool,
    pub never_blocks: bool,
    to_client: VecDeque<(u64, Vec<u8>)>,
    to_server: VecDeque<(u64, Vec<u8>)>,
    last_to_client: End,
    ends_at_server: bool,
    /// Nothing arrives before.
    held: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Connects(usize),
    AtServer(usize),
    AtClient(usize),
}

#[derive(Default)]
pub struct Net {
    pub cons: Vec<Con>,
    events: BinaryHeap<std::cmp::Reverse<(u64, u64, Event)>>,
    sequence: u64,
    pub redis: Redis,
    delay: u64,
    /// Until when new connections of a client carry nothing.
    hushed: BTreeMap<u8, u64>,
    late: Vec<(u8, Vec<u8>, u64)>,
    /// Until when the server does nothing, and refuses.
    frozen: bool,
    down: u64,
    began: u64,
    step: i64,
}

impl Net {
    pub fn new(dice: u64) -> Net {
        Net { delay: [30_000, 30_000, 200_000, MS][dice as usize % 4], ..Net::default() }
    }

    pub fn next(&self) -> Option<u64> {
        self.events.peek().map(|std::cmp::Reverse((at, ..))| *at)
    }

    fn at(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.events.push(std::cmp::Reverse((at, self.sequence, event)));
    }
}

impl World {
    /// How long something is on its way: now and then ten times as long.
    fn delay(&mut self) -> u64 {
        let delay = self.net.delay;
        let delay = delay + self.roll(delay / 2 + 1);
        if self.roll(200) == 0 { 10 * delay } else { delay }
    }

    pub fn open(&mut self) -> usize {
        self.net.cons.push(Con { is_ours: true, ..Con::default() });
        self.net.cons.len() - 1
    }

    pub fn connect(&mut self, con: usize, client: u8) {
        let held = self.net.hushed.get(&client).copied().unwrap_or(0);
        (self.net.cons[con].client, self.net.cons[con].held) = (client, held);
        let at = self.now + 2 * self.delay();
        self.net.at(at, Event::Connects(con));
    }

    pub fn send(&mut self, con: usize, bytes: &[u8]) {
        let client = self.net.cons[con].client;
        let is_late = |(of, text, _): &(u8, Vec<u8>, u64)| {
            *of == client && bytes.windows(text.len()).any(|part| part == text)
        };
        if let Some(late) = self.net.late.iter().position(is_late) {
            let (.., by) = self.net.late.swap_remove(late);
            self.net.cons[con].held = self.now + by;
        }
        let last = self.net.cons[con].to_server.back().map_or(0, |(at, _)| *at);
        let at = last.max(self.now + self.delay());
        self.net.cons[con].to_server.push_back((at, bytes.to_vec()));
        self.net.at(at, Event::AtServer(con));
    }

    /// The client closes: what it has sent is on its way. A reset
    /// outruns what is held back, now and then.
    pub fn close(&mut self, con: usize) {
        self.net.cons[con].is_ours = false;
        if self.net.cons[con].resets && self.now < self.net.cons[con].held && self.roll(4) == 0 {
            self.net.cons[con].to_server.clear();
        }
        if self.net.cons[con].is_theirs {
            self.net.cons[con].ends_at_server = true;
            let last = self.net.cons[con].to_server.back().map_or(0, |(at, _)| *at);
            let at = last.max(self.now + self.delay());
            self.net.at(at, Event::AtServer(con));
        }
    }

    /// The server sends; now and then in two pieces.
    fn reply(&mut self, con: usize, mut bytes: Vec<u8>) {
        let last = self.net.cons[con].to_client.back().map_or(0, |(at, _)| *at);
        let mut at = last.max(self.now + self.delay());
        if bytes.len() > 1 && self.roll(50) == 0 {
            let rest = bytes.split_off(1 + self.roll(bytes.len() as u64 - 1) as usize);
            self.net.cons[con].to_client.push_back((at, bytes));
            self.net.at(at, Event::AtClient(con));
            at += self.roll(5 * MS);
            bytes = rest;
        }
        self.net.cons[con].to_client.push_back((at, bytes));
        self.net.at(at, Event::AtClient(con));
    }

    /// The server's end is gone: of what it had sent some arrives, then a reset.
    fn reset(&mut self, con: usize) {
        let sent = self.net.cons[con].to_client.len() as u64;
        let arrives = self.roll(sent + 1) as usize;
        let gone = &mut self.net.cons[con];
        gone.to_client.truncate(arrives);
        gone.to_server.clear();
        (gone.is_theirs, gone.last_to_client) = (false, End::Reset);
        let at = self.now + self.delay();
        self.net.at(at, Event::AtClient(con));
        self.net.redis.close(con);
    }

    /// What was to happen on the network until now.
    pub fn deliver(&mut self) {
        while self.net.next().is_some_and(|at| at <= self.now) {
            if let Some(std::cmp::Reverse((.., event))) = self.net.events.pop() {
                self.happens(event);
            }
        }
    }

    fn happens(&mut self, event: Event) {
        let (Event::Connects(con) | Event::AtServer(con) | Event::AtClient(con)) = event;
        let is_test = self.net.cons[con].client == TEST;
        let mut from = self.net.cons[con].held;
        if self.net.frozen && !is_test && event == Event::AtServer(con) {
            from = from.max(self.now + MS); // looked at again
        }
        if self.now < from {
            return self.net.at(from, event);
        }
        match event {
            Event::Connects(con) => {
                let is_down = self.now < self.net.down && !is_test;
                self.net.cons[con].link = if is_down { Link::Refused } else { Link::Up };
                if !is_down && self.net.cons[con].is_ours {
                    self.net.cons[con].is_theirs = true;
                    self.net.redis.open(con);
                }
                self.wake(State::Socket(con), usize::MAX);
            }
            Event::AtServer(con) => {
                let mut bytes = Vec::new();
                while self.net.cons[con].to_server.front().is_some_and(|(at, _)| *at <= self.now) {
                    bytes.extend(
                        self.net.cons[con].to_server.pop_front().into_iter().flat_map(|(_, part)| part),
                    );
                }
                if !self.net.cons[con].is_theirs {
                    return if self.net.cons[con].is_ours {
                        self.reset(con)
                    };
                }
                if !bytes.is_empty() {
                    self.serve(con, &bytes);
                }
                let here = &mut self.net.cons[con];
                if here.ends_at_server && here.to_server.is_empty() {
                    here.is_theirs = false;
                    self.net.redis.close(con);
                }
            }
            Event::AtClient(con) => {
                let here = &mut self.net.cons[con];
                while here.to_client.front().is_some_and(|(at, _)| *at <= self.now) {
                    here.inbox.extend(here.to_client.pop_front().into_iter().flat_map(|(_, part)| part));
                }
                if here.to_client.is_empty() && here.last_to_client != End::Open {
                    here.end = here.last_to_client;
                }
                self.wake(State::Socket(con), usize::MAX);
            }
        }
    }

    fn serve(&mut self, con: usize, bytes: &[u8]) {
        self.now += SERVES;
        let clock = WALL.saturating_add(self.now).saturating_add_signed(self.net.step) / 1000;
        let uptime = (self.now - self.net.began.min(self.now)) / SEC;
        let (said, asked) = self.net.redis.feed(con, bytes, clock, uptime);
        for (to, bytes) in said {
            self.reply(to, bytes);
        }
        for words in asked {
            let text: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
            let text: Vec<&str> = text.iter().map(|word| &**word).collect();
            let answer = self.obeys(&text[1..], clock);
            self.reply(con, answer.packed());
        }
    }

    fn obeys(&mut self, words: &[&str], clock: u64) -> Reply {
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        let (client, is_of) = (number(1) as u8, |con: &Con| con.client == number(1) as u8);
        match words[0] {
            "HUSH" => {
                let until = self.now + number(2) * MS;
                if number(3) > 0 {
                    self.net.hushed.insert(client, until);
                }
                let cons = self.net.cons.iter_mut().filter(|con| is_of(con));
                cons.for_each(|con| con.held = con.held.max(until));
            }
            "LATE" => self.net.late.push((client, words[2].as_bytes().to_vec(), number(3) * MS)),
            "CUT" => {
                let cons: Vec<usize> = (0..self.net.cons.len()).collect();
                for con in cons {
                    if is_of(&self.net.cons[con]) && self.net.cons[con].is_theirs && self.roll(2) == 0 {
                        self.reset(con);
                    }
                }
            }
            "FREEZE" => self.net.frozen = number(1) > 0,
            "RESTART" => {
                for con in 0..self.net.cons.len() {
                    if self.net.cons[con].is_theirs && self.net.cons[con].client != TEST {
                        self.reset(con);
                    }
                }
                self.net.redis.restart(words[2]);
                self.net.down = self.now + number(1) * MS;
                self.net.began = self.net.down;
            }
            "SNAPSHOT" => self.net.redis.snapshot(clock),
            "STEP" => self.net.step += words[1].parse::<i64>().unwrap_or(0) * MS as i64,
            "CLIENTS" => {
                let open = self.net.cons.iter().filter(|con| con.is_theirs && con.client != TEST).count();
                return Reply::Number(open as i64);
            }
            other => return Reply::Error(format!("ERR no WORLD {other}")),
        }
        Reply::Status("OK")
    }
}
