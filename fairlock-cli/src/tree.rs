//! `fairlock ls --blocked`: who waits for whom, as a tree of locks and waiters, deadlocks first.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use fairlock::{Client, Error, Holder, OwnerId, Waiter};
use serde_json::{Value, json};

use crate::args::{Ls, Server};
use crate::blocked::{Link, Seen, deadlocks, lasting};
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::kind::{AnyLock, held_by, units};
use crate::names::escaped;
use crate::report::say;
use crate::screen::Picture;
use crate::server::{self, Store};
use crate::show;
use crate::watch::watch;

/// How many waiters of each lock are read, and how many are printed unless they hold a lock that others wait for.
const READ: u64 = 500;
const PRINTED: usize = 10;

pub(crate) fn blocked(server: &Server, options: &Ls) -> Result<Exit, Failure> {
    let store = server::store(server)?;
    let client = Client::new(store.backend())?;
    let mut exit = Exit::Done;
    let look = || {
        let (first, unread) = look(&store, &client, options.pattern.as_deref())?;
        // Most looks find none, and need no second one.
        let lasting = match deadlocks(&first).is_empty() {
            true => Vec::new(),
            false => lasting(&first, &look(&store, &client, options.pattern.as_deref())?.0),
        };
        let found = deadlocks(&lasting);
        exit = if found.is_empty() { Exit::Done } else { Exit::No };
        if options.json {
            unread.iter().for_each(|error| say(&error.to_string()));
            return Ok(format!("{}\n", to_json(&first, &found)));
        }
        let unread: String = unread.iter().map(|error| format!("{error}\n")).collect();
        Ok(to_text(&first, &found) + &unread)
    };
    let text = |text: &String| {
        let place = if options.json { String::new() } else { server::where_it_looks(server) };
        place + text
    };
    let picture = |text: &String| Picture {
        head: format!("who waits for whom{}", server::and_where(server)),
        text: text.lines().map(str::to_owned).collect(),
        ..Picture::default()
    };
    let shown = watch(options.watch, look, text, (!options.json).then_some(picture))?;
    Ok(if shown == Exit::Done { exit } else { shown })
}

/// The locks that are held or waited for, with their waiters; and why others can't be read.
fn look(store: &Store, client: &Client, pattern: Option<&str>) -> Result<(Vec<Seen>, Vec<Error>), Failure> {
    let (found, unread) = store.locks_and_unread(pattern)?;
    let mut locks = Vec::new();
    for (name, mut state) in found {
        if state.waiting() > 0 {
            state = show::read(&AnyLock::new(client, name.as_str())?, 0, READ)?;
        }
        locks.push(Seen { name: name.as_str().to_owned(), state });
    }
    Ok((locks, unread))
}

fn to_text(locks: &[Seen], deadlocks: &[Vec<Link>]) -> String {
    let mut text = String::new();
    for circle in deadlocks {
        let owners: Vec<String> = circle.iter().map(in_words).collect();
        let _ = writeln!(text, "deadlock: {}", owners.join("; "));
    }
    if !deadlocks.is_empty() {
        text.push('\n');
    }
    let waited_for: Vec<&Seen> = locks.iter().filter(|lock| lock.is_waited_for()).collect();
    let mut held: HashMap<&OwnerId, Vec<&Seen>> = HashMap::new();
    for lock in &waited_for {
        lock.state.holders.iter().for_each(|holder| held.entry(&holder.owner).or_default().push(lock));
    }
    let waiting: HashSet<&OwnerId> =
        waited_for.iter().flat_map(|lock| lock.waiters().map(|waiter| &waiter.owner)).collect();
    let mut tree = Tree { held, text, printed: HashSet::new() };
    let (inner, outer): (Vec<&Seen>, Vec<&Seen>) = waited_for
        .into_iter()
        .partition(|lock| lock.state.holders.iter().any(|holder| waiting.contains(&holder.owner)));
    // What is left of the inner ones stands in a circle.
    outer.into_iter().chain(inner).for_each(|lock| tree.lock(lock, 0));
    if tree.text.is_empty() { "nobody waits\n".to_owned() } else { tree.text }
}

/// What an owner of a deadlock has and wants.
fn in_words(link: &Link) -> String {
    let name = name_of(link.waiter);
    let (lock, blocks) = (escaped(&link.lock.name), escaped(&link.blocks.name));
    match link.hold {
        Some(_) => format!("{name} has {blocks} and waits for {lock}"),
        None => format!("{name} waits for {lock}, ahead of the next"),
    }
}

struct Tree<'a> {
    /// The locks that an owner holds and others wait for.
    held: HashMap<&'a OwnerId, Vec<&'a Seen>>,
    text: String,
    printed: HashSet<&'a str>,
}

impl<'a> Tree<'a> {
    /// A lock and its waiters; below each waiter, the locks that the waiter holds and others wait for.
    fn lock(&mut self, lock: &'a Seen, depth: usize) {
        let (indent, name) = ("    ".repeat(depth), escaped(&lock.name));
        if !self.printed.insert(&lock.name) {
            if depth > 0 {
                let _ = writeln!(self.text, "{indent}{name}  (above)");
            }
            return;
        }
        let _ = writeln!(self.text, "{indent}{name}  {}", held_by(&lock.state));
        let mut more = 0;
        for (number, waiter) in (1..).zip(lock.waiters()) {
            let holds = self.held.get(&waiter.owner).cloned().unwrap_or_default();
            if number > PRINTED && holds.is_empty() {
                more += 1;
                continue;
            }
            let wants =
                units(&lock.state, waiter.units).map(|units| format!(", {units}")).unwrap_or_default();
            let time = waiter.waiting.map(|time| format!(", waiting for {}", duration::show(time)));
            let _ = writeln!(
                self.text,
                "{indent}  {number}  {}{wants}{}",
                name_of(waiter),
                time.unwrap_or_default()
            );
            holds.into_iter().for_each(|held| self.lock(held, depth + 1));
        }
        more += usize::try_from(lock.state.queue_length)
            .unwrap_or(usize::MAX)
            .saturating_sub(lock.state.queue.len());
        if more > 0 {
            let _ = writeln!(self.text, "{indent}  and {more} more");
        }
    }
}

/// The label, or the owner.
fn name_of(waiter: &Waiter) -> String {
    escaped(waiter.label.as_deref().unwrap_or_else(|| waiter.owner.as_str()))
}

/// The deadlocks, and the locks that are waited for, in the form of `show --json`.
fn to_json(locks: &[Seen], deadlocks: &[Vec<Link>]) -> Value {
    let link = |link: &Link| {
        json!({
            "owner": link.waiter.owner.as_str(), "label": link.waiter.label, "waits_for": link.lock.name,
            "blocks": link.blocks.name, "token": link.hold.and_then(|hold: &Holder| hold.token).map(fairlock::FencingToken::get),
        })
    };
    let circle = |circle: &Vec<Link>| circle.iter().map(link).collect::<Value>();
    let waited_for = locks.iter().filter(|lock| lock.is_waited_for());
    json!({
        "deadlocks": deadlocks.iter().map(circle).collect::<Value>(),
        "locks": waited_for.map(|lock| show::to_json(&lock.name, &lock.state, 0)).collect::<Value>(),
    })
}
