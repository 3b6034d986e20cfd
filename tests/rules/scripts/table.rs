//! Runs the table: each cell is compared with the same operation, with keys in the same state, on a healthy server.

use std::time::Duration;

use fairlock::FencingToken;
use fairlock::backend::{Backend, BackendError, BackendErrorKind, Wait, only};
use fairlock_tests::{Alone, RedisServer};

use super::refusals::{self, Refusal, Users};
use super::scenes::{Ask, Scene, scenes};
use super::states::{State, has_no_ttl_by_rule};
use super::world::{Keys, Lasts, NAME, Rules, World, told_apart_from_time};

#[test]
fn no_operation_of_the_hand_off_is_ever_half_executed() {
    run(Rules::HandOff);
}

#[test]
fn no_operation_of_a_semaphore_is_ever_half_executed() {
    run(Rules::Parts);
}

#[cfg(feature = "night")]
#[test]
fn no_request_for_all_permits_is_ever_half_executed() {
    run(Rules::All);
}

#[cfg(feature = "night")]
#[test]
fn no_operation_of_redissons_fair_lock_is_ever_half_executed() {
    run(Rules::Redisson);
}

#[cfg(feature = "night")]
#[test]
fn no_operation_of_a_plain_lock_is_ever_half_executed() {
    run(Rules::Plain);
}

/// A lock that may get no end is not taken, whatever else is missing. The table takes one right away; here what the first write
/// has done can't be taken back in the shortest way, either.
#[test]
fn a_lock_that_may_get_no_end_is_not_taken() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let world = World::new(&server, Rules::HandOff);
    let lacks = Refusal::Command("pexpire");
    for more in ["-pexpire", "-del", "-hdel"] {
        let url = refusals::user(&server, lacks, Rules::HandOff.keys().iter().copied());
        server.query::<()>(&["ACL", "SETUSER", &format!("{lacks:?}"), more]);
        let answer = only(Rules::HandOff.connect(&url).acquire(&[world.ask(&world.dora, Wait::Forever)]));
        assert_eq!(answer.unwrap_err().kind(), BackendErrorKind::Denied, "{more}");
        assert!(world.keys().is_empty(), "{more}: {:?}", world.keys());
    }
}

fn run(rules: Rules) {
    let _alone = Alone::for_as_long(Duration::from_secs(20 * 60)); // it computes
    let server = refusals::server();
    let table = Table::new(&server, rules);
    let (mut cells, mut wrong) = (0, Vec::new());
    for scene in scenes(rules) {
        for (key, state) in columns(rules) {
            let reference = table.cell(scene, key, state, Refusal::None);
            let refusals = Refusal::all(rules).into_iter();
            for refusal in
                refusals.filter(|refusal| state == State::Right || refusal.is_for_every_state(rules))
            {
                cells += 1;
                let cell = table.cell(scene, key, state, refusal);
                if let Err(why) = table.judge(&cell, &reference) {
                    wrong.push(format!("{refusal:?}, {scene:?}, {key} {state:?}: {why}"));
                }
            }
        }
    }
    assert!(cells > 1000, "{cells} cells");
    let shown = &wrong[..wrong.len().min(20)];
    assert!(wrong.is_empty(), "{} of {cells} cells: {shown:#?}", wrong.len());
}

fn columns(rules: Rules) -> Vec<(&'static str, State)> {
    let mut columns = vec![(NAME, State::Right)];
    for key in rules.keys() {
        columns.extend(State::ALL.iter().filter(|state| **state != State::Right).map(|state| (*key, *state)));
    }
    columns
}

struct Table {
    world: World,
    users: Users,
    at: String,
}

/// The outcome of a cell.
struct Cell {
    scene: Scene,
    state: State,
    refusal: Refusal,
    before: Keys,
    after: Keys,
    answer: Result<String, BackendError>,
    /// Whether another owner can take the lock once the server is healthy and all others have left.
    next: Result<(), String>,
}

impl Table {
    fn new(server: &RedisServer, rules: Rules) -> Table {
        let (world, users) = (World::new(server, rules), Users::new(server, rules));
        Table { world, users, at: server.address() }
    }

