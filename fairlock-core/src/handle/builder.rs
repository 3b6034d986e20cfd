//! The settings of a client.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use super::{AsyncClient, Client, connecting};
use crate::backend::{Backend, WakeSink};
use crate::config::{Config, LONGEST, SHORTEST, Stop, at_least, check_range};
use crate::error::{Error, Result};
use crate::ids::ClientId;
use crate::logging::in_words;
use crate::shared::{Handles, Shared};
use crate::stats::Counters;
use crate::time::Clock;
use crate::wake::ClaimSink;
use crate::watchdog::THREADS;

/// Redisson's `lockWatchdogTimeout`.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// The shortest time to live of a place: three heartbeats have to fit in, each with a round trip.
const SHORTEST_PLACE_TTL: Duration = Duration::from_millis(500);

/// In bytes, with host and process.
const LONGEST_LABEL: usize = 256;
/// Of these, what the program may give.
const LONGEST_GIVEN: usize = 128;

/// Sets up a client; see [`Client::builder`].
#[must_use = "a builder does nothing until `build`"]
pub struct ClientBuilder {
    backend: Arc<dyn Backend>,
    config: Config,
    /// What the program calls the client.
    label: String,
    stats_per_lock: usize,
}

// Each setter takes the builder whole: a panic leaves none half set.
impl UnwindSafe for ClientBuilder {}
impl RefUnwindSafe for ClientBuilder {}

impl ClientBuilder {
    pub(super) fn new(backend: Arc<dyn Backend>) -> ClientBuilder {
        let config = Config {
            lease: backend.longest_lease().map_or(DEFAULT_LEASE, |longest| longest.min(DEFAULT_LEASE)),
            max_hold: None,
            prefix: String::new(),
            place_ttl: Duration::from_secs(5),
            outage_limit: Duration::from_secs(10),
            slow_wait: Duration::from_secs(1),
            attempt_ttl: None,
            label: String::new().into(),
            clock: Clock::system(),
            stop: Stop::default(),
            #[cfg(feature = "tracing")]
            traceparent: Default::default(),
        };
        ClientBuilder { backend, config, label: String::new(), stats_per_lock: 0 }
    }

