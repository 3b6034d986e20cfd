//! A server for the tests of this process, in a temporary folder, with a database for each test; and PgBouncer in front of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlock_core::ClientId;

use crate::backend::PostgresBackend;
use crate::net::address::Address;
use crate::net::open;

/// Ends with this process: the shell stops the server, by this signal, when its input ends.
const SHELL: &str = r#"dir=$0 signal=$1; shift; "$@" >"$dir/log" 2>&1 & server=$!; echo $server >"$dir/pid"; cat >"$dir/end"
    kill -$signal $server; wait $server; rm -rf "$dir""#;

/// The URL of a new database with fairlock's tables.
pub(crate) fn new_database() -> String {
    let url = new_empty_database();
    PostgresBackend::migrate(&url).unwrap();
    url
}

/// The URL of a new database.
pub(crate) fn new_empty_database() -> String {
    let server = server();
    let name = format!("t{}", ClientId::random().to_string().replace('-', ""));
    let until = || Instant::now() + Duration::from_secs(30);
    let mut con = open(&Address::parse(&server.url("postgres")).unwrap(), until()).unwrap();
    con.script(&format!("create database {name}"), until()).unwrap();
    server.url(&name)
}

/// The same database through a PgBouncer in transaction mode that all tests share.
pub(crate) fn pooled(url: &str) -> String {
    static POOLER: OnceLock<Pooler> = OnceLock::new();
    let pooler = POOLER.get_or_init(|| Pooler::start("*", ""));
    url.replace(&server().dir.display().to_string(), &pooler.dir.display().to_string())
}

/// The server that all tests share.
fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start("", &[]))
}

pub(crate) struct Server {
    dir: PathBuf,
    _child: Child,
}

impl Server {
    /// Starts one with these settings.
    pub(crate) fn start(name: &str, settings: &[&str]) -> Server {
        let dir = new_dir(name);
        let bin = programs().expect("PostgreSQL is not installed: run tests/run");
        let mut init = unprivileged(&bin.join("initdb"));
        init.args(["-A", "trust", "-U", "fairlock", "--no-sync", "-E", "UTF8", "-D"]).arg(dir.join("data"));
        let made = init.current_dir(&dir).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        // The roles of the test of passwords.
        let logins = "local all scram scram-sha-256\nlocal all md5 md5\nlocal all clear password\nlocal all all trust\n";
        fs::write(dir.join("data/pg_hba.conf"), logins).unwrap();
        let mut command = Command::new(bin.join("postgres"));
        command.arg("-D").arg(dir.join("data")).arg("-k").arg(&dir).args(["-p", "5432"]);
        for setting in ["listen_addresses=", "fsync=off", "max_connections=700"].iter().chain(settings) {
            command.args(["-c", setting]);
        }
        let server = Server { _child: launch(&dir, "INT", &command), dir };
        until_it_answers(&server.url("postgres"));
        server
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://fairlock@/{database}?host={}", self.dir.display())
    }
}

/// A PgBouncer in transaction mode with few sessions.
pub(crate) struct Pooler {
    dir: PathBuf,
    _child: Child,
}

impl Pooler {
    /// Starts one that gives the database of the server the name `alias`.
    pub(crate) fn start(alias: &str, database: &str) -> Pooler {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let dir = new_dir(&format!("-pooler-{}", STARTED.fetch_add(1, Ordering::Relaxed)));
        configure(&dir, alias, database);
        let debians = Path::new("/usr/sbin/pgbouncer"); // not on the PATH of all users
        let mut command = Command::new(if debians.exists() { debians } else { Path::new("pgbouncer") });
        command.arg(dir.join("ini"));
        let pooler = Pooler { _child: launch(&dir, "TERM", &command), dir };
        let any = pooler.url(if alias == "*" { "postgres" } else { alias });
        until_it_answers(&any);
        pooler
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://fairlock@/{database}?host={}", self.dir.display())
    }

    /// From now on `alias` is this database. Sessions with the former one end with their transactions.
    pub(crate) fn turn_to(&self, alias: &str, database: &str) {
        configure(&self.dir, alias, database);
        let pid = fs::read_to_string(self.dir.join("pid")).unwrap();
        assert!(Command::new("kill").args(["-HUP", pid.trim()]).status().unwrap().success());
    }
}

fn configure(dir: &Path, alias: &str, database: &str) {
    let database = if database.is_empty() { String::new() } else { format!(" dbname={database}") };
    let server = server().dir.display();
    let dir_text = dir.display();
    let ini = format!(
        "[databases]\n{alias} = host={server} port=5432 user=fairlock{database}\n[pgbouncer]\nlisten_port = 5432\n\
         unix_socket_dir = {dir_text}\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 4\nmax_client_conn = 2000\n\
         server_idle_timeout = 5\n"
    );
    fs::write(dir.join("ini"), ini).unwrap();
}

fn new_dir(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("fairlock-postgres-{}{name}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    if is_root() {
        assert!(Command::new("chown").arg("postgres").arg(&dir).status().unwrap().success());
    }
    dir
}

fn launch(dir: &Path, signal: &str, command: &Command) -> Child {
    let mut shell = unprivileged(Path::new("/bin/sh"));
    shell.arg("-c").arg(SHELL).arg(dir).arg(signal).arg(command.get_program()).args(command.get_args());
    shell.current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn until_it_answers(url: &str) {
    let give_up_at = Instant::now() + Duration::from_secs(30);
    while let Err(failure) = open(&Address::parse(url).unwrap(), Instant::now() + Duration::from_secs(1)) {
        assert!(Instant::now() < give_up_at, "{failure:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The servers refuse to run as root.
fn unprivileged(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]).arg(program);
    command
}

fn is_root() -> bool {
    String::from_utf8_lossy(&Command::new("id").arg("-u").output().unwrap().stdout).trim() == "0"
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
