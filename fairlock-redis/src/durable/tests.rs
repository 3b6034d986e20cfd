//! What a durable client, and one beside it, puts around scripts. The server is a fake one.

use parking_lot::Mutex;

use super::*;
use crate::fake_backend::id;
use crate::net::test_server::{Act, FakeServer, polite};
use crate::net::{Address, Arrangement, Target, Timeouts};
use crate::script::Scripts;
use crate::script::scripts::{Argument, HAND_OFF_RELEASE};

const SECOND: Duration = Duration::from_secs(1);
const GRACE: &str = "$5\r\n10602\r\n";

fn client(durability: Option<Durability>, of_slots: bool) -> (Calls, Settings) {
    let mut settings = Settings::new(Timeouts { connect: SECOND, response: SECOND }, 1);
    (Calls::new(durability, of_slots, true, &mut settings), settings)
}

fn keys() -> Arc<Keys> {
    Arc::new(Keys::of(&id(LockKind::Fair)).unwrap())
}

/// What a lock of this kind is refused for.
fn refused(calls: &Calls, kind: LockKind, lease: Duration) -> Option<BackendErrorKind> {
    let servers = connect(&server(":7\r\n", GRACE).0, &client(Some(Durability::default()), false).1);
    calls.check(&id(kind), lease, &servers).err().map(|error| error.kind())
}

type Heard = Arc<Mutex<Vec<Vec<String>>>>;

/// A server with this reply to scripts, and this one to HGET; and all commands that it got but those of a greeting.
fn server(scripts: &'static str, life: &'static str) -> (Address, Heard) {
    let heard = Heard::default();
    let notes = Arc::clone(&heard);
    let server = FakeServer::start(move |_, words| {
        let said = match words[0].as_str() {
            "EVALSHA" => Act::Say(scripts.to_owned()),
            "HGET" => Act::Say(life.to_owned()),
            "SCRIPT" | "DEL" | "HSET" => polite(words),
            _ => return polite(words),
        };
        notes.lock().push(words.to_vec());
        said
    });
    (server.address(), heard)
}

fn connect(address: &Address, settings: &Settings) -> Servers {
    Target::parse(&format!("redis://{address}")).unwrap().connect(settings).unwrap()
}

/// A durable client has locks with a queue, for the longest lease at most.
#[test]
fn a_durable_client_has_queues_and_the_longest_lease() {
    let invalid = Some(BackendErrorKind::InvalidConfig);
    let (calls, settings) = client(Some(Durability::default().among(Arrangement::Sentinels)), false);
    assert!(settings.greeting.is_none() && settings.majority.is_some());
    let longest = calls.longest_lease().unwrap();
    assert_eq!(longest, Durability::default().among(Arrangement::Sentinels).longest_lease());
    assert_eq!(refused(&calls, LockKind::Fair, longest), None);
    assert_eq!(refused(&calls, LockKind::Fair, longest + SECOND), invalid);
    assert_eq!(refused(&calls, LockKind::Plain, SECOND), invalid);
}

#[test]
fn a_client_beside_durable_ones_has_plain_locks_only() {
    let (calls, settings) = client(None, false);
    let greeting = settings.greeting.unwrap();
    assert_eq!((refused(&calls, LockKind::Fair, SECOND), calls.longest_lease()), (None, None));
    greeting.answered(Ok(Value::BulkString(b"10602".to_vec())));
    assert_eq!(refused(&calls, LockKind::Fair, SECOND), Some(BackendErrorKind::InvalidConfig));
    assert_eq!(refused(&calls, LockKind::Plain, SECOND), None);
}

/// A durable client reclaims its locks, and a durable client with a quorum confirms messages.
#[test]
fn a_durable_client_reclaims_and_a_quorum_confirms() {
    let of = |durability| client(durability, false).0;
    let roles =
        [None, Some(Durability::default()), Some(Durability::default().among(Arrangement::Sentinels))]
            .map(of);
    let reclaims = Some(SECOND + Duration::from_millis(500));
    assert_eq!(roles.each_ref().map(|calls| calls.reclaims(SECOND)), [None, reclaims, reclaims]);
    assert_eq!(roles.each_ref().map(Calls::confirms_messages), [false, false, true]);
}

