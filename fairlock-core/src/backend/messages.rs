//! The questions that core asks a backend, the label that travels with them, the answers, and what a person reads of a lock's state.

use std::fmt;
use std::time::Duration;

use crate::ids::{FencingToken, LockKind, LockName, OwnerId, RequestId, write_escaped};

/// A lock as a backend sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LockId {
    /// The lock's name.
    pub name: LockName,
    /// How many units the lock has, and whether it is fair.
    pub kind: LockKind,
}

impl LockId {
    /// The lock `name` of this kind.
    pub fn new(name: LockName, kind: LockKind) -> LockId {
        LockId { name, kind }
    }
}

/// How long the caller waits for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: one attempt that leaves nothing behind.
    No,
    /// For this time, counted from the first attempt of the request.
    UpTo(Duration),
    /// Without limit.
    Forever,
}

/// One owner's request for one lock: a waiter's position in the queue.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Place<'a> {
    /// The lock.
    pub lock: &'a LockId,
    /// The owner that asks.
    pub owner: &'a OwnerId,
    /// Which request; the same number in each attempt.
    pub request: RequestId,
    /// How long the caller will wait.
    pub wait: Wait,
    /// How long the server keeps the place without hearing from its client.
    pub ttl: Duration,
    /// The ticket from an earlier answer; 0 without one. The waiter repeats the ticket with each ask. If the place is gone, the
    /// ask puts it back at this ticket: no waiter loses its turn when a store forgets.
    pub ticket: u64,
    /// How many of the lock's units the request takes, from 1 to its [capacity](LockKind::capacity); the same in each repeat.
    pub units: u32,
}

impl<'a> Place<'a> {
    /// A place with [`Wait::Forever`], a time to live of 5 s and no ticket yet, which takes one unit.
    pub fn new(lock: &'a LockId, owner: &'a OwnerId, request: RequestId) -> Place<'a> {
        Place { lock, owner, request, wait: Wait::Forever, ttl: Duration::from_secs(5), ticket: 0, units: 1 }
    }
}

/// Asks for a lock.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Acquire<'a> {
    /// The request, and the lock that it is for.
    pub place: Place<'a>,
    /// The lease of the hold.
    pub lease: Duration,
    /// A readable name of the client, and perhaps a traceparent. Of no meaning to a store, which keeps it whole: in
    /// [`inspect`](super::Backend::inspect), [`Holder::set_label`] and [`Waiter::set_label`] take it apart.
    pub label: &'a str,
    /// When the request is declined, whether or not the lock is free. A condition is for newcomers: a request that has a hold or a
    /// place keeps what it has.
    pub condition: Condition,
}

/// When a newcomer is [declined](Acquired::Declined) at once. The default declines nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Condition {
    /// Only unless the lock was granted since then. For requests that do not wait.
    pub not_granted: Option<Since>,
    /// Only with at most so many requests ahead in the queue.
    pub most_ahead: Option<u64>,
}

impl Condition {
    pub(crate) fn is_some(self) -> bool {
        self != Condition::default()
    }
}

/// A moment of the past by the store's clock, from [`SHORTEST_PERIOD`] to [`LONGEST_PERIOD`].
///
/// From the first ask that names such a moment on, the store notes each grant of the lock, to any request. The note is kept for twice the
/// longest period that was named: from the last grant on, and from the last such ask that was not declined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// The last multiple of this period since 1970, UTC.
    PeriodBegan(Duration),
    /// This time ago.
    Ago(Duration),
}

/// The shortest period of [`Since`]: a second.
pub const SHORTEST_PERIOD: Duration = Duration::from_secs(1);
/// The longest period of [`Since`]: 31 days.
pub const LONGEST_PERIOD: Duration = Duration::from_secs(31 * 24 * 60 * 60);

impl Since {
    /// The period that it names.
    pub fn period(self) -> Duration {
        let (Since::PeriodBegan(period) | Since::Ago(period)) = self;
        period
    }

