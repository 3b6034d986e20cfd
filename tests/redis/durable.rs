//! `durable`: a server that has forgotten holds grants nothing until no client can believe in one of them, and holders claim
//! theirs again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use fairlock::backend::{
    Acquire, Acquired, Backend, Hold, LockId, Place, Released, Renew, Renewal, RequestId, Wait, Withdrawn,
};
use fairlock::{
    Client, ClientId, Discipline, Durability, Error, FencingToken, LockKind, LockName, OwnedGuard,
    OwnedRequest, OwnerId, RedisBackend, Verdict,
};
use fairlock_tests::errors::assert_says;
use fairlock_tests::proxy::{Proxy, Rule, Traffic};
use fairlock_tests::{Alone, RedisServer, assert_no_residue, eventually};

/// Far longer than anything here takes on a busy machine.
const BOUND: Duration = Duration::from_secs(20);
const TRUST: Duration = Duration::from_secs(2);
const LIFE: &str = "fairlock_life";

fn durability() -> Durability {
    Durability::life().trust(TRUST).skew(Duration::from_millis(100))
}

fn backend(server: &RedisServer) -> RedisBackend {
    RedisBackend::builder(&server.url()).durable(durability()).connect().unwrap()
}

fn client(server: &RedisServer) -> Client {
    Client::builder(backend(server)).outage_limit(BOUND).build().unwrap()
}

/// A server whose past is known, as an operator says.
fn known(server: RedisServer) -> RedisServer {
    backend(&server).begin_life().unwrap();
    server
}

fn take(client: &Client, name: &str) -> OwnedGuard {
    let lock = client.fair_lock(name).unwrap().owned_by(&client.new_owner()).unwrap();
    lock.try_lock().unwrap().guard().expect("it is free")
}

fn request(client: &Client, name: &str) -> OwnedRequest {
    client.fair_lock(name).unwrap().owned_by(&client.new_owner()).unwrap().request().unwrap()
}

fn try_lock(client: &Client, name: &str) -> bool {
    client.fair_lock(name).unwrap().try_lock().unwrap().guard().is_some()
}

/// The ways in which a server forgets.
#[derive(Clone, Copy, Debug)]
enum Forgets {
    Flush,
    RestartEmpty,
    RestartWithAnOldFile,
}

const WAYS: [Forgets; 3] = [Forgets::Flush, Forgets::RestartEmpty, Forgets::RestartWithAnOldFile];

impl Forgets {
    /// Called before the holds that are forgotten.
    fn prepare(self, server: &RedisServer) {
        if let Forgets::RestartWithAnOldFile = self {
            server.query::<()>(&["SAVE"]);
        }
    }

    fn forget(self, server: &RedisServer) {
        match self {
            Forgets::Flush => server.query(&["FLUSHALL"]),
            Forgets::RestartEmpty | Forgets::RestartWithAnOldFile => server.restart(),
        }
    }
}

/// A hold lives through the loss, and no other client gets the lock before it is released.
#[test]
fn a_hold_survives_a_server_that_forgets_it() {
    let _alone = Alone::here();
    for way in WAYS {
        let server = known(RedisServer::start());
        way.prepare(&server);
        let (ours, theirs) = (client(&server), client(&server));
        let guard = take(&ours, "kept");
        way.forget(&server);
        let lost = Instant::now();
        while lost.elapsed() < durability().grace() + TRUST {
            let is_granted = try_lock(&theirs, "kept");
            assert!(!is_granted, "{way:?}: granted after {:?}", lost.elapsed());
            assert!(!guard.is_lost(), "{way:?}: lost after {:?}", lost.elapsed());
        }
        assert!(guard.renew().is_ok());
        let token = guard.token();
        guard.unlock().unwrap();
        let next = take(&theirs, "kept");
        assert!(next.token() > token);
        next.unlock().unwrap();
        assert_no_residue(&server, &[]);
    }
}

