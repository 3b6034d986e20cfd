//! A real PostgreSQL server of the test's own, on a free port and in its own dir, removed when the value is dropped.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fairlock::PostgresBackend;
use postgres::{Client, Config, NoTls};
use rustix::process::{Pid, Signal, kill_process};

use crate::eventually::look_until;
use crate::port::Port;
use crate::tls::Certificates;
use crate::workdir::WorkDir;

mod pgbouncer;
mod pgpool;
mod shared;
mod standby;

pub use pgbouncer::PgBouncer;
pub use pgpool::PgPool;

/// The longest time for a start, on a machine that is busy with other tests.
const START_BOUND: Duration = Duration::from_secs(60);
/// The longest time for a server to end.
const END_BOUND: Duration = Duration::from_secs(20);
/// The limit of connecting on the side.
const CALL_BOUND: Duration = Duration::from_secs(5);
/// The user of the tests, who may do everything, and the first database.
const USER: &str = "fairlock";

/// The settings of a [`PostgresServer`].
#[derive(Clone, Debug, Default)]
pub struct PostgresServerBuilder {
    settings: Vec<(String, String)>,
    largest_file: Option<u32>,
    tls: Option<Certificates>,
}

impl PostgresServerBuilder {
    /// A line of postgresql.conf: `set("synchronous_commit", "off")`.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// No file of the server's can be larger, in MB: at least 17, for a segment of its log has 16. The server takes it as it takes a
    /// full disk.
    #[must_use]
    pub fn largest_file(mut self, megabytes: u32) -> Self {
        self.largest_file = Some(megabytes);
        self
    }

    /// It takes TLS, too, with this certificate.
    #[must_use]
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.tls = Some(certificates.clone());
        self.set("ssl", "on")
    }

    /// Starts the server and returns when it answers. Its first database has fairlock's tables.
    pub fn start(self) -> PostgresServer {
        self.start_in(WorkDir::new())
    }

    fn start_in(self, dir: WorkDir) -> PostgresServer {
        let server = self.prepare_in(dir, |server| {
            let mut init = server.command("initdb");
            init.args(["-A", "trust", "-U", USER, "--no-sync", "-E", "UTF8", "--locale=C", "-D"]);
            run(init.arg(server.data()));
            let logins = "local all all trust\nhost all all all trust\nhost replication all all trust\n";
            fs::write(server.data().join("pg_hba.conf"), logins)
                .expect("a file can be written in our own dir");
            let certificates = server.set_up.tls.iter().flat_map(|tls| [&tls.cert, &tls.key]);
            for (from, name) in certificates.zip(["server.crt", "server.key"]) {
                let to = server.data().join(name);
                fs::copy(from, &to).expect("a file can be written in our own dir");
                if is_root() {
                    run(Command::new("chown").arg("postgres").arg(to));
                }
            }
        });
        server.con_to("postgres").batch_execute(&format!("create database {USER}")).expect("a new server");
        PostgresBackend::migrate(&server.url()).expect("a new database");
        server
    }

    fn prepare(self, make_data: impl FnOnce(&PostgresServer)) -> PostgresServer {
        self.prepare_in(WorkDir::new(), make_data)
    }

    fn prepare_in(self, dir: WorkDir, make_data: impl FnOnce(&PostgresServer)) -> PostgresServer {
        if is_root() {
            run(Command::new("chown").arg("postgres").arg(dir.path()));
        }
        let port = Port::reserve();
        let server =
            PostgresServer { set_up: self, dir, port, child: Mutex::new(None), databases: AtomicU32::new(1) };
        make_data(&server);
        server.launch();
        server
    }
}

/// A running server. It is ended and its dir removed on drop, or when the test process ends in any way.
///
/// Every method takes `&self`, so a test may stop or restart it while its threads use it.
#[derive(Debug)]
pub struct PostgresServer {
    set_up: PostgresServerBuilder,
    dir: WorkDir,
    port: Port,
    child: Mutex<Option<Child>>,
    databases: AtomicU32,
}

impl PostgresServer {
    /// Starts a server whose commits do not wait for the disk.
    pub fn start() -> PostgresServer {
        PostgresServer::builder().start()
    }

    /// Starts with other settings.
    pub fn builder() -> PostgresServerBuilder {
        PostgresServerBuilder::default()
    }

