//! The plain lock, as Redisson's `RedissonLock`: no line, and one channel a lock for all waiters.

use std::time::Duration;

use fairlock_core::LockKind;
use fairlock_core::backend::{Acquire, Place};

use super::{Kind, Scripts};
use crate::script::arguments::{Argument, millis};
use crate::script::keys::Keys;
use crate::script::scripts;

pub(crate) struct Plain;

impl Kind for Plain {
    const SCRIPTS: Scripts = Scripts {
        acquire: &scripts::PLAIN_ACQUIRE,
        renew: &scripts::PLAIN_RENEW,
        release: &scripts::PLAIN_RELEASE,
        withdraw: &scripts::PLAIN_WITHDRAW,
        force_release: &scripts::PLAIN_FORCE_RELEASE,
    };

    fn keeps(&self, kind: LockKind) -> bool {
        kind == LockKind::Plain
    }

    fn acquire<'a>(&self, ask: &'a Acquire<'a>, _: &'a Keys) -> Vec<Argument<'a>> {
        let (place, lease) = (&ask.place, millis(ask.lease).into());
        vec![place.owner.as_str().into(), place.request.into(), lease, ask.label.into(), Argument::BeginBy]
    }

    fn channel(&self, _: &Place<'_>, keys: &Keys) -> String {
        keys.channel().text().to_owned()
    }

    fn before_places<'a>(&self, _: &'a Keys) -> Option<Argument<'a>> {
        None
    }

    fn place<'a>(&self, place: &Place<'a>, lease: Duration, to: &mut Vec<Argument<'a>>) {
        to.extend_from_slice(&[place.owner.as_str().into(), place.request.into(), millis(lease).into()]);
    }

    fn withdraw<'a>(&self, place: &'a Place<'a>, _: &'a Keys) -> Vec<Argument<'a>> {
        vec![place.owner.as_str().into(), place.request.into()]
    }
}
