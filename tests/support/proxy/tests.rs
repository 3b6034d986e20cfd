//! The proxy follows its rules, and the server sees what it should.

use std::time::Duration;

use super::*;
use crate::{RedisServer, eventually};
use redis::{Client, Connection, RedisResult, cmd};

const SOON: Duration = Duration::from_secs(10);
/// How long a client waits for an answer that may not come.
const SHORT: Duration = Duration::from_millis(500);

fn world() -> (RedisServer, Proxy) {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    (server, proxy)
}

fn connect(proxy: &Proxy, patience: Duration) -> Connection {
    let con = Client::open(proxy.url()).unwrap().get_connection_with_timeout(SOON).unwrap();
    con.set_read_timeout(Some(patience)).unwrap();
    con
}

fn set(con: &mut Connection, key: &str) -> RedisResult<()> {
    cmd("SET").arg(key).arg(1).exec(con)
}

fn exists(server: &RedisServer, key: &str) -> bool {
    server.query(&["EXISTS", key])
}

/// What is swallowed or held is not answered, and what comes from the server was executed.
#[test]
fn what_is_swallowed_or_held_is_not_answered() {
    let (server, proxy) = world();
    for (traffic, rule, is_executed) in [
        (&[Traffic::Commands][..], Rule::Swallow, false),
        (&[Traffic::Replies], Rule::Swallow, true),
        (&Traffic::INWARD, Rule::Hold, true),
        (&Traffic::OUTWARD, Rule::Hold, false),
        (&Traffic::ALL, Rule::Hold, false),
    ] {
        let case = format!("{traffic:?} {rule:?}");
        let mut con = connect(&proxy, SHORT);
        proxy.set_all(traffic, rule);
        assert!(set(&mut con, &case).unwrap_err().is_timeout(), "{case}");
        // Its thread may be late; what is not to be executed is never.
        let is_so = |is_executed| eventually(&case, || exists(&server, &case) == is_executed);
        is_so(is_executed);
        drop(con); // what is held is still on its way
        proxy.set_all(traffic, Rule::Pass);
        is_so(is_executed || rule == Rule::Hold);
        set(&mut connect(&proxy, SOON), "x").unwrap();
    }
}

#[test]
fn forgotten_connections_are_silent_and_new_ones_work() {
    let (server, proxy) = world();
    let mut con = connect(&proxy, SHORT);
    set(&mut con, "before").unwrap();
    proxy.forget_connections();
    assert!(set(&mut con, "after").unwrap_err().is_timeout());
    assert!(!exists(&server, "after"));
    set(&mut connect(&proxy, SOON), "after").unwrap();
}

#[test]
fn one_reply_is_lost_with_its_connection_and_the_next_arrives() {
    let (server, proxy) = world();
    let (mut con, mut other) = (connect(&proxy, SOON), connect(&proxy, SOON));
    proxy.lose_reply_to("mine");
    set(&mut other, "other").unwrap();
    assert_eq!(proxy.lost(), 0);
    assert!(set(&mut con, "mine").unwrap_err().is_connection_dropped());
    assert!(exists(&server, "mine"));
    set(&mut other, "mine").unwrap();
    assert_eq!(proxy.lost(), 1);
}

/// A later reply is lost, and silence begins with the reply to a command.
#[test]
fn a_later_reply_is_lost_and_silence_begins_with_a_reply() {
    let (server, proxy) = world();
    proxy.lose_later_reply_to("mine", 1);
    set(&mut connect(&proxy, SOON), "mine:1").unwrap();
    assert!(set(&mut connect(&proxy, SOON), "mine:2").unwrap_err().is_connection_dropped());
    let (mut con, mut other) = (connect(&proxy, SHORT), connect(&proxy, SHORT));
    proxy.silence_from("mine", 1);
    set(&mut con, "mine:3").unwrap();
    assert!(!proxy.is_silent());
    assert!(set(&mut con, "mine:4").unwrap_err().is_timeout());
    assert!(proxy.is_silent() && exists(&server, "mine:4"));
    assert!(set(&mut other, "other").unwrap_err().is_timeout());
    proxy.set_all(&Traffic::ALL, Rule::Pass);
    set(&mut connect(&proxy, SOON), "mine:5").unwrap();
}

#[test]
fn messages_can_be_swallowed_while_confirmations_pass() {
    let (server, proxy) = world();
    let mut con = connect(&proxy, SHORT);
    let mut subscribed = con.as_pubsub();
    proxy.set(Traffic::WakeUps, Rule::Swallow);
    subscribed.subscribe("news").unwrap();
    let publish = |text| assert_eq!(server.query::<i64>(&["PUBLISH", "news", text]), 1);
    publish("lost");
    assert!(subscribed.get_message().unwrap_err().is_timeout());
    proxy.set(Traffic::WakeUps, Rule::Pass);
    subscribed.set_read_timeout(Some(SOON)).unwrap();
    publish("heard");
    assert_eq!(subscribed.get_message().unwrap().get_payload::<String>().unwrap(), "heard");
}

#[test]
fn subscriptions_can_be_cut_alone_and_kept_away() {
    let (server, proxy) = world();
    let (mut commands, mut con) = (connect(&proxy, SOON), connect(&proxy, SOON));
    let mut subscribed = con.as_pubsub();
    subscribed.subscribe("news").unwrap();
    let listeners = || server.query::<Vec<String>>(&["PUBSUB", "CHANNELS"]).len();
    assert_eq!(listeners(), 1);
    proxy.set(Traffic::Subscriptions, Rule::Swallow);
    proxy.cut_subscriptions();
    eventually("the server sees it", || listeners() == 0);
    set(&mut commands, "x").unwrap();
    let mut con = connect(&proxy, SHORT);
    assert!(con.as_pubsub().subscribe("news").is_err() && listeners() == 0);
    proxy.cut();
    assert!(set(&mut commands, "x").is_err());
}

#[test]
fn slow_and_delayed_bytes_are_the_same_bytes() {
    let (server, proxy) = world();
    let mut con = connect(&proxy, SOON);
    let long = "x".repeat(100);
    for rule in [Rule::Slow(200), Rule::Delay(SHORT)] {
        proxy.set_all(&Traffic::ALL, rule);
        let started = std::time::Instant::now();
        set(&mut con, &long).unwrap();
        assert!(started.elapsed() >= SHORT, "{rule:?}: {:?}", started.elapsed());
    }
    assert!(exists(&server, &long));
}

#[test]
fn a_command_can_be_repeated() {
    let (server, proxy) = world();
    let mut con = connect(&proxy, SOON);
    proxy.record("mine");
    cmd("INCR").arg("mine").exec(&mut con).unwrap();
    cmd("INCR").arg("other").exec(&mut con).unwrap();
    let [command] = &proxy.recorded()[..] else { panic!("one command") };
    assert_eq!(proxy.replay(command), ":2\r\n");
    assert_eq!((server.query::<i64>(&["GET", "mine"]), server.query::<i64>(&["GET", "other"])), (2, 1));
}

#[test]
fn a_command_that_is_held_back_gets_no_answer_and_arrives_later() {
    let (server, proxy) = world();
    let (mut con, mut other) = (connect(&proxy, SHORT), connect(&proxy, SOON));
    proxy.hold_back("late", 6 * SHORT);
    assert!(set(&mut con, "late").unwrap_err().is_timeout());
    assert!(!exists(&server, "late"));
    set(&mut other, "other").unwrap();
    eventually("the command has arrived", || exists(&server, "late"));
    eventually("none is on its way", || proxy.held_back() == 0);
    set(&mut other, "late").unwrap(); // only the next one
}