    /// When that was, if it is `now`: both as the time since 1970.
    pub fn at(self, now: Duration) -> Duration {
        let ago = match self {
            Since::PeriodBegan(period) => {
                let rest = now.as_micros().checked_rem(period.as_micros()).unwrap_or_default();
                Duration::from_micros(u64::try_from(rest).unwrap_or(u64::MAX))
            }
            Since::Ago(time) => time,
        };
        now.saturating_sub(ago)
    }
}

impl<'a> Acquire<'a> {
    /// Asks for `place` with this lease and no label.
    pub fn new(place: Place<'a>, lease: Duration) -> Acquire<'a> {
        Acquire { place, lease, label: "", condition: Condition::default() }
    }
}

/// Names exactly one hold.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Hold<'a> {
    /// The lock.
    pub lock: &'a LockId,
    /// The owner that holds it.
    pub owner: &'a OwnerId,
    /// The request that was granted.
    pub request: RequestId,
    /// The token that it was granted with.
    pub token: FencingToken,
    /// How many of the lock's units the hold takes. Only a [renewal](super::Backend::renew) has to name this.
    pub units: u32,
}

impl<'a> Hold<'a> {
    /// The hold of one unit that `request` was granted with `token`.
    pub fn new(lock: &'a LockId, owner: &'a OwnerId, request: RequestId, token: FencingToken) -> Hold<'a> {
        Hold { lock, owner, request, token, units: 1 }
    }
}

/// One item of [`renew`](super::Backend::renew).
#[derive(Clone, Copy, Debug)]
pub enum Renew<'a> {
    /// Prolongs this hold to `lease` from now, and tells its hold count.
    Hold {
        /// The hold.
        hold: Hold<'a>,
        /// Its hold count.
        holds: u32,
        /// The lease from now on.
        lease: Duration,
    },
    /// Keeps this place.
    Place {
        /// The place.
        place: Place<'a>,
        /// The lease of the hold, if the lock is granted now.
        lease: Duration,
    },
}

/// The answer of [`acquire`](super::Backend::acquire).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Acquired {
    /// The caller holds the lock. The rest of the lease counts from no earlier than the request was sent.
    Granted {
        /// The fencing token.
        token: FencingToken,
        /// The rest of the lease.
        lease: Duration,
    },
    /// The caller has a place in the queue.
    Queued {
        /// How many are ahead; 0 is next.
        rank: u64,
        /// When to ask again without a wake-up; `Duration::MAX` for no earlier than the next renewal.
        recheck_in: Duration,
        /// The number that orders places. If the request named another ticket, its place is lost, and the request stands at the tail.
        /// 0 if the store can't put places back.
        ticket: u64,
        /// The latest token or ticket at that moment. A grant to this place has a greater token; a push with no greater token is for
        /// an earlier place of the request. 0 if the store pushes no grants.
        latest: u64,
    },
    /// Another owner holds the lock, and the caller has no place.
    Busy {
        /// When to ask again without a wake-up.
        recheck_in: Duration,
    },
    /// The [condition](Acquire::condition) of the request was not met, and nothing was left behind.
    Declined(Declined),
}

/// Which [condition](Condition) was not met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Declined {
    /// The lock was last granted then, by the store's clock: the time since 1970.
    Granted(Duration),
    /// So many requests are ahead.
    Ahead(u64),
}

/// The answer of [`release`](super::Backend::release).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Released {
    /// The hold is given up.
    Released,
    /// The lock was not held, or not by this hold. A place of the hold's own request is removed.
    NotHeld,
}

/// The answer to one item of [`renew`](super::Backend::renew).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Renewal {
    /// The hold is prolonged.
    Renewed,
    /// The place is kept.
    Waiting {
        /// How many are ahead; 0 is next.
        rank: u64,
        /// When to ask without a wake-up; zero for now.
        recheck_in: Duration,
        /// The latest token or ticket, as in [`Acquired::Queued`].
        latest: u64,
    },
    /// The place has become a hold.
    Granted {
        /// The fencing token.
        token: FencingToken,
        /// The rest of the lease.
        lease: Duration,
    },
    /// The hold is over; or the place is gone and was not put back, and has to be asked for again.
    Lost,
}