#[test]
fn a_durable_client_needs_the_rights_to_the_life() {
    assert!(client(None, false).0.needed(&keys()).is_empty());
    for (of_slots, life) in [(false, LIFE.to_owned()), (true, key_of_slot(slot_of("a").unwrap()))] {
        let needed = client(Some(Durability::default()), of_slots).0.needed(&keys());
        let expected = [&["INFO", "replication"][..], &["HMGET", &life, "a"], &["HSET", &life, "a", "1"]];
        assert_eq!(needed, expected);
    }
    let told = client(None, true).0.before_a_move_is_given_up("7629");
    assert!(told.ends_with(&format!(": {}", key_of_slot(7629))), "{told}");
}

#[test]
fn the_refusals_of_the_life_have_meanings() {
    let (calls, _) = client(Some(Durability::default()), false);
    let kind = |code| calls.wrapping().unwrap().meaning(code).map(|(kind, ..)| kind);
    assert_eq!(kind("INGRACE"), Some(BackendErrorKind::Unavailable));
    assert_eq!(kind("OTHERGRACE"), Some(BackendErrorKind::InvalidConfig));
    assert_eq!(kind("OLDEPOCH"), Some(BackendErrorKind::Unavailable));
    assert_eq!(kind("WRONGTYPE"), None);
}

/// A durable script has its life behind its keys, and tells the grace.
#[test]
fn a_durable_script_gets_its_life_and_tells_the_grace() {
    let (address, heard) = server("*3\r\n+grace\r\n:60000\r\n:7\r\n", "$-1\r\n");
    let (calls, settings) = client(Some(Durability::default()), false);
    let servers = connect(&address, &settings);
    assert_eq!(calls.grace_left(), None);
    let scripts = Scripts::new(servers, calls.wrapper());
    let call = scripts.call(&HAND_OFF_RELEASE, [&id(LockKind::Fair)], [Argument::Text("x")]).unwrap();
    assert_eq!(scripts.run(&call).unwrap(), Value::Int(7));
    assert!(calls.grace_left().is_some_and(|left| left > 50 * SECOND));
    let sha = &wrapped(&HAND_OFF_RELEASE).sha;
    let [queue, record] = ["fairlock_queue:{a}", "fairlock_record:{a}"];
    let sent = ["EVALSHA", sha, "4", "a", queue, record, LIFE, "x", "0", "10602", "0", ""];
    assert_eq!(*heard.lock(), [sent.map(str::to_owned)]);
}

#[test]
fn another_client_sends_a_script_as_it_is() {
    let (address, heard) = server(":7\r\n", "$-1\r\n");
    let (calls, settings) = client(None, false);
    let servers = connect(&address, &settings);
    let scripts = Scripts::new(servers, calls.wrapper());
    let call = scripts.call(&HAND_OFF_RELEASE, [&id(LockKind::Fair)], [Argument::Text("x")]).unwrap();
    assert_eq!(scripts.run(&call).unwrap(), Value::Int(7));
    let sha = &HAND_OFF_RELEASE.text.sha;
    let sent = ["EVALSHA", sha, "3", "a", "fairlock_queue:{a}", "fairlock_record:{a}", "x"];
    assert_eq!(heard.lock().last().unwrap(), &sent);
}

#[test]
fn in_a_cluster_the_life_of_a_slot_that_moves_is_ended() {
    let (address, heard) = server(":7\r\n", "$-1\r\n");
    for (of_slots, code, ends) in
        [(true, "ASK", true), (true, "TRYAGAIN", true), (true, "MOVED", false), (false, "ASK", false)]
    {
        let (calls, settings) = client(Some(Durability::default()), of_slots);
        let node = Pool::new(address.clone(), &settings);
        heard.lock().clear();
        let answer = calls.wrapping().unwrap().heard(&node, "a", Err(Failure::refused(code, "")));
        assert_eq!(answer.unwrap_err().code(), Some(code));
        let del = vec!["DEL".to_owned(), key_of_slot(slot_of("a").unwrap())];
        assert_eq!(*heard.lock(), if ends { vec![del] } else { Vec::new() }, "{code}");
    }
}

#[test]
fn durable_clients_and_others_meet_in_the_first_slot() {
    for (life, told) in [("$-1\r\n", true), (GRACE, false)] {
        let (address, heard) = server(":7\r\n", life);
        let (calls, settings) = client(Some(Durability::default()), true);
        calls.meet(true, &connect(&address, &settings));
        let slot = key_of_slot(0);
        let asked = ["HGET", &slot, "grace"].map(str::to_owned).to_vec();
        let tells = ["HSET", &slot, "grace", "10602"].map(str::to_owned).to_vec();
        assert_eq!(*heard.lock(), if told { vec![asked, tells] } else { vec![asked] });
        assert_eq!(calls.is_first(), told);
    }
    // The settings are another client's, so that no greeting tells it before.
    let (address, _) = server(":7\r\n", GRACE);
    let servers = connect(&address, &client(Some(Durability::default()), true).1);
    let (peers, _) = client(None, true);
    peers.meet(true, &servers);
    assert_eq!(refused(&peers, LockKind::Fair, SECOND), Some(BackendErrorKind::InvalidConfig));
}

