//! The Lua files, each joined with the parts that it includes, and the arguments of a script.

use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use fairlock_core::OwnerId;
use fairlock_core::backend::{Acquire, RequestId, Since, Wait};
use redis::Cmd;

#[cfg(test)]
pub(crate) use tests::all;

use super::keys::{Keys, KeysOfScript};
use crate::net::{Hears, Listeners};

/// One script: a file of `scripts/`, joined with the parts that it includes.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) name: &'static str,
    /// Its KEYS, in order.
    pub(crate) keys: fn(&Keys) -> KeysOfScript<'_>,
    pub(crate) text: Text,
    /// Whether a durable client wraps it.
    pub(crate) is_wrapped: bool,
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
        let body = joined(&[ANSWER, file, REPLY].concat());
        let text = Text::new([NO_LIFE, &body].concat());
        Script { name, keys, text, is_wrapped: false, body, wrapped: OnceLock::new() }
    }

    fn durable(self) -> Script {
        Script { is_wrapped: true, ..self }
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

/// The text with each `@include` replaced by those parts of its file that define the names behind the colon.
pub(crate) fn joined(text: &str) -> String {
    join(text, &mut Vec::new())
}

/// Each part comes once, after the parts that it includes.
fn join(text: &str, present: &mut Vec<&'static str>) -> String {
    let mut joined = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let Some((file, names)) = include(line) else {
            joined.push_str(line);
            continue;
        };
        let is_named =
            |part: &str| names == "-" || names.split(", ").any(|name| defined(part).any(|own| own == name));
        for part in parts_of(file).filter(|part| is_named(part)) {
            if !present.contains(&part) {
                present.push(part);
                joined.push_str(&join(part, present));
            }
        }
    }
    joined
}

/// The file that the line includes, and behind a colon the names that it takes from there. (A case has the names of its script: `-`.)
fn include(line: &str) -> Option<(&str, &str)> {
    line.trim().strip_prefix("-- @include ")?.split_once(": ")
}

/// The parts of a file. Each stands below a line `-- @part`; a file without such a line is one part.
fn parts_of(file: &str) -> impl Iterator<Item = &'static str> {
    let text = FILES.iter().find(|(name, _)| *name == file).map_or("", |(_, text)| text);
    text.split("\n-- @part\n")
}

/// The functions, constants and numbers of a part.
fn defined(part: &str) -> impl Iterator<Item = &str> {
    let locals = part.lines().filter_map(|line| line.strip_prefix("local "));
    let names = locals.filter_map(|local| local.trim_start_matches("function ").split(['(', '=']).next());
    names.flat_map(|names| names.split(',').map(str::trim))
}

macro_rules! files {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../scripts/", $name, ".lua")))),*]
    };
}

const FILES: [(&str, &str); 23] = files!(
    "case/busy" "case/give_beside" "case/give_free" "case/give_part" "case/hand_on" "case/newer" "case/queue" "case/renew" "case/take_free" "case/take_part"
    "lib/clock" "lib/format" "lib/holders" "lib/holds" "lib/life" "lib/look" "lib/note" "lib/plan" "lib/queue" "lib/redisson" "lib/rule" "lib/tell" "lib/write"
);

/// What a client that is not durable has in place of `scripts/lib/life.lua`.
const NO_LIFE: &str = "local grace_left, kept = nil, 0\n";
/// The script is a function, to whose reply [`REPLY`] adds what the client has to send, and the rest of a grace.
const ANSWER: &str = "-- @include lib/tell: publish\nlocal function answer()\n";
const REPLY: &str = "
end
local reply = answer()
if untold then reply = { 'untold', untold, reply } end
if not grace_left or type(reply) == 'table' and reply.err then return reply end
return { 'grace', grace_left, reply }
";

macro_rules! script {
    ($name:ident, $file:literal, $keys:ident $(, $durable:ident)?) => {
        pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
            let text = include_str!(concat!("../../scripts/", $file));
            Script::new($file, Keys::$keys, text)$(.$durable())?
        });
    };
}

