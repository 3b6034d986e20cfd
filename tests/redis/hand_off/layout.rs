//! The keys and messages of a lock in every state are those of the tables in `fairlock-redis/scripts/KEYS.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use fairlock::{Client, ClientId, Discipline, Durability, LockKind, LockName};
use fairlock_core::OwnerId;
use fairlock_core::backend::{Acquire, Acquired, Backend, LockId, Place, RequestId, Wait, only};
use fairlock_tests::Alone;
use fairlock_tests::server_state::pairs_of;
use redis::Msg;

use crate::support::{LONG, RedisServer, SOON, eventually, granted, patient, request, served, take};

/// The tables of the section, by the title of their first column. Each row is the text of its cells, without backticks.
struct Tables {
    keys: Vec<Vec<String>>,
    channels: Vec<Vec<String>>,
    words: BTreeMap<String, String>,
}

impl Tables {
    fn read() -> Tables {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fairlock-redis/scripts/KEYS.md");
        let text = fs::read_to_string(path).unwrap();
        let rows_of = |title: &str| -> Vec<Vec<String>> {
            let table = text.lines().skip_while(|line| !line.starts_with(&format!("| {title} |"))).skip(2);
            let rows = table.take_while(|line| line.starts_with('|'));
            rows.map(|row| {
                let cells = row.trim_matches('|').split('|');
                cells.map(|cell| cell.trim().trim_matches('`').to_owned()).collect()
            })
            .collect()
        };
        let words = rows_of("word").into_iter().map(|row| (row[0].clone(), row[1].clone())).collect();
        Tables { keys: rows_of("key"), channels: rows_of("channel"), words }
    }

    /// A regular expression: the words replaced by theirs, and all else as it is.
    fn regex(&self, format: &str, name: &str) -> String {
        let escaped = |text: &str| text.replace('{', "\\{").replace('}', "\\}");
        let format = if name.contains('{') { format.replace("{NAME}", "NAME") } else { format.to_owned() };
        let mut regex = escaped(&format).replace("NAME", &escaped(name));
        // The longer ones first: none may be cut by one that is a part of it.
        let mut words: Vec<_> = self.words.iter().collect();
        words.sort_by_key(|(word, _)| std::cmp::Reverse(word.len()));
        for (index, (word, _)) in words.iter().enumerate() {
            regex = regex.replace(word.as_str(), &format!("\u{1}{index}\u{2}"));
        }
        for (index, (_, of_word)) in words.iter().enumerate() {
            regex = regex.replace(&format!("\u{1}{index}\u{2}"), of_word);
        }
        regex
    }
}

/// Whether the text is matched as a whole.
fn matches(regex: &str, text: &str) -> bool {
    let mut grep = Command::new("grep").args(["-Exq", "--", regex]).stdin(Stdio::piped()).spawn().unwrap();
    writeln!(grep.stdin.take().unwrap(), "{text}").unwrap();
    grep.wait().unwrap().success()
}

/// What was seen: rows of the tables, by their index.
struct Seen<'a> {
    tables: &'a Tables,
    keys: BTreeSet<usize>,
    channels: BTreeSet<usize>,
    words: BTreeSet<String>,
}

