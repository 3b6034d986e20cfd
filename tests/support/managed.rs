//! A server that behaves like the managed ones: a real redis-server, of which clients see a part, through a proxy.
//!
//! PUBLISH is refused in scripts, and INFO, CONFIG and CLIENT everywhere. As a serverless cluster it speaks TLS, and shows one node
//! that keeps all slots and refuses keys of other slots in a script.

use fairlock::{RedisBackend, RedisBuilder};

use crate::haproxy::HaProxy;
use crate::proxy::Proxy;
use crate::redis_server::RedisServer;
use crate::tls::Certificates;

/// The server's own names of what clients must not use.
const HIDDEN: [(&str, &str); 4] =
    [("PUBLISH", "QUBLISH"), ("INFO", "QINFO"), ("CONFIG", "QCONFIG"), ("CLIENT", "QCLIENT")];

/// A running server.
#[derive(Debug)]
pub struct Managed {
    /// What clients see. It also cuts their connections.
    pub proxy: Proxy,
    /// In front of the proxy.
    tls: Option<(HaProxy, Certificates)>,
    /// Behind the proxy.
    pub server: RedisServer,
}

impl Managed {
    /// One server.
    pub fn start() -> Managed {
        Managed::of(&[])
    }

    /// A cluster of one node that speaks TLS.
    pub fn serverless() -> Managed {
        let mut managed = Managed::of(&[("cluster-enabled", "yes")]);
        let (tls, files) = HaProxy::with_tls(managed.proxy.port());
        let server = &managed.server;
        server.query::<()>(&["QCONFIG", "SET", "cluster-announce-ip", "127.0.0.1"]);
        server.query::<()>(&["QCONFIG", "SET", "cluster-announce-port", &tls.port().to_string()]);
        server.query::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
        crate::eventually("the cluster is up", || {
            server.query::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
        });
        managed.tls = Some((tls, files));
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
        Managed { proxy, tls: None, server }
    }

    /// For a backend of its clients.
    pub fn builder(&self) -> RedisBuilder {
        match &self.tls {
            None => RedisBackend::builder(&self.proxy.url()),
            Some((tls, files)) => {
                let (port, ca) = (tls.port(), files.ca.display());
                RedisBuilder::cluster(&[&format!("rediss://127.0.0.1:{port}?sslrootcert={ca}")])
            }
        }
    }
}
