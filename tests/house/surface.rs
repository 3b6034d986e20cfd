//! What programs see of the crate `fairlock`: few names in its root.

use std::fs;
use std::panic::{RefUnwindSafe, UnwindSafe};

use fairlock::settings::{ClientBuilder, Clock, PostgresBuilder, RedisBuilder};
use fairlock::testing::{Faults, ManualClock};
use fairlock::{FileBackend, MemoryBackend, PostgresBackend, RedisBackend};
use fairlock_tests::files::root;

/// What a reader finds in one look at the front page.
const MOST_IN_THE_ROOT: usize = 35;

#[test]
fn the_root_of_the_facade_has_at_most_35_items() {
    let items = root_of(&fs::read_to_string(root().join("src/lib.rs")).unwrap());
    assert!(items.iter().any(|item| item == "Client") && items.iter().any(|item| item == "stats"));
    assert!(items.len() <= MOST_IN_THE_ROOT, "{}: {items:?}", items.len());
}

/// The names in a `lib.rs` that only re-exports: of `pub use`, and of modules, but not of what stands in them.
fn root_of(text: &str) -> Vec<String> {
    let statements = text.split_inclusive([';', '\n']).fold(vec![String::new()], |mut all, piece| {
        let last = all.last_mut().expect("there is one");
        last.push_str(piece);
        if piece.ends_with(';') || last.starts_with("pub mod") || !last.starts_with("pub use") {
            all.push(String::new());
        }
        all
    });
    let names = |statement: &String| -> Vec<String> {
        if let Some(module) = statement.strip_prefix("pub mod ") {
            return vec![module.trim_end_matches([' ', '{', ';', '\n']).to_owned()];
        }
        let Some(used) = statement.strip_prefix("pub use ") else { return Vec::new() };
        let list = used.rsplit("::").next().unwrap_or(used);
        let names = list.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| !name.is_empty());
        names.map(str::to_owned).collect()
    };
    statements.iter().flat_map(names).collect()
}

#[test]
fn names_of_modules_and_lists_are_counted_once() {
    let text = "//! pub use x::Y;\nmod a;\npub mod b;\npub use a::{C, d};\npub use e::{\n    F,\n    G,\n};\npub use h::I;\n\
                pub mod j {\n    pub use k::L;\n}\n";
    assert_eq!(root_of(text), ["b", "C", "d", "F", "G", "I", "j"]);
}

/// A major version of another crate is no major version of ours: its types stand in the signatures of what a feature with its
/// version gives. (serde is at 1 for good.)
#[test]
fn types_of_other_crates_stand_behind_versioned_features() {
    let text = fs::read_to_string(root().join("docs/surface.txt")).unwrap();
    assert!(text.lines().count() > 500);
    let behind_features = [
        ("::as_crossbeam(", "crossbeam_channel::Receiver"),
        ("::tls(", "rustls::ClientConfig"),
        ("::builder_from(", "redis::ConnectionInfo"),
        ("impl ", "serde_core::Serialize"),
    ];
    for line in text.lines().filter(|line| !line.starts_with("use ")) {
        let words = line.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
        let of_others = words.filter(|word| {
            word.contains("::")
                && word.starts_with(|c: char| c.is_lowercase())
                && !word.starts_with("fairlock::")
        });
        for word in of_others {
            let is_known = behind_features.iter().any(|(at, known)| line.contains(at) && word == *known);
            assert!(is_known, "{word} in {line}");
        }
    }
}

/// The compiler says so, or this is not built. Core has the same test for clients, locks and guards.
#[test]
fn a_program_may_use_its_stores_after_a_panic_that_it_caught() {
    fn may<T: UnwindSafe + RefUnwindSafe>() {}
    let _ = [may::<RedisBackend>, may::<PostgresBackend>, may::<FileBackend>, may::<MemoryBackend>];
    let _ = [may::<RedisBuilder>, may::<PostgresBuilder>, may::<ClientBuilder>];
    let _ = [may::<Clock>, may::<ManualClock>, may::<Faults>];
}
