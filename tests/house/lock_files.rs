//! Packages outside the workspace are built with `--locked`, and not by day. This test finds a stale lock file before the night does.

use std::collections::BTreeSet;
use std::fs;

use fairlock_tests::files::root;
use toml::{Table, Value};

/// The lock files that have some of our crates.
const LOCKS: [&str; 6] = [
    "bench",
    "docs/fencing",
    "docs/opentelemetry",
    "docs/postgres-drivers",
    "fairlock-model",
    "torture/adaptors/rust",
];

fn read(path: &str) -> Table {
    toml::from_str(&fs::read_to_string(root().join(path)).unwrap()).unwrap()
}

fn items(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}

/// What the crate always needs, by the names of packages.
fn needs(manifest: &Table) -> BTreeSet<String> {
    let dependencies = manifest.get("dependencies").and_then(Value::as_table).into_iter().flatten();
    let always =
        dependencies.filter(|(_, value)| value.get("optional").and_then(Value::as_bool) != Some(true));
    let name = |(name, value): (&String, &Value)| {
        value.get("package").and_then(Value::as_str).unwrap_or(name).to_owned()
    };
    always.map(name).collect()
}

#[test]
fn each_lock_file_knows_what_our_crates_need() {
    let mut missing = Vec::new();
    for lock in LOCKS {
        let (lock, mut ours) = (format!("{lock}/Cargo.lock"), 0);
        for package in items(read(&lock).get("package")) {
            let name = package.get("name").and_then(Value::as_str).unwrap();
            let manifest = format!("{name}/Cargo.toml");
            if package.get("source").is_some() || !root().join(&manifest).exists() {
                continue;
            }
            ours += 1;
            let known: BTreeSet<&str> = items(package.get("dependencies"))
                .filter_map(|known| known.as_str()?.split(' ').next())
                .collect();
            let needs = needs(&read(&manifest));
            let lacks = needs.iter().filter(|need| !known.contains(need.as_str()));
            missing.extend(lacks.map(|need| format!("{lock}: {name} needs {need}")));
        }
        assert!(ours > 0, "{lock} has none of our crates");
    }
    assert!(missing.is_empty(), "{missing:#?}: run `cargo metadata` in these folders");
}
