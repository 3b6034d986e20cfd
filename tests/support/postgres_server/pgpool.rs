//! A Pgpool-II in front of a primary and a standby, which sends what only reads to the standby.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use super::{END_BOUND, PostgresServer, START_BOUND, USER, is_root, run, send};
use crate::eventually::look_until;
use crate::port::Port;
use crate::workdir::WorkDir;

/// A running Pgpool-II, ended on drop, or when the test process ends in any way.
#[derive(Debug)]
pub struct PgPool {
    dir: WorkDir,
    port: Port,
    _console: Port,
    child: Child,
}

impl PgPool {
    /// Starts it.
    pub fn start(primary: &PostgresServer, standby: &PostgresServer) -> PgPool {
        let (dir, port, console) = (WorkDir::new(), Port::reserve(), Port::reserve());
        let own = dir.path().display();
        let mut conf = format!(
            "listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = '{own}'\npcp_listen_addresses = '127.0.0.1'\n\
             pcp_port = {}\npcp_socket_dir = '{own}'\npid_file_name = '{own}/pid'\nlogdir = '{own}'\nnum_init_children = 32\n\
             backend_clustering_mode = 'streaming_replication'\nload_balance_mode = on\nsr_check_user = '{USER}'\n\
             sr_check_period = 1\nfailover_on_backend_error = off\nread_only_function_list = '.*'\nenable_pool_hba = off\npool_passwd = ''\n",
            port.number(),
            console.number()
        );
        for (number, server) in [primary, standby].into_iter().enumerate() {
            let backend = server.port();
            conf.push_str(&format!(
                "backend_hostname{number} = '127.0.0.1'\nbackend_port{number} = {backend}\nbackend_weight{number} = {number}\n"
            ));
        }
        for (name, text) in [("conf", conf.as_str()), ("pcp", ""), ("hba", "")] {
            fs::write(dir.file(name), text).expect("a file can be written in our own dir");
        }
        if is_root() {
            run(Command::new("chown").args(["-R", "postgres"]).arg(dir.path()));
        }
        let debians = Path::new("/usr/sbin/pgpool"); // not on the PATH of all users
        let mut command = primary.command_of(if debians.exists() { debians } else { Path::new("pgpool") });
        command
            .arg("-n")
            .arg("-f")
            .arg(dir.file("conf"))
            .arg("-F")
            .arg(dir.file("pcp"))
            .arg("-a")
            .arg(dir.file("hba"));
        let log = fs::File::create(dir.file("log")).expect("a file can be written in our own dir");
        let child = command.stdout(Stdio::null()).stderr(log).spawn().expect("pgpool can be started");
        dir.note_with(&child, "QUIT");
        let pool = PgPool { dir, port, _console: console, child };
        // It has found out which server is which when a session knows the primary.
        let up = look_until(START_BOUND, || {
            let mut con =
                postgres::Client::connect(&format!("{}?connect_timeout=5", pool.url(USER)), postgres::NoTls)
                    .ok()?;
            let nodes = con.simple_query("show pool_nodes").ok()?;
            let is_primary = |message: &postgres::SimpleQueryMessage| {
                matches!(message, postgres::SimpleQueryMessage::Row(row) if row.get("role") == Some("primary")
                    && row.get("port") == Some(&primary.port().to_string()))
            };
            nodes.iter().any(is_primary).then_some(())
        });
        assert!(up.is_some(), "pgpool did not find the primary for {START_BOUND:?}:\n{}", pool.log());
        pool
    }

    /// The URL of a database.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.port.number())
    }

    /// What it has said.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.file("log")).unwrap_or_default()
    }
}

impl Drop for PgPool {
    fn drop(&mut self) {
        self.dir.forget(&self.child);
        send(self.child.id(), Signal::INT); // which ends its children, too
        if look_until(END_BOUND, || self.child.try_wait().ok().flatten()).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
