//! The watchdog's call: which scripts renew its holds and places, and the answer to each.

use std::collections::HashMap;
use std::time::Duration;

use fairlock_core::LockKind;
use fairlock_core::backend::{BackendError, Hold, LockId, Place, Renew, Renewal};

use super::Inner;
use crate::net::Order;
use crate::script::answers::{renewed, renewed_holds};
use crate::script::reply::missing;
use crate::script::run::{Call, CallFailure, run_all};

/// The most holds in one script, so that none keeps the server busy for long.
const MOST_HOLDS: usize = 100;
/// The most places in one script.
const MOST_PLACES: usize = 200;

type Answer = Result<Renewal, BackendError>;

/// A script, and the indices of the items that it renews: holds, or places of one lock.
struct Part {
    items: Vec<usize>,
    call: Result<Call, BackendError>,
}

impl Inner {
    /// One answer for each item, in order.
    pub(crate) fn renew(&self, items: &[Renew<'_>]) -> Vec<Answer> {
        let mut answers: Vec<Option<Answer>> = items.iter().map(|_| None).collect();
        // The nodes of a cluster keep some of the locks each, and a script is about one slot.
        let most = if self.shared.servers.is_one_server() { MOST_HOLDS } else { 1 };
        let mut parts = self.parts_of_holds(items, 0..items.len(), most);
        parts.extend(self.parts_of_places(items));
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
        // By their rules, whether their locks have parts, count and lease.
        let mut alike: HashMap<(bool, bool, u32, Duration), Vec<usize>> = HashMap::new();
        for at in among {
            if let Renew::Hold { hold, holds, lease } = &items[at] {
                let kind = hold.lock.kind;
                if let Ok(rules) = self.rules(hold.lock) {
                    rules.will_tell(*holds); // if one has to, all do: before any call is built
                }
                let alike_to = (kind == LockKind::Plain, kind.capacity() > 1, *holds, *lease);
                alike.entry(alike_to).or_default().push(at);
            }
        }
        let mut parts = Vec::new();
        for ((_, _, count, lease), of_kind) in alike {
            for chunk in of_kind.chunks(most) {
                let holds: Vec<_> = chunk.iter().filter_map(|at| hold_of(&items[*at])).collect();
                let rules = holds.first().ok_or_else(missing).and_then(|hold| self.rules(hold.lock));
                let call = rules.and_then(|rules| rules.renew_holds(&holds, count, lease));
                parts.push(Part { items: chunk.to_vec(), call });
            }
        }
        parts
    }

    fn parts_of_places(&self, items: &[Renew<'_>]) -> Vec<Part> {
        let mut places: HashMap<&LockId, Vec<usize>> = HashMap::new();
        for (at, item) in items.iter().enumerate() {
            if let Some((place, _)) = place_of(item) {
                places.entry(place.lock).or_default().push(at);
            }
        }
        let mut parts = Vec::new();
        for (lock, waiting) in places {
            for chunk in waiting.chunks(MOST_PLACES) {
                let places: Vec<_> = chunk.iter().filter_map(|at| place_of(&items[*at])).collect();
                let call = self.rules(lock).and_then(|rules| rules.renew_places(lock, &places));
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
            Err(CallFailure { is_refusal: true, .. }) if of.len() > 1 && hold_of(&items[of[0]]).is_some() => {
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
        for (of, reply) in asked.into_iter().zip(run_all(&self.shared.servers, &calls, Order::AtOnce)) {
            let rows = reply.and_then(|reply| {
                let rows = if hold_of(&items[of[0]]).is_some() {
                    renewed_holds(&reply, of.len())
                        .map(|rows| rows.into_iter().map(|row| row.map(Ok)).collect())
                } else {
                    renewed(&reply, of.len()).map(|rows| rows.into_iter().map(Some).collect())
                };
                rows.map_err(|error| CallFailure { is_refusal: false, error })
            });
            note(of, rows);
        }
        refused
    }
}

fn hold_of<'a>(item: &'a Renew<'a>) -> Option<&'a Hold<'a>> {
    if let Renew::Hold { hold, .. } = item { Some(hold) } else { None }
}

fn place_of<'a>(item: &'a Renew<'a>) -> Option<(&'a Place<'a>, Duration)> {
    if let Renew::Place { place, lease } = item { Some((place, *lease)) } else { None }
}

#[cfg(test)]
mod tests;