impl Seen<'_> {
    /// Compares each key of the lock with the rows of its name.
    fn look(&mut self, server: &RedisServer, name: &str) {
        let spelled = |key: &str| match name.contains('{') {
            false => key.replace("NAME", name),
            true if key.starts_with("fairlock") => key.replace(":{NAME}", &format!("_raw:{name}")),
            true => key.replace("{NAME}", name).replace("NAME", name),
        };
        for key in server.query::<Vec<String>>(&["KEYS", "*"]) {
            let rows: Vec<usize> = (0..self.tables.keys.len())
                .filter(|row| spelled(&self.tables.keys[*row][0]) == key)
                .collect();
            let (kind, read) = pairs_of(server, &key);
            assert!(rows.iter().any(|row| self.tables.keys[*row][1] == kind), "{key} is a {kind}");
            let is_endless = server.query::<i64>(&["PTTL", &key]) == -1;
            for pair in &read {
                for value in pair[1].split('\n') {
                    let row = rows.iter().find(|row| {
                        let cells = &self.tables.keys[**row];
                        matches(&self.tables.regex(&cells[2], name), &pair[0])
                            && matches(&self.tables.regex(&cells[3], name), value)
                    });
                    let row = *row.unwrap_or_else(|| panic!("{key}: {:?} is no row with `{value}`", pair[0]));
                    assert_eq!(is_endless, self.tables.keys[row][4] == "none", "{key}: time to live");
                    self.keys.insert(row);
                    self.note(&pair[0], value);
                }
            }
        }
    }

    /// Which marks were seen, and whether queues rest.
    fn note(&mut self, field: &str, value: &str) {
        let words: Vec<&str> = value.split(' ').collect();
        if field == "queue" {
            let [clock, rests] = [2, 4].map(|at| words[at].parse::<u64>().unwrap());
            self.words.insert(if clock < rests { "rests" } else { "does not" }.to_owned());
        } else if words.len() > 6 && words[5].chars().all(|mark| "-dn".contains(mark)) {
            self.words.insert(words[5].to_owned());
        }
    }

    fn hear(&mut self, message: &Msg, name: &str) {
        let (channel, text) = (message.get_channel_name(), message.get_payload::<String>().unwrap());
        let row = self.tables.channels.iter().position(|cells| {
            matches(&self.tables.regex(&cells[0], name), channel)
                && matches(&self.tables.regex(&cells[1], name), &text)
        });
        self.channels.insert(row.unwrap_or_else(|| panic!("no row for `{text}` on {channel}")));
    }
}

fn client(server: &RedisServer, discipline: Discipline, label: &str) -> Client {
    let backend = patient(&server.url()).discipline(discipline).connect().unwrap();
    Client::builder(backend).place_ttl(LONG).lease(LONG).label(label).build().unwrap()
}

#[test]
fn keys_and_messages_are_those_of_the_tables() {
    let _alone = Alone::here();
    let tables = Tables::read();
    let (keys, channels, words) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut seen = Seen { tables: &tables, keys, channels, words };
    for name in ["orders", "a{b}"] {
        let server = RedisServer::start();
        let mut con = server.con();
        let mut ear = con.as_pubsub(); // hears all messages
        ear.psubscribe("*").unwrap();
        for scene in [by_hand_off, by_redisson, by_several, in_a_grace, after_a_loss] {
            scene(&server, name, &mut || seen.look(&server, name));
            server.query::<()>(&["FLUSHALL"]);
        }
        server.query::<()>(&["PUBLISH", "the end", ""]);
        loop {
            let message = ear.get_message().unwrap();
            if message.get_channel_name() == "the end" {
                break;
            }
            seen.hear(&message, name);
        }
    }
    let all = |rows: &Vec<Vec<String>>| (0..rows.len()).collect::<BTreeSet<_>>();
    // Written with sentinels only: `sentinel/quorum.rs` looks at it.
    seen.keys.extend(tables.keys.iter().position(|row| row.iter().any(|word| word.contains("voters"))));
    assert_eq!(seen.keys, all(&tables.keys), "rows of the keys that were seen");
    assert_eq!(seen.channels, all(&tables.channels), "rows of the channels that were seen");
    let words: Vec<&str> = seen.words.iter().map(String::as_str).collect();
    assert_eq!(words, ["--", "-n", "does not", "rests"]);
}

