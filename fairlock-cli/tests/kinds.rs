//! Read-write locks and semaphores: `run --shared`, `--write` and `--permits`, and what the other commands tell of them.

use std::time::Instant;

use fairlock::{RwLock, Semaphore};
use fairlock_tests::eventually;
use serde_json::Value;

use crate::support::{Host, SOON, is_alive, labels_alone, only_row, output, process_in, says, script};

fn rw_lock(host: &Host, label: &str) -> RwLock {
    host.client(label).rw_lock("x").unwrap()
}

fn semaphore(host: &Host, label: &str, permits: u32) -> Semaphore {
    host.client(label).semaphore("x", permits).unwrap()
}

#[test]
fn readers_run_together_and_a_writer_alone() {
    let host = Host::new();
    let [writer, late] = ["writer", "late"].map(|name| host.dir.file(name));
    let (end, end_of_writer) = (host.until("end"), host.until("end-of-writer"));
    let mut readers = vec![host.holds("--shared x", "one", &end).0, host.holds("--shared x", "two", &end).0];
    let mut writing = host.starts("--write x", &script(&writer, &end_of_writer));
    let state = || rw_lock(&host, "looks").admin().inspect().unwrap();
    eventually("the writer is in the queue", || state().queue_length == 1);
    readers.push(host.starts("--shared x", &script(&late, &end)));
    eventually("the late reader stands behind it", || state().queue_length == 2);
    assert!(!writer.exists() && !late.exists());

    host.makes("end");
    process_in(&writer);
    assert_eq!((state().holders.len(), late.exists()), (1, false), "it is alone");
    host.makes("end-of-writer");
    for command in readers.iter_mut().chain([&mut writing]) {
        assert_eq!(command.status().code(), Some(0));
    }
    assert!(late.exists());
}

#[test]
fn a_name_of_another_kind_is_refused_and_the_message_says_both() {
    let host = Host::new();
    let permit = semaphore(&host, "ours", 5).acquire().unwrap();
    for (options, asked) in [
        ("x", "an exclusive lock: use another name"),
        ("--plain x", "an exclusive lock: use another name"),
        ("--shared x", "a read-write lock: use another name"),
        ("--write x", "a read-write lock: use another name"),
        ("--permits 1 x", "a semaphore of 1 permit: use another name"),
    ] {
        let is = "fairlock: lock `x` is in use for something else: it is a semaphore of 5 permits, and you asked for";
        host.runs(options, "echo no").is(125, "", &format!("{is} {asked}\n"));
    }
    host.runs("--permits 8 x", "echo yes").is(0, "yes\n", "");
    permit.unlock().unwrap();
}

/// The server is not asked.
#[test]
fn only_one_kind_can_be_asked_for() {
    for options in ["--shared --write", "--plain --permits 2", "--permits 0"] {
        let said = says("redis://127.0.0.1:1", &format!("run {options} x -- true"));
        said.failed(125, &["--"]).without(&["127.0.0.1"]);
    }
}

/// A permit of a killed command comes back when the command's program has ended. The server would keep the permit for a day.
#[test]
fn a_killed_commands_permit_comes_back() {
    for kind in ["--permits 1", "--write", "--shared"] {
        let host = Host::new();
        let options = format!("{kind} --lease 1d --kill-after 500ms x");
        let (mut killed, process) = host.holds(&options, "pid", &host.until("never"));
        killed.0.kill().unwrap();
        let since = Instant::now();
        let next = match kind {
            "--permits 1" => semaphore(&host, "next", 1).try_acquire_for(SOON).unwrap().granted().is_some(),
            _ => rw_lock(&host, "next").try_write_for(SOON).unwrap().granted().is_some(),
        };
        assert!(next, "{kind}: not after {:?}", since.elapsed());
        assert!(!is_alive(process), "{kind}");
    }
}

