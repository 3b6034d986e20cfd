//! The context of one operation on one lock: the moment, the sequence of numbers, and the messages to clients, which have a text form.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use fairlock_core::backend::{RequestId, Wake};
use fairlock_core::{FencingToken, LockName, OwnerId};

use crate::bytes::DecodeError;

/// A moment by the store's clock: the time since 1970. It must not go back from one operation on a lock to the next.
pub type Moment = Duration;

/// Tokens follow the store's clock up to here (the year 2112). From here on they only count, to stay below 2^53.
const LAST_BY_CLOCK: u64 = 1 << 52;

/// What a store knows of the client of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// A message would reach the client, or the store can't know.
    Present,
    /// No message would reach the client, which may be alive.
    Silent,
    /// The process of the client has certainly ended, and with it all that the client held.
    Gone,
}

impl Presence {
    /// For a store that knows no more than who listens.
    pub fn if_listening(is_listening: bool) -> Presence {
        if is_listening { Presence::Present } else { Presence::Silent }
    }
}

/// What the operations of a store have in common: the sequence that tokens and tickets come from, and the messages to send. A store
/// may have one for all its locks, or make one for each step.
#[derive(Default)]
pub struct StoreContext {
    last: u64,
    wake_ups: Vec<WakeUp>,
    /// The last label that was kept.
    last_label: Arc<str>,
}

impl StoreContext {
    /// A context whose numbers are greater than `last`, the last number that the lock has drawn, even if nothing else of the lock
    /// is left. Numbers follow the clock, so 0 will do for a lock that was not used for a while.
    pub fn after(last: u64) -> StoreContext {
        StoreContext { last, ..StoreContext::default() }
    }

    /// The last number that was drawn: what [`after`](StoreContext::after) needs in the next step. Below 2^53.
    pub fn last_number(&self) -> u64 {
        self.last
    }

    /// The messages to send, in this order, once the lock's state is written and free for other calls.
    pub fn take_wake_ups(&mut self) -> Vec<WakeUp> {
        std::mem::take(&mut self.wake_ups)
    }

    /// The context of one operation on the lock of this name at this moment. `presence` tells of the client of an
    /// owner. At its turn a waiter that is not present is passed over, unless it asks in the same operation. The holds of those who
    /// are gone end by [`end_gone`](crate::LockEntry::end_gone).
    pub fn operation<'a>(
        &'a mut self,
        lock: &'a LockName,
        now: Moment,
        presence: &'a dyn Fn(&OwnerId) -> Presence,
    ) -> OperationContext<'a> {
        OperationContext {
            lock,
            now,
            since_1970: None,
            presence,
            store_context: self,
            call: 0,
            #[cfg(feature = "model")]
            wrong: None,
        }
    }
}

fn whole_micros(time: Moment) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).min(LAST_BY_CLOCK)
}

/// What operations on one lock need beside its state.
pub struct OperationContext<'a> {
    lock: &'a LockName,
    pub(crate) now: Moment,
    since_1970: Option<Moment>,
    pub(crate) presence: &'a dyn Fn(&OwnerId) -> Presence,
    store_context: &'a mut StoreContext,
    /// The number of the operation: a waiter that asks in this operation learns of a grant by the answer.
    pub(crate) call: u64,
    /// The mistake that the operation makes.
    #[cfg(feature = "model")]
    pub wrong: Option<Wrong>,
}

