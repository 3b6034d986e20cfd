//! `doctor` on clusters and sentinels, and in a grace.

use fairlock_tests::cluster::{Cluster, Replicas};
use fairlock_tests::{RedisServer, Sentinels, assert_no_residue, eventually};

use super::{assert_found, judge, look, of};
use crate::support::says;

/// Every node of a cluster and the master behind sentinels are checked.
#[test]
fn nodes_of_a_cluster_and_masters_of_sentinels_are_checked() {
    let cluster = Cluster::start(Replicas::None);
    let url =
        format!("redis+cluster://{}", cluster.urls()[0].trim_start_matches("redis://").trim_end_matches('/'));
    let (code, findings) = look(&url, &[]);
    assert_eq!(code, Some(0), "{findings:?}");
    assert_eq!(of(&findings, "good").iter().filter(|topic| **topic == "rights").count(), cluster.nodes.len());
    for node in &cluster.nodes {
        assert_eq!(node.query::<Vec<String>>(&["KEYS", "*"]), [""; 0], "its trial left them");
    }
    let one = look(&cluster.urls()[0], &[]);
    assert_eq!(one.0, Some(1));
    assert!(of(&one.1, "unsafe").contains(&"role"));

    let sentinels = Sentinels::builder().steady().start();
    let (code, findings) = look(&sentinels.url(), &[]);
    assert_eq!(code, Some(0), "{findings:?}");
    assert!(of(&findings, "good").contains(&"replicas"));
    assert_eq!(of(&findings, "good").iter().filter(|topic| **topic == "sentinel").count(), 3);
    assert_found(&findings, "sentinels", "good", "3 of 3 agree; 1 may fail");
    assert_found(&findings, "durable", "note", "a setting closes that: 3 of 3 sentinels agree (--durable)");
}

#[test]
fn a_grace_is_told_and_ended_by_hand() {
    let server = RedisServer::start();
    let life = |arguments: &[&str]| {
        let (code, findings) =
            look(&server.url(), &[&["--durable=trust=2s", "--response-timeout=1s"], arguments].concat());
        assert_eq!(code, Some(0), "{findings:?}");
        findings.into_iter().find(|finding| finding[0] == "life").unwrap()
    };
    assert!(life(&[])[2].contains("fairlock doctor --begin-life"));
    let says = |arguments: &str| says(&server.url(), arguments);
    says("doctor --durable=trust=2s --response-timeout=1s --begin-life").with(&["confirm with --yes"]);
    assert_eq!(life(&["--begin-life", "--yes"])[1], "good");
    says("run --durable=trust=2s --response-timeout=1s granted -- true").gave(0);
    server.query::<()>(&["FLUSHALL"]);
    let run = says("run --durable=trust=2s --response-timeout=1s --wait=0 granted -- true");
    assert_ne!(run.status.code(), Some(0), "{}", run.err);
    assert_eq!(life(&[])[1], "note");
    assert_no_residue(&server, &[]);
}

#[test]
fn what_a_quorum_lacks_is_named() {
    let quorum = &["--durable"];
    let all = "user worker on >canary ~* &* +@all";
    let servers = Sentinels::builder().steady().server_acl(all).sentinel_acl(all).start();
    // Only once they have been up for longer than the trust.
    eventually("the sentinels count", || says(&servers.url(), "doctor --durable").status.code() == Some(0));
    let findings = judge(&servers.url(), quorum, 0, &[]);
    assert_found(
        &findings,
        "durable",
        "good",
        "a master that was deposed and still answers; 2 of 3 sentinels",
    );
    assert_found(&findings, "sentinels", "note", "60000 ms to see that the master is down");
    assert_found(&findings, "persistence", "note", "a full copy leaves a file at the replica");
    assert_found(&findings, "clock", "good", "less than the skew of 500ms");
    // An address lacks one, and names another one twice.
    let [first, second, third] = &servers.sentinels[..] else { panic!("three") };
    let url = |ports: [u16; 3]| {
        let [a, b, c] = ports.map(|port| format!("127.0.0.1:{port}"));
        format!("redis+sentinel://worker:canary@{a},{b},{c}/mymaster")
    };
    let (_, findings) = look(&url([first.port(), second.port(), second.port()]), quorum);
    assert_found(&findings, "sentinel", "note", "it is the same one as");
    let lacking = format!("127.0.0.1:{}: known to the others", third.port());
    assert_found(&findings, "sentinels", "note", &lacking);
    assert_found(&findings, "sentinels", "note", "2 of 3 agree: if one more fails, there is no quorum");
    // Their settings, and rights.
    for sentinel in &servers.sentinels {
        sentinel.query::<()>(&["SENTINEL", "SET", "mymaster", "quorum", "5"]);
    }
    third.query::<()>(&["ACL", "SETUSER", "worker", "-sentinel|myid"]);
    second.query::<()>(&["ACL", "SETUSER", "worker", "-sentinel|sentinels"]);
    let (code, findings) = look(&url([first.port(), second.port(), third.port()]), quorum);
    assert_eq!(code, Some(1), "{findings:#?}");
    assert_found(&findings, "sentinels", "note", "there are 3: they never replace the master");
    assert_found(&findings, "sentinel", "unsafe", "grant +sentinel|myid");
    assert_found(&findings, "sentinel", "note", "does not say which others it knows");
    assert_found(&findings, "sentinel", "note", "grant +sentinel|sentinels");
    third.kill();
    let (_, findings) = look(&servers.url(), quorum);
    assert_found(&findings, "sentinel", "note", "it does not answer, and counts as silent");
    second.kill();
    let (_, findings) = look(&servers.url(), &[]);
    assert_found(&findings, "sentinels", "note", "1 of 3 agree, and a majority is 2: no quorum");
    let said = says(&servers.url(), "doctor --durable").gave(122);
    said.with(&["without --durable it says what each sentinel says"]);
}
