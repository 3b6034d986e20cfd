//! Sentinels that lie, lag and send garbage, and masters that are replicas.

use std::sync::atomic::{AtomicUsize, Ordering};

use fairlock_core::backend::BackendErrorKind;
use redis::Value;

use super::*;
use crate::net::commands::{ALL_ARE_BACK, Listeners};
use crate::net::connection::AddressMap;
use crate::net::settings::{MajorityTerms, Settings};
use crate::net::test_server::{Act, FakeServer, TIMEOUTS, bulk, confirmed, polite, up_for};
use crate::net::topology::{Failed, Servers, Topology};

/// A server that replies to ROLE with this role.
fn server(role: &'static str) -> FakeServer {
    FakeServer::answering("ROLE", is(role))
}

/// A master that answers GET so.
fn master(says: fn() -> Act) -> FakeServer {
    FakeServer::start(move |_, words| match words[0].as_str() {
        "ROLE" => Act::Say(is("master")),
        "GET" => says(),
        _ => polite(words),
    })
}

fn is(role: &str) -> String {
    format!("*3\r\n{}:0\r\n*0\r\n", bulk(role))
}

/// A sentinel that says of its master what `says` returns: the port, and what is known beside it. It knows no id. In place of the port 0
/// it hangs up, and without one it says nothing.
fn telling(says: impl Fn(&[String]) -> (String, [String; 2]) + Send + Sync + 'static) -> FakeServer {
    FakeServer::start(move |_, words| {
        let (port, [name, value]) = says(words);
        match words.get(1).map(String::as_str) {
            Some("server") => Act::Say(up_for(60)),
            Some("get-master-addr-by-name") if port == "0" => Act::HangUp,
            Some("get-master-addr-by-name") if port.is_empty() => Act::Nothing,
            Some("get-master-addr-by-name") => {
                Act::Say(format!("*2\r\n{}{}", bulk("127.0.0.1"), bulk(&port)))
            }
            Some("myid") => Act::Say("-ERR Unknown sentinel subcommand 'myid'\r\n".to_owned()),
            Some("master") => {
                Act::Say(format!("*4\r\n{}{}{}{}", bulk("name"), bulk("m"), bulk(&name), bulk(&value)))
            }
            Some(channel) if words[0] == "subscribe" => Act::Say(confirmed(channel)),
            _ => polite(words),
        }
    })
}

/// One that says the port and epoch at index `turn` of the list.
fn sentinel(says: Vec<(String, i64)>, turn: &Arc<AtomicUsize>) -> FakeServer {
    let turn = Arc::clone(turn);
    telling(move |_| {
        let (port, epoch) = &says[turn.load(Ordering::SeqCst).min(says.len() - 1)];
        (port.clone(), ["config-epoch".to_owned(), epoch.to_string()])
    })
}

fn port(server: &FakeServer) -> String {
    server.port().to_string()
}

fn connect(sentinels: &[&FakeServer]) -> Result<Arc<Sentinel>, BackendError> {
    connect_with(sentinels, None)
}

fn connect_with(sentinels: &[&FakeServer], age: Option<Duration>) -> Result<Arc<Sentinel>, BackendError> {
    let terms = age.map(|age| MajorityTerms { proof_age: age, least_uptime: LEAST_UPTIME });
    let addresses: Vec<Address> = sentinels.iter().map(|sentinel| sentinel.address()).collect();
    let servers = addresses[0].clone();
    Sentinel::connect(addresses, servers, "m", &Settings { majority: terms, ..Settings::new(TIMEOUTS, 1) })
}

fn server_of(pool: &Pool) -> String {
    pool.address().to_string()
}

