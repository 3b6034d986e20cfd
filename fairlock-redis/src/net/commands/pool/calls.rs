//! What callers send: one command or many, packed before, or packed by what is known when they are sent.

use std::borrow::{Borrow, Cow};
use std::ops::Range;

use redis::Value;
use smallvec::smallvec;

use super::{Pool, TURN};
use crate::net::connection::Failure;

impl Pool {
    /// Sends one packed command and waits for its reply. An error reply is [`Failure::Refused`].
    pub(crate) fn call(&self, packed: impl Borrow<[u8]>) -> Result<Value, Failure> {
        let mut answers = self.turn(1, &|| (u64::MAX, Cow::Borrowed(packed.borrow())));
        answers.pop().unwrap_or_else(|| Err(Failure::Broken("no answer".into())))
    }

    /// The same for a command that may tell of the [listeners](Pool::listeners). If the connection that is to carry the command turns
    /// out to be new after a fault, the command is packed anew.
    pub(crate) fn call_as_known(&self, pack: impl Fn() -> Vec<u8>) -> Result<Value, Failure> {
        let mut answers = self.turn(1, &|| (self.listeners.last_fault(), Cow::Owned(pack())));
        answers.pop().unwrap_or_else(|| Err(Failure::Broken("no answer".into())))
    }

    /// Sends packed commands, [`TURN`] in a round trip; one answer each, in order. When the link fails, commands that were
    /// written and not answered are [`Failure::Broken`], and the rest [`Failure::NotSent`].
    pub(crate) fn call_many<P: Borrow<[u8]>>(&self, packed: &[P]) -> Vec<Result<Value, Failure>> {
        self.turns(packed.len(), &|turn| (u64::MAX, packed[turn].concat().into()))
    }

    /// The same for commands that may tell of the listeners.
    pub(crate) fn call_many_as_known(
        &self,
        count: usize,
        pack: impl Fn(usize) -> Vec<u8>,
    ) -> Vec<Result<Value, Failure>> {
        self.turns(count, &|turn| (self.listeners.last_fault(), Cow::Owned(turn.flat_map(&pack).collect())))
    }

    fn turns(
        &self,
        count: usize,
        pack: &dyn Fn(Range<usize>) -> (u64, Cow<'static, [u8]>),
    ) -> Vec<Result<Value, Failure>> {
        let mut answers = Vec::with_capacity(count);
        let mut failed = None;
        for start in (0..count).step_by(TURN) {
            let commands = TURN.min(count - start);
            let turn = match &failed {
                Some(failure) => smallvec![Err(Failure::clone(failure)); commands],
                None => self.turn(commands, &|| pack(start..start + commands)),
            };
            if let Some(Err(Failure::Broken(cause) | Failure::NotSent(cause))) = turn.last() {
                failed = Some(Failure::NotSent(cause.clone()));
            }
            answers.extend(turn);
        }
        answers
    }
}