/// A hold that was forgotten is claimed, and kept then. One that is kept has nobody who would claim it.
#[test]
fn a_lock_is_kept_in_a_grace_and_forgotten_with_the_server() {
    let _alone = Alone::here();
    for way in WAYS {
        let server = known(RedisServer::start());
        way.prepare(&server);
        let (ours, theirs) = (client(&server), client(&server));
        let pool = |client: &Client| client.semaphore("pool", 3).unwrap();
        let (guard, permits) = (take(&ours, "kept"), pool(&ours).acquire_many(2).unwrap());
        way.forget(&server);
        let (at_least, asked) = (durability().grace() * 3, Instant::now());
        guard.keep_for(at_least).unwrap();
        permits.keep_for(at_least).unwrap();
        while asked.elapsed() < durability().grace() * 2 {
            assert!(!try_lock(&theirs, "kept"), "{way:?}: granted after {:?}", asked.elapsed());
            assert!(pool(&theirs).try_acquire_many(2).unwrap().guard().is_none(), "{way:?}");
        }
        eventually(BOUND, "it is free", || try_lock(&theirs, "kept"));
        eventually(BOUND, "they are free", || pool(&theirs).try_acquire_many(2).unwrap().guard().is_some());
        assert!(asked.elapsed() > at_least - Duration::from_secs(1), "{way:?}: {:?}", asked.elapsed());
        take(&ours, "kept").keep_for(BOUND * 10).unwrap();
        Forgets::Flush.forget(&server);
        eventually(BOUND, "nobody claims it", || try_lock(&theirs, "kept"));
        assert_no_residue(&server, &[]);
    }
}

/// So do several holders of a semaphore, a writer, and the locks of `lock_all`, also beside what an old file has of them.
#[test]
fn several_holders_survive_a_server_that_forgets_them() {
    let _alone = Alone::here();
    for way in WAYS {
        let server = known(RedisServer::start());
        let (ours, theirs) = (client(&server), client(&server));
        let pool = |client: &Client| client.semaphore("pool", 3).unwrap();
        let earlier = pool(&ours).acquire_many(2).unwrap();
        let reading = ours.rw_lock("rw").unwrap().read().unwrap();
        way.prepare(&server);
        earlier.unlock().unwrap();
        reading.unlock().unwrap();
        let permits = [pool(&theirs).acquire_many(2).unwrap(), pool(&ours).acquire().unwrap()];
        let writing = ours.rw_lock("rw").unwrap().write().unwrap();
        let both = ours.lock_all(&["one", "other"]).unwrap();
        way.forget(&server);
        let lost = Instant::now();
        while lost.elapsed() < durability().grace() + TRUST {
            let is_granted = pool(&theirs).try_acquire().unwrap().guard().is_some()
                || theirs.rw_lock("rw").unwrap().reader().try_lock().unwrap().guard().is_some()
                || try_lock(&theirs, "one")
                || try_lock(&theirs, "other");
            assert!(!is_granted, "{way:?}: granted after {:?}", lost.elapsed());
            let is_lost = permits.iter().any(|guard| guard.is_lost()) || writing.is_lost() || both.is_lost();
            assert!(!is_lost, "{way:?}: lost after {:?}", lost.elapsed());
        }
        let state = pool(&ours).inspect().unwrap();
        assert_eq!((state.taken(), state.holders.len(), state.capacity), (3, 2, Some(3)), "{way:?}");
        let token = permits.each_ref().map(|guard| guard.token()).into_iter().max().unwrap();
        for guard in permits {
            guard.unlock().unwrap();
        }
        writing.unlock().unwrap();
        both.unlock().unwrap();
        let next = pool(&ours).acquire_many(3).unwrap();
        assert!(next.token() > token);
        next.unlock().unwrap();
        theirs.rw_lock("rw").unwrap().read().unwrap().unlock().unwrap();
        assert_no_residue(&server, &[]);
    }
}

/// A permit that was released in the grace stays released, whether the server knew of it or not.
#[test]
fn a_claim_of_a_permit_after_its_release_is_refused() {
    let _alone = Alone::here();
    let server = known(RedisServer::start());
    let raw = Raw {
        lock: LockId::new(LockName::new("pool").unwrap(), LockKind::Semaphore { permits: 2 }),
        ..Raw::new(&server, "pool")
    };
    let [first, second] = [0, 1].map(|number| token_of(&raw.ask(number, Wait::No)));
    server.query::<()>(&["FLUSHALL"]);
    assert_eq!(raw.releases(0, first), Released::Released);
    assert_eq!(raw.renews(1, second), Renewal::Renewed);
    assert_eq!(raw.renews(0, first), Renewal::Lost);
    assert_eq!(raw.releases(1, second), Released::Released);
    assert_eq!(raw.renews(1, second), Renewal::Lost);
    let state = raw.backend.inspect(&raw.lock, 0..0).unwrap();
    assert!(state.holder().is_none(), "{state:?}");
}

