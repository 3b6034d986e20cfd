//! A script can be read at one sitting: few lines a file, and few names in sight at once. A test has a short name.

use fairlock_tests::files::{files, root};

/// Lines that are neither empty nor a comment.
const MOST_LINES: usize = 100;
/// As Lua counts: the `local` names and loop variables of a function, or of a file outside of functions, that are in sight at
/// one place. A block's names are out of sight behind its `end`. What is given from outside does not count, since the header
/// says it: a function's parameters, and the names of `KEYS[n]` and `ARGV[n]`; nor does `_`.
const MOST_LOCALS: usize = 15;

#[test]
fn every_script_file_is_short_and_has_few_names_in_sight() {
    let files = files(&root().join("fairlock-redis/scripts"), "lua");
    assert!(files.len() > 25, "only {} files were found", files.len());
    let mut faults = Vec::new();
    for (name, text) in &files {
        let name = name.display();
        let lines =
            text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("--")).count();
        if lines > MOST_LINES {
            faults.push(format!("{name}: {lines} lines of code"));
        }
        for (scope, locals) in scopes(text) {
            if locals > MOST_LOCALS {
                faults.push(format!("{name}: {scope} has {locals} locals in sight"));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn a_sixteenth_local_is_found() {
    let names =
        |from: usize, to: usize| -> String { (from..to).map(|n| format!("local n{n} = {n}\n")).collect() };
    let most = |text: String| scopes(&text).into_iter().map(|(_, locals)| locals).max();
    assert_eq!(most(names(0, 16)), Some(16));
    // In a block, in a loop, and in a function.
    assert_eq!(most(format!("{}if true then\nlocal a, b\nend\n", names(0, 14))), Some(16));
    assert_eq!(most(format!("{}for at, it in pairs({{}}) do end\n", names(0, 14))), Some(16));
    assert_eq!(most(format!("local function f(x, y)\n{}end\n", names(0, 16))), Some(16));
    // What is out of sight, another function's, given, or no code.
    assert_eq!(most(format!("do\n{}end\ndo\nlocal a = 'local b end'\nend\n", names(0, 12))), Some(12));
    assert_eq!(most(format!("local function f()\n{}end\n{}", names(0, 9), names(0, 9))), Some(10));
    assert_eq!(
        most(format!("local a, b = KEYS[1], tonumber(ARGV[1])\n-- local c\nlocal _, d\n{}", names(0, 3))),
        Some(4)
    );
}

/// The sentence that a test shows stands in its doc comment.
#[test]
fn test_names_have_at_most_60_characters() {
    let files = files(&root(), "rs");
    let names = |text: &str| -> Vec<String> {
        let behind = text.split("#[test]").skip(1).filter_map(|behind| behind.split_once("fn "));
        behind.filter_map(|(_, rest)| rest.split(['(', '<']).next().map(str::to_owned)).collect()
    };
    let all: Vec<String> = files.iter().flat_map(|(_, text)| names(text)).collect();
    assert!(all.len() > 1000, "only {} tests were found", all.len());
    let long: Vec<&String> = all.iter().filter(|name| name.len() > 60).collect();
    assert!(long.is_empty(), "{long:#?}");
}

/// A function, or the file outside of functions.
struct Scope {
    name: String,
    /// How many names are in sight, and how many were at most.
    names: usize,
    most: usize,
}

/// Each function of a file, and the file itself, with the most locals that are in sight at one place of it.
fn scopes(text: &str) -> Vec<(String, usize)> {
    let words = words(text);
    let mut done = Vec::new();
    let mut open = vec![Scope { name: "the file".to_owned(), names: 0, most: 0 }];
    // For each block that is open: how many names stood before it; none for a function's.
    let mut blocks: Vec<Option<usize>> = Vec::new();
    // A loop's variables count from its `do` on.
    let mut of_loop = 0;
    let mut at = 0;
    while at < words.len() {
        let scope = open.last_mut().unwrap();
        match words[at] {
            "function" => {
                open.push(Scope { name: words[at + 1].to_owned(), names: 0, most: 0 });
                blocks.push(None);
            }
            word @ ("if" | "do") => {
                blocks.push(Some(scope.names));
                scope.add(if word == "do" { std::mem::take(&mut of_loop) } else { 0 });
            }
            "end" => match blocks.pop().expect("a block ends") {
                Some(names) => scope.names = names,
                None => done.extend(open.pop()),
            },
            // The branch's names are out of sight.
            "else" | "elseif" => scope.names = blocks.last().copied().flatten().expect("a branch"),
            "for" => of_loop = names(&words[at + 1..]).len(),
            "local" if words[at + 1] == "function" => scope.add(1),
            "local" => {
                let named = names(&words[at + 1..]);
                let given = words[at + 1..].split(|word| *word == "local").next().unwrap();
                let is_given = given
                    .windows(3)
                    .any(|words| ["KEYS", "ARGV"].contains(&words[0]) && words[2].parse::<usize>().is_ok());
                scope.add(if is_given { 0 } else { named.len() });
            }
            _ => {}
        }
        at += 1;
    }
    assert!(blocks.is_empty(), "every block ends");
    done.append(&mut open);
    done.into_iter().map(|scope| (scope.name, scope.most)).collect()
}

impl Scope {
    fn add(&mut self, names: usize) {
        self.names += names;
        self.most = self.most.max(self.names);
    }
}

/// The names that a list begins with.
fn names<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let mut names = vec![words[0]];
    for pair in words[1..].chunks(2).take_while(|pair| pair[0] == ",") {
        names.push(pair[1]);
    }
    names.retain(|name| *name != "_");
    names
}

/// The words and signs of the code, without comments and texts.
fn words(text: &str) -> Vec<&str> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut words = Vec::new();
    for line in text.lines() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next().filter(|_| !rest.starts_with("--")) {
            let end = match first {
                '\'' => 2 + rest[1..].find('\'').expect("a text ends"),
                _ if is_name(first) => rest.find(|c| !is_name(c)).unwrap_or(rest.len()),
                _ => first.len_utf8(),
            };
            if first != '\'' {
                words.push(&rest[..end]);
            }
            rest = rest[end..].trim_start();
        }
    }
    words
}
