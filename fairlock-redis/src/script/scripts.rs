//! The Lua files, joined with the parts that they include.

use std::sync::{LazyLock, OnceLock};

use super::keys::{Keys, KeysOfScript};

/// One script: a file of `scripts/`, joined with the parts that it includes.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) name: &'static str,
    /// Its KEYS, in order.
    pub(crate) keys: fn(&Keys) -> KeysOfScript<'_>,
    pub(crate) text: Text,
    body: String,
    /// The script behind another text than [`NO_LIFE`].
    wrapped: OnceLock<Text>,
}

/// What the server runs.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) source: String,
    /// Names the script to the server.
    pub(crate) sha: String,
}

impl Text {
    fn new(source: String) -> Text {
        Text { sha: redis::Script::new(&source).get_hash().to_owned(), source }
    }
}

impl Script {
    fn new(name: &'static str, keys: fn(&Keys) -> KeysOfScript<'_>, file: &str) -> Script {
        let body = [ANSWER, &joined(file, &mut Vec::new()), REPLY].concat();
        let text = Text::new([NO_LIFE, &body].concat());
        Script { name, keys, text, body, wrapped: OnceLock::new() }
    }

    /// What the script asks for, in words for an error: the name of its file.
    pub(crate) fn asked(&self) -> String {
        let file = self.name.rsplit('/').next().unwrap_or_default();
        file.trim_end_matches(".lua").replace('_', " ")
    }

    /// The script behind the text of a durable client, which is always the same.
    pub(crate) fn wrapped(&self, life: &str) -> &Text {
        self.wrapped.get_or_init(|| Text::new([life, &self.body].concat()))
    }
}

/// The file with each `@include` replaced by its part. Each part comes once, after the parts that it includes.
fn joined(file: &str, present: &mut Vec<&'static str>) -> String {
    let mut text = String::with_capacity(file.len());
    for line in file.split_inclusive('\n') {
        let Some((name, _)) = line.trim_start().strip_prefix(INCLUDE).and_then(|rest| rest.split_once(':'))
        else {
            text.push_str(line);
            continue;
        };
        let part = PARTS.iter().find(|(part, _)| *part == name && !present.contains(part));
        if let Some((name, part)) = part {
            present.push(name);
            text.push_str(&joined(part, present));
        }
    }
    text
}

/// The name of a part follows, and behind a colon what the file uses of it. (A case uses the locals of its script.)
const INCLUDE: &str = "-- @include ";

macro_rules! parts {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../scripts/", $name, ".lua")))),*]
    };
}

const PARTS: [(&str, &str); 40] = parts!(
    "case/busy" "case/give_beside" "case/give_free" "case/give_part" "case/hand_on" "case/newer" "case/queue" "case/renew" "case/take_free" "case/take_part"
    "format/grant" "format/hold" "format/member" "format/place" "format/queue"
    "lib/channels" "lib/clock" "lib/ends" "lib/hold" "lib/holders" "lib/holds" "lib/last_grant" "lib/late" "lib/layout" "lib/lease" "lib/look" "lib/look_after"
    "lib/numbers" "lib/owner" "lib/plan" "lib/present" "lib/queue" "lib/queue_clock" "lib/redisson" "lib/rule" "lib/sequence"
    "lib/tell" "lib/text" "lib/write" "lib/write_grants"
);

/// What a client that is not durable has in place of `scripts/lib/life.lua`.
const NO_LIFE: &str = "local grace_left, kept = nil, 0\n";
/// The script is a function, to whose reply [`REPLY`] adds what the client has to send, and the rest of a grace.
const ANSWER: &str = concat!(include_str!("../../scripts/lib/publish.lua"), "local function answer()\n");
const REPLY: &str = "
end
local reply = answer()
if untold then reply = { 'untold', untold, reply } end
if not grace_left or type(reply) == 'table' and reply.err then return reply end
return { 'grace', grace_left, reply }
";
macro_rules! script {
    ($name:ident, $file:literal, $keys:ident) => {
        pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
            let text = include_str!(concat!("../../scripts/", $file));
            Script::new($file, Keys::$keys, text)
        });
    };
}

