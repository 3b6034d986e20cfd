//! `doctor` on PostgreSQL.

use fairlock_tests::{PgBouncer, PostgresServer, eventually};

use super::{approve, assert_found, judge, look};
use crate::support::says;

/// With the one setting of the tests' servers that is unsafe put right.
fn server() -> PostgresServer {
    PostgresServer::builder().set("fsync", "on").set("synchronous_commit", "off").start()
}

#[test]
fn a_good_server_gets_a_good_report_and_keeps_no_row() {
    let server = PostgresServer::builder().set("fsync", "on").start();
    let findings = approve(&server.url());
    let topics: Vec<&str> = findings.iter().map(|finding| finding[0].as_str()).collect();
    let (first, then) = topics.split_at(9);
    let server_and_database =
        "role, version, commits, isolation, connections, listeners, snapshots, slots, autovacuum";
    assert_eq!(first.join(", "), server_and_database);
    let by_trial =
        "clock, round trip, pooler, wake-ups, layout, rights, rows, commit time, trial, hand-overs";
    assert_eq!(then.join(", "), by_trial);
    assert_found(&findings, "commits", "good", "synchronous_commit is on; no standby");
    assert_found(&findings, "wake-ups", "good", "a message was heard after ");
    assert_found(&findings, "hand-overs", "", "half of 10 within ");
    let sample = include_str!("../../../docs/samples/doctor-postgres.txt");
    let said = says(&server.url(), "doctor").out;
    assert_eq!(without_figures(&said), without_figures(sample), "{said}");
    let rows: i64 = server.con().query_one("select count(*) from fairlock.lock", &[]).unwrap().get(0);
    assert_eq!(rows, 0);
}