/// A master knows all listeners ten seconds after it was found or has restarted. After a fail-over clients move one by one; and a
/// master may be back from a restart before its sentinels notice.
#[test]
fn a_new_or_restarted_master_knows_listeners_after_10_s() {
    for uptime in [3, 60] {
        let master = FakeServer::start(move |_, words| match words[0].as_str() {
            "ROLE" => Act::Say(is("master")),
            "INFO" => Act::Say(up_for(uptime)),
            _ => polite(words),
        });
        let names = sentinel(vec![(port(&master), 1)], &Arc::default());
        let found = connect(&[&names]).expect("a master");
        assert_eq!(found.listeners(), Listeners::Unknown, "it was found just now");
        found.state.lock().since = Instant::now().checked_sub(ALL_ARE_BACK + ALL_ARE_BACK);
        let knows = found.listeners();
        assert_eq!(knows == Listeners::Known, uptime == 60, "{uptime} s: {knows:?}");
        assert_ne!(knows, Listeners::Unknown, "{uptime} s");
    }
}

#[test]
fn a_master_announced_before_the_subscription_is_found() {
    let (old, new) = (server("master"), server("master"));
    let turn = Arc::new(AtomicUsize::new(0));
    let (changed, says) = (Arc::clone(&turn), [(port(&old), 1), (port(&new), 2)]);
    let names = telling(move |words| {
        if words[0] == "subscribe" {
            changed.store(1, Ordering::SeqCst);
        }
        let (port, epoch): &(String, i64) = &says[changed.load(Ordering::SeqCst)];
        (port.clone(), ["config-epoch".to_owned(), epoch.to_string()])
    });
    let found = connect(&[&names]).expect("a master");
    assert_eq!(server_of(&found.state.lock().master.clone().expect("known")), new.address().to_string());
}

/// A sentinel may announce another master while it answers with the old one.
#[test]
fn what_is_doubted_while_sentinels_are_asked_stays_in_doubt() {
    let (master, searching) = (server("master"), Arc::new(OnceLock::<Arc<Sentinel>>::new()));
    let (asked, port) = (Arc::clone(&searching), port(&master));
    let only = telling(move |_| {
        if let Some(searching) = asked.get() {
            searching.state.lock().doubt();
        }
        (port.clone(), ["config-epoch".to_owned(), "1".to_owned()])
    });
    let found = searching.get_or_init(|| Arc::new(unlinked(vec![only.address()], None)));
    found.find().expect("a master");
    assert!(found.known().is_none(), "it is sure of the master");
}

/// Without subscriber and master.
pub(super) fn unlinked(sentinels: Vec<Address>, terms: Option<MajorityTerms>) -> Sentinel {
    Sentinel {
        name: "m".to_owned(),
        servers: sentinels[0].clone(),
        state: Mutex::new(SentinelState::new(sentinels.len())),
        sentinels: Arc::new(Sentinels { all: sentinels, turn: Mutex::default() }),
        settings: Settings { majority: terms, ..Settings::new(TIMEOUTS, 1) },
        searching: Mutex::new(()),
        subscriber: OnceLock::new(),
    }
}

#[test]
fn a_master_that_says_it_is_a_replica_is_not_used() {
    let replica = server("slave");
    let sentinel = sentinel(vec![(port(&replica), 1)], &Arc::default());
    let error = connect(&[&sentinel]).err().expect("a replica");
    assert_eq!(error.kind(), BackendErrorKind::Unavailable);
    assert!(error.message().contains("is a replica"), "{error}");
}

#[test]
fn garbage_is_no_master() {
    for reply in ["+OK\r\n", "*1\r\n+x\r\n", "*2\r\n$0\r\n\r\n+1\r\n", "*2\r\n+h\r\n+99999\r\n", ":1\r\n"] {
        let babbler = FakeServer::answering("SENTINEL", reply);
        let error = connect(&[&babbler]).err().expect(reply);
        assert_eq!(error.kind(), BackendErrorKind::Unavailable, "{reply}: {error}");
    }
    let unknowing = FakeServer::answering("SENTINEL", "*-1\r\n");
    assert_eq!(connect(&[&unknowing]).err().expect("nothing").kind(), BackendErrorKind::InvalidConfig);
}

