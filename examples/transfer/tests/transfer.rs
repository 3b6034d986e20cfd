//! Two processes transfer. Each stop of one, before its transaction and within it, lasts for longer than its lease.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, pipe};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use fairlock_tests::{Alone, PostgresServer, signals};

const PROGRAM: &str = env!("CARGO_BIN_EXE_transfer");
/// The lease of the example, the end of its idle session, and what a busy machine needs.
const SOON: Duration = Duration::from_secs(25);

/// The processes, and what they say: lines of one pipe, so their order is the order in time.
struct Processes {
    children: HashMap<String, Child>,
    heard: Receiver<String>,
    lines: Vec<String>,
}

impl Processes {
    fn start(url: &str, labels: [&str; 2]) -> Processes {
        let (input, output) = pipe().unwrap();
        let (say, heard) = channel();
        thread::spawn(move || {
            for line in BufReader::new(input).lines().map_while(Result::ok) {
                let _ = say.send(line);
            }
        });
        let start = |label: &str| {
            let output = output.try_clone().unwrap();
            let mut command = Command::new(PROGRAM);
            let child = command.args(["--postgres", url, "--label", label]).stdout(output).spawn().unwrap();
            (label.to_owned(), child)
        };
        Processes { children: labels.map(start).into(), heard, lines: Vec::new() }
    }

    /// Reads on until a process says this; which one, and of which transfer.
    #[track_caller]
    fn until(&mut self, says: &str, by: impl Fn(&str) -> bool) -> (String, String) {
        let end = Instant::now() + SOON;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(line) = self.heard.recv_timeout(left) else {
                panic!("{says}: not within {SOON:?}, but {:#?}", self.lines)
            };
            self.lines.push(line.clone());
            if let Some((label, transfer)) = line.split_once(&format!(" {says} transfer "))
                && by(label)
            {
                return (label.to_owned(), transfer.to_owned());
            }
        }
    }

    /// Stops the next one that says this, until another one has written that transfer. It then has not.
    #[track_caller]
    fn stop_one_that(&mut self, says: &str) {
        let (stopped, transfer) = self.until(says, |_| true);
        signals::stop(&self.children[&stopped]);
        let (_, written) = self.until("wrote", |label| label != stopped);
        assert_eq!(written, transfer);
        signals::cont(&self.children[&stopped]);
        let (_, not_written) = self.until("did not write", |label| label == stopped);
        assert!(not_written.starts_with(&format!("{transfer}: ")), "{not_written}");
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in self.children.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A process that stands still for longer than its lease writes nothing, and another process does its transfer.
#[test]
fn a_process_stopped_past_its_lease_writes_nothing() {
    let _alone = Alone::here();
    let server = PostgresServer::start();
    let url = &server.url();
    assert!(Command::new(PROGRAM).args(["--postgres", url, "--new"]).status().unwrap().success());
    let mut processes = Processes::start(url, ["one", "two"]);
    processes.stop_one_that("works on");
    processes.stop_one_that("writes");
    for child in processes.children.values_mut() {
        assert!(child.wait().unwrap().success());
    }
    processes.lines.extend(processes.heard.iter());
    for transfer in 1..=6 {
        let wrote = format!(" wrote transfer {transfer}");
        let times = processes.lines.iter().filter(|line| line.ends_with(&wrote)).count();
        assert_eq!(times, 1, "{wrote}: {:#?}", processes.lines);
    }
    let mut con = server.con();
    let rows = con.query("select balance from account order by id", &[]).unwrap();
    let balances: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(balances, [100 - 20 - 40 - 60 + 10 + 30 + 50, 100 + 20 + 40 + 60 - 10 - 30 - 50]);
}
