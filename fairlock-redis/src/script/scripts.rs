//! The Lua files, joined with the parts they use.

use std::sync::{LazyLock, OnceLock};

use super::keys::{Keys, KeysOfScript};

/// One script: a file of `scripts/`, joined with the parts of `scripts/lib/` that it uses.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) name: &'static str,
    /// Its KEYS, in order.
    pub(crate) keys: fn(&Keys) -> KeysOfScript<'_>,
    pub(crate) text: Text,
    body: String,
    /// The same script with something around it.
    wrapped: OnceLock<Text>,
}

/// What the server runs.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) source: String,
    pub(crate) sha: String,
}

impl Text {
    fn new(source: String) -> Text {
        let sha = redis::Script::new(&source).get_hash().to_owned();
        Text { source, sha }
    }
}

impl Script {
    fn new(name: &'static str, keys: fn(&Keys) -> KeysOfScript<'_>, parts: &[&str], file: &str) -> Script {
        let body = join(file, parts);
        let text = Text::new([NO_LIFE, &body].concat());
        Script { name, keys, text, body, wrapped: OnceLock::new() }
    }

    /// The script between two texts, which are always the same ones.
    pub(crate) fn wrapped(&self, before: &str, behind: &str) -> &Text {
        self.wrapped.get_or_init(|| Text::new([before, &self.body, behind].concat()))
    }
}

/// The parts stand in front of the file, or at its line `-- lib`: what is above that line runs before any function is made.
fn join(file: &str, parts: &[&str]) -> String {
    let (fast, general) = file.split_once("\n-- lib\n").unwrap_or(("", file));
    [&[fast, "\n"], parts, &[general]].concat().concat()
}

const CLOCK: &str = include_str!("../../scripts/lib/clock.lua");
const DESCRIBE: &str = include_str!("../../scripts/lib/describe.lua");
const GRANT: &str = include_str!("../../scripts/lib/grant.lua");
const HOLD: &str = include_str!("../../scripts/lib/hold.lua");
const HOLDERS: &str = include_str!("../../scripts/lib/holders.lua");
const HOLDS: &str = include_str!("../../scripts/lib/holds.lua");
const KIND: &str = include_str!("../../scripts/lib/kind.lua");
const LINE: &str = include_str!("../../scripts/lib/line.lua");
const OWNER: &str = include_str!("../../scripts/lib/owner.lua");
const REDISSON_TURN: &str = include_str!("../../scripts/lib/redisson_turn.lua");
/// What stands in the place of `scripts/lib/life.lua` for a client that is not durable.
const NO_LIFE: &str = "local grace_left, kept = nil, 0\n";

macro_rules! script {
    ($name:ident, $file:literal, $keys:ident, $($part:ident)*) => {
        pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
            let text = include_str!(concat!("../../scripts/", $file));
            Script::new($file, Keys::$keys, &[$($part,)*], text)
        });
    };
}

script!(LINE_ACQUIRE, "line/acquire.lua", of_line, CLOCK KIND OWNER LINE REDISSON_TURN HOLDS);
script!(LINE_RENEW, "line/renew.lua", of_line, CLOCK KIND OWNER LINE REDISSON_TURN HOLDS);
script!(LINE_RENEW_HOLDS, "line/renew_holds.lua", of_hold, CLOCK HOLD);
script!(LINE_CLAIM, "line/claim.lua", of_line, CLOCK KIND OWNER LINE REDISSON_TURN HOLDS HOLD);
script!(LINE_RELEASE, "line/release.lua", of_line, CLOCK KIND OWNER LINE REDISSON_TURN HOLDS);
script!(LINE_WITHDRAW, "line/withdraw.lua", of_line, CLOCK KIND OWNER LINE REDISSON_TURN HOLDS);
script!(LINE_FORCE_RELEASE, "line/force_release.lua", of_line, CLOCK GRANT KIND OWNER LINE REDISSON_TURN HOLDS HOLDERS);
script!(LINE_INSPECT, "line/inspect.lua", of_line, CLOCK GRANT KIND OWNER LINE REDISSON_TURN HOLDS HOLDERS DESCRIBE);