impl OperationContext<'_> {
    /// For a store whose clock does not count from 1970: what the time since then is at this moment. Periods go by it.
    #[must_use]
    pub fn at_wall_clock(mut self, since_1970: Moment) -> Self {
        self.since_1970 = Some(since_1970);
        self
    }

    /// Whether the operation makes this mistake.
    #[cfg(feature = "model")]
    pub(crate) fn is(&self, wrong: Wrong) -> bool {
        self.wrong == Some(wrong)
    }

    /// Without models no operation makes a mistake.
    #[cfg(not(feature = "model"))]
    pub(crate) const fn is(&self, _: Wrong) -> bool {
        false
    }

    /// Whether the owner's process has certainly ended.
    pub(crate) fn is_gone(&self, owner: &OwnerId) -> bool {
        (self.presence)(owner) == Presence::Gone
    }

    /// Microseconds of the store's clock, as on Redis, but always growing.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.store_context.last = self.micros().max(self.store_context.last.saturating_add(1));
        self.store_context.last
    }

    /// Whether the sequence can have given out this number. (A new sequence begins at the clock: past every former number, if the
    /// clock is right.)
    pub(crate) fn may_have_drawn(&self, number: u64) -> bool {
        0 < number && number < LAST_BY_CLOCK && number <= self.store_context.last.max(self.micros())
    }

    fn micros(&self) -> u64 {
        whole_micros(self.now)
    }

    /// By which periods go.
    pub(crate) fn micros_since_1970(&self) -> u64 {
        whole_micros(self.since_1970.unwrap_or(self.now))
    }

    /// When that grant was, in microseconds since 1970: its number, which is ahead of a clock that was set back; but numbers do not follow
    /// a clock that does not count from 1970.
    pub(crate) fn granted_at(&self, token: FencingToken) -> u64 {
        self.since_1970.map_or(token.get(), whole_micros)
    }

    /// The last number that was drawn.
    pub(crate) fn last_number(&self) -> u64 {
        self.store_context.last
    }

    /// Queues a message for the owner's client.
    pub(crate) fn tell(&mut self, owner: &OwnerId, kind: WakeUpKind) {
        self.store_context.wake_ups.push(WakeUp { lock: self.lock.clone(), owner: owner.clone(), kind });
    }

    /// The text as a label. The last label is used again if its text is the same, as when one client asks repeatedly.
    pub(crate) fn label(&mut self, text: &str) -> Arc<str> {
        if *self.store_context.last_label != *text {
            self.store_context.last_label = text.into();
        }
        Arc::clone(&self.store_context.last_label)
    }
}

/// A message to the client of an owner. Its `Display` is one word a field, of ASCII alone, and `parse` reads that.
///
/// ```
/// # use fairlock_core::{FencingToken, LockName, OwnerId};
/// use fairlock_rules::{WakeUp, WakeUpKind};
///
/// let (lock, owner) = (LockName::new("a lock")?, OwnerId::new("c:1"));
/// let text = WakeUp { lock, owner, kind: WakeUpKind::Taken { token: FencingToken::new(34) } }.to_string();
/// assert_eq!(text, "taken 61206c6f636b 633a31 34");
/// let wake_up: WakeUp = text.parse()?;
/// assert_eq!((wake_up.lock.as_str(), wake_up.owner.client()), ("a lock", "c"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WakeUp {
    /// The lock that the message is about.
    pub lock: LockName,
    /// The owner that the message is for, at the [client](OwnerId::client) of the owner.
    pub owner: OwnerId,
    /// What the message says.
    pub kind: WakeUpKind,
}

/// What a message says, see [`Wake`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeUpKind {
    /// The owner has the lock.
    Granted {
        /// The request that was granted.
        request: RequestId,
        /// Its fencing token.
        token: FencingToken,
    },
    /// The owner has to look.
    Recheck,
    /// Any one waiter of the client has to look.
    RecheckAny,
    /// The owner's hold was taken away.
    Taken {
        /// The token of the hold.
        token: FencingToken,
    },
}

impl WakeUp {
    /// As a sink takes it.
    pub fn as_wake(&self) -> Wake<'_> {
        let (lock, owner) = (self.lock.as_str(), self.owner.as_str());
        match self.kind {
            WakeUpKind::Granted { request, token } => Wake::Granted { lock, owner, request, token },
            WakeUpKind::Recheck => Wake::Recheck { lock, owner: Some(owner) },
            WakeUpKind::RecheckAny => Wake::Recheck { lock, owner: None },
            WakeUpKind::Taken { token } => Wake::Taken { lock, owner, token },
        }
    }
}

impl fmt::Display for WakeUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.kind {
            WakeUpKind::Granted { .. } => "granted",
            WakeUpKind::Recheck => "recheck",
            WakeUpKind::RecheckAny => "recheck-any",
            WakeUpKind::Taken { .. } => "taken",
        };
        write!(f, "{word} {} {}", Hex(self.lock.as_str()), Hex(self.owner.as_str()))?;
        match self.kind {
            WakeUpKind::Granted { request, token } => write!(f, " {} {token}", request.get()),
            WakeUpKind::Taken { token } => write!(f, " {token}"),
            WakeUpKind::Recheck | WakeUpKind::RecheckAny => Ok(()),
        }
    }
}