/// Whatever the length of a token: those of the year 2286 have 17 digits.
#[test]
fn of_the_permits_that_end_in_a_grace_the_last_hundred_are_remembered_whole() {
    let _alone = Alone::here();
    let server = known(RedisServer::start());
    let lock = LockId::new(LockName::new("pool").unwrap(), LockKind::Semaphore { permits: 2 });
    let raw = Raw { lock, ..Raw::new(&server, "pool") };
    server.query::<()>(&["FLUSHALL"]);
    let tokens: Vec<u64> = (0..103).map(|number| 10_000_000_000_000_000 + 2 * number).collect();
    for token in &tokens {
        assert_eq!(raw.releases(0, FencingToken::new(*token)), Released::Released);
    }
    let ended: String = server.query(&["HGET", "fairlock_record:{pool}", "ended"]);
    let ended: Vec<u64> = ended.split(' ').skip(1).map(|token| token.parse().unwrap()).collect();
    assert_eq!(ended, tokens[3..]);
}

/// A claim that the network held back was sent before the server forgot: its hold is over, and its units were granted to others. It
/// makes room for them. What was heard in this grace makes room for nothing.
#[test]
fn a_claim_of_a_former_life_gives_way_to_live_ones() {
    let _alone = Alone::here();
    let server = known(RedisServer::start());
    let proxy = Proxy::start(server.port());
    // However slow the machine is, no attempt ends here.
    let builder = RedisBackend::builder(&proxy.url()).response_timeout(BOUND);
    let through_proxy = builder.durable(durability()).connect().unwrap();
    let lock = LockId::new(LockName::new("pool").unwrap(), LockKind::Semaphore { permits: 2 });
    let raw = Raw { backend: through_proxy, client: ClientId::random(), lock };
    let first = token_of(&raw.ask(0, Wait::No));
    proxy.record("pool");
    assert_eq!(raw.renews(0, first), Renewal::Renewed);
    let early = proxy.recorded().remove(0);
    assert_eq!(raw.releases(0, first), Released::Released);
    let live = [1, 2].map(|number| (number, token_of(&raw.ask(number, Wait::No))));
    server.query::<()>(&["FLUSHALL"]);
    let forgotten = Instant::now();
    let held = || {
        let holders = raw.backend.inspect(&raw.lock, 0..0).unwrap().holders;
        let mut tokens: Vec<_> = holders.iter().map(|holder| holder.token.unwrap()).collect();
        tokens.sort_unstable();
        tokens
    };
    proxy.replay(&early);
    assert_eq!(held(), [first]);
    let renew_all = || {
        for (number, token) in live {
            assert_eq!(raw.renews(number, token), Renewal::Renewed, "{number}");
        }
    };
    renew_all();
    // The start of a life does not count, for as long as the skew of 100 ms, since a clock may have jumped.
    while forgotten.elapsed() < Duration::from_millis(300) {
        renew_all();
    }
    assert_eq!(held(), live.map(|(_, token)| token));
    proxy.replay(&early);
    assert_eq!(held(), live.map(|(_, token)| token));
    for (number, token) in live {
        assert_eq!(raw.releases(number, token), Released::Released);
    }
}

/// The same without `durable`: the tests above can see an overlap.
#[test]
fn without_it_a_flush_lets_another_client_in() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let [ours, theirs] =
        [(); 2].map(|()| Client::new(RedisBackend::connect(&server.url()).unwrap()).unwrap());
    let guard = take(&ours, "overlap");
    server.query::<()>(&["FLUSHALL"]);
    let other = take(&theirs, "overlap");
    assert!(guard.valid_for() > Duration::ZERO && !guard.is_lost());
    other.unlock().unwrap();
    assert!(!server.query::<bool>(&["EXISTS", LIFE]));
}

/// The holder can't reach the server that has forgotten it.
#[test]
fn a_holder_that_is_cut_off_stops_to_believe_before_the_grace_is_over() {
    let _alone = Alone::here();
    let server = known(RedisServer::start());
    let proxy = Proxy::start(server.port());
    let cut_off = RedisBackend::builder(&proxy.url()).durable(durability()).connect().unwrap();
    let cut_off = Client::builder(cut_off).build().unwrap();
    let guard = take(&cut_off, "cut off");
    let theirs = client(&server);
    assert!(guard.renew().is_ok()); // as late as can be
    proxy.set_all(&Traffic::ALL, Rule::Hold);
    server.query::<()>(&["FLUSHALL"]);
    // A newcomer: a line that comes back would rest for a while.
    let next = request(&theirs, "cut off").wait().unwrap();
    assert!(guard.is_lost(), "{:?}", guard.valid_for());
    next.unlock().unwrap();
    assert!(guard.unlock().is_err());
}

