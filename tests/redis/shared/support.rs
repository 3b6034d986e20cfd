//! One lock with several holders, its owners, and the keys that the server keeps of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use fairlock::admin::{LockKind, LockName};
use fairlock::backend::{
    Acquire, Acquired, Backend, BackendError, Hold, LockId, Place, Released, Renew, Renewal, RequestId,
    Subscription, Wait, Wake, WakeSink, Withdrawn, only,
};
use fairlock::owner::{ClientId, OwnerId};
use fairlock::{FencingToken, RedisBackend};
use fairlock_tests::locks::patient;
use fairlock_tests::{Alone, RedisServer};

pub(crate) const NAME: &str = "pool";
pub(crate) const HOLDS: &str = "fairlock_ends:{pool}";
/// Long enough that nothing ends during a test, unless that is its subject.
pub(crate) const LEASE: Duration = Duration::from_secs(60);

/// A server, and a backend for each kind of lock of one name.
pub(crate) struct World {
    pub(crate) server: RedisServer,
    pub(crate) backend: RedisBackend,
    pub(crate) lock: LockId,
    pub(crate) client: ClientId,
    pub(crate) told: Receiver<Told>,
    _heard: Subscription,
    _alone: Alone,
}

/// What a client was told, with the number of the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Granted(u64, FencingToken),
    Look(u64),
    Taken(u64, FencingToken),
}

struct Ear(std::sync::mpsc::Sender<Told>);

impl WakeSink for Ear {
    fn wake(&self, wake: Wake<'_>) {
        let number = |owner: &str| owner.rsplit(':').next().unwrap().parse().unwrap();
        let told = match wake {
            Wake::Granted { owner, token, .. } => Told::Granted(number(owner), token),
            Wake::Recheck { owner: Some(owner), .. } => Told::Look(number(owner)),
            Wake::Taken { owner, token, .. } => Told::Taken(number(owner), token),
            _ => return,
        };
        _ = self.0.send(told);
    }
}

/// An owner that asks for some units.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    pub(crate) owner: OwnerId,
    pub(crate) request: RequestId,
    pub(crate) units: u32,
    pub(crate) lease: Duration,
}

impl World {
    pub(crate) fn of(kind: LockKind) -> World {
        let alone = Alone::here();
        let server = RedisServer::start();
        let backend = patient(&server.url()).connect().unwrap();
        let (sender, told) = channel();
        let client = ClientId::random();
        let heard = backend.subscribe(client, Arc::new(Ear(sender))).unwrap();
        let lock = LockId::new(LockName::new(NAME).unwrap(), kind);
        World { server, backend, lock, client, told, _heard: heard, _alone: alone }
    }

    pub(crate) fn with(permits: u32) -> World {
        World::of(LockKind::Semaphore { permits })
    }

    /// The owner with this number. Its place lasts for a minute.
    pub(crate) fn asker(&self, number: u64, units: u32) -> Asker {
        let owner = OwnerId::new(&format!("{}:{number}", self.client));
        Asker { owner, request: RequestId::new(number), units, lease: LEASE }
    }

    /// The same in a process that no longer listens.
    pub(crate) fn deaf(&self, number: u64, units: u32) -> Asker {
        Asker {
            owner: OwnerId::new(&format!("{}:{number}", ClientId::random())),
            ..self.asker(number, units)
        }
    }

    pub(crate) fn place<'a>(&'a self, of: &'a Asker, wait: Wait) -> Place<'a> {
        let mut place = Place::new(&self.lock, &of.owner, of.request);
        (place.wait, place.ttl, place.units) = (wait, LEASE, of.units);
        place
    }

    pub(crate) fn ask(&self, of: &Asker) -> Result<Acquired, BackendError> {
        only(self.backend.acquire(&[Acquire::new(self.place(of, Wait::Forever), of.lease)]))
    }

    pub(crate) fn try_once(&self, of: &Asker) -> Result<Acquired, BackendError> {
        only(self.backend.acquire(&[Acquire::new(self.place(of, Wait::No), of.lease)]))
    }

