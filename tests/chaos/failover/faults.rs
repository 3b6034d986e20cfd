//! The faults: what each prepares before the holder has the lock, and what it does then.

use std::time::{Duration, Instant};

use fairlock_tests::eventually;
use fairlock_tests::sentinel::MASTER;

use crate::clocks::Clock;
use crate::deployment::{Deployment, Kind};
use crate::held::Held;
use crate::kept::{Kept, is_of, kept};
use crate::network::Node;
use crate::setting::{LEASE, Setting};

/// The holder's number among the workers.
pub(crate) const HOLDER: u8 = 0;
/// How long ago a renewal may be at the moment of a fault.
const JUST_NOW: Duration = Duration::from_millis(100);
/// What every piece of traffic takes on slow links.
const SLOW: Duration = Duration::from_millis(40);

/// A kind of fault. `Y` is the server that granted the lock, `X` the one that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// Y is killed (SIGKILL); X has the hold.
    Kill,
    /// Y is killed before X hears of the hold: the link between them was cut.
    KillUncopied,
    /// Y is killed; X has received the hold and lost it (CLIENT PAUSE).
    KillPaused,
    /// All links are slow, and Y is killed at once.
    KillSlow,
    /// Y and then X are killed within a lease.
    KillTwo,
    /// Y stands still (SIGSTOP) until X has taken over, and wakes.
    Freeze,
    /// Y stands still together with the holder's links to all others, and wakes.
    FreezeWithHolder,
    /// Y and the holder are cut off from all others.
    Partition,
    /// Y, a replica and the holder are cut off from all others.
    PartitionWithReplica,
    /// Y restarts without its data, before any other takes over.
    RestartEmpty,
    /// Y restarts with a file from before the hold.
    RestartOld,
    /// FLUSHALL at Y.
    Flush,
    /// A replica that has not heard of the hold is promoted by hand, while Y works.
    PromoteStale,
    /// Y, a sentinel and the holder are cut off. When X grants locks, one of the other sentinels restarts without its file, on Y's
    /// side. When Y grants locks again, the links are mended.
    SentinelForgets,
    /// Y and the holder are cut off. When X grants locks, all sentinels restart without their files, and name Y.
    SentinelsForget,
    // Of PostgreSQL, where X is a standby that is promoted.
    /// Y goes on, and all reach both servers.
    Promote,
    /// Y is killed and starts again as a primary: what no standby has acknowledged can be seen by then.
    Restart,
    /// Y goes on, and somebody cancels the commits that wait, or ends their sessions: they are done there by then.
    Cancel,
}

/// What was held before a fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About<'a> {
    pub(crate) fault: Fault,
    pub(crate) lock: &'a str,
    /// The owner of the first hold.
    pub(crate) holder: &'a str,
    pub(crate) held: Held,
    pub(crate) setting: Setting,
}

/// What follows from a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// Y goes on.
    SameServer,
    /// X takes over; this many times.
    FailOver(usize),
}

/// Each fault that a deployment can have.
pub(crate) const MENU: [(Kind, Fault); 29] = [
    (Kind::Sentinels, Fault::Kill),
    (Kind::Sentinels, Fault::KillUncopied),
    (Kind::Sentinels, Fault::KillPaused),
    (Kind::Sentinels, Fault::KillSlow),
    (Kind::Sentinels, Fault::KillTwo),
    (Kind::Sentinels, Fault::Freeze),
    (Kind::Sentinels, Fault::FreezeWithHolder),
    (Kind::Sentinels, Fault::Partition),
    (Kind::Sentinels, Fault::PartitionWithReplica),
    (Kind::Sentinels, Fault::RestartEmpty),
    (Kind::Sentinels, Fault::RestartOld),
    (Kind::Sentinels, Fault::Flush),
    (Kind::Sentinels, Fault::PromoteStale),
    (Kind::Sentinels, Fault::SentinelForgets),
    (Kind::Sentinels, Fault::SentinelsForget),
    (Kind::Cluster, Fault::Kill),
    (Kind::Cluster, Fault::KillUncopied),
    (Kind::Cluster, Fault::KillPaused),
    (Kind::Cluster, Fault::Freeze),
    (Kind::Cluster, Fault::Partition),
    (Kind::Cluster, Fault::RestartEmpty),
    (Kind::Cluster, Fault::Flush),
    (Kind::Cluster, Fault::PromoteStale),
    (Kind::Postgres, Fault::Promote),
    (Kind::Postgres, Fault::Partition),
    (Kind::Postgres, Fault::Freeze),
    (Kind::Postgres, Fault::Kill),
    (Kind::Postgres, Fault::Restart),
    (Kind::Postgres, Fault::Cancel),
];

