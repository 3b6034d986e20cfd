//! Connects to the server in the settings.

use std::time::Duration;

use fairlock::{Client, RedisBackend};

use crate::args::Server;
use crate::exit::{Exit, Failure};
use crate::names::with_process;
use crate::settings::{Terms, in_options};

/// How long an answer may take, by default.
const RESPONSE: Duration = Duration::from_secs(1);

/// Connects, so that a wrong address or password fails at once.
pub(crate) fn backend(server: &Server) -> Result<RedisBackend, Failure> {
    connect(server, server.response_timeout)
}

fn connect(server: &Server, response_timeout: Option<Duration>) -> Result<RedisBackend, Failure> {
    let mut builder = RedisBackend::builder(&server.redis).discipline(server.discipline);
    if let Some(durability) = server.durable {
        builder = builder.durable(durability);
    }
    if let Some((user, password)) = &server.sentinel_login {
        builder = builder.sentinel_login(user, password);
    }
    if let Some(n) = server.connections {
        builder = builder.connections(n);
    }
    if let Some(time) = server.connect_timeout {
        builder = builder.connect_timeout(time);
    }
    if let Some(time) = response_timeout {
        builder = builder.response_timeout(time);
    }
    if let Some(time) = server.thread_wait {
        builder = builder.thread_wait(time);
    }
    if server.refresh_on_retry {
        builder = builder.refresh_on_retry(true);
    }
    builder.connect().map_err(|error| {
        // No lock is named yet, which could have the name of a setting.
        let mut failure = Failure::from(error);
        failure.message = in_options(&failure.message);
        if failure.exit == Exit::Unavailable {
            failure.message += " (--redis, FAIRLOCK_REDIS)";
        }
        failure
    })
}

/// A client that holds no lock.
pub(crate) fn client(server: &Server) -> Result<Client, Failure> {
    Ok(Client::new(backend(server)?)?)
}

/// A client with these terms, and its backend.
pub(crate) fn holder(server: &Server, terms: &Terms) -> Result<(Client, RedisBackend), Failure> {
    // A lease has to be twice as long as an answer may take.
    let response_timeout = server.response_timeout.unwrap_or_else(|| RESPONSE.min(terms.lease / 2));
    let backend = connect(server, Some(response_timeout))?;
    let mut builder = Client::builder(backend.clone()).lease(terms.lease);
    if let Some(time) = terms.place_ttl {
        builder = builder.place_ttl(time);
    }
    if let Some(limit) = terms.outage_limit {
        builder = builder.outage_limit(limit);
    }
    if let Some(label) = &terms.label {
        builder = builder.label(with_process(label));
    }
    Ok((builder.build()?, backend))
}
