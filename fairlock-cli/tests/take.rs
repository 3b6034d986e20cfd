//! `fairlock take`, `give` and `check`: a lock over many commands, and when it ends.

#[cfg(feature = "night")]
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use fairlock::{Client, FileBackend, Lock};
use fairlock_tests::{WorkDir, eventually};

use crate::support::{FAIRLOCK, Host, Running, Said, is_alive, process_in, says, script, send, words};

/// A directory of locks, where a killed holder is replaced at once.
struct Machine(WorkDir);

impl Machine {
    fn new() -> Machine {
        Machine(WorkDir::new())
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        crate::support::children_hear_signals();
        let mut command = Command::new(program);
        for name in ["FAIRLOCK_REDIS", "FAIRLOCK_POSTGRES", "FAIRLOCK_HOLD"] {
            command.env_remove(name);
        }
        command.env("FAIRLOCK_DIR", self.0.path().join("locks")).args(arguments).stdin(Stdio::null());
        command
    }

    fn says(&self, arguments: &str) -> Said {
        Running::start(self.command(FAIRLOCK, &words(arguments))).output()
    }

    /// A script in which `$F` is the command.
    fn starts(&self, then: &str) -> (Running, u32) {
        let pid = self.0.file("pid");
        let _ = std::fs::remove_file(&pid);
        let mut command = self.command("sh", &["-c", &script(&pid, then)]);
        command.env("F", FAIRLOCK);
        (Running::start(command), process_in(&pid))
    }

    fn lock(&self) -> Lock {
        let backend = FileBackend::open(self.0.path().join("locks")).unwrap();
        Client::new(backend).unwrap().fair_lock("x").unwrap()
    }

    fn is_free_soon(&self) {
        let lock = self.lock();
        eventually("it is free", || {
            !lock.is_locked().unwrap() && lock.admin().inspect().unwrap().queue_length == 0
        });
    }

    /// The process that holds the lock, by its label.
    fn holder(&self) -> u32 {
        let state = self.lock().admin().inspect().unwrap();
        let label = state.holder().expect("it is held").label.clone().unwrap();
        label.rsplit(':').next().unwrap().trim_end_matches(')').parse().unwrap()
    }
}

/// A process that only lives.
struct Lives(Child);