/// The answer of [`withdraw`](super::Backend::withdraw).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Withdrawn {
    /// Nothing of the request is left.
    Left,
    /// The request had been granted the lock, and still holds it.
    WasGranted {
        /// The fencing token.
        token: FencingToken,
        /// The rest of the lease.
        lease: Duration,
    },
}

/// The answer of [`force_release`](super::Backend::force_release).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForceReleased {
    /// The lock was held, and the hold was taken away.
    Taken,
    /// The lock was not held.
    NotHeld,
}

impl From<Released> for ForceReleased {
    /// The answer for this result of a release, by order of an operator.
    fn from(released: Released) -> ForceReleased {
        match released {
            Released::NotHeld => ForceReleased::NotHeld,
            Released::Released => ForceReleased::Taken,
        }
    }
}

/// The holders and the waiters of a lock, as the server saw them at one moment. Its `Display` is a block of lines to read, the first
/// ten of each. With feature `serde` it can be serialized.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LockState {
    /// How many units a read-write lock or a semaphore has; of a semaphore the number of permits that the last grant named, or without a
    /// holder the first waiter. None for a lock of one holder, and for a name that is not in use.
    pub capacity: Option<u32>,
    /// The holders whose leases end first, in the order of their tokens: [`MOST_INSPECTED`](super::MOST_INSPECTED) at most. A fair or
    /// plain lock has one at most.
    pub holders: Vec<Holder>,
    /// How many more holders there are.
    pub unlisted_holders: u64,
    /// How many units those unlisted holders take together.
    pub unlisted_units: u32,
    /// How many places the queue has, with those of absent waiters. A plain lock has no queue.
    pub queue_length: u64,
    /// How many of these places are known to be of absent waiters: all that others have passed, and the silent ones among the first
    /// [`MOST_INSPECTED`](super::MOST_INSPECTED) of the rest. A look that lists no waiter (`0..0`) examines none.
    pub absent: u64,
    /// The part of the queue that was asked for, first in front; `queue_length` counts all of it.
    pub queue: Vec<Waiter>,
}

impl LockState {
    /// The only holder of a fair or plain lock, and the listed holder with the least token of another lock; none if the lock is free.
    pub fn holder(&self) -> Option<&Holder> {
        self.holders.first()
    }

    /// How many requests wait, without those of waiters that are known to be absent.
    pub fn waiting(&self) -> u64 {
        self.queue_length.saturating_sub(self.absent)
    }

    /// How many units all holders take together.
    pub fn taken(&self) -> u32 {
        self.holders.iter().fold(self.unlisted_units, |taken, holder| taken.saturating_add(holder.units))
    }
}

/// A holder of a lock.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Holder {
    /// The owner, as the server spells it.
    pub owner: OwnerId,
    /// How many units the holder has.
    pub units: u32,
    /// The hold count.
    pub hold_count: u32,
    /// The request, where the discipline keeps it.
    pub request: Option<RequestId>,
    /// The fencing token; a peer such as Redisson has none.
    pub token: Option<FencingToken>,
    /// The rest of the lease; none when the hold has no end.
    pub lease_left: Option<Duration>,
    /// For how long it has been held, where the discipline keeps it.
    pub held_for: Option<Duration>,
    /// A readable name of the holder, where the discipline keeps one.
    pub label: Option<String>,
    /// The W3C traceparent of the span in which the holder asked, if its program has set `ClientBuilder::traceparent` (feature `tracing`).
    pub traceparent: Option<String>,
}

impl Holder {
    /// A holder of one unit, of which nothing else is known.
    pub fn new(owner: OwnerId, hold_count: u32) -> Holder {
        Holder {
            owner,
            units: 1,
            hold_count,
            request: None,
            token: None,
            lease_left: None,
            held_for: None,
            label: None,
            traceparent: None,
        }
    }
}

