//! A server for the tests of this process, in a temporary folder, with a database for each test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use fairlock_core::ClientId;

use crate::PostgresBackend;
use crate::net::address::Address;
use crate::net::open;

/// Ends with this process: the shell stops the server when its input ends.
const SHELL: &str = r#""$0/postgres" -D "$1/data" -k "$1" -p 5432 -c listen_addresses= -c synchronous_commit=off \
    -c max_connections=500 >"$1/log" 2>&1 & server=$!; cat >"$1/end"; kill -INT $server; wait $server; rm -rf "$1""#;

/// The URL of a new database with fairlock's tables.
pub(crate) fn new_database() -> String {
    let url = new_empty_database();
    PostgresBackend::migrate(&url).unwrap();
    url
}

/// The URL of a new database.
pub(crate) fn new_empty_database() -> String {
    static SERVER: OnceLock<(PathBuf, Child)> = OnceLock::new();
    let (dir, _) = SERVER.get_or_init(start);
    let url = |database: &str| format!("postgres://fairlock@/{database}?host={}", dir.display());
    let name = format!("t{}", ClientId::random().to_string().replace('-', ""));
    let until = || Instant::now() + Duration::from_secs(30);
    let mut con = open(&Address::parse(&url("postgres")).unwrap(), until()).unwrap();
    con.script(&format!("create database {name}"), until()).unwrap();
    url(&name)
}

fn start() -> (PathBuf, Child) {
    let dir = std::env::temp_dir().join(format!("fairlock-postgres-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let bin = programs().expect("PostgreSQL is not installed: run tests/run");
    // The server refuses to run as root.
    let is_root =
        String::from_utf8_lossy(&Command::new("id").arg("-u").output().unwrap().stdout).trim() == "0";
    let unprivileged = |program: &Path| {
        if !is_root {
            return Command::new(program);
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]).arg(program);
        command
    };
    if is_root {
        assert!(Command::new("chown").arg("postgres").arg(&dir).status().unwrap().success());
    }
    let mut init = unprivileged(&bin.join("initdb"));
    init.args(["-A", "trust", "-U", "fairlock", "--no-sync", "-E", "UTF8", "-D"]).arg(dir.join("data"));
    let made = init.current_dir(&dir).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    // The roles of the test of passwords.
    let logins =
        "local all scram scram-sha-256\nlocal all md5 md5\nlocal all clear password\nlocal all all trust\n";
    fs::write(dir.join("data/pg_hba.conf"), logins).unwrap();
    let mut server = unprivileged(Path::new("/bin/sh"));
    server.args(["-c", SHELL]).arg(&bin).arg(&dir).current_dir(&dir);
    let child = server.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let address = Address::parse(&format!("postgres://fairlock@/postgres?host={}", dir.display())).unwrap();
    let give_up_at = Instant::now() + Duration::from_secs(30);
    while let Err(failure) = open(&address, Instant::now() + Duration::from_secs(1)) {
        assert!(Instant::now() < give_up_at, "{failure:?}");
        thread::sleep(Duration::from_millis(20));
    }
    (dir, child)
}

/// Where the programs are: as tests/src/postgres_server.rs looks for them.
fn programs() -> Option<PathBuf> {
    if let Some(bin) = std::env::var_os("FAIRLOCK_POSTGRES_BIN") {
        return Some(bin.into());
    }
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let versions = versions.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let of = |version| PathBuf::from(format!("/usr/lib/postgresql/{version}/bin"));
    let newest = versions.filter(|version| of(*version).join("initdb").exists()).max();
    newest
        .map(of)
        .or_else(|| std::env::split_paths(&std::env::var_os("PATH")?).find(|dir| dir.join("initdb").exists()))
}