/// It is granted to others when no client can believe in it any more.
#[test]
fn the_hold_of_a_dead_process_ends_with_the_grace() {
    let _alone = Alone::here();
    let server = known(RedisServer::start());
    let raw = Raw::new(&server, "dead");
    assert!(matches!(raw.ask(0, Wait::No), Acquired::Granted { .. }));
    server.query::<()>(&["FLUSHALL"]);
    let (theirs, forgotten) = (client(&server), Instant::now());
    let guard = request(&theirs, "dead").wait().unwrap();
    let took = forgotten.elapsed();
    assert!(took >= durability().grace() && took < durability().grace() + Duration::from_secs(3), "{took:?}");
    guard.unlock().unwrap();
    assert_no_residue(&server, &[]);
}

/// The holder releases the lock in the grace. No waiter gets it before the grace is over, and then they do in their order.
#[test]
fn waiters_keep_their_order_and_are_served_after_the_grace() {
    let _alone = Alone::here();
    for way in WAYS {
        let server = known(RedisServer::start());
        let clients: Vec<_> = (0..5).map(|_| client(&server)).collect();
        let guard = take(&clients[0], "line");
        way.prepare(&server);
        let requests: Vec<_> = clients.iter().map(|client| request(client, "line")).collect();
        way.forget(&server);
        let forgotten = Instant::now();
        // A restart breaks the connections, so the first attempt may fail.
        eventually(BOUND, "it is claimed", || guard.renew().is_ok());
        let mut before = guard.token();
        guard.unlock().unwrap();
        // A newcomer stands behind all of them.
        let newcomer = request(&clients[0], "line");
        for request in requests.into_iter().chain([newcomer]) {
            let guard = request.wait().unwrap();
            assert!(forgotten.elapsed() >= durability().grace(), "{way:?}: {:?}", forgotten.elapsed());
            assert!(guard.token() > before, "{way:?}");
            before = guard.token();
            // Had another one been passed over, it would hold the lock now.
            guard.unlock().unwrap();
        }
        drop(clients);
        assert_no_residue(&server, &[]);
    }
}

/// A replica that is promoted has another past, although it has all the data.
#[test]
fn a_promoted_replica_grants_nothing_until_the_grace_is_over() {
    let _alone = Alone::here();
    let master = known(RedisServer::builder().arg("repl-diskless-sync-delay", "0").start());
    let replica = RedisServer::builder().arg("replicaof", &format!("127.0.0.1 {}", master.port())).start();
    eventually(BOUND, "the replica follows", || {
        replica.query::<String>(&["INFO", "replication"]).contains("master_link_status:up")
    });
    eventually(BOUND, "it has the life", || replica.query::<bool>(&["EXISTS", LIFE]));
    master.kill();
    replica.query::<()>(&["REPLICAOF", "NO", "ONE"]);
    let (theirs, promoted) = (client(&replica), Instant::now());
    assert!(!try_lock(&theirs, "never held"), "what this server was not told of can't be known");
    request(&theirs, "never held").wait().unwrap().unlock().unwrap();
    assert!(promoted.elapsed() >= durability().grace());
}

/// The backend itself, with places that nothing renews.
struct Raw {
    backend: RedisBackend,
    client: ClientId,
    lock: LockId,
}

impl Raw {
    fn new(server: &RedisServer, name: &str) -> Raw {
        let lock = LockId::new(LockName::new(name).unwrap(), LockKind::Fair);
        Raw { backend: backend(server), client: ClientId::random(), lock }
    }

    fn owner(&self, number: u64) -> OwnerId {
        OwnerId::new(&format!("{}:{number}", self.client))
    }

    fn ask(&self, number: u64, wait: Wait) -> Acquired {
        let owner = self.owner(number);
        let mut place = Place::new(&self.lock, &owner, RequestId::new(number));
        place.wait = wait;
        self.backend.acquire(&Acquire::new(place, TRUST)).unwrap()
    }

