//! `fairlock ls --blocked`: who waits for whom, as a tree of locks and waiters; first who can never go on, a deadlock.
//!
//! A waiting owner goes on once the holders of its lock have gone on, and the waiters ahead in the queue. Owners that are left when nobody
//! else can go on are stuck: in a deadlock, or behind a deadlock.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use fairlock::admin::{Holder, LockState, Waiter};
use fairlock::owner::OwnerId;
use fairlock::{Client, Error};
use serde_json::{Value, json};

use crate::args::Ls;
use crate::operator::{self, read};
use crate::process::{Exit, Failure};
use crate::process::{JSON_VERSION, say};
use crate::screen::{Picture, watch};
use crate::server::{self, Store};
use crate::settings::Server;
use crate::words::{capacity, escaped, held_by, how_long, name_of, units};

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
            state = read(&client.admin(name.as_str())?, 0, READ)?;
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
    let name = name_of(&link.waiter.label, &link.waiter.owner);
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
            let (name, time) = (name_of(&waiter.label, &waiter.owner), how_long(", waiting", waiter.waiting));
            let _ = writeln!(self.text, "{indent}  {number}  {name}{wants}{time}");
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
        "version": JSON_VERSION,
        "deadlocks": deadlocks.iter().map(circle).collect::<Value>(),
        "locks": waited_for.map(|lock| operator::to_json(&lock.name, &lock.state, 0)).collect::<Value>(),
    })
}

/// A lock with the part of its queue that was read.
struct Seen {
    name: String,
    state: LockState,
}

impl Seen {
    /// The waiters that are there, in the order of the queue.
    fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        self.state.queue.iter().filter(|waiter| !waiter.is_absent())
    }

    /// Whether the waiter fits beside so many units.
    fn has_room(&self, waiter: &Waiter, taken: u32) -> bool {
        waiter.units <= capacity(&self.state, waiter).saturating_sub(taken)
    }

    fn is_waited_for(&self) -> bool {
        self.waiters().next().is_some()
    }

    fn wait(&self, owner: &OwnerId) -> Option<&Waiter> {
        self.waiters().find(|waiter| waiter.owner == *owner)
    }
}

/// One owner of a deadlock, which is a circle: each owner blocks the one before.
struct Link<'a> {
    waiter: &'a Waiter,
    /// The lock that this owner waits for.
    lock: &'a Seen,
    /// The owner's hold that blocks the former owner. Without a hold the owner stands ahead in the queue.
    hold: Option<&'a Holder>,
    /// The lock for which the former owner waits.
    blocks: &'a Seen,
}

/// The deadlocks among these locks, each as a circle. What was not read (the end of a long queue, holders that the store does not list)
/// counts as able to go on, so a deadlock may be missed, and none is invented.
fn deadlocks(locks: &[Seen]) -> Vec<Vec<Link<'_>>> {
    let stuck = stuck(locks);
    let mut circles = Vec::new();
    let mut visited: HashSet<&OwnerId> = HashSet::new();
    for lock in locks {
        for waiter in lock.waiters().filter(|waiter| stuck.contains(&waiter.owner)) {
            let mut path: Vec<Link> = Vec::new();
            let (mut at, mut on) = (waiter, lock);
            let mut how = (None, lock);
            while visited.insert(&at.owner) {
                path.push(Link { waiter: at, lock: on, hold: how.0, blocks: how.1 });
                let Some((next, next_lock, hold)) = blocker(locks, &stuck, at, on) else { break };
                how = (hold, on);
                if let Some(start) = path.iter().position(|link| link.waiter.owner == next.owner) {
                    let mut circle = path.split_off(start);
                    (circle[0].hold, circle[0].blocks) = how;
                    circles.push(circle);
                    break;
                }
                (at, on) = (next, next_lock);
            }
        }
    }
    circles
}