    /// How long the server keeps a hold that is not renewed. Default 30 s, like Redisson's `lockWatchdogTimeout`, or the longest
    /// that the backend grants (`RedisBuilder::durable`: 10 s); the watchdog
    /// renews it every third of that. A holder that dies keeps other owners out for this long. At least twice the response
    /// time-out of the backend (`RedisBuilder::response_timeout`, 1 s by default): a renewal whose answer is lost is repeated
    /// when that time-out is over, and the repeat needs as long again.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.config.lease = lease;
        self
    }

    /// Ends each hold at the latest `limit` after its grant, as [`Lock::max_hold`](crate::Lock::max_hold) does for one handle, which may
    /// set another limit. Default none.
    pub fn max_hold(mut self, limit: Duration) -> Self {
        self.config.max_hold = Some(limit);
        self
    }

    /// What stands before the name of each lock: programs, tenants or test runs that share a store don't meet. Guards, errors and
    /// operators' tools show the full name. Default nothing.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// let client = Client::builder(MemoryBackend::new()).prefix("shop:").build()?;
    /// assert_eq!(client.fair_lock("orders")?.name(), "shop:orders");
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.config.prefix = prefix.into();
        self
    }

    /// How long the server keeps a waiter's place that is not renewed. Default 5 s; the watchdog renews it every third of that.
    /// A waiter that dies delays the others for at most this long, where the discipline keeps places by time.
    pub fn place_ttl(mut self, ttl: Duration) -> Self {
        self.config.place_ttl = ttl;
        self
    }

    /// How long a call continues without any answer before it returns [`Error::Unavailable`]. Default 10 s.
    pub fn outage_limit(mut self, limit: Duration) -> Self {
        self.config.outage_limit = limit;
        self
    }

    /// Sets after how long a wait is explained, once, by a line in the log with level `info`: how many waiters are ahead, and who holds
    /// the lock. If the wait then ends without the lock, [`Busy::slow_wait`](crate::Busy::slow_wait) says the same; after a
    /// shorter wait it is `None`. Default 1 s. A thread of its own reads the state of the lock, at most once a second in a client, for the
    /// longest wait first. `Duration::MAX` turns the explanations off.
    pub fn slow_wait(mut self, threshold: Duration) -> Self {
        self.config.slow_wait = threshold;
        self
    }

    /// A human-readable name for this client, shown by [`Admin::inspect`](crate::Admin::inspect) before host and process:
    /// `billing (host-7:4123)`, without a label `host-7:4123`. At most 128 bytes without control characters, since it is sent with each
    /// request and printed on terminals.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Feature `tracing`: how to read the W3C `traceparent` of the current span, which travels with each request beside the label. It is
    /// called in the call or poll that asks, and gives the 55 bytes of that header; anything else is not sent. Other clients find it in
    /// [`Holder::traceparent`](crate::backend::Holder::traceparent).
    #[cfg(feature = "tracing")]
    pub fn traceparent(mut self, read: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        self.config.traceparent.0 = Some(Box::new(read));
        self
    }

    /// Counts for each lock as well, for the first `most` locks that something happens to: see
    /// [`Lock::stats`](crate::Lock::stats). Default 0. Each takes up to 33 kB. With feature `metrics` they have their own series, with the
    /// lock's name as a label: 99 for a fair lock with the guide's buckets.
    pub fn stats_per_lock(mut self, most: usize) -> Self {
        self.stats_per_lock = most;
        self
    }

    /// The clock that the client goes by. Default the system's; a [`ManualClock`](crate::ManualClock) in tests with a memory
    /// backend that was made with the same one.
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.config.clock = clock.into();
        self
    }

    /// Makes the client and subscribes to wake-ups. With Redis it goes on trying for as long as the backend's builder allows
    /// (`connect_within`), and blocks the thread meanwhile.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] for a time under 10 ms (one of more than 100 years is taken for 100 years), a `place_ttl` under 500 ms,
    /// or a label that is too long or has control characters; for a lease of less than twice the backend's response time-out; and for another clock than the
    /// backend's, such as a manual clock with Redis. [`Error::Unavailable`] or [`Error::Denied`] when the backend can't subscribe.
    pub fn build(self) -> Result<Client> {
        let mut config = Config { attempt_ttl: self.backend.attempt_ttl(), ..self.config };
        config.lease = config.lease.min(LONGEST);
        check_lease(config.lease, &*self.backend)?;
        config.place_ttl = at_least("place_ttl", config.place_ttl, SHORTEST_PLACE_TTL)?;
        config.outage_limit = at_least("outage_limit", config.outage_limit, SHORTEST)?;
        config.slow_wait = at_least("slow_wait", config.slow_wait, SHORTEST)?;
        config.max_hold = config.max_hold.map(|limit| at_least("max_hold", limit, SHORTEST)).transpose()?;
        config.name("x").map_err(|error| Error::InvalidConfig {
            reason: format!("the prefix {:?} can't begin a name: {error}", config.prefix),
            setting: Some("prefix"),
        })?;
        check_label(&self.label)?;
        config.label = label_of(&self.label, &host(), std::process::id()).into();
        check_clock(&config.clock, self.backend.store_clock())?;
        let (id, counters) = (ClientId::random(), Counters::new(self.stats_per_lock));
        let shared = Shared::new(id, config, self.backend, counters, &THREADS);
        let sink: Arc<dyn WakeSink> = Arc::new(ClaimSink(Arc::downgrade(&shared)));
        let subscription = shared.backend.subscribe(shared.id, sink)?;
        *shared.subscription.lock() = Some(subscription);
        Ok(Client(Arc::new(Handles(shared))))
    }

    /// [`build`](Self::build) for tasks: connects on a thread of its own. If the future is dropped, the client ends.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub async fn build_async(self) -> Result<AsyncClient> {
        // Not the client alone: if nobody waits for it, its drop must not block the thread of a runtime.
        connecting(|| self.build().map(|client| client.to_async())).await
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("label", &self.label)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

fn check_label(label: &str) -> Result<()> {
    let reason = if label.len() > LONGEST_GIVEN {
        format!("it has {} bytes, it may have {LONGEST_GIVEN}", label.len())
    } else if let Some(at) = label.find(char::is_control) {
        format!("it has a control character, after {:?}", &label[..at])
    } else {
        return Ok(());
    };
    Err(Error::InvalidConfig { reason, setting: Some("label") })
}

/// With two clocks one of them is manual, or both are: a wait would last until a test moves the wrong one.
fn check_clock(client: &Clock, store: Option<Clock>) -> Result<()> {
    let Some(store) = store.filter(|store| !store.is(client)) else { return Ok(()) };
    let reason = match (client.manual(), store.manual()) {
        (Some(_), None) => {
            "the client has a manual clock, but its leases end by the system's: leave out `clock`, or use a memory backend \
             that was made with the same clock (`MemoryBackend::with_clock`)"
        }
        (None, _) => "the store has a manual clock and the client has not: give the same one to `clock`",
        (Some(_), Some(_)) => {
            "the client and its store have different manual clocks: give clones of one to both"
        }
    };
    Err(Error::InvalidConfig { reason: reason.to_owned(), setting: Some("clock") })
}

/// Names all limits of a lease at once: its own, and those that the backend sets.
fn check_lease(lease: Duration, backend: &dyn Backend) -> Result<()> {
    let (time_out, longest) = (backend.response_timeout(), backend.longest_lease());
    check_lease_within(lease, time_out, longest, backend.why_no_longer_lease())
}