    /// A standby of this server, which streams from it under this application name. It is ready when it has all that was
    /// written before.
    pub fn standby(&self, name: &str) -> PostgresServer {
        self.set_up.clone().prepare(|standby| {
            let from = format!("host=127.0.0.1 port={} user={USER} application_name={name}", self.port());
            let mut copy = standby.command("pg_basebackup");
            run(copy
                .args(["-R", "-X", "stream", "--checkpoint=fast", "--no-sync", "-d", &from, "-D"])
                .arg(standby.data()));
        })
    }

    /// Makes a standby the primary.
    pub fn promote(&self) {
        self.con_to("postgres").execute("select pg_promote()", &[]).expect("a standby can be promoted");
    }

    /// The URL of the first database, over TCP.
    pub fn url(&self) -> String {
        self.url_of(USER)
    }

    /// The URL of a database.
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.port())
    }

    /// The URL of the first database over the Unix socket.
    pub fn unix_url(&self) -> String {
        format!("postgres://{USER}@/{USER}?host={}&port={}", self.dir.path().display(), self.port())
    }

    /// The URL of a new database with fairlock's tables.
    pub fn new_database(&self) -> String {
        let url = self.new_empty_database();
        PostgresBackend::migrate(&url).expect("a new database");
        url
    }

    /// The URL of a new database.
    pub fn new_empty_database(&self) -> String {
        let name = format!("t{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.con_to("postgres").batch_execute(&format!("create database {name}")).expect("a running server");
        self.url_of(&name)
    }

    /// The TCP port. It never changes.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Host and port, as error messages name the server.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// The server's dir: `data`, its socket, its log.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The server's log so far, over all restarts.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// A connection on the side to the first database, by the Unix socket. Panics if the server is gone.
    pub fn con(&self) -> Client {
        self.con_to(USER)
    }

    /// The same to another database.
    pub fn con_to(&self, database: &str) -> Client {
        let con = self.try_con(database);
        con.unwrap_or_else(|e| panic!("side connection to postgres: {e}\n{}", self.log()))
    }

    /// The same to a server that may be stopped or gone.
    pub fn try_con(&self, database: &str) -> Result<Client, postgres::Error> {
        Config::new()
            .host_path(self.dir.path())
            .port(self.port())
            .user(USER)
            .dbname(database)
            .application_name("fairlock-test-side")
            .connect_timeout(CALL_BOUND)
            .connect(NoTls)
    }

    /// The process ids of the sessions of clients, without those of the side.
    pub fn sessions(&self) -> Vec<u32> {
        let sql = "select pid from pg_stat_activity where backend_type = 'client backend' and application_name <> 'fairlock-test-side'";
        let rows = self.con_to("postgres").query(sql, &[]).expect("a running server");
        rows.iter().map(|row| u32::try_from(row.get::<_, i32>(0)).expect("a process id")).collect()
    }

    /// The process id of the server's first process. Panics if it was ended.
    pub fn pid(&self) -> u32 {
        self.child().as_ref().expect("the server was ended").id()
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        self.child().is_some()
    }

    /// Stops all processes (SIGSTOP). Connections stay, and nothing is answered.
    pub fn stop(&self) {
        self.signal_all(Signal::STOP);
    }

    /// Continues them after [`stop`](PostgresServer::stop).
    pub fn cont(&self) {
        self.signal_all(Signal::CONT);
    }

    /// Ends it at once, as a crash does (an immediate shutdown): what was committed asynchronously may be lost. The port
    /// stays reserved. Harmless if it has ended already.
    pub fn kill(&self) {
        if let Some(mut child) = self.child().take() {
            self.dir.forget(&child);
            send(child.id(), Signal::QUIT);
            let ended = look_until(END_BOUND, || child.try_wait().expect("our own child can be asked for"));
            if ended.is_none() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }

    /// Kills the process of one session (SIGKILL). The server has seen that when this returns: it ends all others and starts again
    /// by itself, and lets nobody in until [`until_up`](PostgresServer::until_up).
    pub fn kill_session(&self, pid: u32) {
        send(pid, Signal::KILL);
        let seen = format!("(PID {pid}) was terminated by signal 9");
        let seen = look_until(START_BOUND, || self.log().contains(&seen).then_some(()));
        assert!(seen.is_some(), "the server does not see that its process {pid} was killed:\n{}", self.log());
    }

    /// Stops the process of one session (SIGSTOP). Its connection stays, and so do its locks.
    pub fn stop_session(&self, pid: u32) {
        send(pid, Signal::STOP);
    }

    /// Continues it after [`stop_session`](PostgresServer::stop_session).
    pub fn cont_session(&self, pid: u32) {
        send(pid, Signal::CONT);
    }

    /// Waits until it lets somebody in, after a start.
    pub fn until_up(&self) {
        let up = look_until(START_BOUND, || {
            let ended = self.child().as_mut().and_then(|child| child.try_wait().ok().flatten());
            assert!(ended.is_none(), "postgres ended at once:\n{}", self.log());
            self.try_con("postgres").ok()
        });
        assert!(up.is_some(), "postgres did not answer for {START_BOUND:?}:\n{}", self.log());
    }

    /// Starts it again on the same port in the same dir, after [`kill`](PostgresServer::kill) if it runs.
    pub fn restart(&self) {
        self.kill();
        self.launch();
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn data(&self) -> PathBuf {
        self.dir.file("data")
    }

    fn log_file(&self) -> PathBuf {
        self.dir.file("log")
    }

    /// A program of PostgreSQL's, as a user that it accepts: it refuses root.
    fn command(&self, program: &str) -> Command {
        self.command_of(&programs().join(program))
    }

    fn command_of(&self, program: &Path) -> Command {
        // In blocks of 512 bytes, as POSIX has it.
        let limit = self.set_up.largest_file.map_or("unlimited".to_owned(), |size| (size * 2048).to_string());
        let mut command = Command::new("sh");
        command.args(["-c", r#"ulimit -f "$0" && exec "$@""#, &limit]);
        if is_root() {
            command.args(["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]);
        }
        command.arg(program);
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    fn launch(&self) {
        let log =
            File::options().create(true).append(true).open(self.log_file()).expect("the log can be opened");
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data()).arg("-k").arg(self.dir.path());
        command.args(["-p", &self.port().to_string()]);
        command.args(["-c", "listen_addresses=127.0.0.1", "-c", "max_connections=300", "-c", "fsync=off"]);
        for (name, value) in &self.set_up.settings {
            command.args(["-c", &format!("{name}={value}")]);
        }
        // A group for all its processes, so that all can be stopped.
        command.process_group(0).stdout(log.try_clone().expect("a file can be shared")).stderr(log);
        let child = command.spawn().unwrap_or_else(|e| panic!("postgres can't be started: {e}"));
        self.dir.note_with(&child, "QUIT");
        *self.child() = Some(child);
        self.until_up();
    }

    /// Sessions are groups for themselves, so each process is found by its parent.
    fn signal_all(&self, signal: Signal) {
        let first = self.pid();
        send(first, signal);
        let said = Command::new("ps").args(["-o", "pid=", "--ppid", &first.to_string()]).output();
        let children = String::from_utf8_lossy(&said.expect("ps can be started").stdout).into_owned();
        children.split_whitespace().filter_map(|pid| pid.parse().ok()).for_each(|pid| send(pid, signal));
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if self.is_running() {
            self.cont();
        }
        self.kill();
    }
}

/// A process that has ended meanwhile needs no signal.
fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

#[track_caller]
fn run(command: &mut Command) {
    let done = command.output().unwrap_or_else(|e| panic!("{command:?} can't be started: {e}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Where PostgreSQL's programs are: `FAIRLOCK_POSTGRES_BIN`, else those of the newest version that Debian's packages have brought,
/// else those on the PATH.
fn programs() -> PathBuf {
    if let Some(bin) = std::env::var_os("FAIRLOCK_POSTGRES_BIN") {
        return bin.into();
    }
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let versions = versions.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let of = |version| PathBuf::from(format!("/usr/lib/postgresql/{version}/bin"));
    // A version without a server may be there, too.
    let newest = versions.filter(|version| of(*version).join("initdb").exists()).max();
    let on_path =
        || std::env::split_paths(&std::env::var_os("PATH")?).find(|dir| dir.join("initdb").exists());
    newest.map(of).or_else(on_path).expect("PostgreSQL is not installed: run tests/run")
}
