//! What the server did with one line, read from MONITOR: tickets, waiters passed over, grants. The checker requires
//! that each grant goes to the smallest ticket present.

use crate::RedisServer;
use crate::history::Violations;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// `HandOff` moves an absent waiter behind all tickets, by adding this to its own.
const PARKED: u64 = 1 << 52;

/// One thing that a script did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The waiter stands in line with this ticket. It may come again after being passed over.
    InLine {
        /// The owner, with discipline `HandOff` followed by its request.
        who: String,
        /// The ticket.
        ticket: u64,
    },
    /// The waiter was absent and passed over. It keeps its ticket.
    PassedOver(String),
    /// The waiter left the line.
    Left(String),
    /// The waiter got the lock.
    Granted(String),
}

/// Which keys to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
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
pub fn read(lines: &[String], line: Line, lock: &str) -> Vec<Seen> {
    let mut joined = 0;
    let mut last_hold = String::new();
    let events = lines.iter().filter_map(|text| text.split_once("] ")).flat_map(|(_, command)| {
        let words: Vec<&str> = command.trim_matches('"').split("\" \"").collect();
        match line {
            Line::HandOff => hand_off(&words, lock, &format!("fairlock_line:{{{lock}}}"), &mut last_hold),
            Line::Redisson => {
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

/// A script takes a waiter out of the line before it writes the hold: the grant stands before its leaving.
fn place_of_a_grant(seen: &[Seen], event: &Seen) -> Option<usize> {
    let Seen::Granted(who) = event else { return None };
    let recent = seen.iter().enumerate().rev().take(300);
    let (at, last) = recent.into_iter().find(|(_, event)| match event {
        Seen::Left(other) | Seen::InLine { who: other, .. } => other == who,
        _ => false,
    })?;
    matches!(last, Seen::Left(_)).then_some(at)
}

/// A script passes over many absent waiters by one command.
fn hand_off(words: &[&str], lock: &str, queue: &str, last_hold: &mut String) -> Vec<Seen> {
    match *words {
        ["ZADD", key, "NX", ref pair @ ..] if key == queue => in_line(pair).into_iter().collect(),
        ["ZADD", key, ref pairs @ ..] if key == queue => pairs.chunks(2).filter_map(in_line).collect(),
        ["ZREM", key, ref left @ ..] if key == queue => {
            left.iter().map(|who| Seen::Left((*who).to_owned())).collect()
        }
        ["HSET", key, "mode", hold] if key == lock => {
            // Member and token, behind the capacity. A hold that is written again is no new grant.
            let hold = hold.split(' ').skip(1).take(2).collect::<Vec<_>>().join(" ");
            let is_new = std::mem::replace(last_hold, hold.clone()) != hold;
            let who = hold.split(' ').next().unwrap_or_default().to_owned();
            if is_new { vec![Seen::Granted(who)] } else { Vec::new() }
        }
        _ => Vec::new(),
    }
}

/// A ticket and its member.
fn in_line(pair: &[&str]) -> Option<Seen> {
    let [ticket, who] = *pair else { return None };
    let (who, ticket) = (who.to_owned(), ticket.parse::<u64>().ok()?);
    Some(if ticket < PARKED { Seen::InLine { who, ticket } } else { Seen::PassedOver(who) })
}

fn redisson(words: &[&str], lock: &str, queue: &str, joined: &mut u64) -> Option<Seen> {
    match *words {
        ["RPUSH", key, who] if key == queue => {
            *joined += 1;
            Some(Seen::InLine { who: who.to_owned(), ticket: *joined })
        }
        ["HSET", key, who, "1"] if key == lock => Some(Seen::Granted(who.to_owned())),
        _ => None,
    }
}

/// The number of grants.
pub fn grants(seen: &[Seen]) -> usize {
    seen.iter().filter(|event| matches!(event, Seen::Granted(_))).count()
}

/// Checks the order. Tickets grow. Each grant goes to the smallest ticket present, or to a newcomer if none is. Nobody is passed over
/// who comes back. The line is empty at the end.
pub fn check_order(seen: &[Seen]) -> Result<(), Violations> {
    check_order_with_cuts(seen, 0)
}

/// The same for a run in which subscriptions were cut, so often: at that moment the server can't tell their waiters from dead ones.
pub fn check_order_with_cuts(seen: &[Seen], mut cuts: usize) -> Result<(), Violations> {
    let (mut found, left) = look_at_order(seen);
    found.retain(|sentence| {
        let is_excused = cuts > 0 && sentence.ends_with(LIVES);
        cuts -= usize::from(is_excused);
        !is_excused
    });
    found.extend(left.into_iter().map(|who| format!("`{who}` is still in line")));
    Violations::none_of(found)
}

const LIVES: &str = "was passed over and lives";

/// The same for a run that ended with waiters in line.
pub fn check_order_so_far(seen: &[Seen]) -> Result<(), Violations> {
    Violations::none_of(look_at_order(seen).0)
}

/// The violations, and the waiters in line at the end.
fn look_at_order(seen: &[Seen]) -> (Vec<String>, Vec<&str>) {
    let mut found = Vec::new();
    // By ticket: the waiter, and whether it is present.
    let mut line: BTreeMap<u64, (&str, bool)> = BTreeMap::new();
    let mut greatest = 0;
    for event in seen {
        match event {
            Seen::InLine { who, ticket } => {
                let before = line.insert(*ticket, (who, true));
                if before.is_some_and(|(_, present)| !present) {
                    found.push(format!("`{who}` {LIVES}"));
                }
                if before.is_none() && *ticket <= greatest {
                    found.push(format!("`{who}` got ticket {ticket} after {greatest}"));
                }
                greatest = greatest.max(*ticket);
            }
            Seen::PassedOver(gone) => {
                let places = line.values_mut().filter(|(who, _)| who == gone);
                places.for_each(|(_, present)| *present = false);
            }
            Seen::Left(gone) => line.retain(|_, (who, _)| who != gone),
            Seen::Granted(winner) => {
                let first = line.values().find(|(_, present)| *present);
                if let Some((first, _)) = first.filter(|(who, _)| who != winner) {
                    found.push(format!("`{winner}` got the lock while `{first}` was first in line"));
                }
                line.retain(|_, (who, _)| who != winner);
            }
        }
    }
    (found, line.into_values().map(|(who, _)| who).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a=1` stands in line with ticket 1, `a~` was passed over, `a-` left, `a!` got the lock.
    fn seen(story: &str) -> Vec<Seen> {
        let event = |word: &str| {
            let (who, what) = word.split_at(word.find(['=', '~', '-', '!']).unwrap());
            let who = who.to_owned();
            match what {
                "~" => Seen::PassedOver(who),
                "-" => Seen::Left(who),
                "!" => Seen::Granted(who),
                ticket => Seen::InLine { who, ticket: ticket[1..].parse().unwrap() },
            }
        };
        story.split(' ').map(event).collect()
    }

    #[test]
    fn grants_and_tickets_out_of_order_are_found() {
        for (story, found) in [
            ("x! a=1 b=2 a! b! x!", ""),
            ("a=1 b=2 b! a!", "`b` got the lock while `a` was first in line"),
            ("a=1 x! a!", "`x` got the lock while `a` was first in line"),
            // An absent waiter is passed over, and comes back to its ticket.
            ("a=1 b=2 c=3 a~ b! a=1 a! c!", "`a` was passed over and lives"),
            ("a=1 b=2 c=3 a~ b! c! a-", ""),
            (
                "a=1 b=2 c=3 a~ b! a=1 c! a!",
                "`a` was passed over and lives; `c` got the lock while `a` was first in line",
            ),
            ("a=5 b=4 b! a!", "`b` got ticket 4 after 5"),
            ("a=1", "`a` is still in line"),
            ("a=1 a-", ""),
        ] {
            let violations =
                check_order(&seen(story)).err().map_or(String::new(), |found| found.0.join("; "));
            assert_eq!(violations, found, "{story}");
        }
        let passed = seen("a=1 b=2 a~ b! a=1 a!");
        assert!(check_order_with_cuts(&passed, 1).is_ok() && check_order_with_cuts(&passed, 0).is_err());
        assert!(check_order_with_cuts(&seen("a=1 b=2 b! a!"), 1).is_err());
        check_order_so_far(&seen("a=1")).unwrap();
        assert!(check_order_so_far(&seen("a=1 x!")).is_err());
    }

    #[test]
    fn lines_of_both_disciplines_are_read() {
        let text = [
            r#"1.5 [0 lua] "ZADD" "fairlock_line:{x}" "7" "u:1:ab""#,
            r#"1.5 [0 lua] "ZADD" "fairlock_line:{x}" "4503599627370503" "u:1:ab""#,
            r#"1.5 [0 lua] "ZADD" "fairlock_line:{y}" "8" "u:2:ab""#,
            r#"1.5 [0 lua] "HSET" "x" "mode" "1 u:1:ab 9 1 -label""#,
            r#"1.5 [0 lua] "ZREM" "fairlock_line:{x}" "u:1:ab""#,
            r#"1.5 [0 lua] "ZADD" "fairlock_line:{x}" "4503599627370504" "u:4:ab" "4503599627370505" "u:5:ab""#,
            r#"1.5 [0 lua] "ZREM" "fairlock_line:{x}" "u:4:ab" "u:5:ab""#,
            r#"1.5 [0 lua] "RPUSH" "redisson_lock_queue:{x}" "u:3""#,
            r#"1.5 [0 lua] "HSET" "x" "u:3" "1""#,
            r#"1.5 [0 127.0.0.1:1] "PING""#,
        ]
        .map(str::to_owned);
        let batches = "u:4:ab~ u:5:ab~ u:4:ab- u:5:ab-";
        let single = "u:1:ab=7 u:1:ab~ u:1:ab! u:1:ab-";
        assert_eq!(read(&text, Line::HandOff, "x"), seen(&format!("{single} {batches}")));
        assert_eq!(read(&text, Line::Redisson, "x"), seen("u:3=1 u:3!"));
    }
}
