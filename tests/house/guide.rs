//! The guide in `docs/`: its listings are the text of the files they name, and its examples on Redis run in `guide_on_redis`. The same
//! for `tests/`: the tests named in its tables exist.

use std::fs;

use fairlock::{Client, MemoryBackend, TryLock};
use fairlock_tests::files::{files, root};

/// Every block that rustdoc does not run is the text of a file that runs. Rustdoc compiles the blocks `rust,no_run`, and runs
/// neither those nor SQL. It leaves out the chapters on backends, operation and PostgreSQL. The line before such a block names
/// the file that runs its text.
#[test]
fn blocks_that_rustdoc_skips_are_texts_of_files_that_run() {
    let mut checked = 0;
    for chapter in fs::read_dir(root().join("docs")).unwrap() {
        let chapter = chapter.unwrap().path();
        if chapter.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = fs::read_to_string(&chapter).unwrap();
        let mut pieces = text.split("```");
        let mut before = pieces.next().unwrap();
        while let (Some(block), Some(after)) = (pieces.next(), pieces.next()) {
            let (language, block) = block.split_once('\n').unwrap();
            assert_ne!(language, "rs", "{}: rustdoc does not colour it", chapter.display());
            let runs_elsewhere = match language {
                "rust" => ["writing-a-backend.md", "reference.md", "postgres.md"]
                    .iter()
                    .any(|name| chapter.ends_with(name)),
                other => matches!(other, "rust,no_run" | "sql"),
            };
            if runs_elsewhere {
                let marked = before.trim_end().lines().last().unwrap();
                let file = marked.strip_prefix("<!-- run by ").and_then(|rest| rest.strip_suffix(" -->"));
                let file =
                    file.unwrap_or_else(|| panic!("{}: no file is named for: {block}", chapter.display()));
                let source = fs::read_to_string(root().join(file)).unwrap();
                let block = block.replace("\"redis://127.0.0.1:6379\"", "url");
                assert!(
                    statements(&source).contains(statements(&block).trim_end()),
                    "{}: {file} differs from:\n{block}",
                    chapter.display()
                );
                checked += 1;
            }
            before = after;
        }
    }
    assert!(checked >= 14, "only {checked} were found");
}

/// Without indentation and blank lines, imports, and what only completes a block.
fn statements(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| {
        !line.is_empty() && !line.starts_with("use ") && !line.starts_with("# ") && *line != "let url = url;"
    });
    lines.map(|line| line.to_owned() + "\n").collect()
}

#[test]
fn tasks_on_one_thread_are_one_owner_but_not_with_to_async() -> fairlock::Result<()> {
    let client = Client::new(MemoryBackend::new())?;
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let lock = client.fair_lock("lock:report")?;
        let first = lock.lock()?;
        let second = async { lock.lock() }.await?;
        assert_eq!(lock.hold_count(), 2, "the trap: both have it");
        drop((first, second));
        let lock = lock.to_async();
        let first = lock.lock().await?;
        assert!(matches!(lock.try_lock().await?, TryLock::Busy(_)));
        first.unlock().await
    })
}

#[test]
fn a_condition_drops_its_guard_before_the_body() -> fairlock::Result<()> {
    let lock = Client::new(MemoryBackend::new())?.fair_lock("lock:report")?;
    if lock.try_lock()?.granted().is_some() {
        assert!(!lock.is_locked()?, "the trap: the body runs without the lock");
    }
    let TryLock::Granted(_guard) = lock.try_lock()? else { panic!("it is free") };
    assert!(lock.is_held());
    Ok(())
}

/// In `docs/` a link to another chapter stands at the end, where rustdoc's own definition comes before it.
#[test]
fn every_link_of_every_page_leads_to_a_file_and_a_heading() {
    let (all, mut wrong) = (files(&root(), "md"), Vec::new());
    assert!(all.len() > 35, "only {} pages were found", all.len());
    for (page, text) in all {
        let inline = text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap());
        let defined =
            text.lines().filter(|line| line.starts_with('[')).filter_map(|line| line.split_once("]: "));
        for (target, is_inline) in
            inline.map(|target| (target, true)).chain(defined.map(|(_, to)| (to, false)))
        {
            if ["http", "crate::", "data:"].iter().any(|start| target.starts_with(start)) {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let in_docs = page.parent().unwrap().ends_with("docs");
            let file = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let has_heading =
                |text: String| text.lines().any(|line| line.starts_with('#') && anchor(line) == heading);
            let found = if heading.is_empty() {
                file.exists()
            } else {
                fs::read_to_string(&file).is_ok_and(has_heading)
            };
            if !found || (in_docs && is_inline && file != page) {
                wrong.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The name by which GitHub links to a heading.
fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
    heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter(kept)
        .collect::<String>()
        .replace(' ', "-")
}

#[test]
fn rustdoc_lists_every_feature() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let features = manifest.split("\n[features]\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let features: Vec<_> =
        features.lines().filter_map(|line| line.split_once(" = ")).map(|(name, _)| name).collect();
    assert!(features.contains(&"redis"), "{features:?}");
    let text = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let section = text.split_once("//! # Features\n").expect("it has a section on features").1;
    let missing =
        features.iter().filter(|name| **name != "default" && !section.contains(&format!("`{name}`")));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&&str>::new());
}

/// Rustdoc copies no files, so its pages contain the pictures.
#[test]
fn the_pictures_in_rustdoc_are_those_in_the_guide() {
    let mut links = String::new();
    for name in
        ["timeline", "rw-lock", "semaphore", "postgres-crowds", "hand-off", "lease", "late", "durable-time"]
    {
        links += &format!("[{name}]: data:image/svg+xml,");
        for byte in fs::read(root().join(format!("docs/pictures/{name}.svg"))).unwrap() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => links.push(byte.into()),
                _ if b"-._~/:;,=".contains(&byte) => links.push(byte.into()),
                _ => links += &format!("%{byte:02X}"),
            }
        }
        links.push('\n');
    }
    let included = fs::read_to_string(root().join("docs/pictures/for-rustdoc.md")).unwrap();
    assert!(included == links, "they differ: python3 docs/pictures/draw.py");
}

