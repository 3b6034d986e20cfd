//! How an actor gives up what it has, and what it does with it until then.

use std::sync::Arc;

use fairlock::CancelToken;
use fairlock::Error;
use fairlock::admin::LockKind;

use super::{Actor, Guard, Leak};
use crate::bounds::Limit;
use crate::handles::Handle;
use crate::in_hand::AnyGuard;
use crate::judge::{self, Reasons};
use crate::program::{Ask, End, Terms, Wait};
use crate::server::name_of;
use crate::task;
use crate::world::{Promise, locked};

/// A call on a hold that may have been lost.
const MAY_BE_LOST: Reasons = Reasons { lost: true, misuse: false, mismatch: false };

/// What becomes of a leaked hold.
fn is_given_back_by_unlock(ask: Ask) -> bool {
    !ask.by_task && !matches!(ask.kind, LockKind::Semaphore { .. })
}

impl Actor {
    pub(super) fn give_back(&mut self, guard: Guard, end: End) {
        let Guard { guard, ask, holds, using } = guard;
        let (life, began) = (Arc::clone(&using.life), self.world.now());
        let is_one = guard.owner().is_some();
        // No call gives leaked permits back: only those that end by themselves may be leaked, or others would wait for ever. Where
        // several actors share an owner, the request may be another's, which has given up, and go by its terms.
        let ends =
            |(lock, token): &(usize, _)| locked(&self.world.holds).ends_by_itself(&name_of(*lock), *token);
        let may_leak =
            is_one && (is_given_back_by_unlock(ask) || ask.is_anonymous() && holds.iter().all(ends));
        let may = is_one && (end != End::Leak || may_leak) || matches!(end, End::Drop | End::Unlock);
        let end = if may { end } else { End::Drop };
        if end == End::Leak {
            self.world.count("leaks");
            guard.leak();
            for (_, token) in holds {
                self.say(format_args!("leaks {ask:?}, token {token}"));
                if is_given_back_by_unlock(ask) {
                    self.leaks.push(Leak { ask, token, life: Arc::clone(&life) });
                }
            }
            return;
        }
        let mut was_told = false;
        let mut known = locked(&self.world.holds);
        for (lock, token) in &holds {
            was_told |= known.guard_ends(&name_of(*lock), *token);
        }
        if !is_one || end == End::HandOver {
            guard.lost().iter().for_each(|channel| known.listens_no_more(channel));
        }
        drop(known);
        if end == End::HandOver {
            return self.hand_over(Guard { guard, ask, holds, using }, was_told);
        }
        let what = format!("{end:?} {ask:?}, tokens {:?}", holds);
        let result = self.call(what, &life, Limit::AtOnce, &CancelToken::new(), || match end {
            End::Unlock => guard.unlock(&self.world),
            End::Drop | End::Leak | End::HandOver => {
                drop(guard);
                Ok(())
            }
        });
        if end == End::Unlock {
            judge::end(&self.world, result, &holds, began, &life, was_told);
        }
    }

    /// The actor goes on with the guard that another client gets for the text.
    fn hand_over(&mut self, given: Guard, was_told: bool) {
        let Guard { guard, ask, holds, using } = given;
        let [(lock, token)] = holds[..] else { return };
        let (life, began, left) = (Arc::clone(&using.life), self.world.now(), guard.valid_for());
        locked(&self.world.server).handed_over.insert(token);
        let what = format!("hand over {ask:?}, token {token}");
        let handed =
            self.call(what, &life, Limit::AtOnce, &CancelToken::new(), || guard.hand_over(&self.world));
        let hold = match handed {
            None => return,
            Some(Ok(hold)) if !was_told => hold,
            Some(Err(Error::Misuse { .. })) => {
                self.world.count("hand over: held by others too");
                locked(&self.world.server).handed_over.remove(&token);
                return;
            }
            Some(result) => {
                return judge::end(&self.world, result.map(drop), &holds, began, &life, was_told);
            }
        };
        let Some(using) = self.world.client((self.client + 1) % self.world.program.clients.len()) else {
            return;
        };
        let (text, adopter) = (hold.to_string(), Arc::clone(&using.life));
        let adopt = || {
            let hold = text.parse()?;
            Ok(match ask.by_task {
                true => AnyGuard::Task(task::wait_for(&self.world, using.client.to_async().adopt(&hold))?),
                false => AnyGuard::Owned(using.client.adopt(&hold)?),
            })
        };
        let (asked, lease) = (self.world.now(), using.life.settings.lease);
        let adopted = self.call(format!("adopt {text}"), &adopter, Limit::AtOnce, &CancelToken::new(), adopt);
        self.world
            .count(&format!("adopt: {}", adopted.as_ref().map_or_else(judge::kind, |_| "ok".to_owned())));
        match adopted {
            Ok(guard) => {
                let owner = guard.owner().unwrap_or_default();
                locked(&self.world.holds).adopted(&adopter, &name_of(lock), &owner, token);
                // No thread's, and no owner's that others have.
                let ask = Ask { owner: None, by_task: true, terms: Terms::Renewed, ..ask };
                self.guards.push(Guard { guard, ask, holds, using });
            }
            // The lease of the hold is over, or the lease of an adoption whose answer was lost; or an operator took the lock.
            Err(Error::Lost(lost))
                if self.world.now() >= (began + left).min(asked + lease)
                    || self.world.was_forced(&lost.lock) => {}
            Err(error) => {
                self.judge(&error, (asked, &CancelToken::new()), &adopter, "adopt", Reasons::default());
            }
        }
    }

    pub(super) fn unleak(&mut self, leak: &Leak) {
        let Leak { ask, token, life } = leak;
        let Some(using) = self.world.using(life) else { return };
        let (lock, began) = (name_of(ask.lock), self.world.now());
        let was_told = locked(&self.world.holds).guard_ends(&lock, *token);
        let what = format!("unlock leaked {ask:?}, token {token}");
        let result = self.call(what, life, Limit::AtOnce, &CancelToken::new(), || {
            Handle::of(&using, *ask, &CancelToken::new())?.unlock()
        });
        match result {
            // What was lost may have been replaced by a new hold of the same owner, or forgotten.
            Err(Error::NotHeld { .. } | Error::Lost(_)) if was_told => {}
            Err(Error::Shutdown { .. }) if life.is_shut_down() => {}
            Ok(()) if was_told => {}
            result => judge::end(&self.world, result, &[(ask.lock, *token)], began, life, was_told),
        }
    }

    pub(super) fn renew(&mut self, number: usize) {
        let Guard { guard, ask, holds, using } = self.guards.remove(number);
        let (life, began) = (Arc::clone(&using.life), self.world.now());
        let what = format!("renew {ask:?}, tokens {holds:?}");
        let result = self.call(what, &life, Limit::AtOnce, &CancelToken::new(), || guard.renew(&self.world));
        match result {
            Ok(left) if left.is_zero() => {
                self.world
                    .found(Promise::Answer, format!("renew of {ask:?}, tokens {holds:?}, says Ok(0 s)"));
            }
            Ok(_) => {}
            Err(error) => self.judge(&error, (began, &CancelToken::new()), &life, "renew", MAY_BE_LOST),
        }
        self.guards.push(Guard { guard, ask, holds, using });
    }

    /// Others may ask, too, at the moment at which its hold is over, and before it is told of the loss.
    pub(super) fn outlive(&mut self, number: usize) {
        let ask = self.guards[number].ask;
        if ask.terms == Terms::Renewed {
            return;
        }
        let left = self.guards[number].guard.valid_for();
        self.world.clock.sleep(left);
        self.take(ask, Wait::No, true);
    }
}
