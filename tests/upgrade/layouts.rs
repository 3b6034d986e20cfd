//! What this version stores and sends is what `layouts.txt` has recorded, byte by byte but for times, tokens and random ids.

use std::collections::BTreeSet;
use std::env;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Duration;

use fairlock::admin::{LockKind, LockName};
use fairlock::settings::{Discipline, Durability};
use fairlock::{FileBackend, PostgresBackend, RedisBackend};
use fairlock_core::backend::{Acquire, Acquired, Backend, Hold, LockId, Place, RequestId, Since, Wait, only};
use fairlock_core::{FencingToken, OwnerId};
use fairlock_rules::{LockEntry, Presence, StoreContext, WakeUp, WakeUpKind};
use fairlock_tests::files::root;
use fairlock_tests::server_state::pairs_of;
use fairlock_tests::{Alone, PostgresServer, RedisServer, WorkDir};

const RECORDED: &str = include_str!("layouts.txt");
const CLIENT: &str = "11111111-2222-4333-8444-555555555555";
const REQUEST: RequestId = RequestId::new(0xc0ff_ee00_c0ff_ee00);
const LEASE: Duration = Duration::from_secs(30);

/// How to go on after a failure stands in CONTRIBUTING.md, "When a layout changes".
#[test]
fn each_layout_is_as_recorded() {
    let _alone = Alone::here();
    let sections = [on_redis(), on_postgres(), on_files(), states(), messages()]
        .map(|section| section.trim_end().to_owned());
    let now = sections.join("\n\n") + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("upgrade/layouts.txt");
    if env::var_os("FAIRLOCK_RECORD").is_some() {
        fs::write(path, now).unwrap();
        return;
    }
    let other = now.lines().zip(RECORDED.lines()).find(|(now, recorded)| now != recorded);
    assert!(
        now == RECORDED,
        "a layout is not as recorded: {other:?}. If clients of the last release can read and keep what is written now, record it \
         (FAIRLOCK_RECORD=1); if not, it needs a new number: CONTRIBUTING.md, \"When a layout changes\"\n{now}"
    );
}