impl Lives {
    fn new() -> Lives {
        Lives(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    fn take(&self) -> String {
        format!("take x --while {}", self.0.id())
    }

    fn ends(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Lives {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// As the guide has it: by the shell that took it, until that shell ends.
#[test]
fn a_script_holds_a_lock_over_its_commands_until_it_ends() {
    let machine = Machine::new();
    let (wait, end) = (machine.0.file("wait"), machine.0.file("end"));
    let until = |file: &std::path::Path| format!("until test -e {}; do sleep 0.01; done", file.display());
    let then = format!(
        "hold=$($F take x --while $$) || exit; export \"$hold\"; $F check && $F run -n x -- echo no; {}; $F check >/dev/null && echo still; exec sh -c '{}'",
        until(&wait),
        until(&end)
    );
    let (mut shell, _) = machine.starts(&then);
    eventually("it is held", || machine.lock().is_locked().unwrap());
    let token = machine.lock().admin().inspect().unwrap().holder().unwrap().token.unwrap();
    std::fs::write(&wait, "").unwrap();
    // After `exec` it is the same process, and no child of its own waits for the output.
    std::fs::write(&end, "").unwrap();
    let said = shell.output().gave(0);
    assert_eq!(said.out, format!("{token}\nstill\n"), "{}", said.err);
    machine.is_free_soon();
}

#[test]
fn a_hold_is_given_back_once_and_by_whoever_has_its_text() {
    let host = Host::new();
    let mut lives = Lives::new();
    let said = host.says(&lives.take()).gave(0).out;
    let text = said.trim().strip_prefix("FAIRLOCK_HOLD=").expect(&said);
    let token = host.says(&format!("check {text}")).gave(0).out;
    assert_eq!(
        host.lock("x").admin().inspect().unwrap().holder().unwrap().token.unwrap().to_string(),
        token.trim()
    );
    host.says("take x -n").failed(124, &["lock `x` is busy"]);
    let request = host.lock("x").request().unwrap();
    host.says(&format!("give {said}")).is(0, "", "");
    request.wait().unwrap().unlock().unwrap();
    for ask in ["give", "check"] {
        host.says(&format!("{ask} {text}")).failed(123, &["x is not held by this hold any more"]);
    }
    lives.ends();
}

#[test]
fn a_hold_ends_with_its_process_its_time_or_its_holder() {
    let machine = Machine::new();
    let mut lives = Lives::new();
    machine.says(&lives.take()).gave(0);
    let holder = machine.holder();
    lives.ends();
    machine.is_free_soon();
    eventually("the holder has ended", || !is_alive(holder));

    machine.says("take x --for 100ms").gave(0);
    machine.is_free_soon();

    for signal in ["TERM", "KILL"] {
        let lives = Lives::new();
        machine.says(&lives.take()).gave(0);
        send(signal, machine.holder());
        machine.is_free_soon();
    }
    // Both at once.
    let mut lives = Lives::new();
    machine.says(&lives.take()).gave(0);
    send("KILL", machine.holder());
    lives.ends();
    machine.is_free_soon();
}

#[test]
fn a_killed_holder_on_a_server_has_the_lock_for_its_lease() {
    let host = Host::new();
    let lives = Lives::new();
    host.says(&format!("{} --lease 2s --response-timeout 1s --label taken", lives.take())).gave(0);
    let state = host.lock("x").admin().inspect().unwrap();
    let label = state.holder().unwrap().label.clone().unwrap();
    send("KILL", label.rsplit(':').next().unwrap().trim_end_matches(')').parse().unwrap());
    host.lock("x").lock().unwrap().unlock().unwrap();
}

/// Nobody would have the text.
#[test]
fn a_first_process_that_ends_in_the_wait_leaves_no_place() {
    let machine = Machine::new();
    let guard = machine.lock().lock().unwrap();
    for signal in ["KILL", "INT"] {
        let waits = Running::start(machine.command(FAIRLOCK, &["take", "x"]));
        eventually("it waits", || machine.lock().admin().inspect().unwrap().queue_length == 1);
        waits.signal(signal);
        eventually("it has left", || machine.lock().admin().inspect().unwrap().queue_length == 0);
    }
    let mut lives = Lives::new();
    let mut waits = Running::start(machine.command(FAIRLOCK, &words(&lives.take())));
    eventually("it waits", || machine.lock().admin().inspect().unwrap().queue_length == 1);
    lives.ends();
    waits.output().failed(124, &["x was not taken", "(--while)"]);
    guard.unlock().unwrap();
}

/// Nobody reads the text; or nobody can yet, since the first process stands still.
#[test]
fn a_hold_whose_text_nobody_has_ends_all_the_same() {
    let machine = Machine::new();
    let lives = Lives::new();
    let take = || machine.command(FAIRLOCK, &words(&lives.take()));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(take().stdout(writer).stderr(Stdio::null()).status().unwrap().code(), Some(125));
    machine.is_free_soon();

    let guard = machine.lock().lock().unwrap();
    let first = Running::start(take());
    eventually("it waits", || machine.lock().admin().inspect().unwrap().queue_length == 1);
    first.signal("STOP");
    guard.unlock().unwrap();
    eventually("it is held", || machine.lock().is_locked().unwrap());
    send("TERM", machine.holder());
    machine.is_free_soon();
    first.signal("KILL");
}

/// Either process is killed at its first call of each sort, at the second, …: afterwards the lock is free, or the text was printed and the
/// lock is held by it, until the process of `--while` ends.
#[cfg(feature = "night")]
#[test]
fn whichever_process_is_killed_no_hold_is_left_without_a_text() {
    let machine = Machine::new();
    let mut kills = 0;
    for call in ["execve", "read", "write", "wait4", "setsid", "pidfd_open", "linkat", "unlink"] {
        let is_not_killed = |at: &u32| {
            let (mut lives, told) = (Lives::new(), machine.0.file("told"));
            let (trace, inject) = (format!("trace={call}"), format!("inject={call}:signal=KILL:when={at}"));
            let strace = ["-f", "-q", "-o", told.to_str().unwrap(), "-e", &trace, "-e", &inject, FAIRLOCK];
            let take = lives.take();
            let words = [&strace[..], &words(&take)].concat();
            let mut traced = machine
                .command("strace", &words)
                .stdout(Stdio::piped())
                .spawn()
                .expect("strace is installed");
            let mut said = String::new();
            BufReader::new(traced.stdout.take().unwrap()).read_line(&mut said).unwrap();
            if let Some(text) = said.trim().strip_prefix("FAIRLOCK_HOLD=") {
                let code = machine.says(&format!("check {text}")).status.code();
                assert!(code == Some(0) || code == Some(123), "{call} {at}: {code:?}"); // the holder may be killed by now
            } else {
                assert_eq!(said, "", "{call} {at}");
                machine.is_free_soon(); // though the process lives
            }
            lives.ends();
            machine.is_free_soon();
            traced.wait().unwrap();
            !std::fs::read_to_string(&told).unwrap().contains("killed by SIGKILL")
        };
        kills += (1..).find(is_not_killed).unwrap() - 1;
    }
    assert!(kills > 20, "{kills}");
}

#[test]
fn what_cannot_be_taken_or_named_is_refused() {
    let host = Host::new();
    let mut ended = Lives::new();
    ended.ends();
    host.says(&ended.take()).failed(125, &["there is no process", "(--while)"]);
    for ask in ["give", "check"] {
        says(&host.url(), ask).failed(125, &["which hold?", "FAIRLOCK_HOLD"]);
        says(&host.url(), &format!("{ask} x")).failed(125, &["this is no text of a hold"]);
    }
    host.says("take x --while 0").failed(125, &["0 is not in 1.."]);
}
