//! The plain lock, as Redisson's `RedissonLock`: no line, and one channel a lock for all waiters.

use std::time::Duration;

use fairlock_core::LockKind;
use fairlock_core::backend::{Acquire, Place};

use super::{Kind, Lua};
use crate::script::arguments::Argument::{self, BeginBy, Number, Request, Text};
use crate::script::arguments::millis;
use crate::script::keys::Keys;
use crate::script::scripts;

pub(crate) struct Plain;

impl Kind for Plain {
    const ACQUIRE: Lua = &scripts::PLAIN_ACQUIRE;
    const RENEW: Lua = &scripts::PLAIN_RENEW;
    const RELEASE: Lua = &scripts::PLAIN_RELEASE;
    const WITHDRAW: Lua = &scripts::PLAIN_WITHDRAW;
    const FORCE_RELEASE: Lua = &scripts::PLAIN_FORCE_RELEASE;
    const KEEPS_PLACE_BY_OWNER: bool = false;

    fn keeps(&self, kind: LockKind) -> bool {
        kind == LockKind::Plain
    }

    fn acquire<'a>(&self, ask: &'a Acquire<'a>, _: &'a Keys) -> Vec<Argument<'a>> {
        let (place, lease) = (&ask.place, Number(millis(ask.lease)));
        vec![Text(place.owner.as_str()), Request(place.request), lease, Text(ask.label), BeginBy]
    }

    fn channel(&self, _: &Place<'_>, keys: &Keys) -> String {
        keys.channel().to_owned()
    }

    fn place<'a>(&self, place: &Place<'a>, lease: Duration, to: &mut Vec<Argument<'a>>) {
        to.extend_from_slice(&[Text(place.owner.as_str()), Request(place.request), Number(millis(lease))]);
    }

    fn withdraw<'a>(&self, place: &'a Place<'a>, _: &'a Keys) -> Vec<Argument<'a>> {
        vec![Text(place.owner.as_str()), Request(place.request)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::arguments::words;
    use fairlock_core::backend::{LockId, RequestId};
    use fairlock_core::{LockName, OwnerId};

    #[test]
    fn a_plain_lock_has_one_channel_and_neither_a_line_nor_a_time_to_wait() {
        let kinds = [LockKind::Plain, LockKind::Fair, LockKind::ReadWrite];
        assert_eq!(kinds.map(|kind| Plain.keeps(kind)), [true, false, false]);
        let (lock, owner) = (LockId::new(LockName::new("a").unwrap(), LockKind::Plain), OwnerId::new("u:1"));
        let (keys, place) = (Keys::of(&lock).unwrap(), Place::new(&lock, &owner, RequestId::new(0x1f)));
        assert_eq!(Plain.channel(&place, &keys), "redisson_lock__channel:{a}");
        let request = "000000000000001f";
        let mut ask = Acquire::new(place, Duration::from_secs(30));
        ask.label = "nightly";
        let never = "0000000000000000";
        assert_eq!(words(&Plain.acquire(&ask, &keys)), ["u:1", request, "30000", "nightly", never]);
        assert_eq!(words(&Plain.withdraw(&place, &keys)), ["u:1", request]);
        let mut renewal: Vec<_> = Plain.before_places(&keys).into_iter().collect();
        Plain.place(&place, Duration::from_secs(30), &mut renewal);
        assert_eq!(words(&renewal), ["u:1", request, "30000"]);
    }
}
