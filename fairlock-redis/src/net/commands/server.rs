//! What is known of a server: the clock, for which waiters the server knows whether clients listen, what was refused lately, whether the
//! server is in charge, and how far away the server is.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::{Cmd, Value, cmd};

use crate::net::connection::{Failure, Role, field, micros, text};

/// A connection that was idle for longer is pinged first: the server may have closed it (`timeout`, CLIENT KILL, a
/// restart), and that would only show as a request with an unknown outcome.
pub(super) const FRESH: Duration = Duration::from_secs(1);

/// How much longer than a response time-out an attempt may begin what it asks for. A server that answers later than its
/// clients wait, but within this, still makes progress: a waiter finds its grant by a message.
const MARGIN: Duration = Duration::from_secs(5);
/// How far a reading may have drifted.
const DRIFT: Duration = Duration::from_secs(1);
/// The oldest reading of a connection that is in constant use: by then it has drifted by less than [`DRIFT`].
const OLDEST: Duration = Duration::from_secs(600);

/// The clock of one server.
///
/// A network can deliver a command long after its sender has given it up. So each attempt that may begin something carries its
/// end by the server's clock, and the server refuses the attempt later. The client reads the server's clock when it connects, and
/// with each ping. A refusal tells the clock too: if the clock was stepped forward, the client loses one trip.
#[derive(Debug)]
pub(super) struct ServerClock {
    /// Where the two numbers begin.
    made: Instant,
    /// What the server's clock said at the last reading, in microseconds since 1970; 0 if not known.
    then: AtomicU64,
    /// When the clock was last read, in microseconds.
    read: AtomicU64,
}

/// For how long after it was sent an attempt may begin what it asks for, by the server's clock.
pub(crate) fn attempt_length(response: Duration) -> Duration {
    response + MARGIN
}

/// The same time as the client sees it.
pub(crate) fn attempt_ttl(response: Duration) -> Duration {
    attempt_length(response) + DRIFT
}

impl ServerClock {
    pub(super) fn new() -> ServerClock {
        ServerClock { made: Instant::now(), then: AtomicU64::new(0), read: AtomicU64::new(0) }
    }

    fn elapsed(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.made).as_micros()).unwrap_or(u64::MAX)
    }

    /// The reply to TIME has just arrived. Any other reply tells nothing.
    ///
    /// The clock is behind the server's own by the reply's way, so an attempt ends a little earlier and never later.
    pub(super) fn heard(&self, reply: &Value) {
        if let Ok(now) = micros(reply) {
            self.is(now);
        }
    }

    fn is(&self, now: u64) {
        let elapsed = self.elapsed(Instant::now());
        // Of two threads that have read the clock, each is right.
        self.then.store(now.saturating_sub(elapsed), Ordering::Relaxed);
        self.read.store(elapsed, Ordering::Relaxed);
    }

    /// What the server's clock says now, in microseconds since 1970, if known.
    pub(super) fn time(&self) -> Option<u64> {
        let then = self.then.load(Ordering::Relaxed);
        (then > 0).then(|| then + self.elapsed(Instant::now()))
    }

    pub(super) fn is_known(&self) -> bool {
        self.then.load(Ordering::Relaxed) > 0
    }

    /// Whether a connection in constant use should read the clock.
    pub(super) fn is_old(&self, now: Instant) -> bool {
        let age = self.elapsed(now).saturating_sub(self.read.load(Ordering::Relaxed));
        Duration::from_micros(age) > OLDEST
    }

    /// The end of an attempt that is sent now, in microseconds since 1970. While the clock is unknown: 0, so that the
    /// server refuses the attempt and tells its clock.
    pub(super) fn attempt_end(&self, response: Duration) -> u64 {
        match self.then.load(Ordering::Relaxed) {
            0 => 0,
            then => {
                let ttl = u64::try_from(attempt_length(response).as_micros()).unwrap_or(u64::MAX);
                then.saturating_add(self.elapsed(Instant::now())).saturating_add(ttl)
            }
        }
    }

    /// Whether the server refused an attempt because its end had come. Then nothing was carried out, and the clock is known.
    pub(super) fn refused_late(&self, failure: &Failure) -> bool {
        let Failure::Refused { code, message, .. } = failure else { return false };
        if code != LATE {
            return false;
        }
        self.is(message.parse().unwrap_or(0));
        true
    }
}