fn check_lease_within(
    lease: Duration,
    response_timeout: Option<Duration>,
    longest: Option<Duration>,
    why_no_longer: &str,
) -> Result<()> {
    let least = response_timeout.map_or(SHORTEST, |time| SHORTEST.max(time * 2));
    let most = longest.map_or(LONGEST, |longest| longest.min(LONGEST));
    let Err(Error::InvalidConfig { mut reason, setting }) = check_range("lease", lease, least..=most) else {
        return Ok(());
    };
    if least > most {
        reason = format!(
            "no lease suits: the backend grants {} at most ({why_no_longer}), and twice its response_timeout is {}; shorten the \
             time-out",
            in_words(most),
            in_words(least)
        );
    } else if let Some(time) = response_timeout
        && lease < least
    {
        reason += &format!(
            ": twice the backend's response_timeout of {} or more, so that a renewal without an answer can be repeated; \
             lengthen the lease, or shorten the time-out",
            in_words(time)
        );
    } else if longest.is_some() && lease > most {
        reason += &format!(", the longest that the backend grants: {why_no_longer}");
    }
    Err(Error::InvalidConfig { reason, setting })
}

fn host() -> String {
    // The standard library does not tell the host's name; these two cover Linux and most shells.
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::env::var("HOSTNAME"));
    host.unwrap_or_else(|_| "?".to_owned())
}

/// What others see: the given label with host and process, by which an operator finds the program. Whatever the host's name is, the label
/// is valid.
fn label_of(given: &str, host: &str, process: u32) -> String {
    let mut kept = String::new();
    for c in host.trim().chars().filter(|c| !c.is_control()) {
        if given.len() + kept.len() + c.len_utf8() > LONGEST_LABEL - 16 {
            break; // the rest is reserved for the process id
        }
        kept.push(c);
    }
    match given {
        "" => format!("{kept}:{process}"),
        given => format!("{given} ({kept}:{process})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_short_and_has_no_control_characters() {
        for good in ["", "orders-worker-3", "Büro 2 (h:1)", &"é".repeat(64)] {
            assert!(check_label(good).is_ok(), "{good}");
        }
        let bad = [
            "x".repeat(129),
            "x".repeat(64 << 20),
            "é".repeat(65),
            "a\u{1b}[2J".into(),
            "a\nb".into(),
            "\u{9b}".into(),
        ];
        for bad in bad {
            let Err(Error::InvalidConfig { reason, .. }) = check_label(&bad) else { panic!("{bad:.20}") };
            assert!(reason.starts_with("it has ") && reason.len() < 400, "{reason}");
        }
    }

    /// A lease is twice a time-out or more, and no longer than the backend grants.
    #[test]
    fn a_lease_is_two_time_outs_or_more_within_the_limit() {
        const S: Duration = Duration::from_secs(1);
        let is_good = |lease, time_out, longest| check_lease_within(lease, time_out, longest, "why").is_ok();
        let just_less = 2 * S - Duration::from_nanos(1);
        assert!(is_good(2 * S, Some(S), None) && !is_good(just_less, Some(S), None));
        assert!(is_good(9 * S, None, Some(9 * S)) && !is_good(10 * S, Some(S), Some(9 * S)));
        let said = |lease, time_out, longest| {
            check_lease_within(lease, time_out, longest, "why").unwrap_err().to_string()
        };
        let config = "invalid configuration: the time is";
        assert_eq!(
            said(Duration::ZERO, None, None),
            format!("{config} 0 s, it has to be from 10 ms to 100 years (lease)")
        );
        let short = said(S / 1000, Some(S), None);
        assert!(
            short.starts_with(&format!("{config} 1 ms, it has to be from 2 s to 100 years: twice the backend's response_timeout of 1 s or more")),
            "{short}"
        );
        let too_short = said(S / 1000, None, Some(9 * S));
        assert_eq!(too_short, format!("{config} 1 ms, it has to be from 10 ms to 9 s (lease)"));
        let too_long = said(LONGEST + S, Some(S), None);
        assert!(!too_long.contains("response_timeout") && !too_long.contains("grants"), "{too_long}");
        let none = said(S, Some(S), Some(S));
        assert!(
            none.contains(
                ": no lease suits: the backend grants 1 s at most (why), and twice its response_timeout is 2 s;"
            ),
            "{none}"
        );
        let long = said(10 * S, Some(S), Some(9 * S));
        assert!(
            long.starts_with(&format!(
                "{config} 10 s, it has to be from 2 s to 9 s, the longest that the backend grants: why"
            )),
            "{long}"
        );
    }

    #[test]
    fn a_label_names_host_and_process_and_is_valid() {
        assert_eq!(label_of("", "worker-3\n", 7), "worker-3:7");
        assert_eq!(label_of("billing", "worker-3\n", 7), "billing (worker-3:7)");
        assert_eq!(label_of("", &"x".repeat(300), 7), "x".repeat(240) + ":7");
        for host in [&*host(), &"界".repeat(1000), "a\u{1b}b\0", ""] {
            for given in ["", &"x".repeat(LONGEST_GIVEN)] {
                let label = label_of(given, host, u32::MAX);
                let is_clean = !label.contains(char::is_control);
                assert!(is_clean && label.len() <= LONGEST_LABEL && label.starts_with(given), "{label}");
            }
        }
    }
}
