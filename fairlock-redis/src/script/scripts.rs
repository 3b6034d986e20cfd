//! The scripts: the Lua files, each joined with the parts that it includes; the keys of a lock, which they get; and their arguments.
//!
//! | what | name without a brace | name with `{` |
//! | --- | --- | --- |
//! | lock (hash) | `orders` | `a{b}` |
//! | queue (list, shared with Redisson) | `redisson_lock_queue:{orders}` | `redisson_lock_queue:a{b}` |
//! | timeouts (sorted set, shared) | `redisson_lock_timeout:{orders}` | `redisson_lock_timeout:a{b}` |
//! | waiters: our queue (sorted set) | `fairlock_queue:{orders}` | `fairlock_queue_raw:a{b}` |
//! | record (hash, ours): sequence, queue clock, places | `fairlock_record:{orders}` | `fairlock_record_raw:a{b}` |
//! | ends of holds that take a part (sorted set, ours) | `fairlock_ends:{orders}` | `fairlock_ends_raw:a{b}` |
//! | channel (shared) | `redisson_lock__channel:{orders}` | `redisson_lock__channel:a{b}` |
//! | channel of a fair waiter (shared) | the same, `:` and the owner | |
//! | channel of a client (ours) | `fairlock:<client uuid>` | |
//! | life of the server (hash, ours) | `fairlock_life` | |
//! | in a cluster, of the lock's hash slot | `fairlock_life:{<tag>}` | |
//!
//! Redisson's rule gives the locks `a` and `{a}` one queue; the rule for our own keys keeps them apart. All keys of a
//! lock have one hash slot, unless the braces in its name don't pair: a cluster cannot keep such a lock.

use std::fmt;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use fairlock_core::backend::{Acquire, BackendError, BackendErrorKind, LockId, RequestId, Since, Wait};
use fairlock_core::{LockKind, OwnerId};
use parking_lot::Mutex;
use redis::Cmd;
use smallvec::{SmallVec, smallvec};

#[cfg(test)]
pub(crate) use tests::all;

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
        let is_named = |part: &str| names.split(", ").any(|name| defined(part).any(|own| own == name));
        for part in parts_of(file).filter(|part| is_named(part)) {
            if !present.contains(&part) {
                present.push(part);
                joined.push_str(&join(part, present));
            }
        }
    }
    joined
}

/// The file that the line includes, and behind a colon the names that it takes from there.
fn include(line: &str) -> Option<(&str, &str)> {
    line.trim().strip_prefix("-- @include ")?.split_once(": ")
}

/// The parts of a file. Each stands below a line `-- @part`; a file without such a line is one part.
fn parts_of(file: &str) -> impl Iterator<Item = &'static str> {
    let text = FILES.iter().find(|(name, _)| *name == file).map_or("", |(_, text)| text);
    text.split("\n-- @part\n")
}

/// The functions, constants and numbers of a part, or the name of a case.
fn defined(part: &str) -> impl Iterator<Item = &str> {
    let locals =
        part.lines().filter_map(|line| line.strip_prefix("local ").or_else(|| line.strip_prefix("-- Case ")));
    let names =
        locals.filter_map(|local| local.trim_start_matches("function ").split(['(', '=', ':']).next());
    names.flat_map(|names| names.split(',').map(str::trim))
}

macro_rules! files {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../scripts/", $name, ".lua")))),*]
    };
}

