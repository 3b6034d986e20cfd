//! Plants mistakes, one at a time, in a copy of the repository, and runs the test that must find each. `run` says more.

mod table;

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::SystemTime;

use fairlock_tests::WorkDir;

use table::{Mistake, root};

/// Seconds for one run of one test.
const BOUND: &str = "120";

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let mut mistakes = table::read().expect("the tables can be read");
    mistakes.retain(|name, _| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str())));
    assert!(!mistakes.is_empty(), "no mistake has such a name");
    let field = Field::new();
    let (mut healthy, mut failed) = (HashMap::new(), 0);
    for (name, mistake) in &mistakes {
        let before = healthy.entry(mistake.test()).or_insert_with(|| field.run(mistake));
        let found = match before.as_str() {
            "passes" => field.plant(mistake),
            before => Err(format!("without the mistake its test {before}")),
        };
        let test = mistake.test().1;
        match found {
            Ok(()) => println!("ok     {name:34} found by {test}"),
            Err(why) => {
                failed += 1;
                println!("MISSED {name:34} {why}: {test}\n{}", mistake.mistake);
                let output = field.output();
                let lines: Vec<&str> = output.lines().collect();
                println!("{}", lines[lines.len().saturating_sub(30)..].join("\n"));
            }
        }
    }
    println!("{} passed, {failed} failed", mistakes.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A copy of the repository, in which mistakes are planted.
struct Field {
    dir: WorkDir,
    target: PathBuf,
}

impl Field {
    /// The copied files are newer than all in this separate target dir: cargo compares times, and would otherwise reuse
    /// what an earlier run built with its last mistake.
    fn new() -> Field {
        let dir = WorkDir::new();
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root())
            .output()
            .expect("git can be started");
        assert!(listed.status.success(), "git does not list the files: {listed:?}");
        let listed = String::from_utf8(listed.stdout).expect("names are UTF-8");
        for name in listed.split_terminator('\0') {
            let (from, to) = (root().join(name), dir.file("copy").join(name));
            if !from.exists() {
                continue; // deleted, and still known to git
            }
            fs::create_dir_all(to.parent().expect("it is in the copy")).expect("there is room for a dir");
            fs::copy(&from, &to).expect("there is room for a copy");
            File::open(&to).and_then(|file| file.set_modified(SystemTime::now())).expect("it is our file");
        }
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root().join("target"), PathBuf::from);
        Field { dir, target: root().join(target).join("planted") }
    }

    /// Whether the test finds the mistake; else what happened.
    fn plant(&self, mistake: &Mistake) -> Result<(), String> {
        let copy = self.dir.file("copy");
        let mut texts = mistake.wrong_texts(&copy)?;
        let mut exchange = || {
            for (file, text) in &mut texts {
                let there = fs::read_to_string(copy.join(file)).expect("it has been read before");
                fs::write(copy.join(file), &text).expect("it is our copy");
                *text = there;
            }
        };
        exchange();
        let outcome = self.run(mistake);
        exchange();
        if outcome == "fails" { Ok(()) } else { Err(format!("with the mistake its test {outcome}")) }
    }

    /// What the test does: `passes`, `fails`, or why it says nothing. Its output goes to a file: a server that it leaves behind would
    /// hold a pipe open.
    fn run(&self, mistake: &Mistake) -> String {
        let (program, test) = mistake.test();
        let build = ["cargo", "test", "--quiet", "--all-features", "--no-run"];
        if self.cargo(&build, &program, &[]) != Some(0) {
            return "does not compile".to_owned();
        }
        let bounded = ["timeout", "--kill-after=5", BOUND, "cargo", "test", "--all-features"];
        let code = self.cargo(&bounded, &program, &["--", "--exact", test]);
        let says = |word| {
            let line = format!("test {test} ... {word}");
            self.output().lines().any(|said| said.starts_with(&line))
        };
        match code {
            Some(0) if says("ok") => "passes".to_owned(),
            Some(101) if says("FAILED") => "fails".to_owned(),
            Some(124) => "hangs".to_owned(),
            code => format!("was not run (exit code {code:?})"),
        }
    }

    /// Runs this command in the copy, and tells its exit code. Storms must find their mistakes within the minute that
    /// CI gives them, and need no smaller program.
    fn cargo(&self, command: &[&str], program: &[&str], rest: &[&str]) -> Option<i32> {
        let output = File::create(self.dir.file("output")).expect("there is room for a file");
        Command::new(command[0])
            .args(&command[1..])
            .args(program)
            .args(rest)
            .current_dir(self.dir.file("copy"))
            .envs([
                ("FAIRLOCK_STORM_SECONDS", "60"),
                ("FAIRLOCK_STORM_SHRINK", "0"),
                ("FAIRLOCK_STORM_FROM", "1"),
            ])
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_TERM_COLOR", "never")
            .stdout(output.try_clone().expect("it is our file"))
            .stderr(output)
            .status()
            .expect("cargo and timeout can be started")
            .code()
    }

    fn output(&self) -> String {
        let bytes = fs::read(self.dir.file("output")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
