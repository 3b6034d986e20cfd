//! Help, completions and the man page are made from the same options.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use support::{output, text};

/// None of this needs a server.
const NOWHERE: &str = "redis://:canary@127.0.0.1:1";
const COMMANDS: [&str; 8] = ["run", "show", "ls", "unlock", "kick", "doctor", "completions", "man"];

fn said(arguments: &[&str]) -> String {
    let said = output(NOWHERE, arguments);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
    assert!(!text(&said.stdout).contains("canary"));
    text(&said.stdout)
}

#[test]
fn help_has_an_example_for_each_command_and_hides_the_minder() {
    let all = said(&["--help"]);
    assert!(!all.contains("minder") && all.contains("redis+sentinel://"), "{all}");
    for command in COMMANDS {
        assert!(all.contains(&format!("\n  {command} ")), "{all}");
        for help in ["--help", "-h"] {
            let one = said(&[command, help]);
            assert!(one.contains("Example") && one.contains(&format!("  fairlock {command} ")), "{one}");
        }
    }
    let run = said(&["run", "--help"]);
    for code in ["122", "123", "124", "125", "126", "127", "FAIRLOCK_TOKEN"] {
        assert!(run.contains(code), "{run}");
    }
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = said(&["completions", shell]);
        for command in COMMANDS {
            assert!(script.contains(command), "{shell}: {command}");
        }
        assert!(script.contains("max-hold"), "{shell}");
    }
}

#[test]
fn the_man_page_has_all_commands_and_options_and_exit_codes() {
    let page = said(&["man"]);
    assert!(page.starts_with(".ie") || page.contains(".TH fairlock 1"), "{}", &page[..80]);
    for command in COMMANDS {
        assert!(page.contains(&format!("FAIRLOCK {}", command.to_uppercase())), "{command}");
    }
    for words in ["max\\-hold", "FAIRLOCK_REDIS", "123", "Example"] {
        assert!(page.contains(words), "{words}");
    }
    assert!(!page.contains("(1)"), "there is only one page");
    assert!(!page.contains("minder"));
}