#[test]
fn a_failed_search_is_not_repeated_by_every_caller() {
    let hangs_up = FakeServer::start(|_, _| Act::HangUp);
    let found = unlinked(vec![hangs_up.address()], None);
    std::thread::scope(|scope| (0..16).for_each(|_| drop(scope.spawn(|| found.master().expect_err("down")))));
    assert!(hangs_up.connections() <= 3, "{}", hangs_up.connections());
}

/// A request that a replica refused goes to the master, and a request that may have been executed does not.
#[test]
fn only_a_refused_request_goes_on_to_the_master() {
    let get = |topology: &Servers| {
        let packed = cmd("GET").arg("k").get_packed_command();
        topology.call("k", |route| route.call(&packed)).map_err(|trouble| trouble.failure)
    };
    let hangs_up = || Act::HangUp;
    let refuses = || Act::Say("-READONLY You can't write against a read only replica.\r\n".to_owned());
    for (says, first) in [(refuses as fn() -> Act, true), (hangs_up, false)] {
        let (old, new) = (master(says), master(|| Act::Say("+new\r\n".to_owned())));
        let turn = Arc::new(AtomicUsize::new(0));
        let sentinel = sentinel(vec![(port(&old), 1), (port(&new), 2)], &turn);
        let topology: Servers = connect(&[&sentinel]).expect("a master");
        turn.store(1, Ordering::SeqCst);
        let answer = get(&topology);
        assert_eq!(answer.is_ok(), first, "{answer:?}");
        // The failure has led to the new master either way.
        assert_eq!(get(&topology), Ok(Value::SimpleString("new".to_owned())));
    }
}

/// Since when a sentinel has to be up, in tests.
const LEAST_UPTIME: Duration = Duration::from_secs(10);
/// How long ago a majority may have been asked, in tests.
const AGE: Duration = Duration::from_millis(600);

#[test]
fn what_a_majority_said_may_end_during_a_search() {
    let (master, turn) = (server("master"), Arc::new(AtomicUsize::new(0)));
    let only = sentinel(vec![(port(&master), 4), (String::new(), 0)], &turn);
    let found = connect_with(&[&only], Some(AGE)).expect("a master");
    turn.store(1, Ordering::SeqCst);
    let left = Instant::now();
    // One caller asks when half of the time is over, and gets no answer for longer than is left.
    while found.find().is_ok() {
        assert!(left.elapsed() < TIMEOUTS.response, "{:?} after the last majority", left.elapsed());
    }
}

/// Each sentinel may name another master right after its answer, which then takes its time.
#[test]
fn a_vote_that_took_its_time_proves_nothing() {
    let master = server("master");
    let port = port(&master);
    let only = telling(move |words| {
        if words.get(1).is_some_and(|word| word == "server") {
            std::thread::sleep(AGE);
        }
        (port.clone(), ["config-epoch".to_owned(), "1".to_owned()])
    });
    let terms = MajorityTerms { proof_age: AGE, least_uptime: LEAST_UPTIME };
    let found = unlinked(vec![only.address()], Some(terms));
    assert!(found.search().is_ok() && found.known().is_none(), "it counts from its answer");
    let asked = Instant::now();
    let late = found.find().map(drop).expect_err("no proof");
    assert!(asked.elapsed() < found.bound(), "{:?}", asked.elapsed());
    assert!(matches!(&late, Failure::NotSent(why) if why.contains("longer to vote")), "{late}");
}

#[test]
fn one_caller_asks_the_sentinels_while_the_others_go_on() {
    let master = server("master");
    let only = sentinel(vec![(port(&master), 1)], &Arc::default());
    let found = connect_with(&[&only], Some(AGE)).expect("a master");
    let asked = || only.asked("SENTINEL get-master-addr-by-name").len();
    let (since, before) = (Instant::now(), asked());
    std::thread::scope(|scope| {
        let call = || {
            while since.elapsed() < 4 * AGE {
                found.find().expect("a majority");
            }
        };
        (0..4).for_each(|_| drop(scope.spawn(call)));
    });
    let (asked, halves) = (asked() - before, since.elapsed().as_millis() / 300);
    assert!(asked as u128 <= halves + 1, "asked {asked} times in {halves} halves of the time");
}

