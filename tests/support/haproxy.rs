//! HAProxy: one address that leads to whichever of several servers says that it is the master.

use std::fmt::Write as _;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::eventually::look_until;
use crate::port::Port;
use crate::redis_server::RedisServer;
use crate::tls::Certificates;
use crate::workdir::WorkDir;

const START_BOUND: Duration = Duration::from_secs(60);

/// What becomes of the connections to a server that is no longer the master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sessions {
    /// They stay, as by default and with a DNS name.
    Stay,
    /// They are cut (`on-marked-down shutdown-sessions`).
    AreCut,
}

/// A running HAProxy, ended on drop, or when the test process ends in any way.
#[derive(Debug)]
pub struct HaProxy {
    dir: WorkDir,
    port: Port,
    child: Child,
}

impl HaProxy {
    /// Starts it in front of these servers, and returns when it leads to the master. It asks each server for its role ten times a
    /// second.
    pub fn start(servers: &[&RedisServer], sessions: Sessions) -> HaProxy {
        let mut config =
            "  option tcp-check\n  tcp-check connect\n  tcp-check send info\\ replication\\r\\n\n  \
                          tcp-check expect string role:master\n"
                .to_owned();
        let cut = if sessions == Sessions::AreCut { " on-marked-down shutdown-sessions" } else { "" };
        for server in servers {
            let port = server.port();
            let _ =
                writeln!(config, "  server s{port} 127.0.0.1:{port} check inter 100ms fall 1 rise 1{cut}");
        }
        let proxy = HaProxy::launch(WorkDir::new(), "", &config);
        // At first it takes all servers for masters, and leads to them in turn.
        let leads_to_master = || (0..2 * servers.len()).all(|_| proxy.is_at_master()).then_some(());
        assert!(look_until(START_BOUND, leads_to_master).is_some(), "no master within {START_BOUND:?}");
        proxy
    }

    /// Starts it in front of a server that speaks no TLS; clients have to.
    pub fn with_tls(server: u16) -> (HaProxy, Certificates) {
        let dir = WorkDir::new();
        let files = Certificates::make(dir.path(), None);
        let pem = [&files.cert, &files.key].map(|path| fs::read_to_string(path).expect("just made")).concat();
        fs::write(dir.file("pem"), pem).expect("a file can be written in our own dir");
        let with = format!(" ssl crt {}", dir.file("pem").display());
        let proxy = HaProxy::launch(dir, &with, &format!("  server s 127.0.0.1:{server}\n"));
        let connects = || std::net::TcpStream::connect(("127.0.0.1", proxy.port())).ok();
        assert!(look_until(START_BOUND, connects).is_some(), "it does not listen within {START_BOUND:?}");
        (proxy, files)
    }

    /// `with` stands behind the address that it listens on, `rest` follows in its settings.
    fn launch(dir: WorkDir, with: &str, rest: &str) -> HaProxy {
        let port = Port::reserve();
        let number = port.number();
        let config = format!(
            "defaults\n  mode tcp\n  timeout connect 500ms\n  timeout client 1h\n  timeout server 1h\n  timeout check 500ms\n\
             listen redis\n  bind 127.0.0.1:{number}{with}\n{rest}"
        );
        fs::write(dir.file("cfg"), config).expect("a file can be written in our own dir");
        let debians = std::path::Path::new("/usr/sbin/haproxy"); // not on the PATH of all users
        let program = if debians.exists() { debians } else { std::path::Path::new("haproxy") };
        let mut command = Command::new(program);
        command.args(["-q", "-db", "-f"]).arg(dir.file("cfg")).stdin(Stdio::null());
        let child = command.spawn().expect("haproxy can be started: tests/run installs it");
        dir.note(&child);
        HaProxy { dir, port, child }
    }

    /// Whether a connection leads to a master now.
    fn is_at_master(&self) -> bool {
        let connected = redis::Client::open(self.url()).and_then(|client| client.get_connection());
        let role = connected.and_then(|mut con| redis::cmd("ROLE").query::<Vec<redis::Value>>(&mut con));
        role.is_ok_and(|role| role.first() == Some(&redis::Value::BulkString(b"master".to_vec())))
    }

    /// The port for clients.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The URL for clients.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port.number())
    }
}

impl Drop for HaProxy {
    fn drop(&mut self) {
        self.dir.forget(&self.child);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
