//! The rules that locks follow: how a request, a release or a heartbeat becomes a script, and what the reply means.

mod answers;

pub(crate) mod hand_off;
pub(crate) mod hold;
pub(crate) mod inspect;
pub(crate) mod plain;
pub(crate) mod redisson;

pub(crate) use answers::renewed as renewed_places;