    fn cell(&self, scene: Scene, key: &'static str, state: State, refusal: Refusal) -> Cell {
        let world = &self.world;
        let token = scene.before.arrange(world);
        state.bring(world, key);
        let before = world.keys();
        refusal.begin(world);
        let answer = scene.ask.run(world, self.users.backend(world, refusal), token);
        refusal.end(world);
        let after = world.keys();
        // For the others it follows from the keys, which are as before or as on a healthy server.
        let next = if refusal.is_of_the_server() { self.afterwards(key, state, token) } else { Ok(()) };
        Cell { scene, state, refusal, before, after, answer, next }
    }

    fn afterwards(&self, key: &str, state: State, token: FencingToken) -> Result<(), String> {
        let rules = self.world.rules;
        let unreadable = match state {
            State::OtherType => true,
            State::Foreign => key == NAME,
            // The holder is known from the hash and, except for the hand-off, from the token.
            State::Garbled => {
                key == NAME
                    || matches!(rules, Rules::Redisson | Rules::Plain) && key.starts_with("fairlock_record")
            }
            _ => false,
        };
        if unreadable {
            return Ok(());
        }
        self.world.everybody_leaves(token);
        self.world.next_one_gets_it()
    }

    fn judge(&self, cell: &Cell, reference: &Cell) -> Result<(), String> {
        let (rules, refusal) = (self.world.rules, cell.refusal);
        match &cell.answer {
            Ok(word) => {
                let expected = reference.answer.as_ref().map_err(|e| format!("{word}, and it was {e}"))?;
                same("the answer", word, expected)?;
                let (after, expected) =
                    (told_apart_from_time(&cell.after), told_apart_from_time(&reference.after));
                same("all of the effect", &after, &expected)?;
            }
            Err(error) => {
                // In Redisson's queue, any newcomer removes dead waiters, whatever its own outcome.
                let queue_may_change = rules == Rules::Redisson
                    && matches!(cell.state, State::Foreign | State::Garbled | State::Expired | State::Absent);
                for key in rules.keys().iter().filter(|key| !queue_may_change || !key.starts_with("redisson"))
                {
                    let after = cell.after.get(key).cloned();
                    let mut before = cell.before.get(key).cloned();
                    // A foreign client has removed its TTL: it may get one again, and nothing else may change.
                    if let (Some(before), Some(after)) = (&mut before, &after)
                        && before.lasts == Lasts::ForEver
                    {
                        before.lasts = after.lasts;
                    }
                    // Who releases no longer counts on the lease.
                    if let (Some(before), Some(after)) = (&mut before, &after)
                        && cell.scene.ask == Ask::Release
                        && matches!(before.lasts, Lasts::TensOfSeconds(_))
                    {
                        before.lasts = after.lasts;
                    }
                    same(key, &after, &before)?;
                }
                let of_keys = reference.answer.as_ref().err().map(BackendError::kind);
                let of_server = refusal.says();
                let known = match error.kind() {
                    BackendErrorKind::Corrupt => {
                        // A fast part does not look at the ends beside a hold of all units.
                        let is_unread = rules == Rules::All && error.message().contains("key `fairlock_ends");
                        (of_keys == Some(BackendErrorKind::Corrupt) || is_unread)
                            && error.message().contains("something that is not ours")
                    }
                    // The hash no longer says that several owners hold it.
                    BackendErrorKind::Mismatch => of_keys == Some(BackendErrorKind::Mismatch),
                    kind => of_server
                        .is_some_and(|(expected, says)| kind == expected && error.message().contains(says)),
                };
                if !known || !error.message().contains(&self.at) {
                    return Err(format!("the wrong error: {error:?}"));
                }
            }
        }
        if refusal == Refusal::Full && cell.state == State::Right {
            let refused = cell.answer.is_err();
            same("refused when full", &refused, &cell.scene.is_refused_when_full)?;
        }
        for (name, key) in &cell.after {
            let had_none = cell.before.get(name).is_some_and(|before| before.lasts == Lasts::ForEver);
            if key.lasts == Lasts::ForEver && !had_none && !has_no_ttl_by_rule(rules, name) {
                return Err(format!("{name} never expires"));
            }
        }
        cell.next.clone().map_err(|e| format!("afterwards: {e}"))
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?} instead of {expected:?}")) }
}
