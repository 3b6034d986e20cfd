//! Commands inside the program of another one.

use fairlock_tests::{RedisServer, eventually};

use crate::support::{
    FAIRLOCK, Host, Running, SOON, fairlock, process_in, says, script, wait_for_queue, words,
};

/// Commands inside each other: the options and names of each, and a script under the last.
fn starts(host: &Host, commands: &[&str], last: &str) -> Running {
    let mut line = Vec::new();
    for options in commands {
        line.extend([FAIRLOCK, "run"]);
        line.extend(words(options));
        line.push("--");
    }
    line.extend(["sh", "-c", last]);
    Running::start(fairlock(&host.url(), &line[1..]))
}

#[test]
fn a_command_that_waits_for_what_it_runs_under_says_so_at_once() {
    let host = Host::new();
    let cases: Vec<(&[&str], &str)> = vec![
        (&["a", "a"], "a is held by the command that this one runs under, "),
        (&["b", "-w 60 b"], "b is held by "),
        (&["c", "-w 0.1 c"], "c is held by "),
        (&["d", "-n -E 0 d"], "d is held by "),
        (&["three", "deep", "three"], "three is held by "),
        (&["e f", "g f"], "f is held by "),
        (&["--plain h", "--plain h"], "h is held by "),
        (&["i", "--plain i"], "i is held by "),
        (&["--discipline redisson j", "--discipline redisson j"], "j is held by "),
        (&["--shared k", "--write k"], "k is held by "),
        (&["--write l", "--shared l"], "l is held by "),
        (&["--permits 2 m", "--permits 2 m", "--permits 2 m"], "m is held by "),
    ];
    let started: Vec<_> =
        cases.iter().map(|(commands, message)| (starts(&host, commands, "echo no"), message)).collect();
    for (mut command, message) in started {
        let outer = format!(":{}, for ", command.0.id());
        let said = command.output().failed(125, &[&outer, ": they would wait for each other\n"]);
        assert!(said.err.starts_with(&format!("fairlock: {message}")) && said.err.lines().count() == 1);
    }
}

#[test]
fn what_an_inner_command_can_have_it_gets() {
    let (host, other) = (Host::new(), RedisServer::start());
    let elsewhere = format!("--redis {} a", other.url());
    for commands in [
        &["a", &*elsewhere, "b"][..],
        &["--shared k", "--shared k", "-n --shared k"],
        &["--permits 2 m", "-n --permits 2 m"],
    ] {
        starts(&host, commands, "echo yes; exit 3").output().is(3, "yes\n", "");
    }
    // Under a lock that it does not have any more; and where the script says that it has nothing to do with that one.
    let taken = format!("trap '' TERM; \"{FAIRLOCK}\" unlock a --yes && \"{FAIRLOCK}\" run -n a -- echo yes");
    let said = starts(&host, &["a"], &taken).output().gave(123);
    assert_eq!(said.out, "yes\n");
    let apart = format!("unset FAIRLOCK_OWNER; \"{FAIRLOCK}\" run -n a b -- echo no");
    starts(&host, &["b"], &apart).output().failed(124, &["fairlock: b is not free: held by "]);
}

/// A permit that others have comes back: the one of the command around it is not all.
#[test]
fn a_nested_command_waits_for_a_permit_of_others() {
    let host = Host::new();
    let semaphore = host.client("").semaphore("m", 2).unwrap();
    let permit = semaphore.acquire().unwrap();
    let inner = format!("{}; \"{FAIRLOCK}\" run --permits 2 m -- echo yes", host.until("go"));
    let (mut waits, _) = host.holds("--permits 2 m", "pid", &inner);
    let waiting =
        |most| eventually("they wait", || semaphore.admin().inspect().unwrap().queue_length == most);
    let ahead = host.client("").semaphore("m", 2).unwrap().request().unwrap();
    waiting(1);
    host.makes("go");
    waiting(2);
    permit.unlock().unwrap();
    ahead.wait().unwrap().unlock().unwrap();
    waits.output().is(0, "yes\n", "");
}

/// A command in the background follows the command that it runs under.
#[test]
fn a_background_command_follows_the_one_around_it() {
    let host = Host::new();
    let inner = format!("\"{FAIRLOCK}\" run x -c \"$0\" >/dev/null 2>&1 &");
    let pid = host.dir.file("x");
    let program = script(&pid, &host.until("go"));
    Running::start(fairlock(&host.url(), &["run", "x", "--", "sh", "-c", &inner, &program]))
        .output()
        .is(0, "", "");
    process_in(&pid);
    host.makes("go");
    host.lock("x").try_lock_for(SOON).unwrap().granted().expect("it has ended").unlock().unwrap();
}

/// A reader behind a writer that waits for the outer reader, under which the inner reader runs, does not wait for ever. Only the
/// writer can end that wait.
#[test]
fn a_nested_reader_behind_a_writer_does_not_wait_for_ever() {
    let host = Host::new();
    let client = host.client("the writer");
    let lock = client.rw_lock("x").unwrap();
    for (options, code, why) in [
        ("", 125, "is ahead, and waits for the command that this one runs under, "),
        ("-w 1", 124, "x was not acquired within 1.0s: read by "),
    ] {
        let inner = format!("{}; \"{FAIRLOCK}\" run --shared x {options} -- echo no", host.until("go"));
        let (mut outer, _) = host.holds("--shared x", "pid", &inner);
        let writer = lock.writer().request().unwrap();
        wait_for_queue(lock.writer(), 1);
        host.makes("go");
        let said = outer.output().failed(code, &[why]);
        assert_eq!(said.err.contains("fairlock: x: the writer ("), code == 125, "{}", said.err);
        writer.wait().unwrap().unlock().unwrap();
        ["go", "pid"].into_iter().for_each(|file| std::fs::remove_file(host.dir.file(file)).unwrap());
    }
}

#[test]
fn a_program_is_told_of_the_commands_around_it() {
    let host = Host::new();
    let tell = "echo $FAIRLOCK_OWNER; echo ${FAIRLOCK_OUTER-none}";
    let said = starts(&host, &["a", "b"], tell).output().gave(0).out;
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].contains(':') && lines[1].contains(':') && lines[0] != lines[1], "{said}");
    let mut alone = fairlock(&host.url(), &["run", "a", "--", "sh", "-c", tell]);
    alone.env("FAIRLOCK_OUTER", "left:1");
    let said = Running::start(alone).output().gave(0).out;
    assert!(said.ends_with("\nnone\n"), "{said}");
    assert!(says(&host.url(), "run --help").out.contains("FAIRLOCK_OUTER"));
}