    #[track_caller]
    pub(crate) fn granted(&self, of: &Asker) -> FencingToken {
        match self.ask(of).unwrap() {
            Acquired::Granted { token, .. } => token,
            other => panic!("{other:?}"),
        }
    }

    /// Asks, and returns the rank, and when to look.
    #[track_caller]
    pub(crate) fn queued(&self, of: &Asker) -> (u64, Duration) {
        match self.ask(of).unwrap() {
            Acquired::Queued { rank, recheck_in, .. } => (rank, recheck_in),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn hold<'a>(&'a self, of: &'a Asker, token: FencingToken) -> Hold<'a> {
        Hold::new(&self.lock, &of.owner, of.request, token)
    }

    pub(crate) fn release(&self, of: &Asker, token: FencingToken) -> Released {
        only(self.backend.release(&[self.hold(of, token)])).unwrap()
    }

    pub(crate) fn leave(&self, of: &Asker) -> Withdrawn {
        only(self.backend.withdraw(&[self.place(of, Wait::Forever)])).unwrap()
    }

    pub(crate) fn renew_hold(&self, of: &Asker, token: FencingToken) -> Renewal {
        let item = Renew::Hold { hold: self.hold(of, token), holds: 1, lease: of.lease };
        self.backend.renew(self.client, &[item]).remove(0).unwrap()
    }

    pub(crate) fn heartbeat(&self, of: &Asker) -> Renewal {
        let item = Renew::Place { place: self.place(of, Wait::Forever), lease: of.lease };
        self.backend.renew(self.client, &[item]).remove(0).unwrap()
    }

    /// The numbers of the holders in the order of their tokens, after a check that the keys agree with each other.
    #[track_caller]
    pub(crate) fn holders(&self) -> Vec<u64> {
        let fields: Vec<String> = self.server.query(&["HGETALL", NAME]);
        let ends: Vec<String> = self.server.query(&["ZRANGE", HOLDS, "0", "-1"]);
        let (mut used, mut sum, mut members) = (0, 0, Vec::new());
        let capacity = self.lock.kind.capacity().to_string();
        for pair in fields.chunks(2) {
            match pair[0].as_str() {
                "mode" => assert_eq!(pair[1], capacity),
                "used" => used = pair[1].parse::<u64>().unwrap(),
                member => {
                    sum += pair[1].split(' ').next().unwrap().parse::<u64>().unwrap();
                    members.push(member.to_owned());
                }
            }
        }
        if capacity == "1" {
            // Its one hold ends with the key.
            assert!(fields.len() <= 4 && used == 0 && ends.is_empty(), "{fields:?}, {ends:?}");
        } else {
            assert_eq!(used, sum, "{fields:?}");
            let sorted = |of: &[String]| of.iter().cloned().collect::<BTreeSet<_>>();
            assert_eq!(sorted(&members), sorted(&ends), "each hold has an end");
        }
        assert!(sum <= self.lock.kind.capacity().into(), "{fields:?}");
        let state = self.backend.inspect(&self.lock, 0..100).unwrap();
        state.holders.iter().map(|holder| number(&holder.owner)).collect()
    }

    /// The numbers of the waiters, first in front.
    pub(crate) fn queue(&self) -> Vec<u64> {
        let state = self.backend.inspect(&self.lock, 0..500).unwrap();
        state.queue.iter().map(|waiter| number(&waiter.owner)).collect()
    }

    /// Ends the hold now, as if its holder had died a lease ago. Nobody is told.
    pub(crate) fn end(&self, of: &Asker) {
        let member = format!("{}:{}", of.owner, of.request);
        assert_eq!(self.server.query::<i64>(&["ZADD", HOLDS, "XX", "CH", "1", &member]), 1);
    }

    /// The next message.
    #[track_caller]
    pub(crate) fn next_told(&self) -> Told {
        self.told.recv_timeout(Duration::from_secs(10)).unwrap()
    }
}

pub(crate) fn number(owner: &OwnerId) -> u64 {
    owner.as_str().rsplit(':').next().unwrap().parse().unwrap()
}