fn by_hand_off(server: &RedisServer, name: &str, look: &mut dyn FnMut()) {
    let ours = client(server, Discipline::HandOff, "");
    let guard = take(&ours, name);
    look();
    // The first in the queue has no subscription, so it is passed over; the second is kicked; the third gets the lock.
    let absent = patient(&server.url()).discipline(Discipline::HandOff).connect().unwrap();
    let id = LockId::new(LockName::new(name).unwrap(), LockKind::Fair);
    let owner = OwnerId::new(&format!("{}:1", ClientId::random()));
    let mut place = Place::new(&id, &owner, RequestId::new(7));
    (place.wait, place.ttl) = (Wait::Forever, LONG);
    only(absent.acquire(&[Acquire::new(place, LONG)])).unwrap();
    let labelled = client(server, Discipline::HandOff, "night shift");
    let (_second, third) = (request(&ours, name), request(&labelled, name));
    look();
    let lock = ours.fair_lock(name).unwrap();
    let second = lock.inspect().unwrap().queue.remove(1);
    assert!(lock.kick(&second).unwrap());
    look();
    guard.unlock().unwrap();
    let held = granted(third, SOON);
    look();
    assert!(lock.force_unlock().unwrap());
    eventually("the holder is told", || held.is_lost());
}

fn by_redisson(server: &RedisServer, name: &str, look: &mut dyn FnMut()) {
    let ours = client(server, Discipline::Redisson, "night shift");
    let guard = ours.plain_lock(name).unwrap().lock().unwrap();
    look();
    guard.unlock().unwrap();
    let guard = take(&ours, name);
    let waiting = request(&ours, name);
    look();
    guard.unlock().unwrap();
    served(waiting);
    look();
}

/// Two owners of a semaphore and a waiter; then a writer.
fn by_several(server: &RedisServer, name: &str, look: &mut dyn FnMut()) {
    let ours = client(server, Discipline::HandOff, "night shift");
    let pool = ours.semaphore(name, 2).unwrap();
    let permits = [(); 2].map(|()| pool.acquire().unwrap());
    look();
    let mut waiting = pool.request_many(2).unwrap();
    eventually("it waits", || pool.inspect().unwrap().queue_length == 1);
    look();
    permits.into_iter().for_each(|permit| permit.unlock().unwrap());
    waiting.wait_for(SOON).unwrap().guard().unwrap().unlock().unwrap();
    let guard = ours.rw_lock(name).unwrap().write().unwrap();
    look();
    guard.unlock().unwrap();
    look();
}

/// The record is lost, and a waiter of before is granted the lock.
fn after_a_loss(server: &RedisServer, name: &str, look: &mut dyn FnMut()) {
    let ours = client(server, Discipline::HandOff, "");
    let guard = take(&ours, name);
    let backend = patient(&server.url()).discipline(Discipline::HandOff).connect().unwrap();
    let id = LockId::new(LockName::new(name).unwrap(), LockKind::Fair);
    let owner = OwnerId::new(&format!("{}:1", ClientId::random()));
    let mut place = Place::new(&id, &owner, RequestId::new(7));
    place.ttl = Duration::from_millis(20);
    let answer = only(backend.acquire(&[Acquire::new(place, LONG)])).unwrap();
    let Acquired::Queued { ticket, .. } = answer else { panic!("{answer:?}") };
    place.ticket = ticket;
    server.query::<()>(&["FLUSHALL"]);
    only(backend.acquire(&[Acquire::new(place, LONG)])).unwrap();
    look();
    place.ttl = LONG;
    eventually("the queue has rested", || {
        matches!(only(backend.acquire(&[Acquire::new(place, LONG)])).unwrap(), Acquired::Granted { .. })
    });
    look();
    let _ = guard.unlock();
}

/// The server has forgotten a hold, which ends before it is reclaimed.
fn in_a_grace(server: &RedisServer, name: &str, look: &mut dyn FnMut()) {
    let backend = patient(&server.url()).durable(Durability::default());
    let backend = backend.response_timeout(Duration::from_secs(5)).connect().unwrap();
    backend.begin_life().unwrap();
    let ours = Client::builder(backend).place_ttl(LONG).build().unwrap();
    let guard = take(&ours, name);
    server.query::<()>(&["FLUSHALL"]);
    guard.unlock().unwrap();
    look();
}