    fn renews(&self, number: u64, token: FencingToken) -> Renewal {
        let owner = self.owner(number);
        let hold = Hold::new(&self.lock, &owner, RequestId::new(number), token);
        let item = Renew::Hold { hold, holds: 1, lease: TRUST };
        self.backend.renew(self.client, &[item]).remove(0).unwrap()
    }

    fn releases(&self, number: u64, token: FencingToken) -> Released {
        let owner = self.owner(number);
        let hold = Hold::new(&self.lock, &owner, RequestId::new(number), token);
        self.backend.release(&hold).unwrap()
    }
}

fn token_of(answer: &Acquired) -> FencingToken {
    match answer {
        Acquired::Granted { token, .. } => *token,
        other => panic!("{other:?}"),
    }
}

/// No call of any kind grants a lock in the grace.
#[test]
fn nothing_is_granted_in_the_grace() {
    let _alone = Alone::here();
    let server = known(RedisServer::start());
    let raw = Raw::new(&server, "quiet");
    let token = token_of(&raw.ask(0, Wait::No));
    server.query::<()>(&["FLUSHALL"]);
    let holds = || server.query::<bool>(&["EXISTS", "quiet"]);
    // Free as far as the server knows: for a newcomer, for a waiter, for its repeat.
    assert!(matches!(raw.ask(1, Wait::No), Acquired::Busy { .. }) && !holds());
    raw.backend.inspect(&raw.lock, 0..1).unwrap();
    assert!(raw.backend.grace_left().is_some(), "a look says nothing of the grace");
    for number in [2, 2, 3] {
        let Acquired::Queued { recheck_in, .. } = raw.ask(number, Wait::Forever) else { panic!("{number}") };
        assert!(recheck_in > Duration::ZERO && recheck_in <= durability().grace(), "{recheck_in:?}");
        assert!(!holds());
    }
    // A heartbeat, a withdrawal, and an operator.
    let owner = raw.owner(2);
    let place = Place::new(&raw.lock, &owner, RequestId::new(2));
    let items = [Renew::Place { place, lease: TRUST }];
    let beat = raw.backend.renew(raw.client, &items).remove(0).unwrap();
    assert!(matches!(beat, Renewal::Waiting { rank: 0, .. }) && !holds(), "{beat:?}");
    assert_eq!(raw.backend.withdraw(&place).unwrap(), Withdrawn::Left);
    let other = Raw::new(&server, "other");
    other.backend.force_release(&other.lock).unwrap();
    assert!(!server.query::<bool>(&["EXISTS", "other"]));
    // The claim, and the release after it, although a live waiter is first in line.
    assert_eq!(
        raw.backend.withdraw(&Place::new(&raw.lock, &raw.owner(3), RequestId::new(3))).unwrap(),
        Withdrawn::Left
    );
    let theirs = client(&server);
    let waiting = request(&theirs, "quiet");
    assert_eq!(raw.renews(0, token), Renewal::Renewed);
    assert!(holds());
    assert_eq!(raw.releases(0, token), Released::Released);
    assert!(!holds());
    waiting.wait().unwrap().unlock().unwrap();
    assert_eq!(server.query::<i64>(&["HGET", LIFE, "grace"]), 2122);
}

/// A claim that comes after the release, after a later holder's claim, or after the grace.
#[test]
fn a_late_claim_is_refused() {
    let _alone = Alone::here();
    let server = known(RedisServer::start());
    let raw = Raw::new(&server, "late");
    let first = token_of(&raw.ask(0, Wait::No));
    assert_eq!(raw.releases(0, first), Released::Released);
    let second = token_of(&raw.ask(1, Wait::No));
    server.query::<()>(&["FLUSHALL"]);
    // The first hold was over, and a renewal of it is still on its way. It does no harm before the claim that counts…
    assert_eq!(raw.renews(0, first), Renewal::Renewed);
    assert_eq!(raw.renews(1, second), Renewal::Renewed);
    // … nor after it, nor after that one's release.
    assert_eq!(raw.renews(0, first), Renewal::Lost);
    assert_eq!(raw.renews(1, second), Renewal::Renewed);
    assert_eq!(raw.releases(1, second), Released::Released);
    for (number, token) in [(0, first), (1, second)] {
        assert_eq!(raw.renews(number, token), Renewal::Lost);
    }
    assert!(!server.query::<bool>(&["EXISTS", "late"]));
    // A release without a claim ends the hold as well.
    let other = Raw::new(&server, "other");
    server.query::<()>(&["DEL", LIFE]);
    assert_eq!(other.releases(7, second), Released::Released);
    assert_eq!(other.renews(7, second), Renewal::Lost);
    // So does one where the server has an older hold, which was over.
    let stale = Raw::new(&server, "stale");
    assert_eq!(stale.renews(3, first), Renewal::Renewed);
    assert_eq!(stale.releases(4, second), Released::Released);
    assert_eq!(stale.renews(4, second), Renewal::Lost);
    eventually(BOUND, "the grace is over", || matches!(raw.ask(2, Wait::No), Acquired::Granted { .. }));
    assert_eq!(other.renews(8, second), Renewal::Lost);
}