impl Fault {
    /// How often a master is replaced because of it.
    pub(crate) fn fail_overs(self) -> usize {
        match self.then() {
            Then::SameServer => 0,
            // A sentinel that has forgotten it learns of it once more.
            Then::FailOver(times) => times + usize::from(self == Fault::SentinelForgets),
        }
    }

    fn then(self) -> Then {
        match self {
            Fault::RestartEmpty | Fault::RestartOld | Fault::Flush => Then::SameServer,
            Fault::KillTwo => Then::FailOver(2),
            _ => Then::FailOver(1),
        }
    }

    /// Whether holds must overlap without any protection: the hold is forgotten, or its server deposed.
    pub(crate) fn is_control(self, kind: Kind) -> bool {
        match self {
            _ if self.forgets() => true,
            // A primary without a majority refuses calls after the node time-out: the holder may get no renewal more.
            Fault::Partition | Fault::PartitionWithReplica => kind != Kind::Cluster,
            Fault::SentinelForgets | Fault::SentinelsForget | Fault::Promote | Fault::Cancel => true,
            _ => false,
        }
    }

    /// Whether the hold is forgotten.
    pub(crate) fn forgets(self) -> bool {
        self.is_stale() || matches!(self, Fault::RestartEmpty | Fault::RestartOld | Fault::Flush)
    }

    /// Whether X misses the hold.
    fn is_stale(self) -> bool {
        matches!(self, Fault::KillUncopied | Fault::KillPaused | Fault::PromoteStale)
    }

    /// Whether Y was deposed, and goes on.
    pub(crate) fn deposes(self) -> bool {
        matches!(
            self,
            Fault::Freeze
                | Fault::FreezeWithHolder
                | Fault::Partition
                | Fault::PartitionWithReplica
                | Fault::PromoteStale
                | Fault::SentinelForgets
                | Fault::SentinelsForget
        )
    }

    /// On Redis, before the holder asks.
    pub(crate) fn prepare(self, all: &Deployment) {
        let stale = all.replicas()[0];
        let replica = &all.servers[usize::from(stale)].server;
        if self.is_stale() && all.kind == Kind::Sentinels {
            // The other replica has the hold. Sentinels weigh this priority before what a replica has.
            replica.query::<()>(&["CONFIG", "SET", "replica-priority", "1"]);
            all.wait_until_preferred(stale);
        }
        match self {
            Fault::KillUncopied | Fault::PromoteStale => {
                all.network.cut(Node::Server(0), Node::Server(stale))
            }
            // The replica goes on receiving, and does nothing with it.
            Fault::KillPaused => replica.query::<()>(&["CLIENT", "PAUSE", "600000", "WRITE"]),
            Fault::RestartOld => all.servers[0].server.query::<()>(&["SAVE"]),
            Fault::KillSlow => all.network.delay(SLOW),
            _ => {}
        }
    }