/// The code of such a refusal, see `late` in `scripts/lib/clock.lua`.
const LATE: &str = "LATE";

/// After this time the subscriptions of all clients count as back.
pub(crate) const ALL_ARE_BACK: Duration = Duration::from_secs(10);

/// For which waiters it is known whether their clients listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listeners {
    /// For all waiters.
    Known,
    /// For waiters with this ticket or a greater one.
    KnownSince(u64),
    /// For no waiter.
    Unknown,
}

/// What a client knows of the last fault: for which waiters the server knows whether their clients listen.
///
/// A script passes over a waiter whose client is not subscribed. But after a restart with data a server has the queue at once,
/// and the subscribers come back one by one; and a network fault may cut off all subscribers. So for ten seconds after such a
/// fault a missing subscription counts only against waiters that have come since, because a client subscribes before it asks.
/// Earlier waiters count until their places end.
///
/// A client notices the fault by a lost connection, and once more when a connection opens in its place: only then it knows the server's
/// time, and clients that have come meanwhile may have come before their own subscriptions broke. A new program had no connection, and
/// looks how long the server has been up.
///
/// What a call says of this is packed before the connection that carries the call is known. So faults have numbers: a call that was
/// packed before the last fault of its connection is packed anew (see `Pool::lead`).
#[derive(Debug)]
pub(super) struct KnownListeners {
    /// Where the other times begin, but the first.
    made: Instant,
    /// The server's time of the last fault, in microseconds since 1970.
    fault: AtomicU64,
    /// Until when that fault counts, in microseconds.
    until: AtomicU64,
    /// How many faults were noticed.
    count: AtomicU64,
    /// When a connection was last lost, or opened in place of one that was, in microseconds.
    lost: AtomicU64,
    /// When the latest answered command was sent, in microseconds.
    heard: AtomicU64,
}

impl KnownListeners {
    pub(super) fn new() -> KnownListeners {
        let [fault, until, count, lost, heard] = [const { AtomicU64::new(0) }; 5];
        KnownListeners { made: Instant::now(), fault, until, count, lost, heard }
    }

    /// What a connection asks when it opens, beside the time.
    pub(super) fn question() -> Cmd {
        cmd("INFO").arg("server").to_owned()
    }

    /// A connection has opened, perhaps in place of one that was lost. The server has said what time it is (in microseconds since
    /// 1970), and how long it has been up, if the user may know.
    pub(super) fn connected(&self, is_again: bool, time: Option<u64>, info: Option<&Value>) {
        let uptime = info.and_then(|info| {
            let seconds = field(text(info).ok()?, "uptime_in_seconds")?.parse().ok()?;
            Some(Duration::from_secs(seconds))
        });
        // A later connection tells nothing new: without a loss the server has been up since the first.
        let is_first = self.heard.load(Ordering::Relaxed) == 0;
        self.hears(Instant::now());
        if is_again {
            self.lost(time);
        } else if let Some(left) =
            uptime.filter(|_| is_first).and_then(|uptime| ALL_ARE_BACK.checked_sub(uptime))
        {
            // The end of the second in which the server began, so that no earlier waiter is passed over; or now, if that is earlier.
            let time = time.unwrap_or(u64::MAX);
            let seconds = (time / SECOND).saturating_sub((ALL_ARE_BACK - left).as_secs());
            self.faulted(seconds.saturating_add(1).saturating_mul(SECOND).min(time), left);
        }
    }

    /// A connection was lost by this time of the server.
    pub(super) fn lost(&self, time: Option<u64>) {
        self.lost.store(self.at(Instant::now()), Ordering::Relaxed);
        self.faulted(time.unwrap_or(u64::MAX), ALL_ARE_BACK);
    }

