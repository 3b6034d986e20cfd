//! A client on PostgreSQL that is far away, with hundreds of holds, shared holds and waits. It loses none of them while nothing happens to
//! it but that others lock some of the rows.

use std::sync::Arc;
use std::time::Duration;

use fairlock::owner::Owner;
use fairlock::waits::Request;
use fairlock::{Client, Guard, Result};
use fairlock_tests::by_threads;

use crate::judge;
use crate::rows::Rows;
use crate::world::{Promise, World};

/// Longer than the server stands still.
const LEASE: Duration = Duration::from_secs(6);
const PLACE: Duration = Duration::from_secs(3);
/// One of so many locks that it waits for has its row locked by others, from then on and for so long.
const BLOCKED: usize = 16;
const BLOCKS_AT: Duration = Duration::from_secs(5);
const BLOCKS_FOR: Duration = Duration::from_secs(2);
/// When the locks that it waits for are given back.
const ENDS: Duration = Duration::from_secs(10);
/// How its losses are counted.
pub const LOSSES: &str = "crowd: losses";
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// All that it does, so many times each.
pub fn stand(world: &Arc<World>, each: usize, rows: &Rows) {
    let began = world.now();
    let client = |number| {
        let backend = world.backend(world.program.clients.len() + number);
        let client = Client::builder(backend).lease(LEASE).place_ttl(PLACE).build().expect("good settings");
        let told = Arc::downgrade(world);
        client.on_lost(move |_| {
            if let Some(world) = told.upgrade() {
                world.count(LOSSES);
            }
        });
        client
    };
    // The crowd, and who holds what it waits for.
    let [ours, theirs] = &[0, 1].map(client);
    let found = |since, what: &str| {
        if judge::could_all_be_reached(world, since, PLACE) {
            world.found(Promise::Kept, format!("the crowd: {what}"));
        }
    };
    let fails = |what: &str| found(began, what);
    let names = |what: &str| (0..each).map(|number| format!("{what} {number}")).collect::<Vec<_>>();
    let fair = |client: &Client, name: &str| client.fair_lock(name)?.owned_by(&client.new_owner());
    let take = |client: &Client, name: &str| fair(client, name)?.lock();
    let others = many(names("awaited"), &fails, |name| take(theirs, &name));
    let mut held = many(names("held"), &fails, |name| take(ours, &name));
    held.extend(many(names("shared"), &fails, |name| {
        ours.rw_lock(&name)?.owned_by(&ours.new_owner())?.read()
    }));
    let waits = many(names("awaited"), &fails, |name| fair(ours, &name)?.request());
    world.note(format_args!("the crowd has {} holds and {} waits", held.len(), waits.len()));
    let (blocked, free): (Vec<_>, Vec<_>) =
        names("awaited").into_iter().enumerate().partition(|(number, _)| number % BLOCKED == 0);
    let mut blocked = Some(blocked.into_iter().map(|(_, name)| name).collect());
    while world.now() < ENDS && !world.is_over() {
        if let Some(names) = blocked.take_if(|_| world.now() >= BLOCKS_AT) {
            rows.lock(names, None, BLOCKS_FOR);
        }
        let lost = held.extract_if(.., |guard| guard.is_lost());
        let since = world.now().saturating_sub(LEASE);
        lost.for_each(|guard| found(since, &format!("its hold of {} is lost", guard.name())));
        for (_, name) in &free {
            match theirs.fair_lock(name).and_then(|lock| lock.admin().inspect()) {
                Ok(state) if state.absent == 0 => {}
                state => found(since, &format!("its place for {name}: {state:?}")),
            }
        }
        world.clock.sleep(LOOK);
    }
    world.count("crowds");
    many(others, &fails, Guard::unlock);
    many(waits, &fails, |wait: Request<Owner>| wait.wait()?.unlock());
    many(held, &fails, Guard::unlock);
}

/// Does this with all of them. The results, without those that fail.
fn many<A: Send, T: Send>(
    all: Vec<A>,
    fails: &(dyn Fn(&str) + Sync),
    act: impl Fn(A) -> Result<T> + Sync,
) -> Vec<T> {
    let done = by_threads(all, |one| act(one).inspect_err(|error| fails(&error.to_string())).ok());
    done.into_iter().flatten().collect()
}
