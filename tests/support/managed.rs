//! A server that behaves like the managed ones: a real redis-server, of which clients see a part, through a proxy.
//!
//! PUBLISH is refused in scripts, and INFO, CONFIG and CLIENT everywhere. A serverless cluster shows one node that keeps all slots and
//! refuses keys of other slots in a script.

use fairlock::RedisBackend;
use fairlock::settings::RedisBuilder;

use crate::proxy::Proxy;
use crate::redis_server::RedisServer;

/// The server's own names of what clients must not use.
const HIDDEN: [(&str, &str); 4] =
    [("PUBLISH", "QUBLISH"), ("INFO", "QINFO"), ("CONFIG", "QCONFIG"), ("CLIENT", "QCLIENT")];

/// A running server.
#[derive(Debug)]
pub struct Managed {
    /// What clients see. It also cuts their connections.
    pub proxy: Proxy,
    is_cluster: bool,
    /// Behind the proxy.
    pub server: RedisServer,
}

impl Managed {
    /// One server.
    pub fn start() -> Managed {
        Managed::of(&[])
    }

    /// A cluster of one node.
    pub fn serverless() -> Managed {
        let managed = Managed { is_cluster: true, ..Managed::of(&[("cluster-enabled", "yes")]) };
        let (server, port) = (&managed.server, managed.proxy.port().to_string());
        server.query::<()>(&["QCONFIG", "SET", "cluster-announce-ip", "127.0.0.1"]);
        server.query::<()>(&["QCONFIG", "SET", "cluster-announce-port", &port]);
        server.query::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
        crate::eventually("the cluster is up", || {
            server.query::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
        });
        managed
    }

    fn of(settings: &[(&str, &str)]) -> Managed {
        let renamed = HIDDEN.iter().fold(RedisServer::builder(), |builder, (command, name)| {
            builder.arg("rename-command", &format!("{command} {name}"))
        });
        let server = settings.iter().fold(renamed, |builder, (key, value)| builder.arg(key, value)).start();
        let proxy = Proxy::start(server.port());
        let [(command, name), ..] = HIDDEN;
        proxy.rename(command, name);
        Managed { proxy, is_cluster: false, server }
    }

    /// For a backend of its clients.
    pub fn builder(&self) -> RedisBuilder {
        let url = self.proxy.url();
        if self.is_cluster { RedisBuilder::cluster(&[&url]) } else { RedisBackend::builder(&url) }
    }
}