/// The holder hears of it with its next renewal, and can't claim what was taken.
#[test]
fn a_lock_that_is_taken_by_force_in_a_grace_is_not_claimed_again() {
    let _alone = Alone::here();
    let server = known(RedisServer::start());
    let [all, one] = ["all", "one"].map(|name| Raw::new(&server, name));
    let tokens = [&all, &one].map(|raw| token_of(&raw.ask(0, Wait::No)));
    server.query::<()>(&["FLUSHALL"]);
    all.backend.force_release(&all.lock).unwrap();
    let owner = one.owner(0);
    one.backend.take_hold(&Hold::new(&one.lock, &owner, RequestId::new(0), tokens[1])).unwrap();
    for (raw, token) in [&all, &one].into_iter().zip(tokens) {
        assert_eq!(raw.renews(0, token), Renewal::Lost);
        assert!(!server.query::<bool>(&["EXISTS", raw.lock.name.as_ref()]));
    }
    eventually(BOUND, "the grace is over", || matches!(all.ask(1, Wait::No), Acquired::Granted { .. }));
    assert_no_residue(&server, &["all"]);
}

/// The server has forgotten the last token, and its clock is behind it. A release in the grace tells it.
#[test]
fn a_hold_that_is_released_in_a_grace_has_a_smaller_token_than_the_next_one() {
    let _alone = Alone::here();
    let server = known(RedisServer::start());
    let raw = Raw::new(&server, "ahead");
    let hour = 3_600_000_000;
    let ahead = FencingToken::new(token_of(&raw.ask(0, Wait::No)).get() + hour);
    server.query::<()>(&["FLUSHALL"]);
    assert_eq!(raw.releases(0, ahead), Released::Released);
    let mut next = None;
    eventually(BOUND, "the grace is over", || {
        let answer = raw.ask(1, Wait::No);
        next = matches!(answer, Acquired::Granted { .. }).then(|| token_of(&answer));
        next.is_some()
    });
    assert!(next.unwrap() > ahead);
    assert_no_residue(&server, &["ahead"]);
}

/// In few round trips, however many there are.
#[test]
fn many_holds_are_claimed_at_once() {
    const MANY: usize = 2000;
    let _alone = Alone::here();
    let server = RedisServer::start();
    let durability = Durability::life(); // a busy machine needs longer times
    let backend = RedisBackend::builder(&server.url()).durable(durability).connect().unwrap();
    backend.begin_life().unwrap();
    let ours = Client::new(backend).unwrap();
    let guards: Vec<_> = (0..MANY).map(|number| take(&ours, &format!("many:{number}"))).collect();
    server.query::<()>(&["FLUSHALL"]);
    eventually(BOUND, "all are claimed", || server.query::<Vec<String>>(&["KEYS", "many:*"]).len() == MANY);
    for guard in guards {
        assert!(!guard.is_lost());
        guard.unlock().unwrap();
    }
    assert_no_residue(&server, &[]);
}

#[test]
fn a_client_with_another_grace_is_refused() {
    let _alone = Alone::here();
    let server = known(RedisServer::start());
    let builder = RedisBackend::builder(&server.url()).durable(Durability::life());
    let other = Client::new(builder.connect().unwrap()).unwrap();
    let error = other.fair_lock("a").unwrap().try_lock().map(drop).unwrap_err();
    assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
    assert_says(&error, &["other clients of the server have another grace", "2122 ms", "10602 ms"]);
    let findings = other_findings(&server, Some(Durability::life()));
    assert!(findings.iter().any(|(verdict, text)| *verdict == Verdict::Unsafe && text.contains("2122 ms")));
    let findings = other_findings(&server, None);
    assert!(findings.iter().any(|(_, text)| text.contains("other clients of this server are durable")));
}

