//! Questions about a hold, whichever rules granted it.

use std::time::Duration;

use fairlock_core::backend::{BackendError, Hold, HoldCountSet, Renewal};
use redis::Value;

use crate::inner::{Inner, Rules};
use crate::reply::Row;
use crate::resp::millis;
use crate::run::{Call, run};
use crate::scripts;

pub(crate) fn set_hold_count(
    inner: &Inner,
    hold: &Hold<'_>,
    holds: u32,
) -> Result<HoldCountSet, BackendError> {
    let arguments =
        [hold.owner.as_str().into(), hold.request.into(), hold.token.into(), u64::from(holds).into()];
    let call = Call::new(&scripts::HOLD_SET_HOLD_COUNT, &inner.keys(hold.lock)?, &arguments);
    let reply = run(&inner.servers, &call)?;
    let row = Row::of(&reply)?;
    match row.word {
        "set" => Ok(HoldCountSet::Set),
        "lost" => Ok(HoldCountSet::Lost),
        _ => Err(row.unexpected()),
    }
}

pub(crate) fn renew(
    inner: &Inner,
    hold: &Hold<'_>,
    holds: u32,
    lease: Duration,
) -> Result<Call, BackendError> {
    let script = match inner.rules(hold.lock) {
        Rules::HandOff => &scripts::HAND_OFF_RENEW_HOLD,
        Rules::Redisson | Rules::Plain => &scripts::HOLD_RENEW,
    };
    let arguments = [
        hold.owner.as_str().into(),
        hold.request.into(),
        hold.token.into(),
        u64::from(holds).into(),
        millis(lease).into(),
    ];
    Ok(Call::new(script, &inner.keys(hold.lock)?, &arguments))
}

pub(crate) fn renewed(reply: &Value) -> Result<Renewal, BackendError> {
    let row = Row::of(reply)?;
    match row.word {
        "renewed" => Ok(Renewal::Renewed),
        "lost" => Ok(Renewal::Lost),
        _ => Err(row.unexpected()),
    }
}