#[test]
fn an_epoch_that_a_server_refuses_is_asked_for_again() {
    let refuses = FakeServer::start(|_, words| match words[0].as_str() {
        "ROLE" => Act::Say(is("master")),
        "GET" if words[1] == "1" => {
            Act::Say("-OLDEPOCH the server has the epoch 2, and this client 1\r\n".to_owned())
        }
        "GET" => Act::Say("+new\r\n".to_owned()),
        _ => polite(words),
    });
    let turn = Arc::new(AtomicUsize::new(0));
    let only = sentinel(vec![(port(&refuses), 1), (port(&refuses), 2)], &turn);
    let topology: Servers = connect_with(&[&only], Some(AGE)).expect("a master");
    turn.store(1, Ordering::SeqCst);
    let get = |route: &Route| route.call(&cmd("GET").arg(route.epoch).get_packed_command());
    assert_eq!(
        topology.call("k", get).map_err(|trouble| trouble.failure),
        Ok(Value::SimpleString("new".to_owned()))
    );
}

/// A master whose announced address leads nowhere from here is reached by the program's function.
#[test]
fn the_announced_address_of_a_master_is_mapped() {
    let (master, nowhere) = (server("master"), sentinel(vec![("1".to_owned(), 1)], &Arc::default()));
    let found = |map: Option<AddressMap>| {
        let mut servers = nowhere.address();
        servers.map = map;
        Sentinel::connect(vec![nowhere.address()], servers, "m", &Settings::new(TIMEOUTS, 1))
    };
    let error = found(None).map(drop).expect_err("nothing listens there");
    let by = format!("({} announces this address; ", nowhere.address());
    assert!(error.message().contains(&by), "{error}");
    let port = master.port();
    let map = AddressMap::new(move |host, from| (host.to_owned(), if from == 1 { port } else { from }));
    let found = found(Some(map)).expect("a master");
    assert_eq!(server_of(&found.master().expect("known")), "127.0.0.1:1");
    assert!(master.connections() > 0);
}

#[test]
fn an_unknown_master_is_refused_with_the_names_of_the_known() {
    let unknowing = FakeServer::start(|_, words| match words.get(1).map(String::as_str) {
        Some("masters") => {
            let named = |name: &str| format!("*2\r\n{}{}", bulk("name"), bulk(name));
            Act::Say(format!("*2\r\n{}{}", named("two"), named("one")))
        }
        _ if words[0] == "SENTINEL" => Act::Say("*-1\r\n".to_owned()),
        _ => polite(words),
    });
    let error = connect(&[&unknowing]).err().expect("no such master");
    assert!(error.message().contains("they know `one`, `two`"), "{error}");
}

/// The same master under the same epoch keeps its pool, with its connections, and the time when it was found.
#[test]
fn a_master_that_is_named_again_stays_what_it_is() {
    let master = server("master");
    let turn = Arc::new(AtomicUsize::new(0));
    let names = sentinel(vec![(port(&master), 1), (port(&master), 2)], &turn);
    let terms = MajorityTerms { proof_age: AGE, least_uptime: LEAST_UPTIME };
    let found = unlinked(vec![names.address()], Some(terms));
    let first = found.search().expect("a master");
    let since = found.state.lock().since;
    found.state.lock().voters = None;
    let again = found.search().expect("a master");
    assert!(Arc::ptr_eq(&first.pool, &again.pool) && first.voters == again.voters);
    assert!(again.voters.is_some() && found.state.lock().since == since);
    turn.store(1, Ordering::SeqCst);
    assert!(!Arc::ptr_eq(&first.pool, &found.search().expect("a master").pool), "under another epoch");
}

