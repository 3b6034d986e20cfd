//! Durable clients with short times, and the backend itself, which renews nothing on its own.

use std::time::Duration;

use fairlock::admin::{LockKind, LockName};
use fairlock::backend::{
    Acquire, Acquired, Backend, Hold, LockId, Place, Released, Renew, Renewal, RequestId, Wait, only,
};
use fairlock::owner::{ClientId, OwnerId};
use fairlock::settings::Durability;
use fairlock::{Client, FencingToken, RedisBackend};
pub(crate) use fairlock_tests::locks::{self, request, take_now as take};
pub(crate) use fairlock_tests::{Alone, CleanServer, RedisServer, eventually};

/// Far longer than anything here takes on a busy machine.
pub(crate) const BOUND: Duration = Duration::from_secs(20);
pub(crate) const TRUST: Duration = Duration::from_secs(2);
pub(crate) const SKEW: Duration = Duration::from_millis(100);
pub(crate) const LIFE: &str = "fairlock_life";

pub(crate) fn durability() -> Durability {
    Durability::default().trust(TRUST).skew(SKEW)
}

pub(crate) fn grace() -> Duration {
    locks::grace(TRUST, SKEW)
}

pub(crate) fn backend(server: &RedisServer) -> RedisBackend {
    RedisBackend::builder(&server.url()).durable(durability()).connect().unwrap()
}

pub(crate) fn client(server: &RedisServer) -> Client {
    Client::builder(backend(server)).outage_limit(BOUND).build().unwrap()
}

/// A server whose past is known, as an operator says.
pub(crate) fn known() -> CleanServer {
    let server = CleanServer::start();
    backend(&server).begin_life().unwrap();
    server
}

pub(crate) fn try_lock(client: &Client, name: &str) -> bool {
    client.fair_lock(name).unwrap().try_lock().unwrap().granted().is_some()
}

/// Owners of one lock, each with one request of the same number.
pub(crate) struct Raw {
    pub(crate) backend: RedisBackend,
    pub(crate) client: ClientId,
    pub(crate) lock: LockId,
}

impl Raw {
    pub(crate) fn of(backend: RedisBackend, name: &str, kind: LockKind) -> Raw {
        Raw { backend, client: ClientId::random(), lock: LockId::new(LockName::new(name).unwrap(), kind) }
    }

    pub(crate) fn new(server: &RedisServer, name: &str) -> Raw {
        Raw::of(backend(server), name, LockKind::Fair)
    }

    pub(crate) fn owner(&self, number: u64) -> OwnerId {
        OwnerId::new(&format!("{}:{number}", self.client))
    }

    pub(crate) fn ask(&self, number: u64, wait: Wait) -> Acquired {
        let owner = self.owner(number);
        let mut place = Place::new(&self.lock, &owner, RequestId::new(number));
        place.wait = wait;
        only(self.backend.acquire(&[Acquire::new(place, TRUST)])).unwrap()
    }

    #[track_caller]
    pub(crate) fn gets(&self, number: u64) -> FencingToken {
        self.try_get(number).expect("it is granted")
    }

    pub(crate) fn try_get(&self, number: u64) -> Option<FencingToken> {
        match self.ask(number, Wait::No) {
            Acquired::Granted { token, .. } => Some(token),
            _ => None,
        }
    }

    /// The hold is renewed or reclaimed, or it is lost.
    #[track_caller]
    pub(crate) fn renews(&self, number: u64, token: FencingToken, answer: Renewal) {
        let owner = self.owner(number);
        let hold = Hold::new(&self.lock, &owner, RequestId::new(number), token);
        let items = [Renew::Hold { hold, holds: 1, lease: TRUST }];
        assert_eq!(self.backend.renew(self.client, &items).remove(0).unwrap(), answer, "{number}");
    }

    #[track_caller]
    pub(crate) fn releases(&self, number: u64, token: FencingToken) {
        let owner = self.owner(number);
        let hold = Hold::new(&self.lock, &owner, RequestId::new(number), token);
        assert_eq!(only(self.backend.release(&[hold])).unwrap(), Released::Released, "{number}");
    }
}