/// It would be granted a lock whose holder the server has forgotten.
#[test]
fn a_client_that_is_not_durable_is_refused_locks_with_a_line_beside_those_that_are() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let not = || Client::new(RedisBackend::connect(&server.url()).unwrap()).unwrap();
    // It connects, and locks, before any client is durable.
    let earlier = not();
    assert!(try_lock(&earlier, "before"));
    backend(&server).begin_life().unwrap();
    let ours = client(&server);
    let guard = take(&ours, "both");
    let refusal = |client: &Client| client.fair_lock("both").unwrap().try_lock().map(drop).err();
    for client in [not(), earlier] {
        let (mut error, mut asked) = (refusal(&client), Instant::now());
        // A connection that is open already looks after a pause.
        eventually(BOUND, "it is refused", || {
            if error.is_none() && asked.elapsed() > Duration::from_millis(1200) {
                (error, asked) = (refusal(&client), Instant::now());
            }
            error.is_some()
        });
        let error = error.unwrap();
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
        assert_says(&error, &["`both` is refused", "2122 ms", "set `RedisBuilder::durable`"]);
        server.query::<()>(&["FLUSHALL"]);
        assert!(refusal(&client).is_some(), "what was seen once counts");
        let error = client.rw_lock("rw").unwrap().writer().try_lock().map(drop).unwrap_err();
        assert_says(&error, &["`rw` is refused"]);
        client
            .plain_lock("plain")
            .unwrap()
            .try_lock()
            .unwrap()
            .guard()
            .expect("it is free")
            .unlock()
            .unwrap();
        assert!(guard.renew().is_ok());
    }
    guard.unlock().unwrap();
}

fn other_findings(server: &RedisServer, durability: Option<Durability>) -> Vec<(Verdict, String)> {
    let mut builder = RedisBackend::builder(&server.url());
    if let Some(durability) = durability {
        builder = builder.durable(durability);
    }
    let findings = builder.connect().unwrap().doctor(None).unwrap();
    findings
        .into_iter()
        .filter(|found| found.topic == "life")
        .map(|found| (found.verdict, found.text))
        .collect()
}

#[test]
fn doctor_tells_of_a_grace_and_an_operator_ends_it() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let life = || other_findings(&server, Some(durability())).remove(0);
    assert!(life().1.contains("--begin-life"), "{:?}", life());
    let ours = client(&server);
    assert!(!try_lock(&ours, "a"), "what a new server has forgotten is not known");
    assert!(life().1.contains("it grants nothing for"), "{:?}", life());
    let left = backend(&server).begin_life().unwrap();
    assert!(left > Duration::ZERO && left <= durability().grace(), "{left:?}");
    assert_eq!(life(), (Verdict::Good, "its past is known".to_owned()));
    assert!(try_lock(&ours, "a"));
    assert_eq!(backend(&server).begin_life().unwrap(), Duration::ZERO);
}

#[test]
fn what_can_not_be_durable_is_refused_with_the_reason() {
    let _alone = Alone::here();
    let server = known(RedisServer::start());
    let builder = || RedisBackend::builder(&server.url());
    for (durability, says) in [
        (
            Durability::life().trust(Duration::from_millis(999)),
            "trust is 999ms, it has to be from 1s to 3600s",
        ),
        (Durability::life().skew(Duration::from_secs(61)), "skew is 61s, it has to be from 0ns to 60s"),
    ] {
        assert_says(&builder().durable(durability).connect().map(drop).unwrap_err(), &[says]);
    }
    let redisson = builder().durable(durability()).discipline(Discipline::Redisson);
    assert_says(&redisson.connect().map(drop).unwrap_err(), &["durable is for the discipline HandOff"]);
    let ours = client(&server);
    let lock = ours.fair_lock("long").unwrap();
    let error = lock.fixed_lease(TRUST * 2).try_lock().map(drop).unwrap_err();
    assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
    assert_says(&error, &["a lease of 4s is longer than 2s, the longest with a trust of 2s"]);
    let error = ours.plain_lock("plain").unwrap().try_lock().map(drop).unwrap_err();
    assert_says(&error, &["a durable backend has fair locks only"]);
    let error = Client::builder(backend(&server)).lease(TRUST * 2).build().map(drop).unwrap_err();
    assert_says(&error, &["lease is 4s, it has to be from 2s to 2s, the longest that the backend grants"]);
    assert_eq!(backend(&server).longest_lease(), Some(TRUST));
    assert_no_residue(&server, &[]);
}