script!(HAND_OFF_ACQUIRE, "hand_off/acquire.lua", of_queue, durable);
script!(HAND_OFF_RENEW, "hand_off/renew.lua", of_queue, durable);
script!(HAND_OFF_RENEW_HOLDS, "hand_off/renew_holds.lua", of_hold, durable);
script!(HAND_OFF_RECLAIM, "hand_off/reclaim.lua", of_queue, durable);
script!(HAND_OFF_RELEASE, "hand_off/release.lua", of_queue, durable);
script!(HAND_OFF_ADOPT, "hand_off/adopt.lua", of_queue, durable);
script!(HAND_OFF_WITHDRAW, "hand_off/withdraw.lua", of_queue, durable);
script!(HAND_OFF_FORCE_RELEASE, "hand_off/force_release.lua", of_queue, durable);
script!(HAND_OFF_INSPECT, "hand_off/inspect.lua", of_queue);

macro_rules! of_redisson {
    ($($item:item)*) => { $(#[cfg(feature = "redisson")] $item)* };
}

of_redisson! {
    script!(REDISSON_ACQUIRE, "redisson/acquire.lua", in_redisson);
    script!(REDISSON_RENEW, "redisson/renew.lua", in_redisson);
    script!(REDISSON_RELEASE, "redisson/release.lua", in_redisson);
    script!(REDISSON_ADOPT, "redisson/adopt.lua", in_redisson);
    script!(REDISSON_WITHDRAW, "redisson/withdraw.lua", in_redisson);
    script!(REDISSON_FORCE_RELEASE, "redisson/force_release.lua", in_redisson);
    script!(REDISSON_RENEW_HOLDS, "redisson/renew_holds.lua", without_queue);
    script!(INSPECT, "redisson/inspect.lua", redisson);
}

/// One argument of a script.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument<'a> {
    Text(&'a str),
    /// In decimal.
    Number(u64),
    /// In sixteen hexadecimal digits.
    #[cfg(any(feature = "redisson", test))]
    Request(RequestId),
    /// `<owner>:<request>`
    Member(&'a OwnerId, RequestId),
    /// What is known of the listeners, as letters and a time behind a `u`, see `scripts/hand_off/acquire.lua`. Whether the place's request
    /// waits, and whether its client hears.
    Options {
        waits: bool,
        hears: Option<Hears>,
    },
    /// A letter and a number, see there.
    Condition(char, u64),
    /// The channel of the (first) lock, see [`Keys::channel`].
    #[cfg_attr(
        not(feature = "redisson"),
        allow(dead_code, reason = "our own scripts publish on a client's channel")
    )]
    Channel,
    /// The end of the attempt, see [`Pool::attempt_end`](crate::net::Pool::attempt_end): microseconds since 1970 in sixteen digits,
    /// which last until the year 2286 and which scripts compare as texts.
    BeginBy,
}

impl Argument<'_> {
    /// Appends the argument. `known` is asked for [`BeginBy`](Argument::BeginBy) and [`Options`](Argument::Options) alone.
    pub(super) fn add_to(&self, command: &mut Cmd, keys: &Keys, known: &impl Known) {
        match self {
            Argument::Text(text) => command.arg(text),
            Argument::Number(number) => command.arg(number),
            #[cfg(any(feature = "redisson", test))]
            Argument::Request(request) => command.arg(request.to_string()),
            Argument::Member(owner, request) => command.arg(format!("{owner}:{request}")),
            Argument::Options { waits, hears } => {
                let listeners = known.listeners();
                let letters = letters(*waits, listeners != Listeners::Unknown, known.is_deaf(*hears));
                match listeners {
                    Listeners::KnownSince(time) => command.arg(format!("{letters}u{time}")),
                    _ => command.arg(letters),
                }
            }
            Argument::Condition(letter, number) => command.arg(format!("{letter}{number}")),
            Argument::Channel => command.arg(keys.channel()),
            Argument::BeginBy => {
                command.arg(format!("{:016}", known.attempt_end().min(9_999_999_999_999_999)))
            }
        };
    }
}

