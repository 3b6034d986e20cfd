//! What the server did with one line, read from MONITOR: tickets, waiters that left, grants. The checker requires
//! that each grant goes to the smallest ticket present.

use crate::RedisServer;
use crate::history::Violations;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// One thing that a script did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The waiter stands in the queue with this ticket. It may come back to it after it left.
    InQueue {
        /// The owner, with discipline `HandOff` followed by its request.
        who: String,
        /// The ticket.
        ticket: u64,
    },
    /// The waiter left the queue: as a holder, by itself, or since it was absent at its turn.
    Left(String),
    /// The waiter got the lock.
    Granted(String),
}

/// Which keys to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Those of `HandOff`.
    HandOff,
    /// Those of Redisson, which has no ticket numbers: they are counted here.
    Redisson,
}

/// Listens to a server until it is dropped.
#[derive(Debug)]
pub struct Monitor {
    stream: TcpStream,
    lines: Receiver<String>,
}

impl Monitor {
    /// Every command after this call is recorded.
    pub fn start(server: &RedisServer) -> Monitor {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("the server is there");
        stream.write_all(b"MONITOR\r\n").expect("it listens");
        let mut heard = BufReader::new(stream.try_clone().expect("a socket can be shared")).lines();
        assert_eq!(heard.next().expect("an answer").expect("an answer"), "+OK");
        let (say, lines) = channel();
        thread::spawn(move || {
            for line in heard.map_while(Result::ok) {
                if say.send(line).is_err() {
                    return;
                }
            }
        });
        Monitor { stream, lines }
    }

