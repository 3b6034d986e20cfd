//! What an actor does as an operator, and to clients.

use fairlock::CancelToken;
use fairlock::Result;

use super::Actor;
use crate::bounds::Limit;
use crate::handles::Desk;
use crate::in_hand::{ClientEnd, end_client, is_by_task};
use crate::judge::Reasons;
use crate::world::locked;

impl Actor {
    pub(super) fn force(&self, lock: usize) {
        self.operate(lock, "force_unlock", |desk| desk.force().map(|_| ()));
    }

    /// Takes the lock from one of its holders.
    pub(super) fn force_one(&self, lock: usize, nth: usize) {
        self.operate(lock, "force_unlock_of", |desk| {
            let holders = desk.inspect()?.holders;
            let Some(holder) = holders.get(nth % holders.len().max(1)) else { return Ok(()) };
            desk.force_of(&holder.owner).map(|_| ())
        });
    }

    pub(super) fn look(&self, lock: usize) {
        self.operate(lock, "inspect", |desk| desk.inspect().map(|_| ()));
    }

    fn operate(&self, lock: usize, what: &str, act: impl FnOnce(&Desk) -> Result<()>) {
        let Some(using) = self.world.client(self.client) else { return };
        let (began, none) = (self.world.now(), CancelToken::new());
        let program = &self.world.program;
        let result = self.call(format!("{what} L{lock}"), &using.life, Limit::AtOnce, &none, || {
            act(&Desk::of(&self.world, &using.client, (lock, program.locks[lock]), is_by_task(self.number))?)
        });
        if let Err(error) = result {
            let reasons = Reasons { mismatch: program.mixes(lock), ..Reasons::default() };
            self.judge(&error, (began, &none), &using.life, what, reasons);
        }
    }

    /// Ends the waits of an actor.
    pub(super) fn cancel_of(&self, actor: usize) {
        self.say(format_args!("cancels a{actor}"));
        let mut cancel = locked(&self.world.cancels[actor]);
        cancel.1.get_or_insert(self.world.now());
        cancel.0.cancel();
    }

    pub(super) fn end_client(&self, how: ClientEnd) {
        let Some(using) = self.world.client(self.client) else { return };
        end_client(&self.world, &using, self.number, how);
    }
}