/// The condition of the request, as far as it is one of a request that waits, or that does not.
pub(crate) fn condition(ask: &Acquire<'_>) -> Option<Argument<'static>> {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    match (ask.place.wait, ask.condition.not_granted, ask.condition.most_ahead) {
        (Wait::No, Some(Since::PeriodBegan(period)), _) => Some(Argument::Condition('e', micros(period))),
        (Wait::No, Some(Since::Ago(time)), _) => Some(Argument::Condition('a', micros(time))),
        (Wait::No, None, _) | (_, _, None) => None,
        (_, _, Some(most)) => Some(Argument::Condition('q', most)),
    }
}

/// What is known of the server that a call is packed for. It is asked when the call is packed, not when the call is made: a connection
/// may have been lost in between.
pub(crate) trait Known {
    /// Until when the server may begin what the script is for.
    fn attempt_end(&self) -> u64;

    fn listeners(&self) -> Listeners;

    /// Whether a client may get no messages now. Not if it never had a subscription.
    fn is_deaf(&self, hears: Option<Hears>) -> bool;
}

fn letters(waits: bool, knows_subscribers: bool, is_deaf: bool) -> &'static str {
    const LETTERS: [&str; 8] = ["", "w", "s", "ws", "d", "wd", "sd", "wsd"];
    LETTERS[usize::from(waits) + 2 * usize::from(knows_subscribers) + 4 * usize::from(is_deaf)]
}