    /// On Redis, when the holder has the lock. Injects the fault, and returns when a server is in charge again. Its clock is `clock` from then
    /// on: in a grace it moves while the server counts. Nothing is injected where server 0 was replaced already; returns whether.
    pub(crate) fn inject(self, all: &Deployment, about: About<'_>, clock: Option<Clock>) -> bool {
        let About { lock, holder, setting, .. } = about;
        let old = &all.servers[0].server;
        let is_replaced = || all.master().is_some_and(|master| master != 0);
        // The holder asks next in a third of the lease. A later moment would leave less time for holds to overlap.
        eventually("the hold was renewed just now", || {
            // No answer where it is being replaced.
            let left = kept(old, lock).into_iter().find(|(member, _)| is_of(member, holder));
            let left = left.map(|(_, kept)| kept.left).unwrap_or_default();
            left + JUST_NOW > setting.kept() || left + LEASE <= setting.kept() && is_replaced()
        });
        if !self.is_stale() && self != Fault::KillSlow {
            all.wait_until_copied(0, all.replicas().len());
        }
        if is_replaced() {
            return false;
        }
        if self.forgets() {
            // The worst case: the holder hears nothing, and believes for as long as it may.
            all.network.separate(&[Node::Worker(HOLDER)]);
        }
        match self {
            Fault::Kill | Fault::KillUncopied | Fault::KillSlow | Fault::KillTwo => old.kill(),
            Fault::KillPaused => {
                old.kill();
                let replica = &all.servers[usize::from(all.replicas()[0])];
                // The end of the link drops what the replica has received and not done.
                eventually("the replica has seen the end of its master", || {
                    replica.replication("master_link_status") == "down"
                });
                replica.server.query::<()>(&["CLIENT", "UNPAUSE"]);
            }
            Fault::Freeze => old.stop(),
            Fault::FreezeWithHolder => {
                all.network.separate(&[Node::Server(0), Node::Worker(HOLDER)]);
                old.stop();
            }
            Fault::Partition | Fault::SentinelsForget => {
                all.network.separate(&[Node::Server(0), Node::Worker(HOLDER)])
            }
            Fault::SentinelForgets => {
                all.network.separate(&[Node::Server(0), Node::Sentinel(0), Node::Worker(HOLDER)])
            }
            Fault::PartitionWithReplica => {
                all.network.separate(&[Node::Server(0), Node::Server(1), Node::Worker(HOLDER)]);
            }
            Fault::RestartEmpty | Fault::RestartOld => old.restart(),
            Fault::Flush => old.query::<()>(&["FLUSHALL"]),
            Fault::PromoteStale => promote_stale(all),
            Fault::Promote | Fault::Restart | Fault::Cancel => unreachable!("only PostgreSQL has it"),
        }
        let mut new = 0;
        if let Then::FailOver(times) = self.then() {
            let began = Instant::now();
            new = all.wait_for_other_than(0);
            if times == 2 {
                // After a long election no sentinel ever promotes the last server, unless it follows X (no-good-slave).
                if began.elapsed() > LEASE {
                    all.wait_until_copied(new, 1);
                }
                all.servers[new].server.kill();
                new = all.wait_for_other_than(new);
            }
        }
        match self {
            Fault::SentinelForgets => new = forget(all, about, new, &[1]),
            Fault::SentinelsForget => new = forget(all, about, new, &[0, 1, 2]),
            _ => {}
        }
        if let Some(clock) = clock {
            let server = &all.servers[new].server;
            // The first command begins the grace.
            eventually("a client has written", || {
                server.try_query::<u64>(&["DBSIZE"]).is_ok_and(|keys| keys > 0)
            });
            clock.set(server);
        }
        if matches!(self, Fault::Freeze | Fault::FreezeWithHolder) {
            old.cont();
        }
        true
    }
}

/// X is in charge, and grants the lock to others. These sentinels restart without their files, so they name Y, and it is in charge
/// until the others tell them. Returns who is in the end.
fn forget(all: &Deployment, about: About<'_>, new: usize, sentinels: &[u8]) -> usize {
    let About { lock, holder, held, setting, .. } = about;
    let before = kept(&all.servers[0].server, lock);
    eventually("X has granted the lock to others, and the holder has nothing there", || {
        let kept = kept(&all.servers[new].server, lock);
        // A reader beside a reader would be no overlap.
        let is_new = |(member, hold): (&String, &Kept)| {
            !before.contains_key(member) && (hold.takes_all || held != Held::Rw)
        };
        kept.iter().any(is_new) && kept.keys().all(|member| !is_of(member, holder))
    });
    // While they are down: one that remembers would tell the other side.
    for number in sentinels {
        all.sentinels[usize::from(*number)].server.kill();
        all.network.drop_held(Node::Sentinel(*number));
    }
    match sentinels {
        [one] => all.network.separate(&[
            Node::Server(0),
            Node::Sentinel(0),
            Node::Sentinel(*one),
            Node::Worker(HOLDER),
        ]),
        _ => all.network.heal(),
    }
    sentinels.iter().for_each(|number| all.sentinels[usize::from(*number)].server.restart());
    eventually("Y grants the lock again", || {
        kept(&all.servers[0].server, lock).values().any(|hold| hold.left + JUST_NOW > setting.kept())
    });
    match sentinels {
        [_] => {
            all.network.heal();
            all.wait_for_other_than(0)
        }
        _ => 0,
    }
}

/// The stale replica becomes the master, and Y learns of it later.
fn promote_stale(all: &Deployment) {
    match all.kind {
        Kind::Sentinels => {
            // Refused while the sentinel does not know a replica that it can promote.
            eventually("a sentinel promotes a replica", || {
                all.sentinels[0].server.try_query::<String>(&["SENTINEL", "FAILOVER", MASTER]).is_ok()
            });
        }
        Kind::Cluster | Kind::Postgres => {
            let replica = usize::from(all.replicas()[0]);
            all.servers[replica].server.query::<()>(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
        }
    }
}
