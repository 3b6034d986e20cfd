//! What the clients are told about fail-overs, and the times of all runs.

use std::time::Duration;

use fairlock::backend::Backend;
use fairlock::settings::{Discipline, Durability};
use fairlock::{Client, Lock, PostgresBackend, RedisBackend};
use fairlock_tests::word::variant;

/// The lease of all holds: long enough for two fail-overs.
pub(crate) const LEASE: Duration = Duration::from_secs(3);
/// Three quarters of it are the longest lease.
const TRUST: Duration = Duration::from_secs(4);
/// Connecting, and each answer.
pub(crate) const ANSWER: Duration = Duration::from_millis(500);
/// How far the clocks of two servers may be apart where a setting allows for it.
pub(crate) const SKEW: Duration = Duration::from_millis(500);
/// How late an event may be on a busy machine.
pub(crate) const SLACK: Duration = Duration::from_secs(2);
/// How long the sentinels wait until a silent server counts as down.
pub(crate) const DOWN_AFTER: Duration = Duration::from_millis(500);
/// The same for the nodes of a cluster.
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_millis(1000);
/// Far longer than anything that is waited for takes on a busy machine. Sentinels that stood still for two seconds do nothing
/// for another thirty (TILT).
pub(crate) const BOUND: Duration = Duration::from_secs(90);

/// The places' time to live. A queue that was lost rests for this time, and the holder renews once in a third of the lease: with the
/// shortest places there is time for holds to overlap.
pub(crate) const PLACE: Duration = Duration::from_millis(500);
/// How long a call goes on without any answer.
pub(crate) const OUTAGE: Duration = Duration::from_secs(6);

/// The setting of all clients of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Setting {
    /// A grant counts at once. The control: here holds must overlap, or the run sees nothing.
    None,
    /// A server with a new past grants nothing for one grace, and a majority has to name the server.
    Durable,
    /// On PostgreSQL every setting is that of its server. The standby is asynchronous: the control there.
    Asynchronous,
    /// The standby is synchronous: a primary that was deposed acknowledges nothing more.
    Synchronous,
}

impl Setting {
    /// Those of Redis.
    pub(crate) const OF_REDIS: [Setting; 2] = [Setting::None, Setting::Durable];

    pub(crate) fn parse(word: &str) -> Option<Setting> {
        variant(&[&Setting::OF_REDIS[..], &[Setting::Asynchronous, Setting::Synchronous]].concat(), word)
    }

    /// Whether holds must overlap under some faults.
    pub(crate) fn is_control(self) -> bool {
        matches!(self, Setting::None | Setting::Asynchronous)
    }

    /// A client of the servers at this URL.
    pub(crate) fn client(self, url: &str) -> fairlock::Result<Client> {
        if url.starts_with("postgres") {
            let builder = PostgresBackend::builder(url).connect_timeout(ANSWER).response_timeout(ANSWER);
            return build(builder.connect()?);
        }
        let builder = RedisBackend::builder(url).discipline(Discipline::HandOff);
        let builder = builder.connect_timeout(ANSWER).response_timeout(ANSWER);
        let builder = match self {
            Setting::None | Setting::Asynchronous | Setting::Synchronous => builder,
            Setting::Durable => builder.durable(Durability::default().trust(TRUST).skew(SKEW)),
        };
        build(builder.connect()?)
    }

    /// How long the server keeps a hold that was renewed just now.
    pub(crate) fn kept(self) -> Duration {
        if self == Setting::Durable { LEASE + TRUST } else { LEASE }
    }

    /// The lock of this name, of a new client.
    pub(crate) fn lock(self, url: &str, name: &str) -> fairlock::Result<Lock> {
        self.client(url)?.fair_lock(name)
    }
}

fn build(backend: impl Backend) -> fairlock::Result<Client> {
    Client::builder(backend).lease(LEASE).place_ttl(PLACE).outage_limit(OUTAGE).build()
}