const FILES: [(&str, &str); 12] = files!(
    "case/hold" "case/take"
    "lib/clock" "lib/format" "lib/holders" "lib/holds" "lib/life" "lib/queue" "lib/redisson" "lib/rule" "lib/tell" "lib/write"
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

/// The prefix of a client's channel; the client's UUID follows.
const CLIENT_CHANNEL_PREFIX: &str = "fairlock:";

/// Prefixes of keys that belong to other locks. A lock with such a name would overwrite them.
const TAKEN: [&str; 6] = [
    "fairlock_queue",
    "fairlock_record",
    "fairlock_ends",
    "fairlock_life",
    "redisson_lock_queue",
    "redisson_lock_timeout",
];

/// The keys of one lock and its channel, spelled once.
#[derive(Debug)]
pub(crate) struct Keys {
    /// One after the other, and where each ends: one allocation, since a lock that is seldom used is spelled for each use.
    texts: String,
    ends: [usize; 7],
    kind: LockKind,
}

/// The keys of a script, in their order.
pub(crate) type KeysOfScript<'k> = SmallVec<[&'k str; 4]>;

impl Keys {
    /// # Errors
    /// `InvalidName` for a name that is a key of another lock.
    pub(crate) fn of(lock: &LockId) -> Result<Keys, BackendError> {
        let name = lock.name.as_str();
        if let Some(prefix) = TAKEN.iter().find(|prefix| name.starts_with(**prefix)) {
            let reason = format!("names that begin with {prefix} are keys of other locks");
            return Err(BackendError::new(BackendErrorKind::InvalidName, reason));
        }
        // Redisson's rule for the shared keys. Our own keys have the same slot, and no two names have one key.
        let [raw, before, after] = if name.contains('{') { ["_raw", ":", ""] } else { ["", ":{", "}"] };
        let mut texts = String::with_capacity(7 * (name.len() + 25));
        let ends = [
            [name, "", "", "", ""],
            ["fairlock_queue", raw, before, name, after],
            ["fairlock_record", raw, before, name, after],
            ["fairlock_ends", raw, before, name, after],
            ["redisson_lock_queue", "", before, name, after],
            ["redisson_lock_timeout", "", before, name, after],
            ["redisson_lock__channel", "", before, name, after],
        ]
        .map(|parts| {
            texts.extend(parts);
            texts.len()
        });
        Ok(Keys { texts, ends, kind: lock.kind })
    }

    fn at(&self, index: usize) -> &str {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.texts[start..self.ends[index]]
    }

    /// The lock's own key, which is its name.
    pub(crate) fn lock(&self) -> &str {
        self.at(0)
    }

    pub(crate) fn waiters(&self) -> &str {
        self.at(1)
    }

    pub(crate) fn record(&self) -> &str {
        self.at(2)
    }

    pub(crate) fn ends(&self) -> &str {
        self.at(3)
    }

    pub(crate) fn queue(&self) -> &str {
        self.at(4)
    }

    pub(crate) fn timeouts(&self) -> &str {
        self.at(5)
    }

    /// The channel on which the release of a plain lock is published.
    pub(crate) fn channel(&self) -> &str {
        self.at(6)
    }

    /// The kind that was asked for.
    pub(crate) fn kind(&self) -> LockKind {
        self.kind
    }

    /// Whether these are the keys of such a lock.
    fn are_of(&self, lock: &LockId) -> bool {
        self.kind == lock.kind && self.lock() == lock.name.as_str()
    }

    /// Whether a hold may take a part of the lock's units.
    fn has_parts(&self) -> bool {
        self.kind.capacity() > 1
    }

    /// All keys, and the type of each, as TYPE names it.
    pub(crate) fn typed(&self) -> [(&str, &str); 6] {
        [
            (self.lock(), "hash"),
            (self.queue(), "list"),
            (self.timeouts(), "zset"),
            (self.waiters(), "zset"),
            (self.record(), "hash"),
            (self.ends(), "zset"),
        ]
    }

