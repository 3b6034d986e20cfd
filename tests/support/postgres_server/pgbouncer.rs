//! A PgBouncer in front of a server, in transaction mode with few sessions.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};

use postgres::{Client, Config, Error, NoTls};

use super::{PostgresServer, START_BOUND, USER, is_root, run};
use crate::eventually::look_until;
use crate::port::Port;
use crate::workdir::WorkDir;

/// A running PgBouncer, ended on drop, or when the test process ends in any way.
#[derive(Debug)]
pub struct PgBouncer {
    dir: WorkDir,
    port: Port,
    child: Child,
    /// Where its server is.
    server: String,
}

impl PgBouncer {
    /// Starts it. The server's databases keep their names.
    pub fn start(server: &PostgresServer) -> PgBouncer {
        let (dir, port) = (WorkDir::new(), Port::reserve());
        let address = format!("host=127.0.0.1 port={} user={USER}", server.port());
        configure(&dir, &port, &format!("* = {address}"));
        if is_root() {
            run(Command::new("chown").args(["-R", "postgres"]).arg(dir.path()));
        }
        let debians = Path::new("/usr/sbin/pgbouncer"); // not on the PATH of all users
        let program = if debians.exists() { debians } else { Path::new("pgbouncer") };
        let mut command = server.command_of(program);
        let child = command.arg("-q").arg(dir.file("ini")).spawn().expect("pgbouncer can be started");
        dir.note(&child);
        let pooler = PgBouncer { dir, port, child, server: address };
        let up = look_until(START_BOUND, || pooler.console().ok());
        assert!(up.is_some(), "pgbouncer did not answer for {START_BOUND:?}");
        pooler
    }

    /// Host and port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port.number())
    }

    /// From now on the database `alias` is this one. Sessions with the former one end with their transactions.
    pub fn turn(&self, alias: &str, database: &str) {
        self.turn_to(alias, database, "transaction");
    }

    /// The same, where a client keeps its session for as long as it is connected.
    pub fn turn_to_sessions(&self, alias: &str, database: &str) {
        self.turn_to(alias, database, "session");
    }

    fn turn_to(&self, alias: &str, database: &str, mode: &str) {
        let server = &self.server;
        let databases = format!("{alias} = {server} dbname={database} pool_mode={mode}\n* = {server}");
        configure(&self.dir, &self.port, &databases);
        let mut console = self.console().expect("pgbouncer runs");
        console.batch_execute("reload").expect("pgbouncer reads its settings again");
    }

    fn console(&self) -> Result<Client, Error> {
        Config::new().host("127.0.0.1").port(self.port.number()).user(USER).dbname("pgbouncer").connect(NoTls)
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        self.dir.forget(&self.child);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configure(dir: &WorkDir, port: &Port, databases: &str) {
    let port = port.number();
    let ini = format!(
        "[databases]\n{databases}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\nadmin_users = {USER}\n\
         pool_mode = transaction\ndefault_pool_size = 4\nmax_client_conn = 2000\nserver_idle_timeout = 5\n"
    );
    fs::write(dir.file("ini"), ini).expect("a file can be written in our own dir");
}