/// A waiter for a lock.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Waiter {
    /// The owner, as the server spells it.
    pub owner: OwnerId,
    /// The request, where the discipline keeps it.
    pub request: Option<RequestId>,
    /// How many units the waiter wants.
    pub units: u32,
    /// The capacity that the waiter names: clients of one semaphore may name different numbers of permits. None for a lock of one unit.
    pub capacity: Option<u32>,
    /// For how long it has waited, where the discipline keeps it.
    pub waiting: Option<Duration>,
    /// How long until the place counts as abandoned; zero if it does.
    pub place_left: Option<Duration>,
    /// A readable name of the waiter, where the discipline keeps one.
    pub label: Option<String>,
    /// The W3C traceparent of the span in which the waiter asked, if its program has set `ClientBuilder::traceparent` (feature `tracing`).
    pub traceparent: Option<String>,
}

impl Waiter {
    /// A waiter for one unit, of which nothing else is known.
    pub fn new(owner: OwnerId) -> Waiter {
        Waiter {
            owner,
            request: None,
            units: 1,
            capacity: None,
            waiting: None,
            place_left: None,
            label: None,
            traceparent: None,
        }
    }

    /// Whether others go first until this waiter is heard again: it was silent for its place's time, or has lost its connection for
    /// wake-ups and was passed. As a rule its process is dead.
    pub fn is_absent(&self) -> bool {
        self.place_left == Some(Duration::ZERO)
    }
}

/// Stands between the label and the traceparent. A client's label has no control characters.
const SEPARATOR: char = '\u{1f}';

/// In bytes: version, trace, span, flags.
const TRACEPARENT: usize = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".len();

/// The text that travels: this label, with this [`traceparent`](https://www.w3.org/TR/trace-context/#traceparent-header). `None` unless the
/// traceparent has the form of the W3C, in 55 bytes.
///
/// ```
/// # use fairlock_core::backend::label_with_traceparent;
/// let text = label_with_traceparent("worker 3", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
/// assert!(text.is_some_and(|text| text.starts_with("worker 3\u{1f}00-")));
/// assert_eq!(label_with_traceparent("worker 3", "b3: 0"), None);
/// ```
pub fn label_with_traceparent(label: &str, traceparent: &str) -> Option<String> {
    is_traceparent(traceparent).then(|| format!("{label}{SEPARATOR}{traceparent}"))
}

impl Holder {
    /// Sets the label and the traceparent from the text that came with the request, which may be empty.
    pub fn set_label(&mut self, text: &str) {
        (self.label, self.traceparent) = parts_of(text);
    }
}

impl Waiter {
    /// Sets the label and the traceparent from the text that came with the request, which may be empty.
    pub fn set_label(&mut self, text: &str) {
        (self.label, self.traceparent) = parts_of(text);
    }
}

fn parts_of(text: &str) -> (Option<String>, Option<String>) {
    let behind = text.rsplit_once(SEPARATOR).filter(|(_, behind)| is_traceparent(behind));
    let label = behind.map_or(text, |(label, _)| label);
    ((!label.is_empty()).then(|| label.to_owned()), behind.map(|(_, traceparent)| traceparent.to_owned()))
}

fn is_traceparent(text: &str) -> bool {
    if text.len() != TRACEPARENT {
        return false;
    }
    let parts: Vec<&str> = text.split('-').collect();
    let is_hex = |part: &&str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_some = |part: &str| part.bytes().any(|byte| byte != b'0');
    parts.iter().map(|part| part.len()).eq([2, 32, 16, 2])
        && parts.iter().all(is_hex)
        && parts[0] != "ff"
        && is_some(parts[1])
        && is_some(parts[2])
}

/// How many holders, and how many waiters, `Display` lists.
const LISTED: usize = 10;