    fn faulted(&self, at: u64, lasts: Duration) {
        self.fault.fetch_max(at, Ordering::Relaxed);
        let until =
            self.at(Instant::now()).saturating_add(u64::try_from(lasts.as_micros()).unwrap_or(u64::MAX));
        self.until.fetch_max(until, Ordering::Relaxed);
        // Last: what is packed from here on says so.
        self.count.fetch_add(1, Ordering::Release);
    }

    /// The number of the last fault. Read before what is packed by it.
    pub(super) fn last_fault(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Whether a connection was lost after this time, or opened in place of one that was.
    pub(super) fn has_lost_since(&self, then: Instant) -> bool {
        self.lost.load(Ordering::Relaxed) > self.at(then)
    }

    /// A command that was sent then was answered.
    pub(super) fn hears(&self, sent: Instant) {
        self.heard.store(self.at(sent).max(1), Ordering::Relaxed); // zero: never
    }

    /// Whether the loss of a connection would have been noticed.
    pub(super) fn has_heard_lately(&self) -> bool {
        let since = self.at(Instant::now()).saturating_sub(self.heard.load(Ordering::Relaxed));
        Duration::from_micros(since) < FRESH && self.heard.load(Ordering::Relaxed) > 0
    }

    pub(super) fn are(&self) -> Listeners {
        if self.until.load(Ordering::Relaxed) <= self.at(Instant::now()) {
            return Listeners::Known;
        }
        Listeners::KnownSince(self.fault.load(Ordering::Relaxed))
    }

    fn at(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.made).as_micros()).unwrap_or(u64::MAX)
    }
}

/// In microseconds.
const SECOND: u64 = 1_000_000;

/// What was refused is not asked for again within this time: the server notes each refusal (ACL LOG).
const BELIEVED: Duration = Duration::from_secs(60);

/// The last refusal of one question, which is believed for a minute: a right that is missing now may come back.
#[derive(Debug, Default)]
pub(crate) struct Refusal(Mutex<Option<Instant>>);

impl Refusal {
    /// The server has refused just now.
    pub(crate) fn heard(&self) {
        *self.0.lock() = Some(Instant::now());
    }

    /// Whether the server refused within the last minute.
    pub(crate) fn is_believed(&self) -> bool {
        self.0.lock().is_some_and(|at| at.elapsed() < BELIEVED)
    }

    /// Whether the refusal is no longer believed. True for one caller, who asks again: the others believe it until there is an answer.
    pub(crate) fn is_doubted(&self) -> bool {
        let mut at = self.0.lock();
        let is_old = at.is_some_and(|at| at.elapsed() >= BELIEVED);
        if is_old {
            *at = Some(Instant::now());
        }
        is_old
    }

    /// For tests: as if a minute had passed.
    #[cfg(test)]
    pub(crate) fn grow_old(&self) {
        let mut at = self.0.lock();
        *at = at.and_then(|at| at.checked_sub(BELIEVED));
    }
}

/// What an address leads to. If nothing else tells which server is in charge, the address does: a DNS name, a Kubernetes Service or a
/// proxy that checks roles leads to the master, and after a fail-over to another master.
///
/// | known | moves to | by |
/// | --- | --- | --- |
/// | nothing | master | a server that says so; from then on a replica is an outage, and never used |
/// | nothing | untold | a server that refuses ROLE; from then on it is asked once a minute |
/// | untold | master | a server that says so |
///
/// Until then a replica is used: if the address is wrong, a call's error says so, and calls that only read work.
#[derive(Debug)]
pub(super) struct LeadsTo {
    known: AtomicU8,
    untold: Refusal,
}

/// Sentinels or a cluster tell which server is in charge.
const ANYWHERE: u8 = 0;
const NOTHING_KNOWN: u8 = 1;
const MASTER: u8 = 2;
const UNTOLD: u8 = 3;

impl LeadsTo {
    /// For a server that sentinels or a cluster name.
    pub(super) fn anywhere() -> LeadsTo {
        LeadsTo { known: AtomicU8::new(ANYWHERE), untold: Refusal::default() }
    }