    /// The keys of the scripts in `hand_off/`, in their order. A lock of one unit has no parts, and so no ends.
    pub(crate) fn of_queue(&self) -> KeysOfScript<'_> {
        match self.has_parts() {
            false => smallvec![self.lock(), self.waiters(), self.record()],
            true => smallvec![self.lock(), self.waiters(), self.record(), self.ends()],
        }
    }

    /// The keys of the script that shows Redisson's queue, in their order.
    #[cfg(any(feature = "redisson", test))]
    pub(crate) fn redisson(&self) -> KeysOfScript<'_> {
        smallvec![self.lock(), self.record(), self.queue(), self.timeouts()]
    }

    /// The keys of the other scripts in `redisson/`, in their order. A plain lock has no queue.
    #[cfg(any(feature = "redisson", test))]
    pub(crate) fn in_redisson(&self) -> KeysOfScript<'_> {
        if self.kind == LockKind::Plain { self.without_queue() } else { self.redisson() }
    }

    /// The keys of a hold by these scripts.
    #[cfg(any(feature = "redisson", test))]
    pub(crate) fn without_queue(&self) -> KeysOfScript<'_> {
        smallvec![self.lock(), self.record()]
    }

    /// The keys of a hold, for the script that touches holds alone.
    pub(crate) fn of_hold(&self) -> KeysOfScript<'_> {
        if self.has_parts() { smallvec![self.lock(), self.ends()] } else { smallvec![self.lock()] }
    }
}

/// Patterns for SCAN's MATCH that find the queues, and the ends of holds that take a part, of locks whose name matches `pattern`.
pub(crate) fn queues(pattern: &str) -> [String; 4] {
    [
        format!("fairlock_queue:{{{pattern}}}"),
        format!("fairlock_queue_raw:{pattern}"),
        format!("fairlock_ends:{{{pattern}}}"),
        format!("fairlock_ends_raw:{pattern}"),
    ]
}

/// The patterns for Redisson's queues.
#[cfg(any(feature = "redisson", test))]
pub(crate) fn redisson_queues(pattern: &str) -> [String; 2] {
    [format!("redisson_lock_queue:{{{pattern}}}"), format!("redisson_lock_queue:{pattern}")]
}

/// The name of the lock that this queue, set of ends, or queue of Redisson's belongs to.
pub(crate) fn name_of_queue(key: &str) -> Option<&str> {
    let after = |prefixes: &[&str]| prefixes.iter().find_map(|prefix| key.strip_prefix(prefix));
    if let Some(name) = after(&["fairlock_queue_raw:", "fairlock_ends_raw:"]) {
        return Some(name);
    }
    let rest = after(&["fairlock_queue:", "fairlock_ends:", "redisson_lock_queue:"])?;
    let inner = rest.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    // A name with a brace was written without further braces.
    Some(inner.filter(|inner| !inner.contains('{')).unwrap_or(rest))
}

/// The channel of a client.
pub(crate) fn client_channel(client: impl fmt::Display) -> String {
    format!("{CLIENT_CHANNEL_PREFIX}{client}")
}

/// How many locks' keys are kept: some hundred bytes each, and at most four kilobytes.
const KEPT: usize = 1024;

/// A lock's name decides its slot, and the latest lock of a slot stays there. So nothing has to be evicted, threads with
/// different locks hardly ever meet at a mutex, and among many more locks than slots it costs no more than no cache: some
/// allocations for each use.
pub(crate) struct KeyCache {
    slots: Box<[Mutex<Option<Arc<Keys>>>]>,
}

impl Default for KeyCache {
    fn default() -> KeyCache {
        KeyCache { slots: (0..KEPT).map(|_| Mutex::default()).collect() }
    }
}

impl KeyCache {
    /// # Errors
    /// As [`Keys::of`].
    pub(crate) fn of(&self, lock: &LockId) -> Result<Arc<Keys>, BackendError> {
        let slot = usize::try_from(lock.name.hash_code() % KEPT as u64).unwrap_or(0);
        let mut kept = self.slots[slot].lock();
        match &*kept {
            Some(keys) if keys.are_of(lock) => Ok(Arc::clone(keys)),
            _ => Ok(Arc::clone(kept.insert(Arc::new(Keys::of(lock)?)))),
        }
    }
}

#[cfg(test)]
mod tests;
