//! Help, completions and the man page are made from the same options.

use std::fs::File;
use std::process::Stdio;

use crate::support::{Running, fairlock, says};

/// None of this needs a server.
const NOWHERE: &str = "redis://:canary@127.0.0.1:1";
const COMMANDS: [&str; 8] = ["run", "show", "ls", "unlock", "doctor", "migrate", "completions", "man"];

fn said(arguments: &str) -> String {
    let said = says(NOWHERE, arguments).gave(0).out;
    assert!(!said.contains("canary"));
    said
}

#[test]
fn help_has_an_example_for_each_command_and_hides_the_minder() {
    let all = said("--help");
    assert!(!all.contains("minder") && all.contains("redis+sentinel://"), "{all}");
    for command in COMMANDS {
        assert!(all.contains(&format!("\n  {command} ")), "{all}");
        for help in ["--help", "-h"] {
            let one = said(&format!("{command} {help}"));
            assert!(one.contains("Example") && one.contains(&format!("  fairlock {command} ")), "{one}");
        }
    }
    let short = said("ls -h");
    assert!(short.contains("--redis") && !short.contains("--connections"), "{short}");
    assert!(said("ls --help").contains("FAIRLOCK_REDIS"));
    let run = said("run --help");
    assert!(run.contains("--connections <N>") && run.contains("FAIRLOCK_PLACE_TTL"), "{run}");
    for code in
        ["122", "123", "124", "125", "126", "127", "FAIRLOCK_TOKEN", "--shared", "--write", "--permits <N>"]
    {
        assert!(run.contains(code), "{run}");
    }
}

/// To be read at a glance; `--help` has the rest.
#[test]
fn short_help_has_a_line_for_each_command_and_option() {
    for command in [""].into_iter().chain(COMMANDS) {
        let help = said(&format!("{command} -h"));
        let is_listed = |line: &&str| !line.is_empty() && !line.ends_with(':');
        let lists =
            help.split("\n\n").filter(|part| ["Commands:", "Options:"].iter().any(|of| part.starts_with(of)));
        for line in lists.flat_map(str::lines).filter(is_listed) {
            let begins = line.trim_start_matches(' ');
            assert!(line.len() - begins.len() <= 6, "`{command} -h` goes on in a second line: {line}");
        }
    }
}

#[test]
fn without_arguments_it_prints_its_help() {
    let help = said("-h");
    says(NOWHERE, "").is(125, &help, "");
    assert!(help.starts_with("Run programs under") && help.contains("\n  redis://host"), "{help}");
}

/// A usage error does not ask for the server that the environment names.
#[test]
fn a_usage_error_asks_no_server() {
    for arguments in ["show", "run x", "unlock", "ls --lines"] {
        says(NOWHERE, arguments).gave(125).with(&["Usage: fairlock "]).without(&["--redis", "minder"]);
    }
}

#[test]
fn the_man_page_has_all_commands_and_options_and_exit_codes() {
    let page = said("man");
    assert!(page.starts_with(".ie") || page.contains(".TH fairlock 1"), "{}", &page[..80]);
    for command in COMMANDS {
        assert!(page.contains(&format!("FAIRLOCK {}", command.to_uppercase())), "{command}");
    }
    for words in [
        "FAIRLOCK_OUTAGE_LIMIT",
        "max\\-hold",
        "\\-\\-permits",
        "FAIRLOCK_REDIS",
        "FAIRLOCK_LEASE",
        "123",
        "Example",
    ] {
        assert!(page.contains(words), "{words}");
    }
    assert_eq!(page.matches("FAIRLOCK_CONNECT_TIMEOUT").count(), 1, "what all commands have stands once");
    for usage in [
        "fairlock run [OPTIONS] <NAME>... \\-\\- <PROGRAM> [ARGS]…\nfairlock run [OPTIONS] <NAME>... \\-c <TEXT>\n",
        "fairlock unlock [OPTIONS] <NAME> [HOLDER]\n",
    ] {
        assert!(page.contains(usage), "{page}");
    }
    assert!(!page.contains("(1)"), "there is only one page");
    assert!(!page.contains("minder"));
}

/// Output that can't be written is a failure. Output that nobody reads, since `head` has had enough, is none.
#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let server = fairlock_tests::RedisServer::start();
    let client = fairlock::Client::new(fairlock::RedisBackend::connect(&server.url()).unwrap()).unwrap();
    let guard = client.fair_lock("x").unwrap().lock().unwrap();
    let all =
        ["ls", "ls --json", "ls --watch=1ms", "show x", "show x --json", "show x --watch=1ms", "doctor"];
    let without_server = ["migrate --print", "man", "completions bash", "--help", "run --help", "--version"];
    for arguments in all.into_iter().chain(without_server) {
        let run = |out: Stdio| {
            let mut command = fairlock(&server.url(), &crate::support::words(arguments));
            let mut child = command.stdout(out).stderr(Stdio::piped()).spawn().unwrap();
            child.stdout.take();
            Running(child)
        };
        let mut full = run(File::options().write(true).open("/dev/full").unwrap().into());
        assert_eq!(full.status().code(), Some(125), "{arguments}");
        let said = std::io::read_to_string(full.0.stderr.take().unwrap()).unwrap();
        assert!(said.starts_with("fairlock: standard output can't be written: No space left"), "{said}");
        assert_eq!(run(Stdio::piped()).status().code(), Some(0), "{arguments}");
    }
    guard.unlock().unwrap();
}