/// Milliseconds, at least one: a lease or a wait of zero would be none.
pub(crate) fn millis(time: Duration) -> u64 {
    /// Three hundred years: exact in Lua's doubles, and more than any wait lasts.
    const MOST: u64 = 10_000_000_000_000;
    u64::try_from(time.as_millis()).unwrap_or(MOST).clamp(1, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_backend::named;
    use fairlock_core::backend::LockId;
    use fairlock_core::{LockKind, LockName};

    /// Each script, and how many keys and arguments its caller passes (the fewest for many locks, the most for one).
    pub(crate) fn all() -> Vec<(&'static Script, usize, usize)> {
        #[cfg_attr(not(feature = "redisson"), expect(unused_mut, reason = "nothing is added"))]
        let mut all: Vec<(&'static Script, usize, usize)> = vec![
            (&HAND_OFF_ACQUIRE, 4, 10),
            (&HAND_OFF_RENEW, 4, 3),
            (&HAND_OFF_RENEW_HOLDS, 2, 3),
            (&HAND_OFF_RECLAIM, 4, 8),
            (&HAND_OFF_RELEASE, 4, 5),
            (&HAND_OFF_ADOPT, 4, 5),
            (&HAND_OFF_WITHDRAW, 4, 3),
            (&HAND_OFF_FORCE_RELEASE, 4, 7),
            (&HAND_OFF_INSPECT, 4, 5),
        ];
        #[cfg(feature = "redisson")]
        all.extend::<[(&'static Script, usize, usize); 8]>([
            (&REDISSON_ACQUIRE, 4, 10),
            (&REDISSON_RENEW, 4, 1),
            (&REDISSON_RELEASE, 4, 4),
            (&REDISSON_ADOPT, 4, 6),
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
                .take_while(|line| include(line).is_none())
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
        let parts = FILES.iter().flat_map(|(name, _)| parts_of(name).map(|part| (*name, part.to_owned())));
        for (file, text) in files.chain(parts).filter(|(file, _)| !is_case(file)) {
            let known =
                includes(&text).filter(|(file, _)| FILES.iter().any(|(name, _)| name == file)).count();
            assert_eq!(text.matches("@include").count(), known, "{file}: each part is there");
            // A case stands in its script, and uses what that has included.
            let cases =
                includes(&text).filter(|(file, _)| is_case(file)).flat_map(|(case, _)| parts_of(case));
            let whole = cases.fold(text.clone(), |whole, case| whole + case);
            let mut told: Vec<_> = includes(&text)
                .filter(|(file, _)| !is_case(file))
                .flat_map(|(file, names)| names.split(", ").map(move |name| (file, name)))
                .collect();
            // What a life defines stands in front of all scripts.
            let of_others = FILES.iter().filter(|(name, _)| !is_case(name) && *name != "lib/life");
            let mut used: Vec<_> = of_others
                .flat_map(|(name, _)| parts_of(name).map(move |part| (*name, part)))
                .flat_map(|(name, part)| defined(part).map(move |word| (name, part, word)))
                .filter(|(.., word)| uses(&whole, word))
                // The name of a number may be that of a local as well.
                .filter(|(name, part, word)| {
                    told.contains(&(*name, *word)) || !part.contains(&format!("local {word} ="))
                })
                .map(|(name, _, word)| (name, word))
                .collect();
            told.sort_unstable();
            told.dedup();
            used.sort_unstable();
            assert_eq!(told, used, "{file}");
        }
    }

    #[test]
    fn each_part_that_is_included_is_there_once() {
        for (script, ..) in all() {
            let (source, text, name) = (&script.text.source, file(script), script.name);
            assert!(!source.contains("@include"), "{name}");
            for (_, names) in includes(&text).filter(|(_, names)| *names != "-") {
                for word in names.split(", ") {
                    assert_eq!(defined(source).filter(|own| *own == word).count(), 1, "{name}: {word}");
                }
            }
        }
    }

    fn is_case(file: &str) -> bool {
        file.starts_with("case/")
    }

    fn includes(text: &str) -> impl Iterator<Item = (&str, &str)> {
        text.lines().filter_map(include)
    }

    /// Whether the code reads this name, and does not define it.
    fn uses(text: &str, name: &str) -> bool {
        let is_part = |c: char| c.is_alphanumeric() || "_.'".contains(c);
        let code = text.lines().map(|line| line.split_once("-- ").map_or(line, |(code, _)| code));
        let found = code.flat_map(|line| line.match_indices(name).map(move |(at, _)| line.split_at(at)));
        let mut found = found
            .filter(|(before, rest)| !before.ends_with(is_part) && !rest[name.len()..].starts_with(is_part));
        let is_own =
            text.contains(&format!("local function {name}(")) || defined(text).any(|own| own == name);
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

    /// The end of an attempt, and the fault since when listeners are known.
    impl Known for (u64, Option<u64>) {
        fn attempt_end(&self) -> u64 {
            self.0
        }

        fn listeners(&self) -> Listeners {
            self.1.map_or(Listeners::Known, Listeners::KnownSince)
        }

        fn is_deaf(&self, hears: Option<Hears>) -> bool {
            hears == Some(Hears::Nothing)
        }
    }

    #[test]
    fn each_argument_is_one_word_of_the_command() {
        let (owner, request) = (OwnerId::new("client:1"), RequestId::new(0xc0ffee));
        let first = Keys::of(&named("a", LockKind::Plain)).unwrap();
        for (time, digits) in [
            (0, "0000000000000000"),
            (1_790_000_000_000_001, "1790000000000001"),
            (u64::MAX, "9999999999999999"),
        ] {
            let arguments = [
                Argument::Text("a b\r\n$3\r\n"),
                Argument::Number(u64::MAX),
                Argument::Request(request),
                Argument::Member(&owner, request),
                Argument::Options { waits: true, hears: None },
                Argument::Options { waits: false, hears: Some(Hears::Nothing) },
                Argument::Channel,
                Argument::BeginBy,
                Argument::Text(""),
            ];
            let mut written = redis::cmd("EVALSHA");
            arguments.iter().for_each(|argument| argument.add_to(&mut written, &first, &(time, Some(9))));
            let mut command = redis::cmd("EVALSHA");
            command.arg("a b\r\n$3\r\n").arg(u64::MAX.to_string());
            command.arg("0000000000c0ffee").arg("client:1:0000000000c0ffee").arg("wsu9").arg("sdu9");
            command.arg("redisson_lock__channel:{a}").arg(digits).arg("");
            assert_eq!(written.get_packed_command(), command.get_packed_command());
        }
    }

    #[test]
    fn times_are_never_zero_and_exact_in_lua() {
        assert_eq!(
            [Duration::ZERO, Duration::from_secs(2), Duration::MAX].map(millis),
            [1, 2000, 10_000_000_000_000]
        );
    }
}