impl FromStr for WakeUp {
    type Err = DecodeError;

    fn from_str(text: &str) -> Result<WakeUp, DecodeError> {
        parse(text).ok_or(DecodeError::WakeUp)
    }
}

fn parse(text: &str) -> Option<WakeUp> {
    let mut words = text.split(' ');
    let word = words.next()?;
    let lock = LockName::new(&from_hex(words.next()?)?).ok()?;
    let owner = OwnerId::new(&from_hex(words.next()?)?);
    let mut number = || words.next()?.parse().ok();
    let kind = match word {
        "granted" => {
            WakeUpKind::Granted { request: RequestId::new(number()?), token: FencingToken::new(number()?) }
        }
        "recheck" => WakeUpKind::Recheck,
        "recheck-any" => WakeUpKind::RecheckAny,
        "taken" => WakeUpKind::Taken { token: FencingToken::new(number()?) },
        _ => return None,
    };
    words.next().is_none().then_some(WakeUp { lock, owner, kind })
}

/// A text as one word: names may contain anything.
struct Hex<'a>(&'a str);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.bytes().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn from_hex(word: &str) -> Option<String> {
    let byte = |at| word.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    let bytes: Option<Vec<u8>> = (0..word.len()).step_by(2).map(byte).collect();
    String::from_utf8(bytes?).ok()
}

/// The rule with one mistake in it. A model tries each, to show that it would find it. Only the [`OperationContext`] of a model makes any.
#[cfg_attr(not(feature = "model"), expect(unreachable_pub, reason = "it is public for a model"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A hold that is over is not dropped.
    OverIsKept,
    /// A newcomer that fits is granted before the queue is looked at.
    NewcomerBarges,
    /// The walk over absent waiters ends after one, and the newcomer gets the lock.
    NewcomerBargesAfterManyAbsent,
    /// An absent first waiter is waited for.
    DeadHeadIsWaitedFor,
    /// An absent first waiter that does not fit is waited for.
    BlockerIsWaitedFor,
    /// A first waiter that does not fit is absent as soon as no message would reach it.
    DeafBlockerIsAbsentAtOnce,
    /// An absent waiter leaves although it may not know its ticket.
    UnheardLeavesAtOnce,
    /// The ticket of an absent waiter does not count as served.
    AbsentIsNotServed,
    /// A waiter that fits passes an earlier one that does not.
    SmallerPasses,
    /// Hand-on ends after one grant.
    OneGrantAScript,
    /// A waiter fits by the number of permits of the last grant, and not by its own.
    FitsByTheLastGrant,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_clock_and_grow_even_when_it_stands_still() {
        let (mut store_context, lock) = (StoreContext::after(999), LockName::new("x").unwrap());
        let mut next = |micros| {
            store_context
                .operation(&lock, Duration::from_micros(micros), &|_| Presence::Present)
                .next_number()
        };
        assert_eq!([next(1_000), next(1_000), next(0), next(1_500)], [1_000, 1_001, 1_002, 1_500]);
        assert_eq!([next(u64::MAX), next(u64::MAX)], [1 << 52, (1 << 52) + 1]);
        assert_eq!(store_context.last_number(), (1 << 52) + 1);
    }

    #[test]
    fn each_message_is_read_as_it_was_written() {
        let (request, token) = (RequestId::new(u64::MAX), FencingToken::new(7));
        for kind in [
            WakeUpKind::Granted { request, token },
            WakeUpKind::Recheck,
            WakeUpKind::RecheckAny,
            WakeUpKind::Taken { token },
        ] {
            let (lock, owner) = (LockName::new("é\n \0").unwrap(), OwnerId::new("c:1"));
            let wake_up = WakeUp { lock, owner, kind };
            let text = wake_up.to_string();
            assert_eq!(text.parse().as_ref(), Ok(&wake_up));
            for broken in [format!("{text} 1"), text.replacen('a', "ä", 1), text[..text.len() - 1].into()] {
                let read = broken.parse::<WakeUp>();
                assert!(read.is_err() || read.is_ok_and(|read| read.kind != kind), "{broken}");
            }
        }
        assert_eq!("".parse::<WakeUp>(), Err(DecodeError::WakeUp));
    }
}
