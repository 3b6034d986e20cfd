//! The tables of mistakes: what they say, and whether it can still be done.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

/// One mistake, as it stands in a table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mistake {
    /// What is wrong, in a sentence.
    mistake: String,
    /// The arguments of `cargo test` for the test that finds it; the last one is the test's name.
    test: String,
    file: String,
    from: String,
    to: String,
    #[serde(default)]
    also: Vec<Change>,
}

/// A change that a mistake needs besides its first.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    file: String,
    from: String,
    to: String,
}

/// The repository that these tests belong to.
pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// All mistakes, by name.
pub(crate) fn read() -> Result<BTreeMap<String, Mistake>, String> {
    let mut mistakes = BTreeMap::new();
    for table in ["core", "postgres", "redis"].map(|room| format!("tests/rules/planted/{room}.toml")) {
        let read: BTreeMap<String, Mistake> =
            toml::from_str(&text(root(), &table)?).map_err(|e| format!("{table}: {e}"))?;
        for (name, mistake) in read {
            if mistakes.insert(name.clone(), mistake).is_some() {
                return Err(format!("{table}: another mistake is called {name}"));
            }
        }
    }
    Ok(mistakes)
}

impl Mistake {
    /// The arguments of `cargo test` that choose the test program, and the name of the test in it.
    pub(crate) fn test(&self) -> (Vec<&str>, &str) {
        let mut words: Vec<&str> = self.test.split(' ').collect();
        let name = words.pop().unwrap_or_default();
        (words, name)
    }

    /// The files that it changes, with their wrong texts. The right ones are those of the repository in this folder.
    pub(crate) fn wrong_texts(&self, repository: &Path) -> Result<BTreeMap<&str, String>, String> {
        let mut files: BTreeMap<&str, String> = BTreeMap::new();
        let first = (&self.file, &self.from, &self.to);
        let others = self.also.iter().map(|change| (&change.file, &change.from, &change.to));
        for (file, from, to) in std::iter::once(first).chain(others) {
            let before = match files.get(file.as_str()) {
                Some(changed) => changed.clone(),
                None => text(repository, file)?,
            };
            let found = before.matches(from.as_str()).count();
            if found != 1 {
                return Err(format!("`from` occurs {found} times in {file}, and not once: {from}"));
            }
            files.insert(file, before.replacen(from.as_str(), to, 1));
        }
        Ok(files)
    }
}

/// What keeps mistakes from being planted, and tests from being run, one a line.
pub(crate) fn check(mistakes: &BTreeMap<String, Mistake>) -> Result<(), String> {
    let mut sources = Vec::new();
    read_sources(root(), &mut sources).map_err(|e| format!("the sources can't be read: {e}"))?;
    let is_in_a_source = |text: String| sources.iter().any(|source| source.contains(&text));
    let mut wrong = Vec::new();
    for (name, mistake) in mistakes {
        wrong.extend(mistake.wrong_texts(root()).err().map(|error| format!("{name}: {error}")));
        if !mistake.mistake.ends_with('.') {
            wrong.push(format!("{name}: its mistake is no sentence: {}", mistake.mistake));
        }
        let (program, test) = mistake.test();
        let mut modules: Vec<&str> = test.split("::").collect();
        let function = modules.pop().unwrap_or_default();
        if !is_program(&program)
            || !is_in_a_source(format!("fn {function}("))
            || !modules.iter().all(|module| is_in_a_source(format!("mod {module}")))
        {
            wrong.push(format!("{name}: there is no such test: {}", mistake.test));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// Whether `-p PACKAGE` and `--test FILE`, if that is there, name what exists.
fn is_program(arguments: &[&str]) -> bool {
    let ["-p", package, target @ ..] = arguments else { return false };
    let folder = root().join(if *package == "fairlock-tests" { "tests" } else { package });
    match target {
        [] | ["--lib"] => folder.join("src/lib.rs").exists(),
        ["--test", file] => {
            let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
            let by_itself = [format!("tests/{file}.rs"), format!("tests/{file}/main.rs")];
            manifest.contains(&format!("\nname = \"{file}\"\n"))
                || by_itself.iter().any(|path| folder.join(path).exists())
        }
        _ => false,
    }
}

fn read_sources(folder: &Path, sources: &mut Vec<String>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            read_sources(&path, sources)?;
        } else if name.ends_with(".rs") {
            sources.push(fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

fn text(repository: &Path, file: &str) -> Result<String, String> {
    fs::read_to_string(repository.join(file)).map_err(|e| format!("{file} can't be read: {e}"))
}
