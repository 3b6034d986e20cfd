//! `ls --blocked` on both stores: deadlocks.

use std::sync::mpsc::{Receiver, channel};
use std::thread;

use fairlock::{Client, PostgresBackend, RedisBackend};
use fairlock_tests::{PostgresServer, RedisServer, wait_until_no_residue};
use serde_json::Value;

use crate::support::{labels_alone, output, says, wait_for_queue};

fn client(url: &str, label: &str) -> Client {
    let builder = match url.starts_with("postgres") {
        true => Client::builder(PostgresBackend::connect(url).unwrap()),
        false => Client::builder(RedisBackend::connect(url).unwrap()),
    };
    builder.label(label).build().unwrap()
}

/// Runs the test on both stores.
fn on_both(test: impl Fn(&str)) {
    let redis = RedisServer::start();
    test(&redis.url());
    wait_until_no_residue(&redis);
    test(&PostgresServer::start().url());
}

/// What `ls --blocked` prints, with the times left out, and the exit code.
fn blocked(url: &str) -> (String, Option<i32>) {
    let said = says(url, "ls --blocked");
    assert_eq!(said.err, "");
    let without_times = |line: &str| line.split(" for ").next().unwrap().to_owned() + "\n";
    (labels_alone(&said.out).lines().map(without_times).collect(), said.status.code())
}

/// The deadlocks by labels and locks, each from its least text on; and the exit code.
fn deadlocks(url: &str) -> (Vec<Vec<String>>, Option<i32>) {
    let said = output(url, &["ls", "--blocked", "--json"]);
    let seen: Value = serde_json::from_str(&labels_alone(&said.out)).unwrap();
    let text = |link: &Value| {
        assert!(link["token"].is_u64() && link["owner"].is_string(), "{link}");
        ["label", "blocks", "waits_for"].map(|field| link[field].as_str().unwrap()).join(" ")
    };
    let circle = |circle: &Value| {
        let mut links: Vec<String> = circle.as_array().unwrap().iter().map(text).collect();
        let least = (0..links.len()).min_by_key(|n| &links[*n]).unwrap();
        links.rotate_left(least);
        links
    };
    (seen["deadlocks"].as_array().unwrap().iter().map(circle).collect(), said.status.code())
}

/// Takes the first lock, says so, takes the second when it is told to, and gives both up when it is told again.
fn takes_both(client: &Client, [first, second]: [&str; 2], has_first: impl FnOnce(), told: impl Fn()) {
    let first = client.fair_lock(first).unwrap().lock().unwrap();
    has_first();
    told();
    let second = client.fair_lock(second).unwrap().request().unwrap();
    told();
    drop((first, second));
}

fn hears(orders: &Receiver<()>) -> impl Fn() {
    || {
        let _ = orders.recv();
    }
}

#[test]
fn a_deadlock_of_two_threads_is_shown_with_what_each_has() {
    on_both(|url| {
        thread::scope(|threads| {
            let (has_first, first_taken) = channel();
            let orders: Vec<_> = [["a", "b"], ["b", "a"]]
                .map(|names| {
                    let ((orders, told), has_first) = (channel(), has_first.clone());
                    let client = client(url, &format!("thread-{}", names[0]));
                    threads.spawn(move || {
                        takes_both(&client, names, || has_first.send(()).unwrap(), hears(&told));
                    });
                    orders
                })
                .into();
            (0..2).for_each(|_| first_taken.recv().unwrap());
            orders.iter().for_each(|thread| thread.send(()).unwrap());
            let sees = client(url, "sees");
            ["a", "b"].iter().for_each(|name| wait_for_queue(&sees.fair_lock(name).unwrap(), 1));
            let (text, code) = blocked(url);
            assert!(text.starts_with("deadlock: thread-"), "{text}");
            assert!(
                text.contains("a  held by thread-a\n  1  thread-b, waiting\n    b  held by thread-b\n"),
                "{text}"
            );
            assert!(text.contains("        a  (above)\n"), "{text}");
            assert_eq!(code, Some(1));
            let circle = ["thread-a a b", "thread-b b a"].map(str::to_owned).to_vec();
            assert_eq!(deadlocks(url), (vec![circle], Some(1)));
            drop(orders);
        });
        assert_eq!(deadlocks(url), (vec![], Some(0)));
    });
}