macro_rules! of_redisson {
    ($($item:item)*) => { $(#[cfg(feature = "redisson")] $item)* };
}

of_redisson! {
    const REDISSON: &str = include_str!("../../scripts/lib/redisson.lua");
    script!(REDISSON_ACQUIRE, "redisson/acquire.lua", redisson, CLOCK GRANT KIND REDISSON OWNER);
    script!(REDISSON_RENEW, "redisson/renew.lua", redisson, CLOCK GRANT KIND REDISSON OWNER);
    script!(REDISSON_RELEASE, "redisson/release.lua", redisson, CLOCK GRANT REDISSON);
    script!(REDISSON_WITHDRAW, "redisson/withdraw.lua", redisson, CLOCK GRANT REDISSON);
    script!(REDISSON_FORCE_RELEASE, "redisson/force_release.lua", redisson, CLOCK GRANT KIND REDISSON OWNER);
    script!(PLAIN_ACQUIRE, "plain/acquire.lua", without_line, CLOCK GRANT KIND OWNER);
    script!(PLAIN_RENEW, "plain/renew.lua", without_line, GRANT KIND OWNER);
    script!(PLAIN_RELEASE, "plain/release.lua", without_line, GRANT);
    script!(PLAIN_WITHDRAW, "plain/withdraw.lua", without_line, GRANT);
    script!(PLAIN_FORCE_RELEASE, "plain/force_release.lua", without_line, CLOCK GRANT KIND OWNER);
    script!(HOLD_RENEW, "hold/renew.lua", without_line, GRANT);
    script!(HOLD_SET_HOLD_COUNT, "hold/set_hold_count.lua", without_line, GRANT);
    script!(INSPECT, "inspect.lua", redisson, CLOCK GRANT KIND OWNER);
}

#[cfg(test)]
pub(crate) use self::tests::all;

#[cfg(test)]
mod tests {
    use super::*;
    use fairlock_core::backend::LockId;
    use fairlock_core::{LockKind, LockName};

    /// Each script, and how many keys and arguments its caller passes (the fewest, where the number varies).
    pub(crate) fn all() -> Vec<(&'static Script, usize, usize)> {
        #[cfg_attr(not(feature = "redisson"), expect(unused_mut, reason = "nothing is added"))]
        let mut all: Vec<(&'static Script, usize, usize)> = vec![
            (&LINE_ACQUIRE, 4, 9),
            (&LINE_RENEW, 4, 4),
            (&LINE_RENEW_HOLDS, 2, 3),
            (&LINE_CLAIM, 4, 5),
            (&LINE_RELEASE, 4, 2),
            (&LINE_WITHDRAW, 4, 3),
            (&LINE_FORCE_RELEASE, 4, 6),
            (&LINE_INSPECT, 4, 5),
        ];
        #[cfg(feature = "redisson")]
        all.extend::<[(&'static Script, usize, usize); 13]>([
            (&REDISSON_ACQUIRE, 4, 9),
            (&REDISSON_RENEW, 4, 1),
            (&REDISSON_RELEASE, 4, 4),
            (&REDISSON_WITHDRAW, 4, 6),
            (&REDISSON_FORCE_RELEASE, 4, 2),
            (&PLAIN_ACQUIRE, 2, 5),
            (&PLAIN_RENEW, 2, 0),
            (&PLAIN_RELEASE, 2, 4),
            (&PLAIN_WITHDRAW, 2, 2),
            (&PLAIN_FORCE_RELEASE, 2, 2),
            (&HOLD_RENEW, 2, 2),
            (&HOLD_SET_HOLD_COUNT, 2, 4),
            (&INSPECT, 4, 3),
        ]);
        all
    }

    fn file(script: &Script) -> String {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/");
        std::fs::read_to_string(format!("{path}{}", script.name)).unwrap()
    }

    #[test]
    fn every_header_says_what_its_script_does() {
        let lock = LockId::new(LockName::new("a").unwrap(), LockKind::ReadWrite);
        let of_lock = Keys::of(&lock).unwrap();
        for (script, keys, arguments) in all() {
            let (name, text) = (script.name, file(script));
            let header: Vec<&str> = text.lines().take_while(|line| line.starts_with("--")).collect();
            let of = |word: &str| {
                let line = header.iter().position(|line| line.starts_with(word)).expect(name);
                let more = header[line + 1..].iter().take_while(|line| line.starts_with("--   "));
                std::iter::once(&header[line]).chain(more).copied().collect::<String>()
            };
            assert!(header[1].starts_with("-- ") && header[1].ends_with('.'), "{name}: no opening sentence");
            assert_eq!(of("-- KEYS:").matches("(Keys::").count(), keys, "{name}: KEYS");
            of("-- Returns:");
            of("-- Effects:");
            for &(lib, source) in PARTS {
                let used = header[0].split(' ').any(|word| word == format!("lib/{lib}"));
                assert_eq!(used, script.text.source.contains(source), "{name}: uses lib/{lib}");
            }
            // Bound at the top, and never numbered again.
            let body: Vec<&str> = text.lines().skip(header.len()).collect();
            let bound =
                body.iter().filter(|line| line.contains("= KEYS[") || line.contains("= ARGV[")).count();
            let numbered =
                body.iter().filter(|line| line.contains("KEYS[") || line.contains("ARGV[")).count();
            assert_eq!(bound, numbered, "{name}: KEYS and ARGV are bound at the top");
            // A script for many locks goes through KEYS.
            let of_many = text.contains("ipairs(KEYS)") || text.contains("#KEYS");
            assert_eq!(highest(&text, "KEYS["), if of_many { 0 } else { keys }, "{name}: keys used");
            assert_eq!((script.keys)(&of_lock).len(), keys, "{name}: keys passed");
            let fixed = highest(&text, "ARGV[");
            assert_eq!(fixed, arguments, "{name}: arguments used");
        }
    }

    #[cfg(feature = "redisson")]
    #[test]
    fn every_file_is_a_script_that_is_used() {
        let mut files = Vec::new();
        for folder in ["", "line/", "redisson/", "plain/", "hold/"] {
            let path = format!("{}/scripts/{folder}", env!("CARGO_MANIFEST_DIR"));
            for entry in std::fs::read_dir(path).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                if name.ends_with(".lua") {
                    files.push(format!("{folder}{name}"));
                }
            }
        }
        let mut used: Vec<&str> = all().iter().map(|(script, ..)| script.name).collect();
        used.push("life.lua"); // about a server, and no lock
        files.sort();
        used.sort_unstable();
        assert_eq!(files, used);
    }

    const PARTS: &[(&str, &str)] = &[
        ("clock", CLOCK),
        ("describe", DESCRIBE),
        ("grant", GRANT),
        ("hold", HOLD),
        ("holders", HOLDERS),
        ("holds", HOLDS),
        ("kind", KIND),
        ("line", LINE),
        ("owner", OWNER),
        #[cfg(feature = "redisson")]
        ("redisson", REDISSON),
        ("redisson_turn", REDISSON_TURN),
    ];

    /// The highest number in `KEYS[n]` or `ARGV[n]`.
    fn highest(text: &str, word: &str) -> usize {
        let numbers = text.split(word).skip(1).filter_map(|rest| rest.split(']').next()?.parse().ok());
        numbers.max().unwrap_or(0)
    }
}
