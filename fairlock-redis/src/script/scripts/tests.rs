//! The headers and parts of the Lua files, the words of a command, and how keys are spelled.

use super::*;
use crate::fake_backend::named;
use fairlock_core::LockName;

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
            (1..9).any(|n| ["KEYS", "ARGV"].map(|of| format!("{of}[{n}]")).iter().any(|of| line.contains(of)))
        };
        let numbered = body.iter().filter(|line| is_numbered(line)).count();
        let bound =
            body.iter().take_while(|line| include(line).is_none()).filter(|line| is_numbered(line)).count();
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
        let known = includes(&text).filter(|(file, _)| FILES.iter().any(|(name, _)| name == file)).count();
        assert_eq!(text.matches("@include").count(), known, "{file}: each part is there");
        // A case stands in its script, and uses what that has included.
        let cases: Vec<&str> =
            text.split_inclusive('\n').filter(|line| line.contains("@include case/")).collect();
        let whole = text.clone() + &cases.iter().map(|case| joined(case)).collect::<String>();
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
        for (_, names) in includes(&text) {
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
    let mut found =
        found.filter(|(before, rest)| !before.ends_with(is_part) && !rest[name.len()..].starts_with(is_part));
    let is_own = text.contains(&format!("local function {name}(")) || defined(text).any(|own| own == name);
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
    for (time, digits) in
        [(0, "0000000000000000"), (1_790_000_000_000_001, "1790000000000001"), (u64::MAX, "9999999999999999")]
    {
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

fn id(name: &str) -> LockId {
    named(name, LockKind::Fair)
}

#[test]
fn shared_keys_are_spelled_as_redisson_spells_them() {
    let keys = Keys::of(&id("myLock")).unwrap();
    assert_eq!(keys.lock(), "myLock");
    assert_eq!(keys.queue(), "redisson_lock_queue:{myLock}");
    assert_eq!(keys.timeouts(), "redisson_lock_timeout:{myLock}");
    assert_eq!(keys.channel(), "redisson_lock__channel:{myLock}");
    assert_eq!(Keys::of(&id("a:{t}:b")).unwrap().queue(), "redisson_lock_queue:a:{t}:b");
}

#[test]
fn each_rule_has_its_keys_in_order() {
    let lock = named("a", LockKind::ReadWrite);
    let (keys, with_ends) = (Keys::of(&id("a")).unwrap(), Keys::of(&lock).unwrap());
    let texts = |keys: KeysOfScript<'_>| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
    let [queue, record, ends] = ["fairlock_queue:{a}", "fairlock_record:{a}", "fairlock_ends:{a}"];
    assert_eq!(texts(keys.of_queue()), ["a", queue, record]);
    assert_eq!(texts(with_ends.of_queue()), ["a", queue, record, ends]);
    assert_eq!(texts(keys.redisson()), ["a", record, "redisson_lock_queue:{a}", "redisson_lock_timeout:{a}"]);
    let plain = named("a", LockKind::Plain);
    assert_eq!(texts(Keys::of(&plain).unwrap().in_redisson()), ["a", record]);
    assert_eq!(texts(keys.in_redisson()), texts(keys.redisson()));
    assert!(keys.are_of(&id("a")) && !keys.are_of(&plain));
    assert_eq!(texts(keys.without_queue()), ["a", record]);
    assert_eq!(
        (texts(keys.of_hold()), texts(with_ends.of_hold())),
        (vec!["a".into()], vec!["a".into(), ends.into()])
    );
    let mut all = [texts(with_ends.of_queue()), texts(keys.redisson())].concat();
    all.sort();
    all.dedup();
    let mut typed = keys.typed().map(|(key, _)| key);
    typed.sort_unstable();
    assert_eq!(typed.as_slice(), all);
}

#[test]
fn patterns_find_the_queues_of_a_lock() {
    for name in ["a", "a:{t}:b"] {
        let keys = Keys::of(&id(name)).unwrap();
        let is_in = |patterns: &[String], key: &str| patterns.iter().any(|pattern| pattern == key);
        assert!(is_in(&queues(name), keys.waiters()) && is_in(&queues(name), keys.ends()));
        assert!(is_in(&redisson_queues(name), keys.queue()));
    }
}

#[test]
fn a_client_has_a_channel() {
    let client = fairlock_core::ClientId::random();
    assert_eq!(client_channel(client), format!("fairlock:{client}"));
}

#[test]
fn the_name_of_a_lock_can_be_read_from_its_queues() {
    for name in ["a", "a:{t}:b", "{a}", "a b", "a}"] {
        let keys = Keys::of(&id(name)).unwrap();
        assert_eq!(name_of_queue(keys.waiters()), Some(name));
        assert_eq!(name_of_queue(keys.ends()), Some(name));
        // Redisson gives `a` and `{a}` one queue.
        assert_eq!(name_of_queue(keys.queue()), Some(if name == "{a}" { "a" } else { name }));
    }
    assert_eq!(name_of_queue("fairlock_record:{a}"), None);
}

#[test]
fn own_keys_keep_a_name_and_the_same_name_in_braces_apart() {
    let names = ["a", "{a}", "{{a}}", "a}", "{a"];
    let keys = names.map(|name| Keys::of(&id(name)).unwrap());
    let spelled = keys.iter().flat_map(|keys| [keys.waiters(), keys.record(), keys.ends()]);
    assert_eq!(spelled.collect::<std::collections::HashSet<_>>().len(), 3 * names.len());
}

#[test]
fn a_name_that_is_another_locks_key_is_refused() {
    let error = Keys::of(&id("redisson_lock_queue:{x}")).unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::InvalidName);
    assert_eq!(error.to_string(), "names that begin with redisson_lock_queue are keys of other locks");
}

fn of(kept: &KeyCache, name: &str) -> Result<Arc<Keys>, BackendError> {
    kept.of(&LockId::new(LockName::new(name).unwrap(), LockKind::Fair))
}

/// A lock in use is spelled once, and no lock gets the keys of another lock.
#[test]
fn a_lock_in_use_is_spelled_once_and_keeps_its_keys() {
    let kept = KeyCache::default();
    assert!(Arc::ptr_eq(&of(&kept, "a").unwrap(), &of(&kept, "a").unwrap()));
    for round in 0..2 {
        for n in 0..3 * KEPT {
            let name = format!("lock:{n}");
            assert_eq!(of(&kept, &name).unwrap().lock(), name, "round {round}");
        }
    }
    assert!(kept.slots.iter().filter(|slot| slot.lock().is_some()).count() > KEPT / 2);
    assert!(of(&kept, "fairlock_queue:{a}").is_err());
}

#[cfg(feature = "servers")]
mod on_a_server {
    use super::*;
    use crate::net::slot_of;
    use crate::net::test_server::TestServer;
    use fairlock_core::LockKind;
    use redis::Value;

    /// The server agrees on the slots, and on the names that have no slot.
    #[test]
    fn the_server_agrees_on_slots_and_names_without_a_slot() {
        let server = TestServer::start_with(&["--cluster-enabled", "yes"]);
        let slot = |key: &str| match server.command(&["CLUSTER", "KEYSLOT", key]) {
            Value::Int(slot) => u16::try_from(slot).expect("a slot"),
            other => panic!("{other:?}"),
        };
        for name in [
            "orders", "a b", "müller", "{a}", "a{b}c", "{a}{b}", "{{a}}", "{a", "a}", "}", "{", "{}", "{}a",
            "a{}b", "}{", "}{a}", "a{}{b}", "a}b{c}", "{a}}",
        ] {
            let keys = Keys::of(&named(name, LockKind::Fair)).expect(name);
            let slots = keys.typed().map(|(key, _)| slot(key));
            let same = slots.iter().all(|slot| *slot == slots[0]);
            assert_eq!(slot_of(name), same.then_some(slots[0]), "{name}");
        }
    }
}
