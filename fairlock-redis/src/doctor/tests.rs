//! The table of findings, and what a server that is no good gets as advice.

use std::collections::BTreeSet;

/// A word that nobody sets would be a row that is never said, or a gap in a text.
#[test]
fn each_word_of_the_table_is_a_fact_or_a_topic() {
    let sources = [include_str!("mod.rs"), include_str!("sentinels.rs")].concat();
    let of_info =
        ["role", "redis_version", "maxmemory_policy", "rdb_last_bgsave_status", "aof_enabled", "-", "else"];
    let rows = include_str!("findings.md").lines().filter_map(|line| line.strip_prefix("| "));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.splitn(4, " | ").collect()).collect();
    let rows: Vec<_> =
        rows.iter().filter(|row| row.len() == 4 && row[1] != "questions" && row[1] != "---").collect();
    let topics: BTreeSet<&str> = rows.iter().map(|row| row[0]).collect();
    assert!(rows.len() > 70, "{} rows", rows.len());
    let is_set = |word: &str| of_info.contains(&word) || sources.contains(&format!("\"{word}\""));
    for row in &rows {
        let asked =
            row[1].split(' ').map(|asked| asked.trim_start_matches('!').split(['!', '=']).next().unwrap());
        let verdict = row[2].split_once(" if ").map(|(_, asked)| asked);
        let shown = row[3].split(['{', '}']).skip(1).step_by(2);
        let unknown = asked.chain(verdict).filter(|word| !is_set(word)).collect::<Vec<_>>();
        let gaps = shown.clone().filter(|word| !is_set(word) && !topics.contains(word)).collect::<Vec<_>>();
        assert!(unknown.is_empty() && gaps.is_empty(), "{row:?}: {unknown:?} {gaps:?}");
        let is_nested = rows.iter().any(|other| other[3].contains(&format!("{{{}}}", row[0])));
        assert!(is_nested || is_set(row[0]), "nobody says {}", row[0]);
    }
}

#[cfg(feature = "servers")]
mod servers {
    use super::super::*;
    use crate::net::test_server::TestServer;

    fn single(server: &TestServer) -> Servers {
        server.connect("")
    }

    fn said(server: &TestServer) -> Vec<String> {
        let servers = single(server);
        let described = servers.each(&cmd("INFO"));
        let [(_, Ok(info))] = &described[..] else { panic!("{described:?}") };
        advice(text(info).expect("a text"), &servers).iter().map(|text| text.to_string()).collect()
    }

    #[test]
    fn what_should_be_changed_is_said() {
        let server = TestServer::start();
        assert_eq!(said(&server), [""; 0]);
        server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
        assert!(said(&server)[0].contains("set it to noeviction"), "{:?}", said(&server));
        server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
        server.command(&["REPLICAOF", "127.0.0.1", "1"]);
        assert!(said(&server)[0].contains("connect to its master"), "{:?}", said(&server));
        let node = TestServer::start_with(&["--cluster-enabled", "yes"]);
        assert!(said(&node)[0].contains("redis+cluster://"), "{:?}", said(&node));
    }

    #[test]
    fn only_old_versions_get_advice() {
        let server = TestServer::start();
        let servers = single(&server);
        let of = |version: &str| advice(&format!("# Server\r\nredis_version:{version}\r\n"), &servers).len();
        for (version, count) in
            [("6.0.16", 1), ("5.0.3", 1), ("6.2.0", 0), ("7.0", 0), ("10.0.1", 0), ("x", 0), ("", 0)]
        {
            assert_eq!(of(version), count, "{version}");
        }
    }

    #[test]
    fn a_user_without_the_right_to_info_is_not_refused() {
        let server = TestServer::start();
        server.command(&["ACL", "SETUSER", "blind", "on", ">pw", "~*", "&*", "+@all", "-info"]);
        check(&server.connect("blind:pw@")).expect("no sentinel");
    }
}
