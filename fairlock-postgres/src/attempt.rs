//! The statements of the fast parts, each for many locks: see `fast`.

use fairlock_core::OwnerId;
use fairlock_core::backend::{Hold, LockId, RequestId};
use postgres_protocol::Oid;

use crate::net::{BYTEA, INT8, Statement, TEXT, Value};

/// The numbers are those of `Turn::next_number`, the times those of `LockRow`.
const ACQUIRE: &str = "\
    update fairlock.lock l set rev = rev + 1, last = c.number, dead_at = greatest(c.now + c.lease, c.number) + 86400000000, \
      h_owner = c.owner, h_request = c.request, h_token = c.number, h_count = 1, h_since = c.now, h_ends = c.now + c.lease, h_label = c.label \
    from (select * from (select fairlock.micros() as now offset 0) t, \
        unnest($1::bytea[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[]) \
          with ordinality a(name, owner, request, lease, label, ends, nth), \
        lateral (select ctid as at, greatest(last + 1, least(now, 4503599627370496)) as number from fairlock.lock l \
          where l.name = a.name and state = '' and (h_ends is null or h_ends <= now) and now <= a.ends \
            and coalesce($7::bigint, fairlock.grace_ends()) <= now for update skip locked) f) c \
    where l.ctid = c.at returning c.nth, c.now, h_token, c.lease";
const RELEASE: &str = "\
    update fairlock.lock l set rev = rev + 1, dead_at = last + 86400000000, h_owner = null, h_request = null, h_token = null, \
      h_count = null, h_since = null, h_ends = null, h_label = null \
    from (select * from (select fairlock.micros() as now offset 0) t, \
        unnest($1::bytea[], $2::text[], $3::bigint[], $4::bigint[]) with ordinality a(name, owner, request, token, nth), \
        lateral (select ctid as at from fairlock.lock l where l.name = a.name and state = '' and h_owner = a.owner \
          and h_request = a.request and h_token = a.token and h_ends > now for update skip locked) f) c \
    where l.ctid = c.at returning c.nth, c.now";

const RENEW: &str = "\
    update fairlock.lock l set rev = rev + 1, h_count = c.holds, h_ends = greatest(h_ends, c.now + c.lease), \
      dead_at = greatest(dead_at, c.now + c.lease + 86400000000) \
    from (select * from (select fairlock.micros() as now offset 0) t, \
        unnest($1::bytea[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) \
          with ordinality a(name, owner, request, token, holds, lease, nth), \
        lateral (select ctid as at from fairlock.lock l where l.name = a.name and h_owner = a.owner \
          and h_request = a.request and h_token = a.token and h_ends > now for update skip locked) f) c \
    where l.ctid = c.at returning c.nth, c.now, state <> ''";

/// What a fast part may do, in the order in which a flight does it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum What {
    Renew,
    Release,
    Acquire,
}

/// What one of them does for one question: the values that stand in its arrays, each with its type.
pub(crate) struct Attempt {
    pub(crate) what: What,
    values: Vec<(Oid, Value)>,
}

impl Attempt {
    /// The values after these three are given.
    pub(crate) fn new(
        what: What,
        lock: &LockId,
        owner: &OwnerId,
        request: RequestId,
        more: impl IntoIterator<Item = (Oid, Value)>,
    ) -> Attempt {
        let name = lock.name.as_str().as_bytes().into();
        let named =
            [(BYTEA, name), (TEXT, owner.as_str().into()), (INT8, request.get().cast_signed().into())];
        Attempt { what, values: named.into_iter().chain(more).collect() }
    }

    pub(crate) fn of_hold<const N: usize>(what: What, hold: &Hold<'_>, more: [i64; N]) -> Attempt {
        let more = more.map(|number| (INT8, number.into()));
        Attempt::new(what, hold.lock, hold.owner, hold.request, more)
    }
}

pub(crate) fn statement(what: What, attempts: &[Attempt], grace_ends: Option<i64>) -> Statement {
    let types = attempts.first().into_iter().flat_map(|first| first.values.iter().map(|(oid, _)| *oid));
    let column = |(at, oid): (usize, Oid)| {
        Value::array(oid, attempts.iter().map(|attempt| attempt.values[at].1.clone()))
    };
    let values = types.enumerate().map(column);
    match what {
        What::Renew => Statement::new(RENEW, values.collect::<Vec<_>>()),
        What::Release => Statement::new(RELEASE, values.collect::<Vec<_>>()),
        What::Acquire => Statement::new(ACQUIRE, values.chain([grace_ends.into()]).collect::<Vec<_>>()),
    }
}
