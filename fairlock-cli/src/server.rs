//! Connects to the server that the options name.

use std::time::Duration;

use fairlock::{Client, ClientBuilder, Discipline, Lock, RedisBackend};

use crate::args::{Order, Server};
use crate::exit::Failure;

/// Connects, so that a wrong address or password is known at once.
pub(crate) fn backend(server: &Server) -> Result<RedisBackend, Failure> {
    let discipline = match server.discipline {
        Order::HandOff => Discipline::HandOff,
        Order::Redisson => Discipline::Redisson,
    };
    let backend = RedisBackend::builder(&server.redis).discipline(discipline).connect();
    backend.map_err(|error| fairlock::Error::from(error).into())
}

/// A client for one look or one deed.
pub(crate) fn client(server: &Server) -> Result<Client, Failure> {
    Ok(builder(server)?.build()?)
}

pub(crate) fn builder(server: &Server) -> Result<ClientBuilder, Failure> {
    Ok(Client::builder(backend(server)?))
}

/// A client that holds with this lease, under this label.
pub(crate) fn holder(server: &Server, lease: Duration, label: Option<&str>) -> Result<Client, Failure> {
    let mut builder = builder(server)?.lease(lease);
    if let Some(label) = label {
        // Host and process stay visible, for whoever has to find it.
        builder = builder.label(&format!("{label} ({}:{})", host(), std::process::id()));
    }
    Ok(builder.build()?)
}

/// The lock, for a client that only looks.
pub(crate) fn fair_lock(client: &Client, name: &str) -> Result<Lock, Failure> {
    Ok(client.fair_lock(name)?)
}

fn host() -> String {
    nix::unistd::gethostname().map_or_else(|_| "?".to_owned(), |host| host.to_string_lossy().into_owned())
}