    /// All lines up to a mark, which is a command made and sent by this call.
    pub fn until_now(&self, server: &RedisServer) -> Vec<String> {
        let mark = format!("mark-{}", crate::history::now_ns());
        server.query::<String>(&["ECHO", &mark]);
        let mut lines = Vec::new();
        loop {
            let line = self.lines.recv_timeout(Duration::from_secs(10)).expect("MONITOR shows the mark");
            if line.contains(&mark) {
                return lines;
            }
            lines.push(line);
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // Ends the thread. The server may be gone.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// What these lines of MONITOR say about a lock.
pub fn read(lines: &[String], line: Queue, lock: &str) -> Vec<Seen> {
    let mut joined = 0;
    let mut last_hold = String::new();
    let events = lines.iter().filter_map(|text| text.split_once("] ")).flat_map(|(_, command)| {
        let words: Vec<&str> = command.trim_matches('"').split("\" \"").collect();
        match line {
            Queue::HandOff => hand_off(&words, lock, &format!("fairlock_queue:{{{lock}}}"), &mut last_hold),
            Queue::Redisson => {
                let queue = format!("redisson_lock_queue:{{{lock}}}");
                redisson(&words, lock, &queue, &mut joined).into_iter().collect()
            }
        }
    });
    let mut seen: Vec<Seen> = Vec::new();
    for event in events {
        let at = place_of_a_grant(&seen, &event).unwrap_or(seen.len());
        seen.insert(at, event);
    }
    seen
}

/// A script takes a waiter out of the queue before it writes the hold: the grant stands before its leaving.
fn place_of_a_grant(seen: &[Seen], event: &Seen) -> Option<usize> {
    let Seen::Granted(who) = event else { return None };
    let recent = seen.iter().enumerate().rev().take(300);
    let (at, last) = recent.into_iter().find(|(_, event)| match event {
        Seen::Left(other) | Seen::InQueue { who: other, .. } => other == who,
        _ => false,
    })?;
    matches!(last, Seen::Left(_)).then_some(at)
}

/// A script passes over many absent waiters by one command.
fn hand_off(words: &[&str], lock: &str, queue: &str, last_hold: &mut String) -> Vec<Seen> {
    match *words {
        ["ZADD", key, ref pairs @ ..] if key == queue => pairs.chunks(2).filter_map(in_queue).collect(),
        ["ZREM", key, ref left @ ..] if key == queue => {
            let waiters = left.iter().filter(|who| who.contains(':'));
            waiters.map(|who| Seen::Left((*who).to_owned())).collect()
        }
        ["HSET", key, ref pairs @ ..] if key == lock => {
            let Some([who, hold]) =
                pairs.chunks_exact(2).find(|pair| pair[0].contains(':') && pair[1].contains(' '))
            else {
                return Vec::new();
            };
            // Its token, behind the units. A hold that is written again is no new grant.
            let hold = format!("{who} {}", hold.split(' ').nth(1).unwrap_or_default());
            let is_new = std::mem::replace(last_hold, hold.clone()) != hold;
            if is_new { vec![Seen::Granted((*who).to_owned())] } else { Vec::new() }
        }
        _ => Vec::new(),
    }
}

/// A ticket and its member.
fn in_queue(pair: &[&str]) -> Option<Seen> {
    let [ticket, who] = *pair else { return None };
    let (who, ticket) = (who.to_owned(), ticket.parse::<u64>().ok()?);
    Some(Seen::InQueue { who, ticket })
}

fn redisson(words: &[&str], lock: &str, queue: &str, joined: &mut u64) -> Option<Seen> {
    match *words {
        ["RPUSH", key, who] if key == queue => {
            *joined += 1;
            Some(Seen::InQueue { who: who.to_owned(), ticket: *joined })
        }
        ["HSET", key, who, "1"] if key == lock => Some(Seen::Granted(who.to_owned())),
        _ => None,
    }
}

/// The number of grants.
pub fn grants(seen: &[Seen]) -> usize {
    seen.iter().filter(|event| matches!(event, Seen::Granted(_))).count()
}

const LIVES: &str = "was passed over and lives";

/// Checks the order. Tickets grow. Each grant goes to the smallest ticket in the queue, or to a newcomer if there is none: who is passed over
/// has no turn later, since it was dead. Nobody comes back to a place that it left. The queue is empty at the end.
pub fn check_order(seen: &[Seen]) -> Result<(), Violations> {
    let (mut found, mut passed) = (Vec::new(), BTreeSet::new());
    // The waiters by ticket, and those that have left.
    let (mut line, mut former) = (BTreeMap::<u64, &str>::new(), BTreeMap::<u64, &str>::new());
    let mut greatest = 0;
    for event in seen {
        match event {
            Seen::InQueue { who, ticket } => {
                let before = line.insert(*ticket, who);
                if former.get(ticket) == Some(&who.as_str()) {
                    passed.remove(who.as_str());
                    found.push(format!("`{who}` {LIVES}"));
                } else if before.is_none() && *ticket <= greatest {
                    found.push(format!("`{who}` got ticket {ticket} after {greatest}"));
                }
                line.retain(|other, waiter| other == ticket || waiter != who);
                greatest = greatest.max(*ticket);
            }
            Seen::Left(gone) => {
                line.retain(|ticket, who| {
                    if *who == gone {
                        former.insert(*ticket, *who);
                        passed.insert(*who);
                    }
                    *who != gone
                });
            }
            Seen::Granted(winner) => {
                passed.extend(line.values().take_while(|who| *who != winner));
                if passed.remove(winner.as_str()) {
                    found.push(format!("`{winner}` {LIVES}"));
                }
                line.retain(|_, who| who != winner);
            }
        }
    }
    found.extend(line.into_values().map(|who| format!("`{who}` is still in the queue")));
    Violations::none_of(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a=1` stands in the queue with ticket 1, `a-` left, `a!` got the lock.
    fn seen(story: &str) -> Vec<Seen> {
        let event = |word: &str| {
            let (who, what) = word.split_at(word.find(['=', '-', '!']).unwrap());
            let who = who.to_owned();
            match what {
                "-" => Seen::Left(who),
                "!" => Seen::Granted(who),
                ticket => Seen::InQueue { who, ticket: ticket[1..].parse().unwrap() },
            }
        };
        story.split(' ').map(event).collect()
    }

    #[test]
    fn grants_and_tickets_out_of_order_are_found() {
        for (story, found) in [
            ("x! a=1 b=2 a! b! x!", ""),
            ("a=1 b=2 b! a!", "`a` was passed over and lives"),
            ("a=1 x! a!", "`a` was passed over and lives"),
            ("a=1 b=2 b! a-", ""),
            // An absent waiter leaves, and comes back to its ticket.
            ("a=1 b=2 c=3 a- b! a=1 a! c!", "`a` was passed over and lives"),
            ("a=1 b=2 c=3 a- b! c!", ""),
            // An operator kicks it.
            ("a=1 b=2 a=3 b! a!", ""),
            ("a=1 b=2 a=3 a! b!", "`b` was passed over and lives"),
            ("a=1 b=2 c=3 a- b! a=1 c! a!", "`a` was passed over and lives; `a` was passed over and lives"),
            ("a=5 b=4 b! a!", "`b` got ticket 4 after 5"),
            ("a=1", "`a` is still in the queue"),
            ("a=1 a-", ""),
        ] {
            let violations =
                check_order(&seen(story)).err().map_or(String::new(), |found| found.0.join("; "));
            assert_eq!(violations, found, "{story}");
        }
    }

    #[test]
    fn lines_of_both_disciplines_are_read() {
        let text = [
            r#"1.5 [0 lua] "ZADD" "fairlock_queue:{x}" "7" "u:1:ab""#,
            r#"1.5 [0 lua] "ZADD" "fairlock_queue:{x}" "XX" "0" "nobody""#,
            r#"1.5 [0 lua] "ZADD" "fairlock_queue:{y}" "8" "u:2:ab""#,
            r#"1.5 [0 lua] "ZREM" "fairlock_queue:{x}" "nobody""#,
            r#"1.5 [0 lua] "ZREM" "fairlock_queue:{x}" "u:1:ab""#,
            r#"1.5 [0 lua] "HSET" "x" "u:1:ab" "1 9 1 0 label""#,
            r#"1.5 [0 lua] "HSET" "x" "u:1:ab" "1 9 2 0 label""#,
            r#"1.5 [0 lua] "HSET" "x" "mode" "1" "u:6:ab" "1 10 1 0 label""#,
            r#"1.5 [0 lua] "ZREM" "fairlock_queue:{x}" "u:4:ab" "u:5:ab""#,
            r#"1.5 [0 lua] "RPUSH" "redisson_lock_queue:{x}" "u:3""#,
            r#"1.5 [0 lua] "HSET" "x" "u:3" "1""#,
            r#"1.5 [0 127.0.0.1:1] "PING""#,
        ]
        .map(str::to_owned);
        let told = "u:1:ab=7 u:1:ab! u:1:ab- u:6:ab! u:4:ab- u:5:ab-";
        assert_eq!(read(&text, Queue::HandOff, "x"), seen(told));
        assert_eq!(read(&text, Queue::Redisson, "x"), seen("u:3=1 u:3!"));
    }
}
