//! What is said about a hold, whatever the discipline that granted it.

use std::time::Duration;

use fairlock_core::backend::{BackendError, Hold, HoldCountSet, Renewal};
use redis::Value;

use crate::backend::Inner;
use crate::keys::Keys;
use crate::reply::Row;
use crate::run::{Call, run};
use crate::scripts;
use crate::text::{millis, request, token};

pub(crate) fn set_hold_count(
    inner: &Inner,
    hold: &Hold<'_>,
    holds: u32,
) -> Result<HoldCountSet, BackendError> {
    let keys = Keys::of(hold.lock)?;
    let arguments = [hold.owner.as_str(), &request(hold.request), &token(hold.token), &holds.to_string()];
    let call = Call::new(&scripts::HOLD_SET_HOLD_COUNT, &[&keys.lock, &keys.token], &arguments);
    let reply = run(&inner.servers, &call)?;
    let row = Row::of(&reply)?;
    match row.word {
        "set" => Ok(HoldCountSet::Set),
        "lost" => Ok(HoldCountSet::Lost),
        _ => Err(row.unexpected()),
    }
}

pub(crate) fn renew(hold: &Hold<'_>, holds: u32, lease: Duration) -> Result<Call, BackendError> {
    let keys = Keys::of(hold.lock)?;
    let arguments =
        [hold.owner.as_str(), &request(hold.request), &token(hold.token), &holds.to_string(), &millis(lease)];
    Ok(Call::new(&scripts::HOLD_RENEW, &[&keys.lock, &keys.token], &arguments))
}

pub(crate) fn renewed(reply: &Value) -> Result<Renewal, BackendError> {
    let row = Row::of(reply)?;
    match row.word {
        "renewed" => Ok(Renewal::Renewed),
        "lost" => Ok(Renewal::Lost),
        _ => Err(row.unexpected()),
    }
}
