//! Every planted mistake can be planted, and the test that finds it exists. `run` looks whether it does find it.

mod table;

use std::fs;

use fairlock_tests::files::files;
use table::root;

#[test]
fn every_mistake_can_be_planted_and_its_test_exists() {
    let sources = files(root(), "rs");
    let is_in_a_source = |text: String| sources.iter().any(|(_, source)| source.contains(&text));
    let mut wrong = Vec::new();
    for (name, mistake) in table::read().unwrap() {
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
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
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
