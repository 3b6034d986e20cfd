//! Connects to the server in the options.

use std::time::Duration;

use fairlock::{Client, Error, RedisBackend};

use crate::args::{Discipline, FAIRLOCK_REDIS, Server};
use crate::exit::{Exit, Failure};

/// How long an answer may take.
const RESPONSE: Duration = Duration::from_secs(1);

/// Connects, so that a wrong address or password fails at once.
pub(crate) fn backend(server: &Server) -> Result<RedisBackend, Failure> {
    connect(server, RESPONSE)
}

fn connect(server: &Server, response: Duration) -> Result<RedisBackend, Failure> {
    let discipline = match server.discipline {
        Discipline::HandOff => fairlock::Discipline::HandOff,
        Discipline::Redisson => fairlock::Discipline::Redisson,
    };
    let mut builder = RedisBackend::builder(&server.redis).discipline(discipline).response_timeout(response);
    if let Some(durable) = &server.durable {
        builder = builder.durable(durable.durability);
    }
    builder.connect().map_err(|error| no_server(server, error))
}

/// Says where the address comes from, as far as that helps.
fn no_server(server: &Server, error: Error) -> Failure {
    let is_from_outside = std::env::var_os(FAIRLOCK_REDIS).is_some_and(|set| *set == *server.redis);
    let origin = if is_from_outside { FAIRLOCK_REDIS } else { "--redis" };
    if server.redis.is_empty() {
        return Failure::ours(format!(
            "{origin} is empty: it names the server, as in redis://127.0.0.1:6379"
        ));
    }
    let mut failure = Failure::from(error);
    if failure.exit == Exit::Unavailable {
        failure.message += &format!(" (--redis, {FAIRLOCK_REDIS})");
    }
    failure
}

/// A client that holds no lock.
pub(crate) fn client(server: &Server) -> Result<Client, Failure> {
    Ok(Client::new(backend(server)?)?)
}

/// A client with this lease and label, and its backend.
pub(crate) fn holder(
    server: &Server,
    lease: Duration,
    label: Option<&str>,
) -> Result<(Client, RedisBackend), Failure> {
    // A lease has to be twice as long as an answer may take.
    let backend = connect(server, RESPONSE.min(lease / 2))?;
    let mut builder = Client::builder(backend.clone()).lease(lease);
    if let Some(label) = label {
        // Host and process stay visible, for operators that look for the process.
        builder = builder.label(format!("{label} ({}:{})", host(), std::process::id()));
    }
    Ok((builder.build()?, backend))
}

fn host() -> String {
    nix::unistd::gethostname().map_or_else(|_| "?".to_owned(), |host| host.to_string_lossy().into_owned())
}
