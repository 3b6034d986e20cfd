//! The oracle for exclusion: the units of all who believe in a hold.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fairlock::FencingToken;
use fairlock::admin::LockState;
use fairlock::admin::{LockKind, LockName};
use fairlock::owner::OwnerId;
use fairlock::stats::HeldLock;

use crate::life::Life;
use crate::look::Said;
use crate::server::LockAtServer;
use crate::world::{Promise, World};

/// What several clients say that they hold.
type Beliefs<'a> = Vec<(&'a Arc<Life>, &'a HeldLock)>;

/// Who believes in a hold of this lock is its holder at the server, with the same units and the same token, and believes in it
/// no longer than the server keeps it. And all of them fit together.
pub fn exclusion(world: &World, lock: &LockAtServer, said: &[Said], state: &LockState) {
    let name = &lock.name;
    let mut believed = beliefs(said);
    believed.retain(|(_, hold)| hold.lock == *name && !lock.forced.contains(&hold.token));
    for (_, hold) in &believed {
        let who = world.name_of(hold.owner.as_str());
        let HeldLock { token, units, valid_for, .. } = hold;
        let kept = state
            .holders
            .iter()
            .find(|kept| kept.owner == hold.owner && kept.token == Some(*token) && kept.units == *units);
        let Some(kept) = kept else {
            let holders: Vec<_> =
                lock.holders.iter().map(|kept| (world.name_of(&kept.owner), kept)).collect();
            let what = format!(
                "{name}: {who} believes in {token}, {units} units, for {valid_for:?} more; the server says {holders:?}"
            );
            world.found(Promise::Exclusion, what);
            continue;
        };
        let left = kept.lease_left.unwrap_or_default();
        if *valid_for > left {
            let what =
                format!("{name}: {who} believes in {token} for {valid_for:?}, the server for {left:?}");
            world.found(Promise::Exclusion, what);
        }
    }
    if let Some(why) = do_not_fit(&believed) {
        world.found(Promise::Exclusion, format!("{name}: {why}"));
    }
}

/// The same of a real server, where clients say it one after the other: the first one asked may have lost its hold when the
/// last is asked. So all are asked again, and who says it twice believed in it between.
pub fn each_other(world: &World, said: &[Said]) {
    let mut by_lock: HashMap<&LockName, Beliefs<'_>> = HashMap::new();
    for belief in beliefs(said) {
        by_lock.entry(&belief.1.lock).or_default().push(belief);
    }
    for (lock, mut believed) in by_lock {
        if do_not_fit(&believed).is_none() {
            continue;
        }
        let again: HashSet<(OwnerId, FencingToken)> = world
            .lives()
            .iter()
            .flat_map(|life| life.look(|client| client.held()).unwrap_or_default())
            .filter(|hold| hold.lock == *lock && !hold.valid_for.is_zero())
            .map(|hold| (hold.owner, hold.token))
            .collect();
        believed.retain(|(_, hold)| again.contains(&(hold.owner.clone(), hold.token)));
        if let Some(why) = do_not_fit(&believed).filter(|_| !world.was_forced(lock)) {
            world.found(Promise::Exclusion, format!("{lock}: {why}"));
        }
    }
}

fn beliefs(said: &[Said]) -> Beliefs<'_> {
    let all = said.iter().flat_map(|said| said.held.iter().flatten().map(move |hold| (&said.life, hold)));
    all.filter(|(_, hold)| !hold.valid_for.is_zero()).collect()
}

/// Why these can't hold one lock together, if they can't.
fn do_not_fit(believed: &Beliefs<'_>) -> Option<String> {
    let (_, first) = believed.first()?;
    // Semaphores of one name may have different numbers of permits: the last grant fitted by its own.
    let (_, last) = believed.iter().max_by_key(|(_, hold)| hold.token)?;
    let units = u64::from(last.kind.capacity());
    let taken: u64 = believed.iter().map(|(_, hold)| u64::from(hold.units)).sum();
    let is_other = |kind: LockKind| !kind.agrees_with(first.kind);
    if taken <= units && !believed.iter().any(|(_, hold)| is_other(hold.kind)) {
        return None;
    }
    let all = believed.iter().map(|(life, hold)| {
        format!("{life} believes in {}, {} units of a {}", hold.token, hold.units, hold.kind)
    });
    Some(all.collect::<Vec<_>>().join("; "))
}