#[test]
fn show_and_ls_tell_the_kind_all_holders_and_their_units() {
    let host = Host::new();
    let permits = semaphore(&host, "ours", 5);
    let (large, small) = (permits.acquire_many(3).unwrap(), permits.acquire().unwrap());
    let waiting = semaphore(&host, "waits", 5).request_many(2).unwrap();
    let seen = host.json("show x --json");
    assert_eq!((&seen["kind"], &seen["permits"]), (&"semaphore".into(), &5.into()));
    let all = |list: &str, key: &str| -> Vec<_> {
        seen[list].as_array().unwrap().iter().map(|one| one[key].as_u64().unwrap()).collect()
    };
    assert_eq!((all("holders", "units"), all("queue", "units")), (vec![3, 1], vec![2]));
    assert_eq!(all("holders", "token"), [large.token().get(), small.token().get()]);
    assert_eq!(host.json("ls --json")[0]["kind"], "semaphore");
    let said = labels_alone(&host.says("show x").out);
    let lines: Vec<&str> = said.lines().collect();
    let first = ["lock    x", "kind    semaphore: 4 of 5 permits are held", "holder  ours"];
    assert_eq!(lines[..3], first, "{said}");
    let begins =
        lines[3].starts_with("        3 permits, held for ") && lines[6].contains("  1 permit, held");
    assert!(begins && lines[9].starts_with("     1  waits, 2 permits, waiting for "), "{said}");
    let said = labels_alone(&host.says("ls").out);
    let row = only_row(&said);
    assert_eq!((&row[..3], row[4]), (&["x", "ours and 1 more", "4 of 5"][..], "1"), "{said}");
    drop((large, small));
    waiting.wait().unwrap().unlock().unwrap();

    let reads = ["one", "other"].map(|label| rw_lock(&host, label).read().unwrap());
    let waiting = rw_lock(&host, "waits").writer().request().unwrap();
    let said = labels_alone(&host.says("show x").out);
    for part in
        ["kind    read-write lock\n", "holder  one\n        read, held for ", "     1  waits, write, wait"]
    {
        assert!(said.contains(part), "{said}");
    }
    let said = labels_alone(&host.says("ls").out);
    let row = only_row(&said);
    assert_eq!((&row[..3], row[4]), (&["x", "one and 1 more", "read"][..], "1"), "{said}");
    drop(reads);
    let writes = waiting.wait().unwrap();
    let seen = host.json("ls --json");
    assert_eq!((&seen[0]["kind"], &seen[0]["permits"]), (&"read-write".into(), &Value::Null));
    assert_eq!(only_row(&labels_alone(&host.says("ls").out))[..3], ["x", "waits", "write"]);
    writes.unlock().unwrap();
    assert_eq!(host.json("show x --json")["kind"], Value::Null);
    assert_eq!(host.json("ls --json"), Value::Array(Vec::new()));
}

#[test]
fn unlock_takes_all_holds_or_that_of_one_holder() {
    let host = Host::new();
    let guards = ["a", "b", "b"].map(|label| semaphore(&host, label, 5).acquire().unwrap());
    host.says("unlock x").with(&["Take x from all its 3 holders?"]);
    let third = format!(":{}) ({})", std::process::id(), guards[2].owner());
    host.says("unlock x b --yes").failed(125, &["2 holders go by b; name one by its owner", &third]);
    host.says("unlock x c --yes").is(1, "", "fairlock: c does not hold x\n");
    assert!(guards.iter().all(|guard| !guard.is_lost()));

    let owner = guards[2].owner().to_string();
    for (holder, at) in [("a", 0), (&*owner, 2)] {
        output(&host.url(), &["unlock", "x", holder, "--yes"]).gave(0);
        guards[at].lost().recv_timeout(SOON).expect("the holder is told");
    }
    assert!(!guards[1].is_lost());
    host.says("unlock x --yes").gave(0);
    guards[1].lost().recv_timeout(SOON).expect("the holder is told");

    let reads = ["one", "other"].map(|label| rw_lock(&host, label).read().unwrap());
    host.says("unlock x --yes").gave(0);
    for reader in &reads {
        reader.lost().recv_timeout(SOON).expect("the reader is told");
    }
    host.says("unlock x --yes").gave(1);
}