impl fmt::Display for LockState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.unlisted_holders.saturating_add(self.holders.len() as u64);
        match self.capacity {
            _ if count == 0 => f.write_str("free")?,
            None => f.write_str("held")?,
            Some(u32::MAX) if self.taken() == u32::MAX => f.write_str("held for writing")?,
            Some(u32::MAX) => f.write_str("held for reading")?,
            Some(permits) => write!(f, "{} of {permits} permits held", self.taken())?,
        }
        match self.waiting() {
            0 => f.write_str(", nobody waits")?,
            1 => f.write_str(", 1 waits")?,
            n => write!(f, ", {n} wait")?,
        }
        if self.absent > 0 {
            write!(f, ", {} absent", self.absent)?;
        }
        let has_permits = self.capacity.is_some_and(|capacity| capacity != u32::MAX);
        for holder in self.holders.iter().take(LISTED) {
            write_name(f, "holder", holder.label.as_deref(), &holder.owner)?;
            if has_permits {
                write!(f, ", takes {}", holder.units)?;
            }
            write_time(f, "for", holder.held_for)?;
            write_time(f, "lease left", holder.lease_left)?;
            if holder.hold_count != 1 {
                write!(f, ", hold count {}", holder.hold_count)?;
            }
            if let Some(token) = holder.token {
                write!(f, ", token {token}")?;
            }
        }
        if let Some(more @ 1..) = count.checked_sub(LISTED as u64) {
            write!(f, "\n  and {more} more")?;
        }
        for waiter in self.queue.iter().take(LISTED) {
            write_name(f, "waiter", waiter.label.as_deref(), &waiter.owner)?;
            match waiter.units {
                u32::MAX => f.write_str(", writes")?,
                n if has_permits => write!(f, ", wants {n}")?,
                _ => {}
            }
            write_time(f, "for", waiter.waiting)?;
            if waiter.is_absent() {
                f.write_str(", absent")?;
            }
        }
        match self.queue.len().checked_sub(LISTED) {
            Some(more @ 1..) => write!(f, "\n  and {more} more"),
            _ => Ok(()),
        }
    }
}

fn write_name(f: &mut fmt::Formatter<'_>, what: &str, label: Option<&str>, owner: &OwnerId) -> fmt::Result {
    write!(f, "\n  {what} ")?;
    write_escaped(f, label.unwrap_or(owner.as_str()))
}

