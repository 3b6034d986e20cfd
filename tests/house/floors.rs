//! Modules are rooms on floors: each imports only what stands below it, and no files import each other in a loop.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The rooms of each crate, from the top floor to the ground. A file belongs to the room with the longest name that it
/// begins with; `lib.rs` and `main.rs` stand above all.
const HOUSE: [(&str, &str); 8] = [
    (
        "fairlock-core",
        "handle handle/kinds handle/admin handle/tasks handle/lock handle/guard
         wake watchdog tasks shared
         flow/acquire flow/cleanup flow
         outage ledger backlog timers stats claim
         config losses error backend time ids logging",
    ),
    (
        "fairlock-redis",
        "builder doctor locks backend hand_off redisson wake_ups durable
         script script/reply script/scripts
         net net/target net/topology net/subscription net/commands net/settings net/connection",
    ),
    ("fairlock-net", "stream trust endpoint"),
    (
        "fairlock-postgres",
        "doctor backend step wake_ups row store combiner command clients
         net net/open net/connection net/statement net/address net/failure",
    ),
    ("fairlock-rules", "lock_entry queue context bytes"),
    ("fairlock-file", "backend wake_ups lock_files slots machine"),
    ("fairlock-memory", "backend store"),
    ("fairlock-cli", "run take blocked operator screen server args settings process words"),
];

/// The modules that each module of a crate imports. `mod.rs` has the name of its folder, `lib.rs` the empty name.
struct Imports(BTreeMap<String, BTreeSet<String>>);

