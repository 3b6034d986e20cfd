//! Each thread of the product has a name, and ARCHITECTURE.md lists that name.

use std::collections::BTreeSet;
use std::fs;

use fairlock_tests::files::{files, root};

/// A file without its tests and its documents.
fn product(text: &str) -> impl Iterator<Item = &str> {
    let end = text.find("#[cfg(test)]\nmod tests").unwrap_or(text.len());
    text[..end].lines().filter(|line| !line.trim_start().starts_with("//"))
}

#[test]
fn each_thread_has_a_name_that_the_architecture_tells() {
    let architecture = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (mut names, mut faults) = (BTreeSet::new(), Vec::new());
    for (path, text) in files(&root(), "rs") {
        let shown = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        let is_ours = shown.starts_with("fairlock-") && shown.contains("/src/");
        let is_test = ["test", "conformance", "fairlock-model"].iter().any(|part| shown.contains(part));
        if !is_ours || is_test {
            continue;
        }
        for line in product(&text) {
            if line.contains("thread::spawn(") {
                faults.push(format!("{shown} starts a thread without a name: {}", line.trim()));
            }
            let starts = [".name(\"", "start_thread(\""];
            let found = starts.iter().find_map(|start| line.split(start).nth(1)?.split('"').next());
            names.extend(found.filter(|name| name.starts_with("fairlock-")).map(str::to_owned));
        }
    }
    assert!(names.len() > 15, "only these were found: {names:?}");
    let untold = names.iter().filter(|name| !architecture.contains(&format!("`{name}`")));
    faults.extend(untold.map(|name| format!("ARCHITECTURE.md does not tell of `{name}`")));
    assert!(faults.is_empty(), "{faults:#?}");
}
