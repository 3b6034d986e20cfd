//! Looks at a lock with our line: what the reply says of holders and waiters.

use fairlock_core::backend::{BackendError, Holder, LockId, LockState, MOST_INSPECTED, RequestId, Waiter};
use fairlock_core::{LockKind, OwnerId};
use redis::Value;

use super::HandOff;
use crate::rules::{Kinds, Line, Look};
use crate::script::keys::{Keys, lines};
use crate::script::reply::{Row, items, number, time, token, written};
use crate::script::run::Call;
use crate::script::scripts;

impl Line for HandOff {
    fn look(&self, lock: &LockId, at: &Look) -> Result<Call, BackendError> {
        let capacity = if at.kinds == Kinds::Any { 0 } else { u64::from(lock.kind.capacity()) };
        let arguments = [MOST_INSPECTED, at.from, at.many, at.examined, capacity].map(Into::into);
        Ok(Call::new(&scripts::LINE_INSPECT, &self.shared.keys(lock)?, &arguments))
    }

    fn seen(&self, asked: LockKind, reply: &Value) -> Result<LockState, BackendError> {
        let row = Row::of(reply)?;
        let mut state = LockState::default();
        let is_told = |capacity: &u32| *capacity > 1 || asked.is_shared() && asked.capacity() == 1;
        state.capacity = u32::try_from(row.number(0)?).ok().filter(is_told);
        state.holders = items(row.at(3)?)?.chunks_exact(8).map(holder).collect::<Result<_, _>>()?;
        state.holders.sort_by_key(|holder| holder.token);
        state.unlisted_holders = row.rank(2)?.saturating_sub(state.holders.len() as u64);
        if state.unlisted_holders > 0 {
            let used = u32::try_from(row.rank(1)?).unwrap_or(u32::MAX);
            state.unlisted_units = used.saturating_sub(state.taken());
        }
        (state.line_length, state.absent) = (row.rank(4)?, row.rank(5)?);
        state.line = items(row.at(6)?)?.chunks_exact(5).map(waiter).collect::<Result<_, _>>()?;
        Ok(state)
    }

    fn keys_like(&self, pattern: &str) -> (Vec<String>, &'static str) {
        (lines(pattern).to_vec(), "zset")
    }

    fn needed<'k>(&self, keys: &'k Keys, client_channel: &'k str) -> [Vec<Vec<&'k str>>; 2] {
        let (line, record, ends) = (keys.line().text(), keys.record().text(), keys.ends().text());
        let all = vec![
            vec!["ZADD", line, "XX", "0", "a"],
            vec!["ZSCORE", line, "a"],
            vec!["ZREM", line, "a"],
            vec!["ZRANGE", line, "0", "0"],
            vec!["ZCARD", line],
            vec!["HDEL", record, "a"],
            vec!["ZRANK", line, "a"],
            vec!["PUBSUB", "NUMSUB", client_channel],
        ];
        [all, vec![vec!["ZADD", ends, "XX", "0", "a"]]]
    }
}

/// Owner, request, how long it has waited, what is left of its place, and its label, which begins with `<takes>/<capacity> `.
fn waiter(place: &[Value]) -> Result<Waiter, BackendError> {
    let mut waiter = Waiter::new(OwnerId::new(&written(&place[0])?));
    waiter.request = request(&place[1])?;
    waiter.waiting = time(&place[2])?;
    waiter.place_left = time(&place[3])?;
    let label = written(&place[4])?;
    let (units, label) = label.split_once(' ').unwrap_or((&label, ""));
    let takes = units.split_once('/').and_then(|(takes, _)| takes.parse().ok());
    waiter.takes = takes.unwrap_or(waiter.takes);
    waiter.label = Some(label.to_owned()).filter(|label| !label.is_empty());
    Ok(waiter)
}

/// Owner, request, units, token, count, label, what is left of the lease, for how long it is held. What only our own holds have may be
/// empty.
fn holder(hold: &[Value]) -> Result<Holder, BackendError> {
    let small = |value: &Value| number(value).map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    let mut holder = Holder::new(OwnerId::new(&written(&hold[0])?), small(&hold[4])?);
    holder.request = request(&hold[1])?;
    holder.takes = small(&hold[2])?;
    holder.token = if written(&hold[3])?.is_empty() { None } else { Some(token(&hold[3])?) };
    holder.label = Some(written(&hold[5])?.into_owned()).filter(|label| !label.is_empty());
    holder.lease_left = time(&hold[6])?;
    holder.held_for = time(&hold[7])?;
    Ok(holder)
}

fn request(written_in_hex: &Value) -> Result<Option<RequestId>, BackendError> {
    Ok(u64::from_str_radix(&written(written_in_hex)?, 16).ok().map(RequestId::new))
}