script!(HAND_OFF_ACQUIRE, "hand_off/acquire.lua", of_queue);
script!(HAND_OFF_RENEW, "hand_off/renew.lua", of_queue);
script!(HAND_OFF_RENEW_HOLDS, "hand_off/renew_holds.lua", of_hold);
script!(HAND_OFF_RECLAIM, "hand_off/reclaim.lua", of_queue);
script!(HAND_OFF_RELEASE, "hand_off/release.lua", of_queue);
script!(HAND_OFF_KEEP, "hand_off/keep.lua", of_queue);
script!(HAND_OFF_WITHDRAW, "hand_off/withdraw.lua", of_queue);
script!(HAND_OFF_FORCE_RELEASE, "hand_off/force_release.lua", of_queue);
script!(HAND_OFF_INSPECT, "hand_off/inspect.lua", of_queue);

macro_rules! of_redisson {
    ($($item:item)*) => { $(#[cfg(feature = "redisson")] $item)* };
}

of_redisson! {
    script!(REDISSON_ACQUIRE, "redisson/acquire.lua", in_redisson);
    script!(REDISSON_RENEW, "redisson/renew.lua", in_redisson);
    script!(REDISSON_RELEASE, "redisson/release.lua", in_redisson);
    script!(REDISSON_KEEP, "redisson/keep.lua", in_redisson);
    script!(REDISSON_WITHDRAW, "redisson/withdraw.lua", in_redisson);
    script!(REDISSON_FORCE_RELEASE, "redisson/force_release.lua", in_redisson);
    script!(REDISSON_RENEW_HOLDS, "redisson/renew_holds.lua", without_queue);
    script!(INSPECT, "redisson/inspect.lua", redisson);
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
            (&HAND_OFF_ACQUIRE, 4, 9),
            (&HAND_OFF_RENEW, 4, 3),
            (&HAND_OFF_RENEW_HOLDS, 2, 3),
            (&HAND_OFF_RECLAIM, 4, 8),
            (&HAND_OFF_RELEASE, 4, 5),
            (&HAND_OFF_KEEP, 4, 6),
            (&HAND_OFF_WITHDRAW, 4, 4),
            (&HAND_OFF_FORCE_RELEASE, 4, 7),
            (&HAND_OFF_INSPECT, 4, 5),
        ];
        #[cfg(feature = "redisson")]
        all.extend::<[(&'static Script, usize, usize); 8]>([
            (&REDISSON_ACQUIRE, 4, 9),
            (&REDISSON_RENEW, 4, 1),
            (&REDISSON_RELEASE, 4, 4),
            (&REDISSON_KEEP, 4, 7),
            (&REDISSON_WITHDRAW, 4, 6),
            (&REDISSON_FORCE_RELEASE, 4, 2),
            (&REDISSON_RENEW_HOLDS, 2, 2),
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
            assert!(header[0].starts_with("-- ") && header[0].ends_with('.'), "{name}: no opening sentence");
            assert_eq!(of("-- KEYS:").matches("(Keys::").count(), keys, "{name}: KEYS");
            of("-- Returns:");
            of("-- Effects:");
            // Bound at the top, and never numbered again.
            let body: Vec<&str> = text.lines().skip(header.len()).collect();
            let is_numbered = |line: &&str| {
                (1..9).any(|n| {
                    ["KEYS", "ARGV"].map(|of| format!("{of}[{n}]")).iter().any(|of| line.contains(of))
                })
            };
            let numbered = body.iter().filter(|line| is_numbered(line)).count();
            let bound = body
                .iter()
                .take_while(|line| !line.starts_with(INCLUDE))
                .filter(|line| is_numbered(line))
                .count();
            assert_eq!(bound, numbered, "{name}: KEYS and ARGV are bound at the top");
            // A script for many locks goes through KEYS.
            let of_many = text.contains("ipairs(KEYS)") || text.contains("#KEYS");
            assert_eq!(highest(&text, "KEYS["), if of_many { 0 } else { keys }, "{name}: keys used");
            assert_eq!((script.keys)(&of_lock).len(), keys, "{name}: keys passed");
            let fixed = highest(&text, "ARGV[");
            assert_eq!(fixed, arguments, "{name}: arguments used");
        }
    }

    #[test]
    fn every_include_names_what_its_file_uses_of_the_part() {
        let files = all().into_iter().map(|(script, ..)| (script.name, file(script)));
        let parts = PARTS.map(|(name, text)| (name, text.to_owned()));
        let is_case = |name: &str| name.starts_with("case/");
        for (file, text) in files.chain(parts).filter(|(file, _)| !is_case(file)) {
            let known = PARTS.iter().filter(|(name, _)| !told(&text, name).is_empty()).count();
            assert_eq!(text.matches("@include").count(), known, "{file}: each part is there");
            // A case stands in its script, and uses what that has included.
            let cases = PARTS.iter().filter(|(name, _)| is_case(name) && !told(&text, name).is_empty());
            let whole = cases.fold(text.clone(), |whole, (_, case)| whole + case);
            for (name, part) in PARTS.into_iter().filter(|(name, _)| *name != file && !is_case(name)) {
                let (told, text) = (told(&text, name), &whole);
                // The name of a number may be that of a local as well.
                let counts = |word: &&str| told.contains(word) || !part.contains(&format!("local {word} ="));
                let used: Vec<&str> =
                    defined(part).filter(|word| uses(text, word)).filter(|word| counts(word)).collect();
                assert_eq!(told, used, "{file}: {name}");
            }
        }
    }

    #[test]
    fn each_part_that_is_included_is_there_once() {
        for (script, ..) in all() {
            let (text, name) = (file(script), script.name);
            assert!(!script.text.source.contains("@include"), "{name}");
            for word in PARTS.iter().flat_map(|(part, _)| told(&text, part)).filter(|word| *word != "-") {
                assert_eq!(
                    defined(&script.text.source).filter(|own| *own == word).count(),
                    1,
                    "{name}: {word}"
                );
            }
        }
    }

    /// The names that the file's `@include` of this part lists.
    fn told<'a>(text: &'a str, part: &str) -> Vec<&'a str> {
        let include = format!("{INCLUDE}{part}:");
        let mut lines = text.lines().map(str::trim_start).skip_while(|line| !line.starts_with(&include));
        let first = lines.next().map(|line| &line[include.len()..]);
        let more = lines.map_while(|line| line.strip_prefix("--   "));
        let names = first.into_iter().chain(more).flat_map(|names| names.split([',', ' ']));
        names.filter(|name| !name.is_empty()).collect()
    }

    /// The functions, constants and numbers of a part.
    fn defined(part: &str) -> impl Iterator<Item = &str> {
        let names = part.lines().filter_map(|line| line.strip_prefix("local "));
        names.flat_map(|rest| match rest.strip_prefix("function ") {
            Some(function) => function.split('(').take(1).collect::<Vec<_>>(),
            None => rest.split('=').take(1).flat_map(|names| names.trim().split(", ")).collect(),
        })
    }

    /// Whether the code reads this name, and does not define it.
    fn uses(text: &str, name: &str) -> bool {
        let is_part = |c: char| c.is_alphanumeric() || "_.'".contains(c);
        let code = text.lines().map(|line| line.split_once("-- ").map_or(line, |(code, _)| code));
        let found = code.flat_map(|line| line.match_indices(name).map(move |(at, _)| line.split_at(at)));
        let mut found = found
            .filter(|(before, rest)| !before.ends_with(is_part) && !rest[name.len()..].starts_with(is_part));
        let own = [format!("local function {name}("), format!("local {name} =")];
        let is_own = own.iter().any(|own| text.contains(own));
        !is_own && found.next().is_some()
    }

    #[cfg(feature = "redisson")]
    #[test]
    fn every_file_is_a_script_that_is_used() {
        let mut files = Vec::new();
        for folder in ["", "hand_off/", "redisson/"] {
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

    /// The highest number in `KEYS[n]` or `ARGV[n]`.
    fn highest(text: &str, word: &str) -> usize {
        let numbers = text.split(word).skip(1).filter_map(|rest| rest.split(']').next()?.parse().ok());
        numbers.max().unwrap_or(0)
    }
}
