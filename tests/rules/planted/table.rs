//! The tables of mistakes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

/// One mistake, as it stands in a table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mistake {
    /// What is wrong, in a sentence.
    pub(crate) mistake: String,
    /// The arguments of `cargo test` for the test that finds it; the last one is the test's name.
    pub(crate) test: String,
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
    for table in ["core", "file", "postgres", "redis"].map(|room| format!("tests/rules/planted/{room}.toml"))
    {
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

fn text(repository: &Path, file: &str) -> Result<String, String> {
    fs::read_to_string(repository.join(file)).map_err(|e| format!("{file} can't be read: {e}"))
}