fn write_time(f: &mut fmt::Formatter<'_>, what: &str, time: Option<Duration>) -> fmt::Result {
    time.map_or(Ok(()), |time| write!(f, ", {what} {time:.1?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Holder, Waiter};
    use crate::ids::{FencingToken, OwnerId};

    /// Waiters that are absent do not wait, and the units of unlisted holders count.
    #[test]
    fn absent_waiters_do_not_wait_and_unlisted_units_count() {
        let owner = OwnerId::new("c:1");
        let mut state = LockState { queue_length: 5, absent: 2, unlisted_units: 3, ..LockState::default() };
        assert_eq!((state.waiting(), state.taken(), state.holder().is_none()), (3, 3, true));
        state.absent = 6; // a call came between two of the store's counts
        assert_eq!(state.waiting(), 0);
        for units in [2, 4] {
            state.holders.push(Holder { units, ..Holder::new(owner.clone(), 1) });
        }
        assert_eq!((state.taken(), state.holder().map(|holder| holder.units)), (9, Some(2)));
        state.unlisted_units = u32::MAX;
        assert_eq!(state.taken(), u32::MAX);
        let mut waiter = Waiter::new(owner);
        for (place_left, is_absent) in
            [(None, false), (Some(Duration::from_millis(1)), false), (Some(Duration::ZERO), true)]
        {
            waiter.place_left = place_left;
            assert_eq!(waiter.is_absent(), is_absent);
        }
    }

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_label_and_a_traceparent_come_back_apart() {
        let mut waiter = Waiter::new(OwnerId::new("a:1"));
        let mut read = |text: &str| {
            waiter.set_label(text);
            (waiter.label.clone().unwrap_or_default(), waiter.traceparent.clone())
        };
        for label in ["", "worker 3", "Büro 2 (h:1)"] {
            let both = label_with_traceparent(label, GOOD).unwrap();
            assert_eq!((read(label), read(&both)), ((label.into(), None), (label.into(), Some(GOOD.into()))));
        }
        // Another program's labels.
        for odd in ["a\u{1f}b", "\u{1f}", &format!("a {GOOD}"), &format!("a\u{1f}{GOOD}\u{1f}")] {
            assert_eq!(read(odd), (odd.to_owned(), None));
        }
    }

    #[test]
    fn only_what_has_the_form_of_the_w3c_is_sent() {
        let changed = |from: &str, to: &str| GOOD.replacen(from, to, 1);
        for good in [GOOD.to_owned(), changed("00-", "cc-"), changed("-01", "-00")] {
            assert!(label_with_traceparent("", &good).is_some(), "{good}");
        }
        for bad in [
            String::new(),
            changed("00-", "ff-"),
            changed("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            changed("00f067aa0ba902b7", &"0".repeat(16)),
            changed("4bf", "4BF"),
            changed("4bf", "4-f"),
            changed("4bf", "é4"),
            changed("-01", "-1"),
            format!("{GOOD}0"),
            format!("{GOOD}-what-a-later-version-adds"),
            "x".repeat(1 << 20),
        ] {
            assert_eq!(label_with_traceparent("", &bad), None, "{bad:.60}");
        }
    }

    const S: Duration = Duration::from_secs(1);

    fn holder(owner: &str, units: u32, hold_count: u32) -> Holder {
        Holder { units, ..Holder::new(OwnerId::new(owner), hold_count) }
    }

    #[test]
    fn a_free_lock_is_one_line() {
        assert_eq!(LockState::default().to_string(), "free, nobody waits");
    }

    #[test]
    fn holders_and_waiters_have_a_line_each() {
        let mut state = LockState { queue_length: 3, absent: 1, ..LockState::default() };
        let (token, lease_left, held_for) = (Some(FencingToken::new(7)), Some(28 * S), Some(3 * S / 2));
        let label = Some("worker\n3".to_owned());
        state.holders = vec![Holder { token, lease_left, held_for, label, ..holder("c:1", 1, 2) }];
        let waiter = Waiter::new(OwnerId::new("d:1"));
        let absent = Waiter { place_left: Some(Duration::ZERO), waiting: Some(S), ..waiter.clone() };
        state.queue = vec![waiter, absent];
        assert_eq!(
            state.to_string(),
            "held, 2 wait, 1 absent\n  \
             holder `worker\\n3`, for 1.5s, lease left 28.0s, hold count 2, token 7\n  \
             waiter `d:1`\n  \
             waiter `d:1`, for 1.0s, absent"
        );
    }

    #[test]
    fn units_are_told_where_they_matter_and_of_many_the_first_ten() {
        let mut state = LockState { capacity: Some(50), ..LockState::default() };
        state.holders = (0..12).map(|n| holder(&format!("c:{n}"), 2, 1)).collect();
        (state.unlisted_holders, state.unlisted_units) = (3, 6);
        let waiter = Waiter::new(OwnerId::new("d:1"));
        state.queue = vec![Waiter { units: 21, ..waiter.clone() }; 11];
        state.queue_length = 11;
        let text = state.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0]), (23, "30 of 50 permits held, 11 wait"));
        assert_eq!(lines[1..3], ["  holder `c:0`, takes 2", "  holder `c:1`, takes 2"]);
        assert_eq!(
            [lines[11], lines[12], lines[22]],
            ["  and 5 more", "  waiter `d:1`, wants 21", "  and 1 more"]
        );
    }

    #[test]
    fn no_line_has_the_number_that_stands_for_all_units() {
        let waiter = Waiter { units: u32::MAX, ..Waiter::new(OwnerId::new("d:1")) };
        for (units, how) in [(1, "held for reading"), (u32::MAX, "held for writing")] {
            let state = LockState {
                capacity: Some(u32::MAX),
                holders: vec![holder("c:1", units, 1)],
                queue_length: 1,
                queue: vec![waiter.clone()],
                ..LockState::default()
            };
            assert_eq!(state.to_string(), format!("{how}, 1 waits\n  holder `c:1`\n  waiter `d:1`, writes"));
        }
    }
}
