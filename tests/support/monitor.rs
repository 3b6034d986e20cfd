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

/// Checks the order. Tickets grow. Each grant goes to the smallest ticket present, or to a newcomer if none is. The
/// line is empty at the end.
pub fn check_order(seen: &[Seen]) -> Result<(), Violations> {
    let (mut found, left) = look_at_order(seen);
    found.extend(left.into_iter().map(|who| format!("`{who}` is still in line")));
    Violations::none_of(found)
}

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

    fn joins(who: &str, ticket: u64) -> Seen {
        Seen::InLine { who: who.to_owned(), ticket }
    }

    fn gets(who: &str) -> Seen {
        Seen::Granted(who.to_owned())
    }

    fn violations(seen: &[Seen]) -> Vec<String> {
        check_order(seen).unwrap_err().0
    }

    #[test]
    fn grants_by_ticket_pass() {
        check_order(&[gets("x"), joins("a", 1), joins("b", 2), gets("a"), gets("b"), gets("x")]).unwrap();
    }

    #[test]
    fn an_inversion_and_a_barging_newcomer_are_found() {
        let inverted = [joins("a", 1), joins("b", 2), gets("b"), gets("a")];
        assert_eq!(violations(&inverted), ["`b` got the lock while `a` was first in line"]);
        assert_eq!(violations(&[joins("a", 1), gets("x"), gets("a")]).len(), 1);
    }

    #[test]
    fn an_absent_waiter_is_passed_over_and_comes_back_to_its_ticket() {
        let away = Seen::PassedOver("a".to_owned());
        let line = [joins("a", 1), joins("b", 2), joins("c", 3), away.clone(), gets("b")];
        check_order(&[&line[..], &[joins("a", 1), gets("a"), gets("c")]].concat()).unwrap();
        assert_eq!(violations(&[&line[..], &[joins("a", 1), gets("c"), gets("a")]].concat()).len(), 1);
    }

    #[test]
    fn a_ticket_smaller_than_an_earlier_one_is_found() {
        let seen = [joins("a", 5), joins("b", 4), gets("b"), gets("a")];
        assert_eq!(violations(&seen), ["`b` got ticket 4 after 5"]);
    }

    #[test]
    fn a_waiter_without_a_grant_is_found_unless_it_left() {
        assert_eq!(violations(&[joins("a", 1)]), ["`a` is still in line"]);
        check_order_so_far(&[joins("a", 1)]).unwrap();
        assert!(check_order_so_far(&[joins("a", 1), gets("x")]).is_err());
        check_order(&[joins("a", 1), Seen::Left("a".to_owned())]).unwrap();
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
        let who = "u:1:ab";
        let [passed_over, left] =
            [Seen::PassedOver, Seen::Left].map(|seen| move |who: &str| seen(who.to_owned()));
        let batches = [passed_over("u:4:ab"), passed_over("u:5:ab"), left("u:4:ab"), left("u:5:ab")];
        let single = [joins(who, 7), passed_over(who), gets(who), left(who)];
        assert_eq!(read(&text, Line::HandOff, "x"), [single, batches].concat());
        assert_eq!(read(&text, Line::Redisson, "x"), [joins("u:3", 1), gets("u:3")]);
    }
}
