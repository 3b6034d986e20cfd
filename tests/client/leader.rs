//! The example `leader`: processes of which one leads. One is killed, one stands still, one ends in order, and each is
//! succeeded in time.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, PipeWriter, pipe};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, RedisBackend};
use fairlock_tests::{Alone, RedisServer, assert_no_residue, eventually, signals};

const PROGRAM: &str = env!("CARGO_BIN_EXE_leader");
/// That of the example.
const LEASE: Duration = Duration::from_secs(3);
/// P5's 250 ms, and what a busy machine needs to start a thread and to write a line.
const A_LITTLE: Duration = Duration::from_millis(3250);
/// The limit for anything that has no promise, on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// The processes, and what they say. They write to one pipe, a line at a time, so its order is the order in time.
struct Office {
    /// None when the last candidate has been started.
    output: Option<PipeWriter>,
    heard: Receiver<(Instant, String)>,
    candidates: HashMap<String, Child>,
    lines: Vec<String>,
}

impl Office {
    fn open() -> Office {
        let (input, output) = pipe().unwrap();
        let (say, heard) = channel();
        thread::spawn(move || {
            for line in BufReader::new(input).lines().map_while(Result::ok) {
                let _ = say.send((Instant::now(), line));
            }
        });
        Office { output: Some(output), heard, candidates: HashMap::new(), lines: Vec::new() }
    }

    fn start(&mut self, server: &RedisServer, label: &str) {
        let output = self.output.as_ref().unwrap().try_clone().unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["--redis", &server.url(), "--label", label]).stdout(output);
        self.candidates.insert(label.to_owned(), command.spawn().unwrap());
    }

    /// Reads on until a line is as wanted.
    #[track_caller]
    fn until<T>(&mut self, what: &str, wanted: impl Fn(&str) -> Option<T>) -> (Instant, T) {
        let end = Instant::now() + SOON;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok((at, line)) = self.heard.recv_timeout(left) else {
                panic!("{what}: not within {SOON:?}, but {:#?}", self.lines)
            };
            let found = wanted(&line);
            self.lines.push(line);
            if let Some(found) = found {
                return (at, found);
            }
        }
    }

    /// Waits for another leader than this one.
    #[track_caller]
    fn next_leader(&mut self, after: &str) -> (Instant, String) {
        self.until("the next leader", |line| {
            let (label, _) = line.split_once(" leads, token ")?;
            (label != after).then(|| label.to_owned())
        })
    }

    /// Waits for an act: the leader then pauses, so a signal that is sent now finds it neither at the check nor at the act.
    #[track_caller]
    fn act_of(&mut self, label: &str) {
        let begins = format!("{label} acts, token ");
        self.until(&begins, |line| line.starts_with(&begins).then_some(()));
    }

    fn candidate(&mut self, label: &str) -> &mut Child {
        self.candidates.get_mut(label).unwrap()
    }
}

impl Drop for Office {
    fn drop(&mut self) {
        for child in self.candidates.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What a line with a token says: the label, what it does, and the token.
fn term(line: &str) -> Option<(&str, &str, u64)> {
    let (head, token) = line.split_once(", token ")?;
    let (label, does) = head.rsplit_once(' ')?;
    matches!(does, "leads" | "acts").then(|| (label, does, token.parse().unwrap()))
}

/// Each token is one leader's, tokens grow from leader to leader, and nobody acts after its successor has led.
fn check_terms(lines: &[String]) {
    let (mut latest, mut terms) = (0, HashMap::new());
    for (label, does, token) in lines.iter().filter_map(|line| term(line)) {
        let leader = *terms.entry(token).or_insert(label);
        assert_eq!(leader, label, "token {token} has two leaders: {lines:#?}");
        let is_in_order = if does == "leads" { token > latest } else { token == latest };
        assert!(is_in_order, "{label} {does} with token {token} after {latest}: {lines:#?}");
        latest = token;
    }
}

/// A leader that is killed, stands still or ends is succeeded in time, and acts no more.
#[test]
fn a_leader_that_fails_is_succeeded_and_acts_no_more() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let looker = Client::new(RedisBackend::connect(&server.url()).unwrap()).unwrap();
    let lock = looker.fair_lock("lock:example-leader").unwrap();
    let wait_for_two_in_queue =
        || eventually("two stand in the queue", || lock.inspect().unwrap().queue_length == 2);

    let mut office = Office::open();
    ["one", "two", "three"].iter().for_each(|label| office.start(&server, label));
    let (_, first) = office.next_leader("");
    wait_for_two_in_queue();
    let successor = || {
        let label = lock.inspect().unwrap().queue[0].label.clone().unwrap();
        label.split_once(" (").unwrap().0.to_owned() // before host and process
    };

    // kill -9: the first in the queue leads when the lease is over.
    let heir = successor();
    office.act_of(&first);
    let killed = Instant::now();
    office.candidate(&first).kill().unwrap();
    let (at, second) = office.next_leader(&first);
    assert_eq!(second, heir);
    assert!(at - killed <= LEASE + A_LITTLE, "{:?}", at - killed);

    // SIGSTOP: the same. When it goes on it knows that it does not lead any more, and stands in the queue again.
    office.act_of(&second);
    let stopped = Instant::now();
    signals::stop(office.candidate(&second));
    let (at, third) = office.next_leader(&second);
    assert!(at - stopped <= LEASE + A_LITTLE, "{:?}", at - stopped);
    office.act_of(&third);
    signals::cont(office.candidate(&second));
    let says = format!("{second} does not lead: ");
    office.until(&says, |line| line.starts_with(&says).then_some(()));
    office.start(&server, "four");
    wait_for_two_in_queue();

    // SIGTERM: at once.
    let heir = successor();
    let ended = Instant::now();
    signals::terminate(office.candidate(&third));
    let (at, fourth) = office.next_leader(&third);
    assert_eq!(fourth, heir);
    assert!(at - ended < LEASE / 2, "{:?}", at - ended);
    office.act_of(&fourth);

    office.candidates.remove(&first).unwrap().wait().unwrap();
    office.candidates.values().for_each(signals::terminate);
    for (label, mut child) in office.candidates.drain() {
        assert!(child.wait().unwrap().success(), "{label}");
    }
    office.output = None; // no process has the pipe any more: what it says ends
    office.lines.extend(office.heard.iter().map(|(_, line)| line));
    check_terms(&office.lines);
    let sees = format!("sees that {second} (");
    let who_sees = office.lines.iter().filter(|line| line.contains(&sees) && !line.starts_with(&second));
    assert!(who_sees.count() > 0, "{:#?}", office.lines);
    drop((lock, looker));
    assert_no_residue(&server, &[]);
}

#[test]
fn a_leader_that_acts_after_its_successor_is_found() {
    let lines = ["one leads, token 7", "one acts, token 7", "two leads, token 9", "one acts, token 7"];
    let lines = lines.map(str::to_owned);
    check_terms(&lines[..3]);
    assert!(std::panic::catch_unwind(|| check_terms(&lines)).is_err());
    let two = ["one leads, token 7", "two acts, token 7"].map(str::to_owned);
    assert!(std::panic::catch_unwind(|| check_terms(&two)).is_err());
}
