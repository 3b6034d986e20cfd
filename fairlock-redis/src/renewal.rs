//! The watchdog's call: which scripts renew its holds and places, and the answer to each.

use std::collections::HashMap;
use std::time::Duration;

use fairlock_core::backend::{BackendError, LockId, Renew, Renewal};

use crate::disciplines::{hand_off, hold, plain, redisson, renewed_rows, shared};
use crate::inner::{Inner, Rules};
use crate::net::topology::Order;
use crate::reply::missing;
use crate::run::{Call, CallFailure, run_all};

/// The most holds in one script, so that none keeps the server busy for long.
const MOST_HOLDS: usize = 100;
/// The most places in one script.
const MOST_PLACES: usize = 200;

type Answer = Result<Renewal, BackendError>;

/// A script, and the indices of the items that it renews: holds, or places of one lock. With several holders both, the holds
/// first.
struct Part {
    items: Vec<usize>,
    call: Result<Call, BackendError>,
}

impl Inner {
    /// One answer for each item, in order.
    pub(crate) fn renew(&self, items: &[Renew<'_>]) -> Vec<Answer> {
        let mut answers: Vec<Option<Answer>> = items.iter().map(|_| None).collect();
        // The nodes of a cluster keep some of the locks each, and a script is about one slot.
        let most = if self.servers.is_one_server() { MOST_HOLDS } else { 1 };
        let mut parts = self.parts_of_holds(items, 0..items.len(), most);
        parts.extend(self.parts_of_places(items));
        parts.extend(self.parts_of_shared(items));
        let refused = self.renew_parts(parts, items, &mut answers);
        if !refused.is_empty() {
            let parts = self.parts_of_holds(items, refused, 1);
            self.renew_parts(parts, items, &mut answers);
        }
        answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(missing()))).collect()
    }

    fn parts_of_holds(
        &self,
        items: &[Renew<'_>],
        among: impl IntoIterator<Item = usize>,
        most: usize,
    ) -> Vec<Part> {
        let mut alike: HashMap<(Rules, u32, Duration), Vec<usize>> = HashMap::new();
        for at in among {
            if let Renew::Hold { hold, holds, lease } = &items[at]
                && self.rules(hold.lock) != Rules::Shared
            {
                self.tells_count(*holds); // if one has to, all do: before any call is built
                alike.entry((self.rules(hold.lock), *holds, *lease)).or_default().push(at);
            }
        }
        let mut parts = Vec::new();
        for ((rules, count, lease), of_kind) in alike {
            for chunk in of_kind.chunks(most) {
                let holds: Vec<_> = chunk
                    .iter()
                    .filter_map(|at| match &items[*at] {
                        Renew::Hold { hold, .. } => Some(hold),
                        Renew::Place { .. } => None,
                    })
                    .collect();
                let call = hold::renew(self, rules, &holds, count, lease);
                parts.push(Part { items: chunk.to_vec(), call });
            }
        }
        parts
    }

    fn parts_of_places(&self, items: &[Renew<'_>]) -> Vec<Part> {
        let mut places: HashMap<&LockId, Vec<usize>> = HashMap::new();
        for (at, item) in items.iter().enumerate() {
            if let Renew::Place { place, .. } = item
                && self.rules(place.lock) != Rules::Shared
            {
                places.entry(place.lock).or_default().push(at);
            }
        }
        let mut parts = Vec::new();
        for (lock, waiting) in places {
            for chunk in waiting.chunks(MOST_PLACES) {
                let of_lock = chunk.iter().filter_map(|at| match &items[*at] {
                    Renew::Place { place, lease } => Some((place, *lease)),
                    Renew::Hold { .. } => None,
                });
                let call = match self.rules(lock) {
                    Rules::HandOff | Rules::Shared => hand_off::renew(self, lock, of_lock),
                    Rules::Redisson => redisson::renew(self, lock, of_lock),
                    Rules::Plain => plain::renew(self, lock, of_lock),
                };
                parts.push(Part { items: chunk.to_vec(), call });
            }
        }
        parts
    }

    /// Holds and places of a lock with several holders: one script frees what is over, and grants it to the waiters.
    fn parts_of_shared(&self, items: &[Renew<'_>]) -> Vec<Part> {
        let mut of_locks: HashMap<&LockId, Vec<usize>> = HashMap::new();
        for (at, item) in items.iter().enumerate() {
            let lock = lock_of(item);
            if self.rules(lock) == Rules::Shared {
                of_locks.entry(lock).or_default().push(at);
            }
        }
        let mut parts = Vec::new();
        for (lock, mut of_lock) in of_locks {
            of_lock.sort_by_key(|at| matches!(items[*at], Renew::Place { .. }));
            for chunk in of_lock.chunks(MOST_HOLDS) {
                let call = shared::renew(self, lock, chunk.iter().map(|at| &items[*at]));
                parts.push(Part { items: chunk.to_vec(), call });
            }
        }
        parts
    }

    /// Runs the scripts and notes the answers. Returns the holds for which a script of many was refused: it does not say why,
    /// so each of them is asked for alone.
    fn renew_parts(
        &self,
        parts: Vec<Part>,
        items: &[Renew<'_>],
        answers: &mut [Option<Answer>],
    ) -> Vec<usize> {
        let (mut calls, mut asked, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        let mut note = |of: Vec<usize>, rows: Result<Vec<Option<Answer>>, CallFailure>| match rows {
            Ok(rows) => {
                for (at, row) in of.into_iter().zip(rows) {
                    if row.is_none() {
                        refused.push(at);
                    }
                    answers[at] = row;
                }
            }
            Err(CallFailure { is_refusal: true, .. }) if of.len() > 1 && self.is_of_holds(&items[of[0]]) => {
                refused.extend(of);
            }
            Err(CallFailure { error, .. }) => {
                of.into_iter().for_each(|at| answers[at] = Some(Err(error.clone())));
            }
        };
        for Part { items: of, call } in parts {
            match call {
                Ok(call) => {
                    calls.push(call);
                    asked.push(of);
                }
                Err(error) => note(of, Err(CallFailure { is_refusal: true, error })),
            }
        }
        for (of, reply) in asked.into_iter().zip(run_all(&self.servers, &calls, Order::AtOnce)) {
            let rows = reply.and_then(|reply| {
                let rows = if self.is_of_holds(&items[of[0]]) {
                    hold::renewed(&reply, of.len())
                        .map(|rows| rows.into_iter().map(|row| row.map(Ok)).collect())
                } else {
                    renewed_rows(&reply, of.len()).map(|rows| rows.into_iter().map(Some).collect())
                };
                rows.map_err(|error| CallFailure { is_refusal: false, error })
            });
            note(of, rows);
        }
        refused
    }

    /// Whether the script with this item is one for holds of many locks, whose reply has no row for each.
    fn is_of_holds(&self, item: &Renew<'_>) -> bool {
        matches!(item, Renew::Hold { hold, .. } if self.rules(hold.lock) != Rules::Shared)
    }
}

fn lock_of<'a>(item: &Renew<'a>) -> &'a LockId {
    match item {
        Renew::Hold { hold, .. } => hold.lock,
        Renew::Place { place, .. } => place.lock,
    }
}

#[cfg(test)]
mod tests;
