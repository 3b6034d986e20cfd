//! The example `batch`: as few lines for the lock as it says, in memory, and as processes of which one is ended by SIGTERM.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_batch");

/// What a run that ended well has said.
#[track_caller]
fn said(output: Output) -> String {
    let (said, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {said}{errors}", output.status);
    assert!(said.contains("the sums are right"), "{said}");
    said
}

/// The number before the first `what` in the text.
#[track_caller]
fn number(text: &str, what: &str) -> usize {
    let before = text.split_once(what).unwrap_or_else(|| panic!("no {what:?} in {text}")).0;
    before.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn the_lock_takes_as_few_lines_as_the_example_says() {
    let text =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/batch.rs")).unwrap();
    let (head, code): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with("//!"));
    let marked = code.iter().filter(|line| line.contains("// [lock]")).count();
    assert_eq!(number(&head.join(" "), " lines: those with the mark `[lock]`"), marked);
    assert!(marked <= 12, "{marked} lines");
    // Without a mark no line uses the lock: but for the imports and the types of parameters.
    let words = ["lock.", "client", "guard", "Cancel::", "Error::", "is_transient"];
    let mut above = "";
    for line in code.iter().filter(|line| !line.starts_with("use ")) {
        let uses = words.iter().any(|word| line.contains(word)) && !line.contains("mutex");
        assert!(!uses || line.contains("// [lock]") || above.contains("// [lock]"), "no mark: {line}");
        above = line;
    }
}

#[test]
fn in_memory_all_jobs_are_done_and_the_statistics_are_shown() {
    let said = said(Command::new(PROGRAM).args(["--jobs", "60"]).output().unwrap());
    assert!(said.contains("60 of 60 jobs are done") && said.contains("waits"), "{said}");
    assert_eq!((number(&said, " jobs done"), number(&said, " turns failed")), (60, 0));
}

#[cfg(feature = "night")]
mod processes {
    use std::process::{Child, Stdio};

    use fairlock::Client;
    use fairlock_tests::locks::patient;
    use fairlock_tests::{Alone, RedisServer, WorkDir, assert_no_residue, eventually, signals};

    use super::*;

    /// Processes share the jobs, while one process ends at SIGTERM and holds are taken by force.
    #[test]
    fn processes_share_the_jobs_despite_sigterm_and_force() {
        const JOBS: usize = 400;
        let _alone = Alone::here();
        let (server, dir) = (RedisServer::start(), WorkDir::new());
        let done = || {
            let ledger = fs::read_to_string(dir.file("ledger.txt")).unwrap_or_default();
            ledger.lines().find_map(|line| line.strip_prefix("done ")?.parse().ok()).unwrap_or(0)
        };
        let start = || {
            let mut command = Command::new(PROGRAM);
            command.args(["--redis", &server.url(), "--jobs", &JOBS.to_string(), "--dir"]).arg(dir.file(""));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let mut children: Vec<Child> = (0..3).map(|_| start()).collect();
        eventually("some jobs are done", || done() > 30);
        let stopped = children.remove(0);
        signals::terminate(&stopped);
        let stopped = said(stopped.wait_with_output().unwrap());
        let left = done();
        assert!(left < JOBS, "it was stopped too late to be shown");

        // The others go on, also while an operator takes the lock from them.
        let operator = Client::new(patient(&server.url()).connect().unwrap()).unwrap();
        let lock = operator.fair_lock("lock:batch").unwrap();
        for taken in 1..=5 {
            assert!(lock.force_unlock().unwrap() || done() == JOBS);
            eventually("more jobs are done", || done() >= (left + taken * 10).min(JOBS));
        }
        let ended: Vec<String> =
            children.into_iter().map(|child| said(child.wait_with_output().unwrap())).collect();
        assert!(
            ended.iter().all(|said| said.contains(&format!("{JOBS} of {JOBS} jobs are done"))),
            "{ended:?}"
        );
        let sum = |what| ended.iter().chain([&stopped]).map(|said| number(said, what)).sum::<usize>();
        assert!(sum(" turns failed") >= 1, "{ended:?}");
        // A hold that was lost may have written all the same, while it was the newest writer: that job was done twice.
        let count = sum(" jobs done") + sum(" refused by the ledger");
        assert!((JOBS..=JOBS + 5).contains(&(count + sum(" turns failed"))), "{stopped}{ended:?}");
        drop((lock, operator));
        assert_no_residue(&server, &[]);
    }
}
