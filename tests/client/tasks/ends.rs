//! A program whose `main` ends while a task's guard is dropped. It needs processes: what counts is what the server hears of one that ends.

use std::env;
use std::process::{self, Command};

use fairlock::{Client, RedisBackend};
use fairlock_tests::{Alone, RedisServer, assert_no_residue};

use crate::support::current;

const SERVER: &str = "FAIRLOCK_ENDS_BESIDE";

/// Drops its guard, its lock and its client, and is over.
fn ends_at_once(url: String) -> ! {
    current().block_on(async {
        let client = fairlock::connect_async(&url).await.unwrap();
        let lock = client.fair_lock("main").unwrap();
        let _guard = lock.lock().await.unwrap();
    });
    process::exit(0);
}

#[test]
fn a_program_that_ends_with_a_dropped_guard_releases_it() {
    if let Ok(url) = env::var(SERVER) {
        ends_at_once(url);
    }
    let _alone = Alone::here();
    let server = RedisServer::start();
    let client = Client::new(RedisBackend::connect(&server.url()).unwrap()).unwrap();
    let lock = client.fair_lock("main").unwrap();
    let left = (0..15).filter(|_| {
        let this = ["--exact", "ends::a_program_that_ends_with_a_dropped_guard_releases_it"];
        let mut program = Command::new(env::current_exe().unwrap());
        assert!(program.args(this).env(SERVER, server.url()).output().unwrap().status.success());
        lock.admin().force_unlock().unwrap() // what was left would keep the next program
    });
    assert_eq!(left.count(), 0, "programs whose lock stays taken");
    assert_no_residue(&server, &[]);
}
