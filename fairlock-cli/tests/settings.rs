//! The settings of the client: by options, by variables, and what is said of a wrong one.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use fairlock::settings::Login;
use fairlock::{Client, RedisBackend};
use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::tls::Certificates;
use fairlock_tests::{Proxy, RedisServer, WorkDir};

use crate::support::{Host, Running, Said, fairlock, says, wait_for_queue, words};

/// A setting, a value that is refused, what is allowed, and a value that is read.
const SETTINGS: [(&str, &str, &str, &str); 19] = [
    ("redis", "", "an address in one of the forms", "redis://127.0.0.1:1"),
    (
        "postgres",
        "",
        "an address of PostgreSQL, which begins with postgres:",
        "postgres://a:canary@127.0.0.1:1/b",
    ),
    ("dir", "", "a directory of this machine", "/proc/fairlock"),
    ("listen-on", "", "an address of PostgreSQL, with --postgres", "postgres://a:canary@127.0.0.1:1/b"),
    ("discipline", "java", "hand-off or redisson", "redisson"),
    ("durable", "yes", "true (also --durable alone), or other times", "trust=20s"),
    ("password-file", "", "the path of a file", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")),
    ("sentinel-login", "", "user and password with a colon between", "watcher:canary"),
    ("sslrootcert", "", "a file's path, or system", "canary.pem"),
    ("sslcert", "", "a file's path", "canary.pem"),
    ("sslkey", "", "a file's path, with --sslcert", "canary.pem"),
    ("connections", "9", "a number from 1 to 8", "1"),
    ("connect-timeout", "5 s", "from 10ms to 1m, such as 500ms, 30s, 1h30m, or 5 for seconds", "500ms"),
    ("response-timeout", "1ms", "from 10ms to 1m", "0.5"),
    ("outage-limit", "never", "from 10ms to 36500d", "5"),
    ("thread-wait", "2d", "from 10ms to 1d, with --discipline redisson", "5m"),
    ("lease", "10ms", "from 1s to 36500d", "10"),
    ("place-ttl", "0", "from 500ms to 36500d", "20s"),
    ("label", "a\u{7}b", "at most 128 bytes without control characters", "nightly"),
];

fn variable(name: &str) -> String {
    format!("FAIRLOCK_{}", name.to_uppercase().replace('-', "_"))
}

/// Starts the command with these variables of FAIRLOCK set.
fn with(url: &str, arguments: &str, set: &[(&str, &str)]) -> Running {
    let mut command = fairlock(url, &words(arguments));
    command.envs(set.iter().map(|(name, value)| (variable(name), value)));
    Running::start(command)
}

/// Runs `true` with this option, or this variable, if the server is there at the first attempt.
fn run(option: Option<&str>, set: Option<(&str, &str)>) -> Said {
    let mut command = fairlock("redis://:canary@127.0.0.1:1", &["run", "-n", "x"]);
    command.args(option).args(["--", "true"]);
    command.envs(set.map(|(name, value)| (variable(name), value)));
    Running::start(command).output().without(&["canary"])
}

#[test]
fn a_wrong_value_is_named_with_its_source_and_what_is_allowed() {
    for (name, bad, allowed, _) in SETTINGS {
        // An empty variable says nothing.
        run(Some("--redis=redis://:canary@127.0.0.1:1"), Some((name, ""))).failed(122, &["127.0.0.1:1"]);
        let value = if bad.is_empty() { "empty".to_owned() } else { bad.escape_default().to_string() };
        let by_option = run(Some(&format!("--{name}={bad}")), None);
        let by_variable = (!bad.is_empty()).then(|| run(None, Some((name, bad))));
        let by_variable = by_variable.map(|said| (said, variable(name)));
        for (said, source) in [(by_option, format!("--{name}"))].into_iter().chain(by_variable) {
            let said = said.failed(125, &[]);
            let begins = format!("fairlock: {source} is {value}: it has to be {allowed}");
            assert!(said.err.starts_with(&begins) && said.err.lines().count() == 1, "{}", said.err);
        }
    }
}

/// One that is read gets as far as the server, which is not there.
#[test]
fn each_setting_is_read_from_its_option_and_its_variable() {
    for (name, _, _, good) in SETTINGS {
        let of_redisson = name == "thread-wait";
        let by_option =
            run(Some(&format!("--{name}={good}")), of_redisson.then_some(("discipline", "redisson")));
        let by_variable = run(of_redisson.then_some("--discipline=redisson"), Some((name, good)));
        for (said, is_variable) in [(by_option, false), (by_variable, true)] {
            let (code, why) = match (name, is_variable) {
                ("sentinel-login", _) => (125, "and the address names none (--sentinel-login)"),
                ("sslrootcert" | "sslcert", _) => {
                    (125, "it has no TLS: write rediss for redis, or leave out sslrootcert")
                }
                ("sslkey", _) => (125, "sslkey is set without sslcert"),
                ("listen-on", _) => (125, "is for PostgreSQL"),
                ("dir", true) => (125, "FAIRLOCK_REDIS and FAIRLOCK_DIR name two places"),
                ("dir", false) => (125, "/proc/fairlock"),
                ("postgres", true) => (125, "FAIRLOCK_REDIS and FAIRLOCK_POSTGRES name two places"),
                _ => (122, "127.0.0.1:1"),
            };
            said.failed(code, &[why]);
        }
        let help = says("", "run --help").out;
        assert!(help.contains(&format!("--{name}")) && help.contains(&variable(name)), "{name}: {help}");
    }
}

/// The program's minder shows the same certificate: it reads the variables.
#[test]
fn files_for_tls_are_options_and_variables() {
    let dir = WorkDir::new();
    let certificates = Certificates::make(dir.path(), None);
    let own = certificates.client("own", "worker", None);
    let server = RedisServer::builder().tls_with(&certificates).arg("tls-auth-clients", "yes").start();
    let files = [("sslrootcert", &certificates.ca), ("sslcert", &own.cert), ("sslkey", &own.key)];
    let files = files.map(|(name, path)| (name, path.display().to_string()));
    with(&server.url(), "run x -- true", &files.each_ref().map(|(name, file)| (*name, &**file)))
        .output()
        .gave(0);
    let options = files.map(|(name, file)| format!("--{name}={file}"));
    let run = |options: &[String]| {
        let mut command = fairlock(&server.url(), &["run", "x"]);
        command.args(options).args(["--", "true"]);
        Running::start(command).output()
    };
    run(&options).gave(0);
    run(&options[..1]).failed(125, &["asks for a client's certificate", "sslcert=FILE and sslkey=FILE"]);
    run(&[]).failed(125, &["not trusted", "sslrootcert=FILE"]);
}

#[test]
fn settings_of_redissons_queue_need_that_queue() {
    for (option, set, source) in [
        (Some("--thread-wait=5m"), None, "--thread-wait"),
        (None, Some(("thread-wait", "5m")), "FAIRLOCK_THREAD_WAIT"),
    ] {
        let expected = format!("fairlock: {source} is for --discipline redisson, or FAIRLOCK_DISCIPLINE\n");
        run(option, set).is(125, "", &expected);
    }
}

#[test]
fn variables_set_time_outs() {
    // It accepts connections, and sends nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let began = Instant::now();
    let words = ["no answer within 3s (--connect-timeout)"];
    with(&url, "show x", &[("connect-timeout", "3")]).output().failed(122, &words);
    assert!(began.elapsed() >= Duration::from_secs(3), "{:?}, and 1 s by default", began.elapsed());

    let host = Host::new();
    let proxy = Proxy::start(host.server.port());
    proxy.set(Traffic::Replies, Rule::Delay(Duration::from_millis(100)));
    says(&proxy.url(), "show x").gave(0);
    let words = ["no answer within 10ms; ", "(--response-timeout)"];
    with(&proxy.url(), "show x", &[("response-timeout", "10ms")]).output().failed(122, &words);
}

#[cfg(feature = "night")]
#[test]
fn the_sentinels_may_have_a_login_of_their_own() {
    let sentinels = fairlock_tests::Sentinels::builder().steady().sentinel_password("canary").start();
    let hosts: Vec<String> = sentinels.sentinels.iter().map(|s| format!("127.0.0.1:{}", s.port())).collect();
    let url = format!("redis+sentinel://{}/mymaster", hosts.join(","));
    says(&url, "run x -- true").gave(125);
    for login in ["canary", ":canary", "default:canary"] {
        with(&url, "run x -- true", &[("sentinel-login", login)]).output().gave(0);
    }
}

/// The file and the server's password change while a command waits and one holds, and connections are cut.
#[test]
fn a_password_file_is_read_again_and_its_faults_are_named() {
    let host = Host::of(RedisServer::builder().requirepass("canary-1").start());
    let (file, url) = (host.dir.file("password"), format!("redis://{}", host.server.address()));
    let path = file.display().to_string();
    let with_file = |arguments: &str| with(&url, arguments, &[("password-file", &path)]);
    for (text, fault) in [(None, "can't be read: No such file"), (Some("\n"), "is empty")] {
        text.iter().for_each(|text| std::fs::write(&file, text).unwrap());
        let parts = [&*path, fault, "(--password-file, FAIRLOCK_PASSWORD_FILE)"];
        with_file("run x -- true").output().failed(125, &parts);
    }
    std::fs::write(&file, "wrong-canary").unwrap();
    let refused = with_file("run x -- true").output().without(&["canary"]);
    refused.failed(125, &[&host.server.address(), "wrong user or password", "user `default`"]);
    std::fs::write(&file, "canary-1\n").unwrap();
    says(&url, &format!("show x --password-file {path}")).gave(0);
    let of_file = file.clone();
    let backend = RedisBackend::builder(&url).login(move || Login::from_file(&of_file)).connect().unwrap();
    let lock = Client::new(backend).unwrap().fair_lock("x").unwrap();
    let guard = lock.lock().unwrap();
    let mut waits = with_file("run x -- true");
    wait_for_queue(&lock, 1);
    host.server.query::<()>(&["CONFIG", "SET", "requirepass", "canary-2"]);
    std::fs::write(&file, "canary-2").unwrap();
    host.server.query::<i64>(&["CLIENT", "KILL", "TYPE", "normal"]);
    host.server.query::<i64>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    guard.unlock().unwrap();
    waits.output().without(&["canary"]).gave(0);
}