/// What of the first look is in the second look, too: holds (by token), and waits (without a break). A look reads the locks one by one,
/// and may show a deadlock that never was. What is in both looks was all there between the looks. A hold without a token, of a program
/// that is no client of fairlock, can't be told from a later hold: it counts as able to go on.
fn lasting(first: &[Seen], second: &[Seen]) -> Vec<Seen> {
    let second: HashMap<&str, &LockState> =
        second.iter().map(|lock| (lock.name.as_str(), &lock.state)).collect();
    let in_both = |lock: &Seen| {
        let (mut state, later) = (lock.state.clone(), second.get(lock.name.as_str())?);
        state.holders.retain(|hold| {
            let is_it = |other: &Holder| {
                other.owner == hold.owner && other.token == hold.token && other.units == hold.units
            };
            hold.token.is_some() && later.holders.iter().any(is_it)
        });
        state.queue.retain(|wait| {
            let goes_on = |later: &Waiter| {
                later.owner == wait.owner && later.waiting >= wait.waiting && !later.is_absent()
            };
            later.queue.iter().any(goes_on)
        });
        Some(Seen { name: lock.name.clone(), state })
    };
    first.iter().filter_map(in_both).collect()
}

/// The waiting owners that never go on unless a lease, a time-out or an operator helps.
fn stuck(locks: &[Seen]) -> HashSet<&OwnerId> {
    let mut stuck: HashSet<&OwnerId> =
        locks.iter().flat_map(|lock| lock.waiters().map(|waiter| &waiter.owner)).collect();
    loop {
        let before = stuck.len();
        for lock in locks {
            let taken = taken_in_the_end(lock, &stuck);
            // The waiters ahead get the lock first, and give it back.
            for waiter in lock.waiters().take_while(|waiter| lock.has_room(waiter, taken)) {
                stuck.remove(&waiter.owner);
            }
        }
        if stuck.len() == before {
            return stuck;
        }
    }
}

/// The units that are taken once all holders have gone on that can.
fn taken_in_the_end(lock: &Seen, stuck: &HashSet<&OwnerId>) -> u32 {
    let holders = lock.state.holders.iter().filter(|holder| stuck.contains(&holder.owner));
    holders.fold(0_u32, |sum, holder| sum.saturating_add(holder.units))
}

