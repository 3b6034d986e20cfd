//! Locks of every kind, what an attempt says about its end, and all that a server keeps.

use std::collections::BTreeMap;
use std::time::Duration;

use fairlock::{Client, ClientBuilder, Discipline, Lock, OwnedGuard, OwnedRequest, RedisBackend};
use fairlock_tests::{Alone, Proxy, RedisServer, assert_no_residue, eventually, look_until};

use crate::support::{PLACE, SOON, granted};

/// A kind of lock, and how it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Fair,
    Writer,
    Reader,
    Permit,
    Plain,
    Redisson,
}

impl Kind {
    pub(super) const ALL: [Kind; 6] =
        [Kind::Fair, Kind::Writer, Kind::Reader, Kind::Permit, Kind::Plain, Kind::Redisson];
    /// Those whose waiters have their own places requests.
    pub(super) const HAND_OFF: [Kind; 4] = [Kind::Fair, Kind::Writer, Kind::Reader, Kind::Permit];

    /// A client whose holds and places need no renewal before a test is over, and whose commands are answered in time. No slow wait
    /// costs a script.
    pub(super) fn client(self, url: &str) -> Client {
        self.builder(url, SOON).place_ttl(SOON * 6).build().unwrap()
    }

    /// The same with heartbeats.
    pub(super) fn client_with_heartbeats(self, url: &str) -> Client {
        self.builder(url, SOON).place_ttl(PLACE).build().unwrap()
    }

    /// The same that waits for an answer so long.
    pub(super) fn hasty_client(self, url: &str, answer: Duration) -> Client {
        self.builder(url, answer).place_ttl(SOON * 6).build().unwrap()
    }

    fn builder(self, url: &str, answer: Duration) -> ClientBuilder {
        let discipline = if self == Kind::Redisson { Discipline::Redisson } else { Discipline::HandOff };
        let backend = RedisBackend::builder(url).discipline(discipline).response_timeout(answer);
        Client::builder(backend.connect().unwrap()).lease(SOON * 6).slow_wait(SOON * 6)
    }

    /// For a semaphore, which has one permit, there is none.
    fn lock(self, client: &Client, name: &str) -> Option<Lock> {
        Some(match self {
            Kind::Fair | Kind::Redisson => client.fair_lock(name).unwrap(),
            Kind::Writer => client.rw_lock(name).unwrap().writer().clone(),
            Kind::Reader => client.rw_lock(name).unwrap().reader().clone(),
            Kind::Plain => client.plain_lock(name).unwrap(),
            Kind::Permit => return None,
        })
    }

    /// A request by a new owner.
    pub(super) fn request(self, client: &Client, name: &str) -> OwnedRequest {
        match self.lock(client, name) {
            Some(lock) => lock.owned_by(&client.new_owner()).unwrap().request().unwrap(),
            None => client.semaphore(name, 1).unwrap().request().unwrap(),
        }
    }

    /// A hold of a new owner.
    #[track_caller]
    pub(super) fn take(self, client: &Client, name: &str) -> OwnedGuard {
        granted(self.request(client, name), SOON)
    }

    /// The same by one attempt, which waits for nothing.
    #[track_caller]
    pub(super) fn try_once(self, client: &Client, name: &str) -> OwnedGuard {
        let tried = match self.lock(client, name) {
            Some(lock) => lock.owned_by(&client.new_owner()).unwrap().try_lock(),
            None => client.semaphore(name, 1).unwrap().try_acquire(),
        };
        tried.unwrap().guard().expect("the lock is free")
    }

    /// A hold beside which this kind has to wait.
    #[track_caller]
    pub(super) fn block(self, client: &Client, name: &str) -> OwnedGuard {
        if self == Kind::Reader { Kind::Writer } else { self }.take(client, name)
    }

    pub(super) fn force_unlock(self, client: &Client, name: &str) -> bool {
        match self.lock(client, name) {
            Some(lock) => lock.force_unlock(),
            None => client.semaphore(name, 1).unwrap().force_unlock(),
        }
        .unwrap()
    }

    /// How many wait.
    pub(super) fn waiting(self, client: &Client, name: &str) -> u64 {
        let state = match self.lock(client, name) {
            Some(lock) => lock.inspect(),
            None => client.semaphore(name, 1).unwrap().inspect(),
        };
        state.unwrap().queue_length
    }

    /// Has a server learn the scripts that the tests have arrive late.
    pub(super) fn warm(self, server: &RedisServer) {
        let client = self.client(&server.url());
        let guard = self.block(&client, "warm");
        drop(self.request(&client, "warm"));
        eventually("the request has left", || self.waiting(&client, "warm") == 0);
        guard.unlock().unwrap();
        self.take(&client, "warm").unlock().unwrap();
        assert!(!self.force_unlock(&client, "warm"));
    }
}