/// `fairlock-redis/scripts/KEYS.md` lists each key and field that is recorded, and no other.
#[test]
fn the_table_of_keys_lists_what_is_recorded() {
    let of_redis = RECORDED.split("messages").next().unwrap();
    let keys = of_redis.lines().filter_map(|line| line.strip_prefix("  ")?.split_once(" = "));
    let recorded: BTreeSet<String> = keys
        .map(|(key, _)| {
            let names = ["orders", "permits", "plain"]
                .iter()
                .fold(key.to_owned(), |key, name| key.replace(name, "NAME"));
            let requests = [1, 2].iter().fold(names, |key, owner| {
                let owner = format!("{CLIENT}:{owner}");
                key.replace(&format!("{owner}:{REQUEST}"), "CLIENT:OWNER:REQUEST")
                    .replace(&owner, "CLIENT:OWNER")
            });
            requests.replace(['(', ')'], "")
        })
        .collect();
    let text = fs::read_to_string(root().join("fairlock-redis/scripts/KEYS.md")).unwrap();
    let rows = text.lines().skip_while(|line| !line.starts_with("| key |")).skip(2);
    let mut listed: BTreeSet<String> = rows
        .take_while(|line| line.starts_with('|'))
        .map(|row| {
            row.split('|')
                .map(|cell| cell.trim().trim_matches('`'))
                .skip(1)
                .take(3)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    assert!(listed.remove("fairlock_life hash voters"), "written with sentinels only");
    assert_eq!(recorded, listed);
}

fn lock(name: &str, kind: LockKind) -> LockId {
    LockId::new(LockName::new(name).unwrap(), kind)
}

fn owner(number: u64) -> OwnerId {
    OwnerId::new(&format!("{CLIENT}:{number}"))
}

/// The first owner takes the lock, and the second one stands in the queue.
fn ask<'a>(lock: &'a LockId, owner: &'a OwnerId) -> Acquire<'a> {
    let mut place = Place::new(lock, owner, REQUEST);
    (place.wait, place.units, place.ttl) =
        (Wait::Forever, lock.kind.capacity().min(2), Duration::from_secs(5));
    let mut ask = Acquire::new(place, LEASE);
    ask.label = "night shift";
    ask
}

/// The owner wants the lock once in an hour.
fn ask_once<'a>(lock: &'a LockId, owner: &'a OwnerId) -> Acquire<'a> {
    let mut ask = ask(lock, owner);
    ask.place.wait = Wait::No;
    ask.condition.not_granted = Some(Since::PeriodBegan(Duration::from_secs(3600)));
    ask
}

fn take(backend: &impl Backend, lock: &LockId, owner: &OwnerId) -> Option<FencingToken> {
    match only(backend.acquire(&[ask(lock, owner)])) {
        Ok(Acquired::Granted { token, .. }) => Some(token),
        _ => None,
    }
}

/// Numbers of microseconds and milliseconds since 1970 as `us` and `ms`, and a server's run as `run`: these change.
fn masked(text: &str) -> String {
    let words = text.split_inclusive(|c: char| !c.is_ascii_alphanumeric());
    let mask = |word: &str| {
        let end = word.len()
            - word.chars().next_back().filter(|c| !c.is_ascii_alphanumeric()).map_or(0, char::len_utf8);
        let (body, end) = word.split_at(end);
        let is_number = body.bytes().all(|byte| byte.is_ascii_digit());
        let shown = match body.len() {
            16 if is_number => "us",
            13 if is_number => "ms",
            40 => "run",
            _ => body,
        };
        format!("{shown}{end}")
    };
    words.map(mask).collect()
}

fn on_redis() -> String {
    let (server, [ann, bob]) = (RedisServer::start(), [1, 2].map(owner));
    let mut shown = String::new();
    let mut show = |what: &str| {
        let mut keys: Vec<String> = server.query(&["KEYS", "*"]);
        keys.sort();
        _ = writeln!(shown, "{what}");
        for key in keys {
            let (kind, pairs) = pairs_of(&server, &key);
            let mut pairs: Vec<String> = pairs.iter().map(|pair| pair.join(" = ")).collect();
            pairs.sort();
            pairs.iter().for_each(|pair| _ = writeln!(shown, "  {key} ({kind}) {}", masked(pair)));
        }
        server.query::<()>(&["FLUSHALL"]);
    };
    let backend = |discipline| RedisBackend::builder(&server.url()).discipline(discipline).connect().unwrap();
    let (ours, javas) = (backend(Discipline::HandOff), backend(Discipline::Redisson));
    let mut con = server.con();
    let mut ear = con.as_pubsub();
    ear.subscribe(format!("fairlock:{CLIENT}")).unwrap();
    let fair = lock("orders", LockKind::Fair);
    let scenes: [(&str, &dyn Fn()); 7] = [
        ("a fair lock that is held and waited for", &|| {
            take(&ours, &fair, &ann);
            take(&ours, &fair, &bob);
        }),
        ("handed over, and forced", &|| {
            let token = take(&ours, &fair, &ann).unwrap();
            take(&ours, &fair, &bob);
            only(ours.release(&[Hold::new(&fair, &ann, REQUEST, token)])).unwrap();
            ours.force_release(&fair).unwrap();
        }),
        ("a fair lock that is wanted once in an hour", &|| {
            _ = only(ours.acquire(&[ask_once(&fair, &ann)]));
        }),
        ("a semaphore", &|| _ = take(&ours, &lock("permits", LockKind::Semaphore { permits: 3 }), &ann)),
        ("a plain lock", &|| _ = take(&ours, &lock("plain", LockKind::Plain), &ann)),
        ("a lock of discipline Redisson", &|| {
            take(&javas, &fair, &ann);
            take(&javas, &fair, &bob);
        }),
        ("durable, forced in the grace", &|| {
            let durable =
                RedisBackend::builder(&server.url()).durable(Durability::default()).connect().unwrap();
            durable.force_release(&fair).unwrap();
        }),
    ];
    for (what, scene) in scenes {
        scene();
        show(what);
    }
    shown.push_str("messages\n");
    ear.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut told = BTreeSet::new(); // some twice
    while let Ok(message) = ear.get_message() {
        told.insert(masked(&message.get_payload::<String>().unwrap()));
    }
    told.iter().for_each(|message| _ = writeln!(shown, "  {message}"));
    format!("# Redis, layout 1\n{shown}")
}

fn on_postgres() -> String {
    let server = PostgresServer::start();
    PostgresBackend::migrate(&server.url()).unwrap();
    let (backend, fair, [ann, bob]) =
        (PostgresBackend::connect(&server.url()).unwrap(), lock("orders", LockKind::Fair), [1, 2].map(owner));
    take(&backend, &fair, &ann);
    take(&backend, &fair, &bob);
    let mut con = server.con();
    let mut lines = |sql: &str| -> String {
        let rows = con.query(sql, &[]).unwrap();
        rows.iter().map(|row| format!("  {}\n", masked(row.get(0)))).collect()
    };
    let columns = "select concat_ws(' ', table_name, column_name, data_type, is_nullable, column_default) from information_schema.columns
        where table_schema = 'fairlock' order by table_name, ordinal_position";
    let functions = "select concat(proname, '(', pg_get_function_identity_arguments(oid), ') ', pg_get_function_result(oid)) from pg_proc
        where pronamespace = 'fairlock'::regnamespace order by 1";
    let row = "select concat_ws(' | ', convert_from(name, 'UTF8'), rev, last, dead_at, h_owner, h_request, h_token, h_count, h_since, h_ends,
        h_label, heads, get_byte(state, 0)) from fairlock.lock";
    let shown = [columns, functions, row].map(&mut lines).concat();
    format!("# PostgreSQL, layout {}\n{shown}", PostgresBackend::LAYOUT)
}

fn on_files() -> String {
    let dir = WorkDir::new();
    let backend = FileBackend::open(dir.file("locks")).unwrap();
    backend.inspect(&lock("orders", LockKind::Fair), 0..0).unwrap(); // makes the file
    let bytes = fs::read(dir.file("locks").join("orders.lock")).unwrap();
    let hex =
        |from: usize, to: usize| bytes[from..to].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let used = 40 + usize::from(bytes[24]);
    let shown = [
        ("length", bytes.len().to_string()),
        ("magic", String::from_utf8_lossy(&bytes[..8]).into_owned()),
        ("generation, place, length", hex(8, 32)),
        ("checksum, boot, last number", "8, 16 and 8 bytes".to_owned()),
        ("length of the name, name, state", hex(40 + 24, used)),
    ];
    let lines = shown.map(|(what, value)| format!("  {what}: {value}\n")).concat();
    format!("# Files, layout {}\n{lines}", char::from(bytes[7]))
}

/// The state of a lock, as PostgreSQL and files keep it.
fn states() -> String {
    let mut lines = String::new();
    for kind in [LockKind::Fair, LockKind::Plain, LockKind::ReadWrite, LockKind::Semaphore { permits: 3 }] {
        let (lock, [ann, bob]) = (lock("orders", kind), [1, 2].map(owner));
        let (mut entry, mut store) = (LockEntry::default(), StoreContext::default());
        let (now, presence) = (Duration::from_secs(1_800_000_000), |_: &OwnerId| Presence::Present);
        let context = &mut store.operation(&lock.name, now, &presence);
        for owner in [&ann, &bob] {
            entry.acquire(context, &ask(&lock, owner)).unwrap();
        }
        _ = writeln!(lines, "  {kind}: {}", hex(&entry));
    }
    let (lock, ann, mut entry) = (lock("orders", LockKind::Fair), owner(1), LockEntry::default());
    let (now, mut store) = (Duration::from_secs(1_800_000_000), StoreContext::default());
    let context = &mut store.operation(&lock.name, now, &|_| Presence::Present);
    entry.acquire(context, &ask_once(&lock, &ann)).unwrap();
    let noted = format!("# States with a note, layout {}\n  fair lock: {}\n", entry.encode()[0], hex(&entry));
    let mut entry = LockEntry::default();
    for (owner, permits) in [(1, 3), (2, 5)].map(|(number, permits)| (owner(number), permits)) {
        let of_number = self::lock("orders", LockKind::Semaphore { permits });
        let mut ask = ask(&of_number, &owner);
        ask.place.units = 3;
        entry.acquire(context, &ask).unwrap();
    }
    let numbers = format!("# States of several numbers, layout {}\n  {}\n", entry.encode()[0], hex(&entry));
    format!("# States, layout {}\n{lines}\n{noted}\n{numbers}", LockEntry::default().encode()[0])
}

fn hex(entry: &LockEntry) -> String {
    entry.encode().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// As PostgreSQL and files send them.
fn messages() -> String {
    let token = FencingToken::new(1_800_000_000_000_000);
    let kinds = [
        WakeUpKind::Granted { request: REQUEST, token },
        WakeUpKind::Recheck,
        WakeUpKind::RecheckAny,
        WakeUpKind::Taken { token },
    ];
    let of = |kind| WakeUp { lock: LockName::new("orders").unwrap(), owner: owner(1), kind };
    format!("# Messages, layout 1\n{}", kinds.map(|kind| format!("  {}\n", of(kind))).concat())
}

/// A message that begins with a number is of a later layout, and says nothing: heartbeats find what it was about.
#[test]
fn a_message_of_a_later_layout_is_ignored() {
    let wake_up =
        WakeUp { lock: LockName::new("orders").unwrap(), owner: owner(1), kind: WakeUpKind::Recheck }
            .to_string();
    assert!(wake_up.parse::<WakeUp>().is_ok() && format!("v2 {wake_up}").parse::<WakeUp>().is_err());
}
