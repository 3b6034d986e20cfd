//! A real redis-server of the test's own, on a free port and in its own dir, removed when the value is dropped.

use crate::eventually::look_until;
use crate::log_lines::look_for_passwords;
use crate::percent::encode;
use crate::port::Port;
use crate::secrets::{assert_none_was_logged, assert_noticed};
use crate::signals;
use crate::tls::{Certificates, Flaw};
use crate::wall_clock::{clock_library, set_wall_clock};
use crate::workdir::WorkDir;
use redis::{
    Client, Cmd, Connection, ConnectionAddr, FromRedisValue, IntoConnectionInfo, RedisConnectionInfo,
    RedisResult,
};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest time for a start, on a machine that is busy with other tests.
const START_BOUND: Duration = Duration::from_secs(60);
/// The limit of every call on the side connection. A server that is stopped or gone is an error after that.
const CALL_BOUND: Duration = Duration::from_secs(5);
/// The side connection's own user, unaffected by the password, ACL and TLS under test.
const SIDE_USER: &str = "fairlock-test-side";
const SIDE_PASSWORD: &str = "side";

/// How the clients under test reach the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Transport {
    #[default]
    Tcp,
    Tls,
}

/// How the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Role {
    #[default]
    Server,
    Sentinel,
}

/// The settings of a [`RedisServer`].
#[derive(Clone, Debug, Default)]
pub struct RedisServerBuilder {
    transport: Transport,
    flaw: Option<Flaw>,
    password: Option<String>,
    lines: Vec<String>,
    role: Role,
    has_moved_clock: bool,
}

impl RedisServerBuilder {
    /// Clients must give this password; `url()` contains it.
    pub fn requirepass(mut self, password: &str) -> Self {
        assert_noticed(password);
        look_for_passwords();
        self.password = Some(password.to_owned());
        self.arg("requirepass", &quoted(password))
    }

    /// An ACL rule as in redis.conf: `user alice on >canary ~* &* +@all`.
    pub fn acl(mut self, rule: &str) -> Self {
        rule.split(' ').filter_map(|word| word.strip_prefix('>')).for_each(assert_noticed);
        self.lines.push(rule.to_owned());
        self
    }

    /// The port speaks TLS only, with a certificate for 127.0.0.1 and localhost by its own authority.
    pub fn tls(mut self) -> Self {
        self.transport = Transport::Tls;
        self
    }

    /// The same, with a flaw in the certificate.
    pub fn flawed_tls(mut self, flaw: Flaw) -> Self {
        self.flaw = Some(flaw);
        self.tls()
    }

    /// The same, with certificates shared with other servers, which speak TLS among each other.
    pub fn tls_with(self, certificates: &Certificates) -> Self {
        let path = |path: &Path| quoted(&path.to_string_lossy());
        self.tls()
            .arg("tls-cert-file", &path(&certificates.cert))
            .arg("tls-key-file", &path(&certificates.key))
            .arg("tls-ca-cert-file", &path(&certificates.ca))
            .arg("tls-replication", "yes")
            .arg("tls-cluster", "yes")
    }

    /// A sentinel, which watches servers and keeps no data.
    pub fn sentinel(mut self) -> Self {
        self.role = Role::Sentinel;
        self
    }

    /// The server's wall clock stands still, and [`RedisServer::pass`] moves the clock. Linux only.
    pub fn moved_clock(mut self) -> Self {
        self.has_moved_clock = true;
        self
    }

    /// A line of redis.conf: `arg("maxmemory", "2mb")`. A value may have several words; one with spaces needs quotes.
    pub fn arg(mut self, key: &str, value: &str) -> Self {
        self.lines.push(format!("{key} {value}"));
        self
    }

    /// Starts the server and returns when it answers.
    pub fn start(self) -> RedisServer {
        let dir = WorkDir::new();
        let certificates =
            (self.transport == Transport::Tls).then(|| Certificates::make(dir.path(), self.flaw));
        let mut server = RedisServer {
            set_up: self,
            dir,
            port: Port::reserve(),
            certificates,
            child: Mutex::default(),
            passed: Mutex::default(),
        };
        server.pass(Duration::ZERO);
        // A foreign program may take the port between the reservation and the server's bind. Then another port is
        // used.
        while server.launch() == Launch::PortTaken {
            server.port = Port::reserve();
        }
        server
    }
}

/// The outcome of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Launch {
    Up,
    PortTaken,
}