#[test]
fn a_durable_client_learns_whether_it_is_the_first() {
    for (life, is_first) in [("$-1\r\n", true), (GRACE, false), ("-NOPERM no\r\n", false)] {
        let (address, heard) = server(":7\r\n", life);
        let (calls, settings) = client(Some(Durability::default()), false);
        calls.meet(false, &connect(&address, &settings));
        assert_eq!(*heard.lock(), [["HGET", LIFE, "grace"].map(str::to_owned).to_vec()]);
        assert_eq!(calls.is_first(), is_first);
    }
}

#[test]
fn a_server_tells_its_life() {
    let (address, heard) = server("*2\r\n:1500\r\n$5\r\n10602\r\n", "$-1\r\n");
    let (calls, settings) = client(Some(Durability::default()), false);
    let servers = connect(&address, &settings);
    let route = servers.servers().map_err(|_| "no server").unwrap().remove(0);
    let lives =
        crate::durable::lives_of(&servers, &route, calls.confirms_messages(), Some(2 * SECOND)).unwrap();
    let told: Vec<_> = lives.iter().map(|life| (life.left, life.grace.as_deref())).collect();
    assert_eq!(told, [(Some(Duration::from_millis(1500)), Some("10602"))]);
    let [load, ask] = &heard.lock()[..] else { panic!("two commands") };
    assert_eq!(load[..2], ["SCRIPT", "LOAD"]);
    assert_eq!(ask[2..], ["1", LIFE, "0", "2000"]);
}

#[test]
fn a_client_without_a_queue_looks_at_nothing() {
    let mut settings = Settings::new(Timeouts { connect: SECOND, response: SECOND }, 1);
    let calls = Calls::new(None, false, false, &mut settings);
    assert!(settings.greeting.is_none());
    let (address, _) = server(":0\r\n", GRACE);
    calls.meet(true, &connect(&address, &settings));
    assert_eq!(refused(&calls, LockKind::Fair, SECOND), None);
}

const NANOSECOND: Duration = Duration::from_nanos(1);

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// The times for a single server, and with a majority.
fn both() -> [Durability; 2] {
    [Arrangement::Single, Arrangement::Sentinels].map(|servers| Durability::default().among(servers))
}

#[test]
fn a_grace_outlasts_all_that_a_client_may_still_believe() {
    let [life, quorum] = both();
    assert_eq!([life.longest_lease(), quorum.longest_lease()], [ms(10_000), ms(7_500)]);
    assert_eq!([life.grace(), quorum.grace()], [ms(10_602), ms(18_177)]);
    let other = |durability: Durability| durability.trust(seconds(20)).skew(seconds(1));
    assert_eq!([life, quorum].map(|durability| other(durability).grace()), [ms(21_202), ms(36_352)]);
}

#[test]
fn a_server_of_a_quorum_keeps_a_hold_for_a_whole_grace() {
    assert_eq!(both()[0].arguments(), [0, 10_602]);
    assert_eq!(both()[1].arguments(), [10_677, 18_177]);
}

#[test]
fn only_a_quorum_has_terms_for_its_voters() {
    let [life, quorum] = both();
    assert!(life.majority_terms().is_none() && !life.asks_quorum() && quorum.asks_quorum());
    let terms = quorum.majority_terms().unwrap();
    assert_eq!((terms.proof_age, terms.least_uptime), (ms(2_500), ms(11_600)));
}

#[test]
fn times_have_bounds() {
    let usual = Durability::default();
    for (trust, skew) in [(seconds(1), Duration::ZERO), (seconds(3600), seconds(60))] {
        assert!(usual.trust(trust).skew(skew).check().is_ok());
    }
    for out in [
        usual.trust(seconds(1) - NANOSECOND),
        usual.trust(seconds(3600) + NANOSECOND),
        usual.skew(seconds(60) + NANOSECOND),
    ] {
        let error = out.check().unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::InvalidConfig);
        assert!(error.to_string().contains("it has to be"), "{error}");
    }
}

#[test]
fn a_lease_is_at_most_the_longest() {
    let [_, quorum] = both();
    assert!(quorum.check_lease(ms(7_500)).is_ok());
    let error = quorum.check_lease(ms(7_500) + NANOSECOND).unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::InvalidConfig);
}