/// `| P1 | all: a test, a test; HandOff: a test |` in `tests/README.md`. The guide's row names the same disciplines; `all` stands for each.
#[test]
fn every_promise_has_a_test_for_each_discipline_that_makes_it() {
    let rows_of = |page: &str| {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let row = |line: &str| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let number = cells.get(1)?.strip_prefix('P')?.parse::<usize>().ok()?; // PostgreSQL's rows have names
            Some((number, cells.iter().rev().nth(1)?.to_string()))
        };
        text.lines().filter_map(row).collect::<Vec<_>>()
    };
    let (promises, tests) = (rows_of("docs/promises.md"), rows_of("tests/README.md"));
    assert!(promises.iter().map(|(number, _)| *number).eq(1..=13), "{promises:?}");
    assert_eq!(promises.len(), tests.len());
    for ((number, makes_it), (_, shown)) in promises.iter().zip(&tests) {
        let mut shown_for = Vec::new();
        for part in shown.split("; ") {
            let (disciplines, tests) = part.split_once(": ").unwrap_or((part, ""));
            assert!(tests.starts_with('`'), "P{number}: no test is named for {disciplines}");
            shown_for.extend(disciplines.split(", "));
        }
        for name in makes_it.split(", ") {
            let is_one = ["all", "HandOff", "memory", "file", "Redisson", "plain"].contains(&name);
            assert!(is_one && shown_for.contains(&name), "P{number}: no test for `{name}`");
        }
    }
}

/// A long word in small letters is the name of a test, or, beside an ellipsis, a part of it.
#[test]
fn every_test_that_a_table_names_exists() {
    let mut sources = Vec::new();
    for folder in [
        "tests",
        "fairlock-conformance",
        "fairlock-core",
        "fairlock-rules",
        "fairlock-file",
        "fairlock-memory",
        "fairlock-net",
        "fairlock-postgres",
        "fairlock-redis",
        "fairlock-cli",
        "examples",
        "docs/postgres-drivers",
    ] {
        sources.extend(files(&root().join(folder), "rs").into_iter().map(|(_, text)| text));
    }
    let functions: Vec<&str> = sources
        .iter()
        .flat_map(|source| {
            source.lines().filter_map(|line| {
                line.trim().trim_start_matches("pub ").trim_start_matches("async ").strip_prefix("fn ")
            })
        })
        .map(|rest| rest.split(['(', '<']).next().unwrap())
        .collect();
    let mut unknown = Vec::new();
    for table in [
        "tests/README.md",
        "tests/track-record.md",
        "tests/chaos/faults/README.md",
        "tests/chaos/faults/servers.md",
        "tests/java/interop/README.md",
        "docs/promises.md",
        "docs/durable.md",
        "docs/from-advisory-locks.md",
    ] {
        let text = fs::read_to_string(root().join(table)).unwrap();
        let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let names = text
            .split(|c: char| !is_part(c))
            .filter(|word| word.len() >= 20 && word.matches('_').count() >= 3)
            .filter(|word| !word.starts_with("pg_")); // PostgreSQL's functions
        let missing = names.filter(|name| !functions.iter().any(|function| function.contains(name)));
        unknown.extend(missing.map(|name| format!("{table}: {name}")));
    }
    assert!(unknown.is_empty(), "there are no such tests: {unknown:#?}");
}

/// ARCHITECTURE.md's walks have rows such as ``| core `wake.rs` | `granted` | … |``; a row without a file goes on with the file above.
#[test]
fn every_walk_names_what_its_files_have() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let walks = page.split_once("## Four walks").unwrap().1.split_once("\n## ").unwrap().0;
    let (mut source, mut checked) = (String::new(), 0);
    for row in walks.lines().filter_map(|line| line.strip_prefix("| ")) {
        let (file, row) = row.split_once('|').unwrap();
        if let Some((name, path)) = file.trim().trim_end_matches('`').split_once(" `") {
            let folder = if path.starts_with("scripts/") { "" } else { "src/" };
            source = fs::read_to_string(root().join(format!("fairlock-{name}/{folder}{path}"))).unwrap();
        }
        let is_word = |text: &&str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        for word in row.split('`').skip(1).step_by(2).filter(is_word) {
            assert!(source.contains(word), "{} has no {word}", file.trim());
            checked += 1;
        }
    }
    assert!(checked > 50, "{checked} words of the walks");
}
