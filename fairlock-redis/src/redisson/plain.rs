//! The plain lock, as Redisson's `RedissonLock`: no queue, and one channel a lock for all waiters.

use std::time::Duration;

use fairlock_core::LockKind;
use fairlock_core::backend::Place;

use super::Kind;
use crate::script::keys::Keys;

pub(crate) struct Plain;

impl Kind for Plain {
    fn supports(&self, kind: LockKind) -> bool {
        kind == LockKind::Plain
    }

    fn mode(&self, _: &Place<'_>) -> &'static str {
        "once"
    }

    fn time_of(&self, _: &Place<'_>) -> Duration {
        Duration::ZERO
    }

    fn channel(&self, _: &Place<'_>, keys: &Keys) -> String {
        keys.channel().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_backend::{id, owner, place};

    /// A plain lock has one channel, and neither a queue nor a time to wait.
    #[test]
    fn a_plain_lock_has_one_channel_and_no_queue() {
        let kinds = [LockKind::Plain, LockKind::Fair, LockKind::ReadWrite];
        assert_eq!(kinds.map(|kind| Plain.supports(kind)), [true, false, false]);
        let (lock, owner) = (id(LockKind::Plain), owner());
        let (keys, place) = (Keys::of(&lock).unwrap(), place(&lock, &owner));
        assert_eq!(Plain.channel(&place, &keys), "redisson_lock__channel:{a}");
        assert_eq!((Plain.mode(&place), Plain.time_of(&place)), ("once", Duration::ZERO));
    }
}