/// A sentinel that was set up anew counts from its first epoch.
#[test]
fn an_older_epoch_counts_if_most_sentinels_name_it() {
    let names = sentinel(vec![("7".to_owned(), 1)], &Arc::default());
    let found = unlinked(vec![names.address()], None);
    found.state.lock().epoch = 2;
    assert_eq!(found.named_by(&[names.address()]).map(|named| named.epoch), Ok(1));
    let other = sentinel(vec![("7".to_owned(), 1)], &Arc::default());
    let closed = Address::parse("redis://127.0.0.1:1").expect("an address");
    let three = [names.address(), other.address(), closed];
    let found = unlinked(three.to_vec(), None);
    found.state.lock().epoch = 2;
    assert!(found.named_by(&three[..1]).is_err(), "one of three");
    // One of the two may answer too late to be counted.
    let end = Instant::now() + 30 * AGE;
    while found.named_by(&three).is_err() {
        assert!(Instant::now() < end, "two of three are not enough");
    }
}

/// A vote that took too long is repeated.
#[test]
fn a_vote_that_took_its_time_is_repeated() {
    let master = server("master");
    let (port, was_slow) = (port(&master), AtomicUsize::new(0));
    let only = telling(move |words| {
        if words.get(1).is_some_and(|word| word == "server") && was_slow.fetch_add(1, Ordering::SeqCst) == 0 {
            std::thread::sleep(AGE * 2 / 3); // the vote would ask again before AGE is over
        }
        (port.clone(), ["config-epoch".to_owned(), "1".to_owned()])
    });
    let terms = MajorityTerms { proof_age: AGE / 2, least_uptime: LEAST_UPTIME };
    assert!(unlinked(vec![only.address()], Some(terms)).find().is_ok());
}

#[test]
fn the_sentinels_are_asked_in_time_and_a_failure_ends() {
    let ago = |time| Some(Instant::now() - time);
    let mut state = SentinelState::new(1);
    for (asked, age, is_due) in [
        (None, Some(AGE), true),
        (ago(AGE * 3 / 4), Some(AGE), true),
        (ago(Duration::ZERO), Some(60 * AGE), false),
        (None, None, false),
    ] {
        state.asked = asked;
        assert_eq!(state.is_to_be_asked(age), is_due, "{asked:?}");
    }
    let failure = Failure::NotSent("x".into());
    state.failed = Some((failure.clone(), Instant::now() + 60 * AGE));
    assert!(state.known(None).is_some_and(|known| known.is_err()));
    state.failed = Some((failure, Instant::now()));
    assert!(state.known(None).is_none());
}

#[test]
fn a_subscriber_begins_at_the_sentinel_that_has_answered() {
    let all: Vec<Address> =
        [1, 2].map(|port| Address::parse(&format!("redis://h:{port}")).expect("an address")).into();
    let sentinels = Sentinels { all, turn: Mutex::default() };
    sentinels.prefer(&sentinels.all[1]);
    let turns = [(); 3].map(|()| sentinels.next().expect("a sentinel").to_string());
    assert_eq!((turns, sentinels.count()), (["h:2", "h:1", "h:2"].map(str::to_owned), 2));
}

/// One more attempt, and only after a failure that proves that nothing ran.
#[test]
fn a_call_goes_on_to_the_next_master_once() {
    let master = server("master");
    let names = sentinel(vec![(port(&master), 1)], &Arc::default());
    let found = unlinked(vec![names.address()], None);
    let (route, until) = (found.find().expect("a master"), Instant::now() + 60 * TIMEOUTS.response);
    let goes_on = |code, tried| {
        let failed = Failed { key: "k", route: &route, failure: &Failure::refused(code, "x"), tried, until };
        found.next_route(&failed).is_some()
    };
    assert!(goes_on("READONLY", 1) && !goes_on("READONLY", 2) && !goes_on("NOPERM", 1));
    assert!(!found.was_not_executed("NOPERM"));
}
