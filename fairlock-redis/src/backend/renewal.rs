//! The watchdog's call: which scripts renew its holds and places, and the answer to each.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use fairlock_core::LockKind;
use fairlock_core::backend::{BackendError, Hold, Renew, Renewal};

use super::{Inner, by_rules};
use crate::net::Order;
use crate::script::reply::{missing, renewed, renewed_holds};
use crate::script::{Call, CallFailure};

/// The most holds in one script: no script keeps the server busy for long.
const MOST_HOLDS: usize = 100;
/// The most places in one script.
const MOST_PLACES: usize = 200;

type Answer = Result<Renewal, BackendError>;

/// A script, and the indices of the items that it renews: holds, or places of one lock.
struct Part<'a> {
    items: Vec<usize>,
    are_holds: bool,
    call: Result<Call<'a>, BackendError>,
}

impl Inner {
    /// One answer for each item, in order.
    pub(crate) fn renew(&self, items: &[Renew<'_>]) -> Vec<Answer> {
        let mut answers: Vec<Option<Answer>> = items.iter().map(|_| None).collect();
        let (mut holds, mut waiting) = (Vec::new(), HashMap::<_, Vec<_>>::new());
        for (at, item) in items.iter().enumerate() {
            match item {
                Renew::Hold { hold, holds: count, lease } => holds.push((at, hold, *count, *lease)),
                Renew::Place { place, lease } => {
                    waiting.entry(place.lock).or_default().push((at, (place, *lease)));
                }
            }
        }
        // The nodes of a cluster keep some of the locks each, and a script is about one slot.
        let most = if self.scripts.servers.is_one_server() { MOST_HOLDS } else { 1 };
        let mut parts = self.parts_of_holds(&holds, most);
        for (lock, places) in waiting {
            for chunk in places.chunks(MOST_PLACES) {
                let (items, places): (_, Vec<_>) = chunk.iter().copied().unzip();
                let call = self.rules(lock).and_then(|rules| by_rules!(rules, renew_places(lock, &places)));
                parts.push(Part { items, are_holds: false, call });
            }
        }
        let refused = self.renew_parts(parts, &mut answers);
        holds.retain(|(at, ..)| refused.contains(at));
        self.renew_parts(self.parts_of_holds(&holds, 1), &mut answers);
        let answer = |answer: Option<Answer>| answer.unwrap_or_else(|| Err(missing()));
        answers.into_iter().map(|row| answer(row).map(|row| self.wake_ups.renewed(row))).collect()
    }

    /// The scripts for holds, with their counts and leases.
    fn parts_of_holds<'a>(
        &self,
        holds: &[(usize, &'a Hold<'_>, u32, Duration)],
        most: usize,
    ) -> Vec<Part<'a>> {
        // Grouped by rules, by whether the locks have parts, by count and by lease.
        let mut alike: HashMap<_, Vec<(usize, &'a Hold<'_>)>> = HashMap::new();
        for &(at, hold, count, lease) in holds {
            if let Ok(rules) = self.rules(hold.lock) {
                by_rules!(rules, will_tell(count)); // if one has to, all do: before any call is built
            }
            let kind = hold.lock.kind;
            let alike_to = (kind == LockKind::Plain, kind.capacity() > 1, count, lease);
            alike.entry(alike_to).or_default().push((at, hold));
        }
        let mut parts = Vec::new();
        for ((_, _, count, lease), holds) in alike {
            for chunk in holds.chunks(most) {
                let (items, holds): (Vec<_>, Vec<&'a Hold<'_>>) = chunk.iter().copied().unzip();
                let rules = self.rules(holds[0].lock);
                let call = rules.and_then(|rules| by_rules!(rules, renew_holds(&holds, count, lease)));
                parts.push(Part { items, are_holds: true, call });
            }
        }
        parts
    }

    /// Runs the scripts and notes the answers. Returns the holds for which a script of many was refused: the script does not say
    /// why, so each of these holds is renewed alone.
    fn renew_parts(&self, parts: Vec<Part<'_>>, answers: &mut [Option<Answer>]) -> HashSet<usize> {
        let (mut calls, mut asked, mut refused) = (Vec::new(), Vec::new(), HashSet::new());
        let mut note = |of: Vec<usize>, are_holds, rows: Result<Vec<Option<Answer>>, CallFailure>| match rows
        {
            Ok(rows) => {
                for (at, row) in of.into_iter().zip(rows) {
                    if row.is_none() {
                        refused.insert(at);
                    }
                    answers[at] = row;
                }
            }
            Err(CallFailure { is_refusal: true, .. }) if are_holds && of.len() > 1 => refused.extend(of),
            Err(CallFailure { error, .. }) => {
                of.into_iter().for_each(|at| answers[at] = Some(Err(error.clone())));
            }
        };
        for Part { items, are_holds, call } in parts {
            match call {
                Ok(call) => {
                    calls.push(call);
                    asked.push((items, are_holds));
                }
                Err(error) => note(items, are_holds, Err(CallFailure { is_refusal: true, error })),
            }
        }
        let replies = self.scripts.run_all(&calls, Order::AtOnce);
        for ((of, are_holds), reply) in asked.into_iter().zip(replies) {
            let rows = reply.and_then(|reply| {
                let rows = match are_holds {
                    true => renewed_holds(&reply, of.len()),
                    false => renewed(&reply, of.len()),
                };
                rows.map_err(|error| CallFailure { is_refusal: false, error })
            });
            note(of, are_holds, rows);
        }
        refused
    }
}

#[cfg(test)]
mod tests;