/// Who blocks the stuck waiter: a stuck holder, or, if there is room beside the holders, the stuck waiter ahead. With the lock that the
/// blocker waits for, and the blocker's hold.
fn blocker<'a>(
    locks: &'a [Seen],
    stuck: &HashSet<&OwnerId>,
    waiter: &Waiter,
    lock: &'a Seen,
) -> Option<(&'a Waiter, &'a Seen, Option<&'a Holder>)> {
    if !lock.has_room(waiter, taken_in_the_end(lock, stuck)) {
        let holder = lock.state.holders.iter().find(|holder| stuck.contains(&holder.owner))?;
        let waits = |seen: &'a Seen| seen.wait(&holder.owner).map(|wait| (wait, seen, Some(holder)));
        return locks.iter().find_map(waits);
    }
    let ahead = lock.waiters().take_while(|other| other.owner != waiter.owner);
    ahead.filter(|other| stuck.contains(&other.owner)).last().map(|other| (other, lock, None))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fairlock::FencingToken;

    use super::*;

    /// Locks as text: `a/5: x=1 y=2 < z=3` has five units, of which x holds 1 and y holds 2; z waits for 3. Without numbers: a fair lock.
    fn seen(locks: &[&str]) -> Vec<Seen> {
        let owner = |text: &str| {
            let (name, units) = text.split_once('=').unwrap_or((text, "1"));
            (OwnerId::new(name), units.parse().unwrap())
        };
        let read = |text: &&str| {
            let (name, rest) = text.split_once(": ").unwrap();
            let (holders, waiters) = rest.split_once('<').unwrap_or((rest, ""));
            let (name, capacity) =
                name.split_once('/').map_or((name, None), |(name, n)| (name, n.parse().ok()));
            let mut state = LockState::default();
            state.capacity = capacity;
            for (owner, units) in holders.split_whitespace().map(owner) {
                let mut holder = Holder::new(owner, 1);
                (holder.units, holder.token) = (units, Some(FencingToken::new(7)));
                state.holders.push(holder);
            }
            for (owner, units) in waiters.split_whitespace().map(owner) {
                let mut waiter = Waiter::new(owner);
                (waiter.units, waiter.waiting) = (units, Some(Duration::from_secs(9)));
                state.queue.push(waiter);
            }
            Seen { name: name.to_owned(), state }
        };
        locks.iter().map(read).collect()
    }

    fn circles(locks: &[Seen]) -> Vec<String> {
        let link = |link: &Link| {
            let how = if link.hold.is_some() { "has" } else { "is before it at" };
            format!("{} {how} {}, wants {}", link.waiter.owner.as_str(), link.blocks.name, link.lock.name)
        };
        deadlocks(locks).iter().map(|circle| circle.iter().map(link).collect::<Vec<_>>().join("; ")).collect()
    }

    #[test]
    fn circles_of_owners_are_found_and_chains_are_not() {
        let three = "x has a, wants c; z has c, wants b; y has b, wants a";
        let cases: [(&[&str], &[&str]); 9] = [
            (&["a: x < y", "b: y < z"], &[]),
            (&["a: x < y", "b: y < x"], &["y has b, wants a; x has a, wants b"]),
            (
                &["a: x < y", "b: y < z", "c: z < x"],
                &["y has b, wants a; x has a, wants c; z has c, wants b"],
            ),
            // v and w stand behind the deadlock, t beside it.
            (&["a: x < w y", "b: y < x", "c: w < v", "d: u < t"], &["x has a, wants b; y has b, wants a"]),
            (
                &["a: x < y", "b: y < x", "c: u < v", "d: v < u"],
                &["y has b, wants a; x has a, wants b", "v has d, wants c; u has c, wants d"],
            ),
            // One unit is enough to go on, whether it is free now or later.
            (&["a/2: x=1 u=1 < y=1", "b: y < x"], &[]),
            (&["a/2: x=1 < y=2", "b: y < x"], &["y has b, wants a; x has a, wants b"]),
            // There is room for y beside the reader x, but not before the writer w.
            (
                &["a/9: x=1 < w=9 y=1", "b: y < x"],
                &["w is before it at a, wants a; x has a, wants b; y has b, wants a"],
            ),
            (&["c: z < x", "b: y < z", "a: x < y"], &[three]),
        ];
        for (locks, found) in cases {
            assert_eq!(circles(&seen(locks)), found, "{locks:?}");
        }
    }

    fn lasting_circles(first: &[Seen], second: &[Seen]) -> usize {
        circles(&lasting(first, second)).len()
    }

    /// Two looks: x gave `a` up and took it again between the reading of `a` and that of `b`.
    #[test]
    fn a_circle_of_holds_that_never_were_there_together_is_none() {
        let circle = seen(&["a: x < y", "b: y < x"]);
        assert_eq!(lasting_circles(&circle, &circle), 1);
        let mut later = seen(&["a: x < y", "b: y < x"]);
        later[0].state.holders[0].token = Some(FencingToken::new(8));
        assert_eq!(lasting_circles(&circle, &later), 0, "another hold");
        let mut of_java = seen(&["a: x < y", "b: y < x"]);
        of_java[0].state.holders[0].token = None;
        assert_eq!(lasting_circles(&of_java, &of_java), 0, "perhaps another hold");
        later = seen(&["a: x < y", "b: y < x"]);
        later[1].state.queue[0].waiting = Some(Duration::from_secs(1));
        assert_eq!(lasting_circles(&circle, &later), 0, "another wait");
        assert_eq!(lasting_circles(&circle, &seen(&["a: x < y", "b: y"])), 0, "no wait");
        assert_eq!(lasting_circles(&circle, &seen(&["a: x < y"])), 0, "no lock");
    }

    /// The holds and waits of a circle last, but a holder beside it has gone on, and gives a unit back.
    #[test]
    fn a_circle_beside_a_holder_that_has_gone_on_is_none() {
        let first = seen(&["a/2: x=1 u=1 < y=1", "b: y < x", "c: u < v", "d: v < u"]);
        assert_eq!(lasting_circles(&first, &first), 2);
        let second = seen(&["a/2: x=1 u=1 < y=1", "b: y < x", "c: u < v", "d: v"]);
        assert_eq!(lasting_circles(&first, &second), 0);
    }

    /// An absent waiter waits for nothing.
    #[test]
    fn a_dead_waiter_is_in_no_deadlock() {
        let mut locks = seen(&["a: x < y", "b: y < x"]);
        locks[1].state.queue[0].place_left = Some(Duration::ZERO);
        assert!(deadlocks(&locks).is_empty());
    }
}