#[test]
fn each_module_stands_above_what_it_imports() {
    let mut faults = Vec::new();
    for (name, rooms) in HOUSE {
        let rooms: Vec<&str> = rooms.split_whitespace().collect();
        let floor = |module: &str| {
            let of_room = |room: &str| module == room || module.starts_with(&format!("{room}/"));
            let found = (0..rooms.len()).filter(|&at| of_room(rooms[at])).max_by_key(|&at| rooms[at].len());
            found.unwrap_or_else(|| panic!("{name}: {module} has no room"))
        };
        let Imports(mut modules) = Imports::of(name);
        modules.remove("");
        let found: BTreeSet<usize> = modules.keys().map(|module| floor(module)).collect();
        let empty: Vec<_> = (0..rooms.len()).filter(|at| !found.contains(at)).map(|at| rooms[at]).collect();
        assert!(empty.is_empty(), "{name}: no file stands in these rooms: {empty:?}");
        for (module, imported) in &modules {
            for other in imported.iter().filter(|other| other.is_empty() || floor(other) < floor(module)) {
                faults.push(format!("{name}: {module} imports {other}, which stands above it"));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn no_modules_import_each_other_in_a_loop() {
    let mut faults = Vec::new();
    for (name, _) in HOUSE {
        let Imports(mut left) = Imports::of(name);
        left.remove("");
        // A parent and its own child may import each other: they are one module in two files.
        for (module, imported) in &mut left {
            imported.retain(|other| parent(other) != module && parent(module) != other && other != module);
        }
        // What imports nothing that is left is in no loop.
        loop {
            let names: BTreeSet<String> = left.keys().cloned().collect();
            left.retain(|_, imported| imported.iter().any(|other| names.contains(other)));
            if left.len() == names.len() {
                break;
            }
        }
        faults.extend(left.iter().map(|(module, imported)| format!("{name}: {module} imports {imported:?}")));
    }
    assert!(faults.is_empty(), "these are in a loop, or import one: {faults:#?}");
}

#[test]
fn the_connections_know_nothing_of_their_crate() {
    let Imports(modules) = Imports::of("fairlock-redis");
    let is_net = |module: &str| module == "net" || module.starts_with("net/");
    let mut seen = 0;
    for (module, imported) in modules.iter().filter(|(module, _)| is_net(module)) {
        seen += 1;
        let others: Vec<_> = imported.iter().filter(|other| !is_net(other)).collect();
        assert!(others.is_empty(), "{module} imports {others:?}");
    }
    assert!(seen > 15, "only {seen} files were found");
}

/// What survives a server that forgets is known to one room and few others.
#[test]
fn durability_is_known_to_one_room_and_few_others() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fairlock-redis/src");
    let mut texts = Vec::new();
    texts_in(&folder, "", &mut texts);
    // Also in comments, and as a part of a longer name.
    let tells = |word: &str| {
        let word = word.to_lowercase();
        ["durab", "grace", "quorum"].iter().any(|part| word.contains(part))
            || ["life", "lives"].contains(&&*word)
    };
    let mut telling: Vec<&str> = Vec::new();
    for (file, text) in &texts {
        if text.split(|c: char| !c.is_alphabetic()).any(tells) {
            telling.push(file);
        }
    }
    assert!(telling.iter().filter(|file| file.starts_with("durable/")).count() == 2, "{telling:?}");
    telling.retain(|file| !file.starts_with("durable/"));
    assert!(
        !telling.iter().any(|file| file.starts_with("net/")),
        "the connections know no lock: {telling:?}"
    );
    assert!(telling.len() <= 10, "{}: {telling:#?}", telling.len());
}

/// Each source file without its tests.
fn texts_in(folder: &Path, before: &str, texts: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{before}{}", path.file_name().unwrap().to_str().unwrap());
        if path.is_dir() {
            texts_in(&path, &format!("{name}/"), texts);
        } else if !name.ends_with("tests.rs") && !name.contains("tests/") {
            let text = fs::read_to_string(&path).unwrap();
            texts.push((name, text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned()));
        }
    }
}

impl Imports {
    fn of(name: &str) -> Imports {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src");
        let mut sources = BTreeMap::new();
        read(&folder, "", &mut sources);
        // What is compiled for tests only stands in no room.
        for (parent, source) in sources.clone() {
            for tests in source.split("#[cfg(test)]\nmod ").skip(1) {
                let tests = format!("{parent}/{}", tests.split(';').next().unwrap());
                let tests = tests.trim_start_matches('/');
                sources.retain(|module, _| module != tests && !module.starts_with(&format!("{tests}/")));
            }
        }
        let imports = sources.iter().map(|(module, source)| {
            let mut found = BTreeSet::new();
            for (start, from) in [("crate::", ""), ("super::", parent(module))] {
                for (at, _) in source.match_indices(start) {
                    // `super::super::` is followed from its first part; `$crate::` is for a macro's callers.
                    if source[..at].ends_with('$') || start == "super::" && source[..at].ends_with("super::")
                    {
                        continue;
                    }
                    let mut named = Vec::new();
                    paths(&source[at + start.len()..], from, &mut named);
                    found.extend(named.iter().map(|path| resolve(path, &sources)));
                }
            }
            (module.clone(), found)
        });
        Imports(imports.collect())
    }
}

/// Reads the sources without comments and tests.
fn read(folder: &Path, module: &str, sources: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let module = match name {
            "tests" => continue,
            "lib" | "main" | "mod" => module.to_owned(),
            _ => format!("{module}/{name}").trim_start_matches('/').to_owned(),
        };
        if path.is_dir() {
            read(&path, &module, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            sources.insert(module, code.join("\n").replace("#[cfg(doc)]\nuse ", "doc "));
        }
    }
}

fn parent(module: &str) -> &str {
    module.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Finds each path of a tree like `a::{b, c::d}`, which stands behind the path `before`. Returns what follows the tree.
fn paths<'a>(tree: &'a str, before: &str, found: &mut Vec<String>) -> &'a str {
    let Some(mut rest) = tree.trim_start().strip_prefix('{') else {
        let end = tree.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(tree.len());
        let (word, rest) = tree.split_at(end);
        let path = match word {
            "super" => parent(before).to_owned(),
            _ => format!("{before}/{word}").trim_start_matches('/').to_owned(),
        };
        if let Some(rest) = rest.strip_prefix("::") {
            return paths(rest, &path, found);
        }
        found.push(path);
        return rest;
    };
    loop {
        rest = rest.trim_start();
        if let Some(rest) = rest.strip_prefix('}') {
            return rest;
        }
        rest =
            paths(rest, before, found).trim_start_matches(|c| c != ',' && c != '}').trim_start_matches(',');
    }
}

/// The module that a path leads to: `claim/steps/Step` is in `claim/steps`. A name that `lib.rs` hands on leads to that, which
/// stands above all.
fn resolve(path: &str, sources: &BTreeMap<String, String>) -> String {
    let mut path = path;
    while !sources.contains_key(path) {
        path = parent(path);
    }
    path.to_owned()
}
