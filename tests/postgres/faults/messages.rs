//! Messages that the server does not send at once: all NOTIFYs of a server commit one after the other, also those of other programs.

use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, PostgresBackend};
use fairlock_tests::{Alone, PostgresServer, eventually};

use super::support::{
    SLACK, SOON, builder, granted, ms, request, take, until_in_queue, until_nothing_left, within,
};

/// More than a client has connections.
const LOCKS: usize = 12;

/// Runs this while a NOTIFY of another program is stuck in its commit, in another database.
fn beside_a_stuck_commit(server: &PostgresServer, has_standby: bool, act: impl FnOnce()) {
    server.set_standby("nobody");
    thread::scope(|scope| {
        let mut other = server.con_to("postgres");
        let stuck = scope.spawn(move || {
            other.batch_execute("begin; create table t (); drop table t; notify theirs; commit").unwrap();
        });
        let sql = "select pid from pg_stat_activity where wait_event = 'SyncRep' and datname = 'postgres'";
        let mut pid = None;
        eventually("its commit waits for the standby", || {
            pid = server.con().query_opt(sql, &[]).unwrap().map(|row| row.get::<_, i32>(0));
            pid.is_some()
        });
        let pid = u32::try_from(pid.unwrap()).unwrap();
        server.stop_session(pid);
        if !has_standby {
            server.set_standby("");
        }
        act();
        server.cont_session(pid);
        server.set_standby("");
        stuck.join().unwrap();
    });
}

/// Each release of some locks for which another client waits. Each takes little time, and all messages arrive when they can.
fn releases(server: &PostgresServer, has_standby: bool, connections: usize) {
    let url = server.url();
    let ours = PostgresBackend::builder(&url).connections(connections).connect().unwrap();
    let ours = Client::builder(ours).lease(SOON * 4).build().unwrap();
    // Which look by themselves after 10 s.
    let theirs = builder(&url).lease(SOON * 4).place_ttl(SOON * 2).outage_limit(SOON).build().unwrap();
    let names: Vec<_> = (0..LOCKS).map(|number| format!("{connections} {number}")).collect();
    let guards: Vec<_> = names.iter().map(|name| take(&ours.fair_lock(name).unwrap())).collect();
    let waiting: Vec<_> = names.iter().map(|name| request(&theirs, name)).collect();
    names.iter().for_each(|name| until_in_queue(&ours, name, 1));
    let mut longest = Duration::ZERO;
    beside_a_stuck_commit(server, has_standby, || {
        for guard in guards {
            let asked = Instant::now();
            guard.unlock().unwrap();
            longest = longest.max(asked.elapsed());
        }
    });
    assert!(longest < ms(400), "{longest:?}");
    for waiting in waiting {
        granted(waiting, SOON).unlock().unwrap();
    }
    within(SLACK, || take(&ours.fair_lock("free").unwrap()).unlock().unwrap());
}

#[test]
fn a_release_waits_for_no_notify_of_another_program() {
    let _alone = Alone::here();
    let server = PostgresServer::builder().start();
    for connections in [1, 8] {
        releases(&server, false, connections);
    }
    // Locks don't wait for the standby, and the other program does.
    server.con().batch_execute("alter database fairlock set synchronous_commit = local").unwrap();
    releases(&server, true, 8);
    until_nothing_left(&server);
}