/// The scripts that were called since the recording began, in order.
pub(super) fn calls(proxy: &Proxy) -> Vec<Vec<u8>> {
    let is_call = |piece: &Vec<u8>| String::from_utf8_lossy(piece).contains("\r\nEVALSHA\r\n");
    proxy.recorded().into_iter().filter(is_call).collect()
}

/// The first call of a script other than that of the first one.
#[track_caller]
pub(super) fn first_other(proxy: &Proxy, what: &str) -> Vec<u8> {
    let found = look_until(SOON, || {
        let calls = calls(proxy);
        calls.iter().find(|call| script(call) != script(&calls[0])).cloned()
    });
    found.unwrap_or_else(|| panic!("no {what}"))
}

/// Which script it is.
fn script(call: &[u8]) -> String {
    let text = String::from_utf8_lossy(call);
    let (_, rest) = text.split_once("\r\nEVALSHA\r\n$40\r\n").expect("a script");
    rest[..40].to_owned()
}

/// The same attempt with an end this many microseconds from now, by the server's clock.
pub(super) fn ending(server: &RedisServer, call: &[u8], micros: i64) -> Vec<u8> {
    const BEFORE: &[u8] = b"$16\r\n";
    const HOUR: u64 = 3_600_000_000;
    let (seconds, rest): (u64, u64) = server.query(&["TIME"]);
    let now = seconds * 1_000_000 + rest;
    let number = |at: usize| {
        let digits = std::str::from_utf8(call.get(at..at + 16)?).ok()?;
        digits.parse::<u64>().ok().filter(|number| number.abs_diff(now) < HOUR)
    };
    let places = call.windows(BEFORE.len()).enumerate().filter(|(_, window)| *window == BEFORE);
    // A ticket is such a number as well, and always smaller.
    let end = places.filter_map(|(at, _)| Some((number(at + BEFORE.len())?, at + BEFORE.len()))).max();
    let Some((_, at)) = end else { panic!("no end in {:?}", String::from_utf8_lossy(call)) };
    let mut call = call.to_vec();
    call[at..at + 16]
        .copy_from_slice(format!("{:016}", now.checked_add_signed(micros).expect("a time")).as_bytes());
    call
}

/// All keys with their values and times to live, in milliseconds.
pub(super) fn all_keys(server: &RedisServer) -> BTreeMap<String, (Vec<u8>, i64)> {
    let keys: Vec<String> = server.query(&["KEYS", "*"]);
    let state = |key: String| {
        let state = (server.query(&["DUMP", &key]), server.query(&["PTTL", &key]));
        (key, state)
    };
    keys.into_iter().map(state).collect()
}

/// Has this attempt arrive when its end is over: it is refused, and changes nothing.
#[track_caller]
pub(super) fn assert_refused(server: &RedisServer, proxy: &Proxy, call: &[u8], what: &str) {
    let before = all_keys(server);
    let answer = proxy.replay(&ending(server, call, -1));
    assert!(answer.starts_with("-LATE "), "{what}: {answer}");
    assert_unchanged(server, &before, what);
}

#[track_caller]
pub(super) fn assert_unchanged(server: &RedisServer, before: &BTreeMap<String, (Vec<u8>, i64)>, what: &str) {
    let after = all_keys(server);
    assert!(after.keys().eq(before.keys()), "{what}: {:?}, now {:?}", before.keys(), after.keys());
    for (key, (value, left)) in &after {
        let (value_before, left_before) = &before[key];
        assert_eq!(value, value_before, "{what}: {key}");
        assert!(left <= left_before, "{what}: {key} lasts for {left} ms, before {left_before} ms");
    }
}

/// A kind of lock at a server that knows its scripts, a proxy to that, and a client by each way.
pub(super) struct Scene {
    pub(super) kind: Kind,
    pub(super) server: RedisServer,
    pub(super) proxy: Proxy,
    pub(super) ours: Client,
    pub(super) theirs: Client,
}

impl Scene {
    pub(super) fn new(kind: Kind) -> Scene {
        let server = RedisServer::start();
        kind.warm(&server);
        let proxy = Proxy::start(server.port());
        let (ours, theirs) = (kind.client(&proxy.url()), kind.client(&server.url()));
        Scene { kind, server, proxy, ours, theirs }
    }

    /// A test of each of these kinds, after which nothing is left.
    pub(super) fn each(kinds: &[Kind], test: impl Fn(&Scene)) {
        let _alone = Alone::here();
        for kind in kinds {
            let scene = Scene::new(*kind);
            test(&scene);
            assert_no_residue(&scene.server, &[]);
        }
    }
}