/// A running redis-server. It is killed and its dir removed on drop, or when the test process ends in any way.
///
/// Every method takes `&self`, so a test may stop or restart it while its threads use it. Queries use a side
/// connection, see [`con`](RedisServer::con).
#[derive(Debug)]
pub struct RedisServer {
    set_up: RedisServerBuilder,
    dir: WorkDir,
    port: Port,
    certificates: Option<Certificates>,
    child: Mutex<Option<Child>>,
    /// The time that the test has let pass.
    passed: Mutex<Duration>,
}

impl RedisServer {
    /// Starts a server without password, persistence or TLS.
    pub fn start() -> RedisServer {
        RedisServer::builder().start()
    }

    /// Starts with other settings.
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::default()
    }

    /// The URL for the clients under test, with the password if there is one: `redis://` or `rediss://`.
    pub fn url(&self) -> String {
        self.url_with("", self.set_up.password.as_deref().unwrap_or_default())
    }

    /// The URL for another user.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        look_for_passwords();
        self.url_with(user, password)
    }

    fn url_with(&self, user: &str, password: &str) -> String {
        let (user, password) = (encode(user), encode(password).replace('/', "%2F"));
        let scheme = match self.set_up.transport {
            Transport::Tcp => "redis",
            Transport::Tls => "rediss",
        };
        let login = if user.is_empty() && password.is_empty() {
            String::new()
        } else {
            format!("{user}:{password}@")
        };
        format!("{scheme}://{login}127.0.0.1:{}/", self.port())
    }

    /// The TCP port, with TLS if the server was built with it. It never changes.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Host and port, as error messages name the server.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// The certificate (PEM) that a client must trust. Panics without [`tls`](RedisServerBuilder::tls).
    pub fn ca_file(&self) -> &Path {
        &self.certificates.as_ref().expect("made with .tls()").ca
    }

    /// The server's dir: append-only files, certificates, its log.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The server's log so far, over all restarts.
    pub fn log(&self) -> String {
        fs::read(self.log_file())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// A new side connection with a limit of 5 seconds a call. It uses the unix socket and a user with all rights, so
    /// it works whatever the password, ACL, TLS or the TCP port. Panics if the server is gone.
    pub fn con(&self) -> Connection {
        self.con_to_db(0)
    }

    /// The same to another database.
    pub fn con_to_db(&self, db: i64) -> Connection {
        self.try_con(db).unwrap_or_else(|e| panic!("side connection to redis-server: {e}\n{}", self.log()))
    }

    fn try_con(&self, db: i64) -> RedisResult<Connection> {
        let user = RedisConnectionInfo::default()
            .set_username(SIDE_USER)
            .set_password(SIDE_PASSWORD)
            .set_skip_set_lib_name()
            .set_db(db);
        let info = ConnectionAddr::Unix(self.socket()).into_connection_info()?.set_redis_settings(user);
        let con = Client::open(info)?.get_connection_with_timeout(CALL_BOUND)?;
        con.set_read_timeout(Some(CALL_BOUND))?;
        con.set_write_timeout(Some(CALL_BOUND))?;
        Ok(con)
    }

    /// Queries the server: `server.query::<i64>(&["PTTL", "orders"])`. Panics on an error.
    #[track_caller]
    pub fn query<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_query(words).unwrap_or_else(|e| panic!("{}: {e}", words.join(" ")))
    }

    /// Queries a server that may refuse, be stopped or be gone.
    pub fn try_query<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let mut command = Cmd::new();
        for word in words {
            command.arg(word);
        }
        command.query(&mut self.try_con(0)?)
    }

    /// The server's clock, in milliseconds since 1970.
    #[track_caller]
    pub fn time_ms(&self) -> i64 {
        let (seconds, micros): (i64, i64) = self.query(&["TIME"]);
        seconds * 1000 + micros / 1000
    }

    /// The server's connections, as lines of CLIENT LIST, without the side connections.
    pub fn clients(&self) -> Vec<String> {
        let all: String = self.query(&["CLIENT", "LIST"]);
        let side = format!(" user={SIDE_USER} ");
        all.lines().filter(|line| !line.contains(&side)).map(str::to_owned).collect()
    }

    /// The server's process id. Panics if it was killed.
    pub fn pid(&self) -> u32 {
        self.with_child(Child::id)
    }

    /// Lets time pass for a server with a [moved clock](RedisServerBuilder::moved_clock).
    pub fn pass(&self, time: Duration) {
        if self.set_up.has_moved_clock {
            let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
            *passed += time;
            let ahead = i32::try_from(passed.as_millis()).expect("less than three weeks pass");
            set_wall_clock(&self.clock_file(), ahead, -1_000_000);
        }
    }

    /// Whether it runs. A stopped process (SIGSTOP) does not.
    pub fn is_running(&self) -> bool {
        self.child().as_ref().is_some_and(|child| !signals::is_stopped(child))
    }

    /// Stops the process (SIGSTOP) and returns when it stands still. Connections stay, and nothing is answered.
    pub fn stop(&self) {
        self.with_child(signals::stop);
    }

    /// Continues it after [`stop`](RedisServer::stop).
    pub fn cont(&self) {
        self.with_child(signals::cont);
    }

    /// Kills it (SIGKILL) and returns when it is gone; harmless if it is gone already. The port stays reserved.
    pub fn kill(&self) {
        if let Some(mut child) = self.child().take() {
            self.dir.forget(&child);
            child.kill().expect("our own child can be killed");
            child.wait().expect("our own child can be waited for");
        }
    }

    /// Restarts it on the same port in the same dir, after killing it if it runs. Without persistence it comes back
    /// empty.
    pub fn restart(&self) {
        self.kill();
        let up = look_until(START_BOUND, || (self.launch() == Launch::Up).then_some(()));
        assert!(up.is_some(), "port {} was taken by another program meanwhile", self.port());
    }

    fn with_child<T>(&self, f: impl FnOnce(&Child) -> T) -> T {
        f(self.child().as_ref().expect("the redis-server was killed"))
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path of the Unix socket, which the server has, too.
    pub fn socket(&self) -> PathBuf {
        self.dir.file("redis.sock")
    }

    fn clock_file(&self) -> PathBuf {
        self.dir.file("clock")
    }

    fn log_file(&self) -> PathBuf {
        self.dir.file("redis.log")
    }

    /// redis.conf. The test's settings come last, so they win.
    fn config(&self) -> String {
        let path = |path: &Path| quoted(&path.to_string_lossy());
        let mut lines = vec![
            "bind 127.0.0.1".to_owned(),
            format!("dir {}", path(self.dir.path())),
            format!("unixsocket {}", path(&self.socket())),
            "save \"\"".to_owned(),
            "appendonly no".to_owned(),
            format!("user {SIDE_USER} on >{SIDE_PASSWORD} ~* &* +@all"),
        ];
        match &self.certificates {
            None => lines.push(format!("port {}", self.port())),
            Some(files) => lines.extend([
                "port 0".to_owned(),
                format!("tls-port {}", self.port()),
                format!("tls-cert-file {}", path(&files.cert)),
                format!("tls-key-file {}", path(&files.key)),
                format!("tls-ca-cert-file {}", path(&files.ca)),
                "tls-auth-clients no".to_owned(),
            ]),
        }
        lines.extend(self.set_up.lines.iter().cloned());
        lines.join("\n") + "\n"
    }

    /// One start: returns when it answers PING on its own socket, which no other server can, or when it has ended.
    fn launch(&self) -> Launch {
        let config = self.dir.file("redis.conf");
        fs::write(&config, self.config()).expect("a file can be written in our own dir");
        let log =
            File::options().create(true).append(true).open(self.log_file()).expect("the log can be opened");
        let logged_before = self.log().len();
        let program = std::env::var("FAIRLOCK_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let mut command = Command::new(&program);
        if self.set_up.has_moved_clock {
            command.env("LD_PRELOAD", clock_library()).env("WRONG_CLOCK", self.clock_file());
        }
        let child = command
            .arg(&config)
            .args((self.set_up.role == Role::Sentinel).then_some("--sentinel"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file can be shared"))
            .stderr(log)
            .spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(e) if e.kind() == ErrorKind::NotFound => panic!("{program} is not installed: run tests/run"),
            Err(e) => panic!("{program} can't be started: {e}"),
        };
        self.dir.note(&child);
        let verdict = look_until(START_BOUND, || {
            if child.try_wait().expect("our own child can be asked for").is_some() {
                return Some(false);
            }
            self.try_query::<String>(&["PING"]).is_ok().then_some(true)
        });
        match verdict {
            Some(true) => {
                *self.child() = Some(child);
                Launch::Up
            }
            Some(false) => {
                self.dir.forget(&child);
                let said = self.log().split_off(logged_before);
                if said.contains("Address already in use") {
                    return Launch::PortTaken;
                }
                panic!("redis-server ended at once:\n{said}")
            }
            None => {
                // Stored first, so that dropping the server kills it.
                *self.child() = Some(child);
                panic!("redis-server did not answer for {START_BOUND:?}:\n{}", self.log())
            }
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
        if !std::thread::panicking() {
            assert_none_was_logged();
        }
    }
}

/// A value of redis.conf with any characters.
fn quoted(value: &str) -> String {
    let mut text = String::from("\"");
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_./:, ".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text.push('"');
    text
}
