//! The commands on PostgreSQL, and what only one of the two stores understands.

use fairlock_tests::{PostgresServer, RedisServer, assert_no_residue};
use serde_json::Value;

use crate::support::{Running, fairlock, says, words};

const NOWHERE: &str = "redis://127.0.0.1:1";

#[test]
fn migrate_makes_the_tables_or_prints_how() {
    let server = PostgresServer::start();
    let url = server.new_empty_database();
    let advice = format!(
        "fairlock: invalid configuration: database `t1` on {} has no fairlock tables: run `fairlock migrate --postgres URL`, or the backend's `migrate`\n",
        server.address()
    );
    says(&url, "ls").is(125, "", &advice);
    for _ in ["the first", "a repeat"] {
        assert_eq!(says(&url, "migrate").gave(0).err, "");
    }
    assert_eq!(says(&url, "ls --json").json(), Value::Array(Vec::new()));

    let printed = says(NOWHERE, "migrate --print").gave(0);
    let other = server.new_empty_database();
    server.con_to("t2").batch_execute(&printed.out).unwrap();
    assert_eq!(says(&other, "ls --json").json(), Value::Array(Vec::new()));
    let errors = "fairlock: migrate needs a database: --postgres, or FAIRLOCK_POSTGRES\n";
    says(NOWHERE, "migrate").is(125, "", errors);
}

/// They run each migration in a transaction, in which they note that they did.
#[test]
fn migrate_prints_a_migration_for_a_tools_transaction() {
    let migration = &says(NOWHERE, "migrate --print").gave(0).out;
    let server = PostgresServer::start();
    let (url, mut con) = (server.new_empty_database(), server.con_to("t1"));
    con.batch_execute("create table history (version bigint)").unwrap();
    let mut run = |end: &str| {
        for sql in ["begin", migration, "insert into history values (1)", end] {
            con.batch_execute(sql).unwrap();
        }
        con.query_one("select count(*) from history", &[]).unwrap().get::<_, i64>(0)
    };
    assert_eq!(run("rollback"), 0);
    says(&url, "ls").failed(125, &["no fairlock tables"]);
    assert_eq!(run("commit"), 1);
    assert_eq!(says(&url, "ls --json").json(), Value::Array(Vec::new()));
    says(&url, "migrate").is(0, "", "");
}

const REDIS: &str = "redis://:canary@127.0.0.1:1";
const POSTGRES: &str = "postgres://a:canary@127.0.0.1:2/b";

/// Where programs of both stores run, a server that is chosen needs no settings of the other server removed: they stay for the
/// other programs.
#[test]
fn a_chosen_server_needs_no_settings_removed() {
    let (redis, postgres) = (RedisServer::start(), PostgresServer::start());
    let with_both = |durable: &str, arguments: &str| {
        let mut command = fairlock(&redis.url(), &words(arguments));
        command.envs([("FAIRLOCK_POSTGRES", &*postgres.url()), ("FAIRLOCK_LISTEN_ON", &postgres.url())]);
        command.envs([("FAIRLOCK_DURABLE", durable), ("FAIRLOCK_DISCIPLINE", "redisson")]);
        Running::start(command).output()
    };
    with_both("", "run x -- true").failed(125, &["name two places: choose by --redis or --postgres"]);
    for arguments in ["migrate", "migrate --print", "man", "completions bash"] {
        with_both("", arguments).gave(0);
    }
    let (by_redis, by_postgres) = (
        format!("run x --redis {} -- true", redis.url()),
        format!("run x --postgres {} -- true", postgres.url()),
    );
    with_both("", &by_redis).is(0, "", "");
    with_both("nonsense", &by_postgres).is(0, "", "");
    with_both("nonsense", &by_redis).failed(125, &["FAIRLOCK_DURABLE is nonsense"]);
    assert_no_residue(&redis, &["x"]);
}

/// Two servers, and settings of the other store, are refused in words. A row has what each variable is set to, the arguments, the
/// exit code, and what is said.
#[test]
fn two_servers_and_foreign_settings_are_refused_in_words() {
    let (redis, postgres) = (Some(REDIS), Some(POSTGRES));
    let is_for_redis = |option: &str| format!("{option} is for Redis, and the server is PostgreSQL\n");
    for (redis, postgres, arguments, code, errors) in [
        (
            None,
            None,
            &*format!("ls --redis {REDIS} --postgres {POSTGRES}"),
            125,
            "--redis and --postgres name two places: give one of them\n",
        ),
        (
            redis,
            postgres,
            "ls",
            125,
            "FAIRLOCK_REDIS and FAIRLOCK_POSTGRES name two places: choose by --redis or --postgres, or unset one, as \
             `env -u FAIRLOCK_POSTGRES fairlock …` does\n",
        ),
        (redis, postgres, "migrate", 122, "127.0.0.1:2"),
        (redis, Some(""), "ls", 122, "127.0.0.1:1"),
        (Some(""), postgres, "ls", 122, "127.0.0.1:2"),
        (redis, None, "migrate", 125, "migrate needs a database: --postgres, or FAIRLOCK_POSTGRES\n"),
        // An option goes before a variable.
        (None, postgres, &format!("ls --redis {REDIS}"), 122, "127.0.0.1:1"),
        (None, postgres, &format!("ls --redis {REDIS}"), 122, "FAIRLOCK_REDIS)\n"),
        (redis, None, &format!("ls --postgres {POSTGRES}"), 122, "127.0.0.1:2"),
        (redis, None, &format!("ls --postgres {POSTGRES}"), 122, "FAIRLOCK_POSTGRES)\n"),
        (None, postgres, "ls --durable", 125, &is_for_redis("--durable")),
        (None, postgres, "ls --discipline=redisson", 125, &is_for_redis("--discipline")),
        (None, postgres, "ls --sentinel-login=a:canary", 125, &is_for_redis("--sentinel-login")),
        (None, postgres, "ls --thread-wait=5m", 125, &is_for_redis("--thread-wait")),
        (
            redis,
            None,
            &format!("ls --listen-on {POSTGRES}"),
            125,
            "--listen-on is for PostgreSQL: give --postgres, or FAIRLOCK_POSTGRES\n",
        ),
        (None, postgres, "doctor --begin-life", 125, "--begin-life is for Redis\n"),
        (None, postgres, "doctor x", 125, "NAME is for Redis"),
        (None, Some("postgres://a:canary@h/b?color=red"), "ls", 125, "an unknown option"),
    ] {
        let mut command = fairlock(NOWHERE, &words(arguments));
        command.env_remove("FAIRLOCK_REDIS");
        command.envs(redis.map(|url| ("FAIRLOCK_REDIS", url)));
        command.envs(postgres.map(|url| ("FAIRLOCK_POSTGRES", url)));
        let said = Running::start(command).output().failed(code, &[errors]).without(&["canary"]);
        assert!(
            code == 122 || !errors.ends_with('\n') || said.err == format!("fairlock: {errors}"),
            "{said:?}"
        );
    }
}