    pub(super) fn nothing_known() -> LeadsTo {
        LeadsTo { known: AtomicU8::new(NOTHING_KNOWN), untold: Refusal::default() }
    }

    fn known(&self) -> u8 {
        self.known.load(Ordering::Relaxed)
    }

    /// Asked when a connection opens, and with each ping: without the question, a connection that only reads would stay at the
    /// former master for as long as that server is up.
    pub(super) fn question(&self) -> Option<Cmd> {
        let is_asked = match self.known() {
            NOTHING_KNOWN | MASTER => true,
            UNTOLD => !self.untold.is_believed(),
            _ => false,
        };
        is_asked.then(|| cmd("ROLE"))
    }

    /// # Errors
    /// `READONLY` of a replica, if the address led to a master before.
    pub(super) fn heard(&self, reply: Result<Value, Failure>) -> Result<(), Failure> {
        match reply.map(|reply| Role::read(&reply)) {
            Ok(Role::Replica) if self.known() == MASTER => return Err(Role::refused()),
            Ok(Role::Master) => self.known.store(MASTER, Ordering::Relaxed),
            // The next answer would most likely be the same, and the server notes each refusal (ACL LOG).
            Err(Failure::Refused { .. }) | Ok(Role::Other) if self.known() != MASTER => {
                self.untold.heard();
                self.known.store(UNTOLD, Ordering::Relaxed);
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn led_to_master(&self) -> bool {
        self.known() == MASTER
    }

    /// Whether all servers so far were replicas by their own word.
    pub(super) fn may_be_wrong(&self) -> bool {
        self.known() == NOTHING_KNOWN
    }
}

/// A server is far away if no round trip is quicker. A trip in the same rack, or on the same machine, takes a tenth to a half of that.
const FAR: Duration = Duration::from_micros(500);
/// What a command adds to a trip at most, on a busy server.
const WORK: Duration = Duration::from_micros(50);
/// How many round trips have to be slow: on a busy machine a single one says little.
const ENOUGH: u32 = 16;
/// How many after a quick trip. Then slow trips have other reasons as a rule, but another server, which is far away, may take over the
/// address.
const ENOUGH_ONCE_NEAR: u32 = 1000;

/// Whether a server is far away: then callers wait for the way and not for the server, and more connections help.
///
/// The number: how many slow round trips, and no quick one, are still to come until the server is found to be far away; zero once it is.
#[derive(Debug)]
pub(super) struct Distance(AtomicU32);

impl Distance {
    pub(super) fn new() -> Distance {
        Distance(AtomicU32::new(ENOUGH))
    }

    /// The answers to so many commands, sent at that time, have just arrived; true once, when the server is found to be far away. After
    /// that no time is read.
    pub(super) fn is_found_far(&self, asked: Instant, commands: usize) -> bool {
        !self.is_far() && self.took(asked.elapsed(), commands)
    }

    /// Whether the server was found to be far away.
    pub(super) fn is_far(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    fn took(&self, trip: Duration, commands: usize) -> bool {
        let is_slow = trip > FAR + WORK.saturating_mul(u32::try_from(commands).unwrap_or(u32::MAX));
        let counted = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| match left {
            0 => None, // another thread has just found it
            ENOUGH_ONCE_NEAR if !is_slow => None,
            left => Some(if is_slow { left - 1 } else { ENOUGH_ONCE_NEAR }),
        });
        is_slow && counted == Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fault counts for ten seconds, and not for waiters that came later.
    #[test]
    fn a_fault_counts_for_ten_seconds() {
        let after = |connections: &[(bool, u64, Option<u64>)]| {
            let known = KnownListeners::new();
            for (is_again, time, uptime) in connections {
                let info = uptime.map(|uptime| format!("# Server\r\nuptime_in_seconds:{uptime}\r\n"));
                let info = info.map(|info| Value::BulkString(info.into_bytes()));
                known.connected(*is_again, Some(time * SECOND + 7), info.as_ref());
            }
            known.are()
        };
        assert_eq!(after(&[]), Listeners::Known);
        assert_eq!(after(&[(false, 100, Some(60))]), Listeners::Known);
        assert_eq!(after(&[(false, 100, None)]), Listeners::Known, "the user may not know");
        assert_eq!(after(&[(false, 100, Some(3))]), Listeners::KnownSince(98 * SECOND), "in its second");
        assert_eq!(
            after(&[(false, 100, Some(0)), (false, 109, Some(9))]),
            Listeners::KnownSince(100 * SECOND + 7)
        );
        let since = Listeners::KnownSince(130 * SECOND + 7);
        assert_eq!(after(&[(false, 100, Some(60)), (true, 130, Some(90))]), since);
        assert_eq!(after(&[(true, 130, Some(1)), (false, 130, Some(1))]), since);
        let known = KnownListeners::new();
        known.faulted(5, Duration::ZERO);
        assert_eq!(known.are(), Listeners::Known, "it is over");
    }

    #[test]
    fn a_lost_connection_is_a_fault_at_once() {
        let before = Instant::now();
        let known = KnownListeners { made: before - 2 * ALL_ARE_BACK, ..KnownListeners::new() };
        assert!(!known.has_lost_since(before - ALL_ARE_BACK) && known.last_fault() == 0);
        known.lost(Some(7));
        assert_eq!((known.are(), known.last_fault()), (Listeners::KnownSince(7), 1));
        assert!(
            known.has_lost_since(before - Duration::from_millis(1)) && !known.has_lost_since(Instant::now())
        );
    }

    #[test]
    fn who_has_heard_lately_would_have_noticed_a_loss() {
        assert!(!KnownListeners::new().has_heard_lately(), "of nobody");
        let long_ago = Instant::now() - 2 * ALL_ARE_BACK;
        let known = KnownListeners { made: long_ago, ..KnownListeners::new() };
        known.hears(Instant::now());
        assert!(known.has_heard_lately());
        known.hears(Instant::now() - FRESH);
        assert!(!known.has_heard_lately());
    }

    const RESPONSE: Duration = Duration::from_secs(1);

    fn time(seconds: &str, micros: &str) -> Value {
        Value::Array([seconds, micros].map(|text| Value::BulkString(text.as_bytes().to_vec())).to_vec())
    }

    /// An attempt ends a response time-out and a margin after now, by the server's clock.
    #[test]
    fn an_attempt_ends_by_the_servers_clock() {
        let clock = ServerClock::new();
        assert!(!clock.is_known());
        assert_eq!(clock.attempt_end(RESPONSE), 0, "it is over until the clock is known");
        clock.heard(&time("1000", "7"));
        assert!(clock.is_known() && !clock.is_old(Instant::now()));
        let left = clock.attempt_end(RESPONSE) - 1_000_000_007;
        assert!((6_000_000..7_000_000).contains(&left), "{left}");
        assert!(attempt_ttl(RESPONSE) > Duration::from_secs(6), "its client counts longer");
    }

    #[test]
    fn a_reading_goes_on_by_the_clients_clock_and_gets_old() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let clock = ServerClock { made: now - 20 * second, ..ServerClock::new() };
        assert_eq!(clock.time(), None);
        clock.heard(&time("1000", "7"));
        let says = clock.time().expect("a reading");
        assert!((1_000_000_007..1_001_000_000).contains(&says), "{says}");
        assert!(!clock.is_old(now + OLDEST - second) && clock.is_old(now + OLDEST + second));
    }

    #[test]
    fn a_refusal_tells_the_clock_and_other_replies_do_not() {
        let clock = ServerClock::new();
        for reply in [Value::Okay, Value::Nil, time("x", "1"), Value::Array(vec![])] {
            clock.heard(&reply);
        }
        assert!(!clock.refused_late(&Failure::refused("READONLY", "5")) && !clock.is_known());
        assert!(clock.refused_late(&Failure::refused("LATE", "2000000000")));
        let end = clock.attempt_end(RESPONSE);
        assert!((2_006_000_000..2_007_000_000).contains(&end), "{end}");
    }

    const SLOW: Duration = Duration::from_nanos(550_001);
    const QUICK: Duration = Duration::from_micros(550);

    #[test]
    fn many_slow_trips_and_no_quick_one_show_a_far_server_once() {
        let distance = Distance::new();
        assert!(!distance.is_far());
        assert_eq!((0..3 * ENOUGH).filter(|_| distance.took(SLOW, 1)).count(), 1);
        assert!(distance.is_far() && !distance.took(QUICK, 1) && distance.is_far());
        let (distance, long_ago) = (Distance::new(), Instant::now() - Duration::from_secs(1));
        let found: Vec<bool> = (0..20).map(|_| distance.is_found_far(long_ago, 1)).collect();
        assert_eq!(found.iter().position(|found| *found), Some(15));
        assert_eq!(found.iter().filter(|found| **found).count(), 1);
    }

    #[test]
    fn a_near_server_that_moves_away_is_found_far_later() {
        for slow in 0..ENOUGH {
            let distance = Distance::new();
            for slow in [slow, ENOUGH_ONCE_NEAR - 1] {
                (0..slow).for_each(|_| assert!(!distance.took(SLOW, 1)));
                assert!(!distance.took(QUICK, 1) && !distance.is_far());
            }
            assert!((1..ENOUGH_ONCE_NEAR).all(|_| !distance.took(SLOW, 1)));
            assert!(!distance.is_far() && distance.took(SLOW, 1) && distance.is_far());
        }
    }

    #[test]
    fn a_server_with_much_to_do_is_not_far() {
        let distance = Distance::new();
        assert!((0..3 * ENOUGH_ONCE_NEAR).all(|_| !distance.took(10 * QUICK, 100)));
        assert!((0..ENOUGH_ONCE_NEAR).any(|_| distance.took(10 * QUICK, 99)));
    }

    fn role(word: &str) -> Result<Value, Failure> {
        Ok(Value::Array(vec![Value::BulkString(word.into()), Value::Int(1)]))
    }

    #[test]
    fn a_replica_is_refused_once_there_was_a_master() {
        let leads_to = LeadsTo::nothing_known();
        assert_eq!(leads_to.heard(role("slave")), Ok(()));
        assert!(leads_to.may_be_wrong() && leads_to.question().is_some());
        assert_eq!(leads_to.heard(role("master")), Ok(()));
        assert_eq!(leads_to.heard(role("slave")), Err(Role::refused()));
        // The user has lost the right.
        assert_eq!(leads_to.heard(Err(Failure::refused("NOPERM", "x"))), Ok(()));
        assert!(leads_to.led_to_master() && !leads_to.may_be_wrong() && leads_to.question().is_some());
    }

    #[test]
    fn a_server_that_does_not_tell_is_asked_once_a_minute() {
        for untold in [Err(Failure::refused("NOPERM", "x")), Ok(Value::Okay)] {
            let leads_to = LeadsTo::nothing_known();
            assert_eq!(leads_to.heard(untold), Ok(()));
            assert!(leads_to.question().is_none() && !leads_to.may_be_wrong() && !leads_to.led_to_master());
            leads_to.untold.grow_old();
            assert!(leads_to.question().is_some());
            // The user has the right again.
            assert_eq!(leads_to.heard(role("master")), Ok(()));
            assert!(leads_to.led_to_master() && leads_to.heard(role("slave")).is_err());
        }
        // No answer tells nothing.
        let leads_to = LeadsTo::nothing_known();
        assert_eq!(leads_to.heard(Err(Failure::no_answer())), Ok(()));
        assert!(leads_to.question().is_some());
        assert!(LeadsTo::anywhere().question().is_none());
    }
    #[test]
    fn a_refusal_is_believed_for_a_minute_and_doubted_once() {
        let refusal = Refusal::default();
        assert!(!refusal.is_believed() && !refusal.is_doubted());
        refusal.heard();
        assert!(refusal.is_believed() && !refusal.is_doubted());
        refusal.grow_old();
        assert!(!refusal.is_believed() && refusal.is_doubted());
        assert!(refusal.is_believed() && !refusal.is_doubted());
    }
}
