//! The holder of a lock, as the scripts that inspect it describe it.

use std::time::Duration;

use fairlock_core::OwnerId;
use fairlock_core::backend::{BackendError, BackendErrorKind, Holder};

use crate::inner::Inner;
use crate::reply::{Row, items, number, text, time, token, written};

/// The first three items of the reply: owner and hold count, the lease left, and the description of the latest grant.
pub(super) fn holder(inner: &Inner, row: &Row<'_>) -> Result<Option<Holder>, BackendError> {
    // A field that cannot be read was written neither by fairlock nor by Redisson.
    read(row).map_err(|_| {
        let (at, what) = (&inner.servers, "something that is not ours lies under the key");
        let message = format!("Redis at {at}, inspect: {what} (the holder can't be read)");
        BackendError::new(BackendErrorKind::Corrupt, message)
    })
}

fn read(row: &Row<'_>) -> Result<Option<Holder>, BackendError> {
    let [owner, count, ..] = items(row.at(0)?)? else { return Ok(None) };
    let count = u32::try_from(number(count)?).map_err(|_| row.unexpected())?;
    let mut holder = Holder::new(OwnerId::new(&written(owner)?), count);
    holder.lease_left = time(row.at(1)?)?;
    // The description is of the latest grant to a fairlock client: it is this holder's only if it names this owner.
    if let [described, grant, label, held] = items(row.at(2)?)?
        && written(described)? == holder.owner.as_str()
    {
        holder.token = Some(token(grant)?);
        holder.held_for = text(held)?.parse().ok().map(Duration::from_millis);
        holder.label = Some(written(label)?.into_owned()).filter(|label| !label.is_empty());
    }
    Ok(Some(holder))
}
