//! Heartbeats, by steps of many locks.
//!
//! A row that is locked by another transaction (a step of another client, or the program's own with `still_held`) is skipped: it
//! does not delay the other renewals. In the end steps wait for the rows that all parts have skipped, one by one.
//!
//! Each part has the time of a call, and so have all waits for rows together: how many there are depends on the client, and no time left is
//! no outage.
//!
//! A hold whose row stays locked by `still_held` is not renewed, since the row can't be written. When the lease is over by the
//! client's clock, the guard says lost, although no other owner gets the lock before the transaction ends. The guard must say so:
//! the transaction may end at any moment, and the client can't see when.

use std::collections::BTreeMap;
use std::time::Instant;

use fairlock_core::LockName;
use fairlock_core::backend::{BackendError, Renew, Renewal};
use fairlock_rules::lock_of;

use crate::command::Command;
use crate::net::Failure;
use crate::step::{answers, answers_where_free};
use crate::store::Store;

/// The items to renew of one lock, each with its number.
type Asked<'a> = (&'a LockName, Vec<(usize, Renew<'a>)>);

/// The answers to the items, in their order. After a part without any answer of the server, no other part is asked.
pub(crate) fn renew(store: &Store, items: &[Renew<'_>]) -> Vec<Result<Renewal, BackendError>> {
    let mut by_lock = BTreeMap::<_, Vec<_>>::new();
    for (at, item) in items.iter().enumerate() {
        by_lock.entry(&lock_of(item).name).or_default().push((at, *item));
    }
    let mut all: Vec<_> = by_lock.into_iter().collect();
    all.sort_by_key(|(_, items)| matches!(items[..], [(_, Renew::Place { .. }), ..])); // holds first
    let next = store.pace.begins_with();
    let first = all.iter().position(|(lock, _)| Some(*lock) == next.as_ref());
    all.rotate_left(first.unwrap_or_default());
    let mut answers: Vec<_> = items.iter().map(|_| None).collect();
    let (mut blocked, mut silence) = (Vec::new(), None);
    let mut left = &all[..];
    while silence.is_none() && !left.is_empty() {
        let (part, rest) = left.split_at(store.pace.most().min(left.len()));
        let began = Instant::now();
        silence = renew_part(store, part, &mut answers, Some(&mut blocked));
        if silence.is_some() {
            store.pace.unanswered(part.len(), rest.first().unwrap_or(&all[0]).0);
        } else if began.elapsed() < store.pool.timeouts.response / 4 {
            store.pace.answered_in_good_time();
        }
        left = rest;
    }
    if !blocked.is_empty() {
        silence = silence.or_else(|| renew_part(store, &blocked, &mut answers, None));
    }
    let missing = silence.unwrap_or_else(|| Failure::senseless().into());
    answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(missing.clone()))).collect()
}

/// Renews the items of these locks. Waits for locked rows, or returns their locks. The error, if the server has answered nothing
/// at all.
fn renew_part<'a>(
    store: &Store,
    part: &[Asked<'a>],
    renewed: &mut [Option<Result<Renewal, BackendError>>],
    mut blocked: Option<&mut Vec<Asked<'a>>>,
) -> Option<BackendError> {
    let asked = part.iter().map(|(lock, items)| (*lock, Command::renew(items.iter().map(|(_, item)| item))));
    let given = match blocked {
        Some(_) => answers_where_free(store, asked),
        None => answers(store, asked, store.pool.deadline()),
    };
    let (mut is_heard, mut unheard) = (false, None);
    for ((lock, items), answer) in part.iter().zip(given) {
        let renewals = match answer.and_then(Vec::try_from) {
            // What the table kept is gone for certain, also if another table comes.
            Err(failure) if failure.is_of_dropped_table() => Ok(vec![Renewal::Lost; items.len()]),
            renewals => renewals,
        };
        is_heard |= renewals.as_ref().err().is_none_or(Failure::is_answer);
        let is_blocked = renewals.as_ref().is_err_and(Failure::is_of_blocked_row);
        if let Some(blocked) = blocked.as_mut().filter(|_| is_blocked) {
            blocked.push((*lock, items.clone()));
            continue;
        }
        match renewals.map_err(BackendError::from) {
            Ok(renewals) => {
                items.iter().zip(renewals).for_each(|((at, _), one)| renewed[*at] = Some(Ok(one)))
            }
            Err(error) => {
                items.iter().for_each(|(at, _)| renewed[*at] = Some(Err(error.clone())));
                unheard = Some(error);
            }
        }
    }
    unheard.filter(|_| !is_heard)
}

#[cfg(feature = "servers")]
#[cfg(test)]
mod tests;
