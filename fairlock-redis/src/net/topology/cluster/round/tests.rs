//! Which views are accepted, and how nodes are read.

use super::*;
use crate::net::settings::Settings;
use crate::net::test_server::{TIMEOUTS, bulk, up_for};
use crate::net::topology::cluster::{Majority, Map};
use std::collections::HashMap;
use std::sync::Weak;
use std::time::Duration;

/// The view of a majority is accepted as soon as it is there; without a majority the last answer decides.
#[test]
fn a_view_is_accepted_with_a_majority_or_the_last_answer() {
    let terms = MajorityTerms { proof_age: Duration::from_secs(60), least_uptime: Duration::ZERO };
    let slots = vec![None; usize::from(SLOTS)];
    let cluster = Cluster {
        seeds: Vec::new(),
        settings: Settings { majority: Some(terms), ..Settings::new(TIMEOUTS, 1) },
        map: Mutex::new(Map { nodes: HashMap::new(), slots, doubted: false, refreshed: None }),
        majority: Some(Majority::new(terms)),
        asking: Mutex::new(()),
        turn: AtomicUsize::new(0),
        this: Weak::new(),
    };
    let at = Address::parse("redis://h:1").expect("an address");
    let reply = |wire: String| redis::parse_redis_value(wire.as_bytes()).map_err(|_| Failure::no_answer());
    let hears = |round: &Round| {
        let slots = "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\nh\r\n:1\r\n".to_owned();
        let nodes = bulk("id h:1@2 myself,master - 0 0 1 connected 0-16383\n");
        cluster.map.lock().refreshed = None;
        cluster.heard(round, (at.clone(), Ok([slots, nodes, up_for(60)].map(reply).into())));
        cluster.map.lock().refreshed.is_some()
    };
    // Where five were listed before, one view is no majority, nor are two.
    let [of_one, of_five] = [1, 5].map(|listed| Round::new(Some(&terms), 2, listed));
    assert_eq!([hears(&of_one), hears(&of_one)], [true, false], "once");
    assert_eq!([hears(&of_five), hears(&of_five)], [false, true]);
}

fn asked() -> Address {
    Address::parse("redis://u:canary@asked:7000").expect("an address")
}

fn view(wire: &str) -> Result<View, Failure> {
    View::read(&asked(), &redis::parse_redis_value(wire.as_bytes()).expect("a value"))
}

fn shown(view: &View) -> Vec<String> {
    view.ranges.iter().map(|(first, last, node)| format!("{first}-{last} {node}")).collect()
}

/// Ranges and nodes are read, and a missing host is the host that was asked.
#[test]
fn ranges_and_nodes_are_read_also_without_a_host() {
    let read = view(
        "*3\r\n\
         *4\r\n:100\r\n:16383\r\n*3\r\n$2\r\nh2\r\n:2\r\n$2\r\nid\r\n*2\r\n$2\r\nh3\r\n:3\r\n\
         *3\r\n:0\r\n:98\r\n*2\r\n$0\r\n\r\n:1\r\n\
         *3\r\n:99\r\n:99\r\n*4\r\n$-1\r\n:1\r\n$2\r\nid\r\n*0\r\n",
    )
    .expect("a view");
    assert_eq!(shown(&read), ["0-98 asked:1", "99-99 asked:1", "100-16383 h2:2"]);
    let mut nodes: Vec<_> = read.nodes.keys().collect();
    nodes.sort();
    assert_eq!(nodes, ["asked:1", "h2:2", "h3:3"]);
    assert_eq!(read.nodes["h2:2"].credentials(), Some((Some("u"), "canary")));
}

#[test]
fn garbage_is_no_view() {
    for wire in [
        "+OK\r\n",
        "*0\r\n",
        "*1\r\n:1\r\n",
        "*1\r\n*2\r\n:0\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n+h\r\n:1\r\n",
        "*1\r\n*3\r\n:-1\r\n:1\r\n*2\r\n+h\r\n:1\r\n",
        "*1\r\n*3\r\n:2\r\n:1\r\n*2\r\n+h\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n+h\r\n:70000\r\n",
        "*1\r\n*3\r\n:0\r\n:1\r\n*1\r\n+h\r\n",
        "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n*0\r\n:1\r\n",
    ] {
        assert!(view(wire).is_err(), "{wire}");
    }
}

#[test]
fn redirections_are_read() {
    let to = |message: &str| redirection(&asked(), message).map(|(slot, to)| (slot, to.to_string()));
    assert_eq!(to("3999 127.0.0.1:6381"), Some((3999, "127.0.0.1:6381".to_owned())));
    assert_eq!(to("1 ::1:6381"), Some((1, "[::1]:6381".to_owned())));
    assert_eq!(to("1 :6381"), Some((1, "asked:6381".to_owned())));
    assert_eq!(to("1 ?:6381"), Some((1, "asked:6381".to_owned())));
    for message in ["", "1", "x h:1", "16384 h:1", "1 h", "1 h:x"] {
        assert_eq!(to(message), None, "{message}");
    }
}

#[test]
fn the_view_of_most_nodes_counts() {
    let range = |port: u16| format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\nh\r\n:{port}\r\n");
    let views: Vec<View> = [1, 2, 2].map(|port| view(&range(port)).expect("a view")).to_vec();
    assert_eq!(shown(View::most_common(&views).expect("one").0), ["0-16383 h:2"]);
    assert_eq!(shown(View::most_common(&views[..2]).expect("one").0), ["0-16383 h:1"]);
    assert!(View::most_common(&[]).is_none());
    let part = |last: u16| format!("*1\r\n*3\r\n:0\r\n:{last}\r\n*2\r\n$1\r\nh\r\n:1\r\n");
    let views: Vec<View> = [1, 2, 2].map(|last| view(&part(last)).expect("a view")).to_vec();
    assert_eq!(shown(View::most_common(&views).expect("one").0), ["0-2 h:1"]);
}