/// The report but for the server's name and version, and what was measured.
fn without_figures(report: &str) -> Vec<String> {
    let is_measured = |line: &&str| {
        ["version", "clock", "round trip", "commit time", "hand-overs"]
            .iter()
            .any(|topic| line.contains(topic))
    };
    let lines = report.lines().skip(1).filter(|line| !is_measured(line));
    let is_figure = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
    let without = |word| if is_figure(&word) { "7" } else { word };
    lines.map(|line| line.split(' ').map(without).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn what_makes_hand_offs_slow_is_found() {
    let server = server();
    let (locks, other) = (server.new_database(), server.new_database());
    let mut con = server.con_to("t1");
    con.batch_execute("begin isolation level repeatable read; select 1").unwrap();
    let found = || look(&locks, &[]).1.into_iter().find(|finding| finding[0] == "snapshots").unwrap();
    eventually("it is old", || found()[1] == "note");
    let [_, _, what] = found();
    for part in ["(idle in transaction) has kept a snapshot", "end it (select pg_terminate_backend("] {
        assert!(what.contains(part), "{what}");
    }
    assert_found(&look(&other, &[]).1, "snapshots", "good", "none in this database is older than 5 s");

    let listening = (0..51).map(|_| {
        let mut con = server.con_to("t1");
        con.batch_execute("listen anything").unwrap();
        con
    });
    let listening: Vec<_> = listening.collect();
    // Each update of a column with an index leaves an entry there.
    let updates = "do $$ begin for n in 1..1001 loop update fairlock.lock set rev = n; end loop; end $$";
    let hot_row =
        "rollback; create index on fairlock.lock (rev); insert into fairlock.lock (name) values ('x')";
    con.batch_execute(&format!("{hot_row}; {updates}")).unwrap();
    let hot = || look(&locks, &[]).1.into_iter().find(|finding| finding[0] == "rows").unwrap();
    eventually("it has counted the updates", || hot()[1] == "note");
    let findings = look(&locks, &[]).1;
    assert_found(&findings, "rows", "note", "drop indexes beside the key");
    assert_found(&findings, "listeners", "note", "51 sessions listen in this database");
    drop(listening);

    server.con().batch_execute("select pg_create_physical_replication_slot('old', true)").unwrap();
    let settings = "alter database t2 connection limit 5; alter database t2 set default_transaction_isolation = 'serializable'";
    server.con().batch_execute(settings).unwrap();
    server.con_to("t2").batch_execute("alter table fairlock.lock set (autovacuum_enabled = off)").unwrap();
    // The session above may still be ending, and the server's own may be at work: they count.
    let mut findings = Vec::new();
    eventually("only the doctor is connected", || {
        findings = approve(&other);
        findings.iter().any(|[_, verdict, what]| verdict == "note" && what.starts_with("4 are left"))
    });
    assert_found(&findings, "slots", "note", "slot old is not in use");
    assert_found(&findings, "connections", "note", "4 are left");
    assert_found(
        &findings,
        "isolation",
        "note",
        "alter role fairlock set default_transaction_isolation = 'read committed'",
    );
    assert_found(&findings, "autovacuum", "note", "reset (autovacuum_enabled)");
    assert_found(&findings, "commits", "note", "synchronous_commit is off");
}

#[test]
fn each_missing_right_is_named_with_the_grant() {
    let server = server();
    let mut con = server.con();
    let rights = [
        "usage on schema fairlock",
        "select on fairlock.meta",
        "select on fairlock.lock",
        "insert on fairlock.lock",
        "update on fairlock.lock",
        "delete on fairlock.lock",
        "execute on function fairlock.micros()",
    ];
    con.batch_execute("create role worker login; revoke execute on function fairlock.micros() from public")
        .unwrap();
    for right in rights {
        con.batch_execute(&format!("grant {right} to worker")).unwrap();
    }
    let url = server.url().replace("fairlock@", "worker@");
    approve(&url);
    for right in rights {
        con.batch_execute(&format!("revoke {right} from worker")).unwrap();
        let (code, findings) = look(&url, &[]);
        assert_eq!(code, Some(1), "without {right}");
        assert_found(&findings, "rights", "unsafe", &format!("grant {right} to worker"));
        con.batch_execute(&format!("grant {right} to worker")).unwrap();
    }
}

#[test]
fn a_layout_that_can_not_be_used_is_named_with_what_helps() {
    let server = server();
    let url = server.new_empty_database();
    let findings = judge(&url, &[], 1, &["layout"]);
    assert_found(&findings, "layout", "unsafe", "run `fairlock migrate --postgres URL`");
    says(&url, "migrate").gave(0);
    assert_eq!(look(&url, &[]).0, Some(0));
    let set = |settings: &str| {
        server.con_to("t1").batch_execute(&format!("update fairlock.meta set {settings}")).unwrap()
    };
    set("layout = 2");
    assert_eq!(look(&url, &[]).0, Some(0));
    set("least_client = 2");
    let findings = judge(&url, &[], 1, &["layout"]);
    assert_found(&findings, "layout", "unsafe", "use a newer version");
    set("layout = 0, least_client = 0");
    assert_found(&look(&url, &[]).1, "layout", "unsafe", "layout 0 of fairlock's tables");
}

/// A server that takes no writes is unsafe, unless the address names another server that takes them.
#[test]
fn a_read_only_server_is_unsafe_without_another_host() {
    let server = server();
    let standby = server.standby("copy");
    let findings = judge(&standby.url(), &[], 1, &["role", "trial"]);
    assert_found(&findings, "role", "unsafe", "a standby, which takes no writes");
    let both = server.url().replace("127.0.0.1", &format!("127.0.0.1:{},127.0.0.1", standby.port()));
    let findings = approve(&both);
    assert_found(&findings, "role", "note", "a standby, which takes no writes");
    assert_found(&findings, "role", "good", "it takes writes");

    let read_only = server.new_database();
    server.con().batch_execute("alter database t1 set default_transaction_read_only = on").unwrap();
    let findings = judge(&read_only, &[], 1, &["role", "trial"]);
    assert_found(&findings, "role", "unsafe", "default_transaction_read_only is on");
}

#[test]
fn what_a_crash_or_a_fail_over_forgets_is_told() {
    let server = PostgresServer::builder()
        .set("fsync", "on")
        .set("synchronous_standby_names", "copy")
        .set("synchronous_commit", "local")
        .start();
    let standby = server.standby("copy");
    let commits = || {
        let said = look(&server.url(), &[]).1.into_iter().find(|finding| finding[0] == "commits").unwrap();
        format!("{}: {}", said[1], said[2])
    };
    eventually("the standby is seen", || commits().contains("synchronous_commit is local"));
    for (setting, words) in [
        ("synchronous_commit = on", "good: synchronous_commit is on; 1 of 1 standbys are synchronous"),
        ("synchronous_commit = off", "note: synchronous_commit is off: a crash"),
    ] {
        server.con().batch_execute(&format!("alter database fairlock set {setting}")).unwrap();
        assert!(commits().starts_with(words), "{}", commits());
    }
    drop(standby);
    let server = PostgresServer::start();
    let (code, findings) = look(&server.url(), &[]);
    assert_eq!(code, Some(1));
    assert_found(&findings, "commits", "unsafe", "fsync is off");
}

#[test]
fn behind_a_pooler_the_report_asks_for_the_servers_address() {
    let server = server();
    let pooler = PgBouncer::start(&server);
    let url = server.url().replace(&server.address(), &pooler.address());
    let findings = approve(&url);
    assert_found(&findings, "pooler", "note", "so set the server's address for them (--listen-on)");
    assert_found(&findings, "wake-ups", "note", "a message was not heard in 1 s");
    let findings = judge(&url, &["--listen-on", &server.url()], 0, &[]);
    assert_found(&findings, "hand-overs", "", "half of 10 within ");
    assert_found(&findings, "pooler", "good", "there is another address for wake-ups (--listen-on)");
    assert_found(&findings, "wake-ups", "good", "a message was heard after ");
}
