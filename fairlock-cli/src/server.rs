//! Connects to the server in the settings. Which store that is matters nowhere else.

use std::fs::File;
use std::sync::{Arc, Once};
use std::time::Duration;

use fairlock::admin::{LockName, LockState};
use fairlock::backend::Backend;
use fairlock::settings::{Login, PostgresBuilder, RedisBuilder};
use fairlock::{Client, Error, FileBackend, PostgresBackend, RedisBackend};

use crate::args::{Args, Command};
use crate::process::{Exit, Failure, say};
use crate::settings::place::{check_owner, check_that_all_see};
use crate::settings::{SHORTEST_LEASE, Server, Terms};
use crate::words::exact;

/// How long an answer may take, by default.
const RESPONSE: Duration = Duration::from_secs(1);

pub(crate) type Locks = Vec<(LockName, LockState)>;

/// A store, with what the library offers beside its trait.
#[derive(Clone)]
pub(crate) enum Store {
    Redis(RedisBackend),
    Postgres(PostgresBackend),
    File(FileBackend),
}

impl Store {
    pub(crate) fn backend(&self) -> Arc<dyn Backend> {
        match self {
            Store::Redis(backend) => Arc::new(backend.clone()),
            Store::Postgres(backend) => Arc::new(backend.clone()),
            Store::File(backend) => Arc::new(backend.clone()),
        }
    }

    /// The locks in use, and why others can't be read, where each lock is a file of its own.
    pub(crate) fn locks_and_unread(&self, pattern: Option<&str>) -> fairlock::Result<(Locks, Vec<Error>)> {
        match self {
            Store::Redis(backend) => Ok((backend.locks(pattern)?, Vec::new())),
            Store::Postgres(backend) => Ok((backend.locks(pattern)?, Vec::new())),
            Store::File(backend) => backend.locks_and_unread(pattern),
        }
    }

    /// What a process needs to keep this client's holds when its own process is killed. None where the lease does that.
    pub(crate) fn presence(&self, client: &Client) -> Option<File> {
        match self {
            Store::File(backend) => backend.presence(client.id()),
            Store::Redis(_) | Store::Postgres(_) => None,
        }
    }

    /// For how long the server grants nothing more.
    pub(crate) fn grace_left(&self) -> Option<Duration> {
        match self {
            Store::Redis(backend) => backend.grace_left(),
            Store::Postgres(_) | Store::File(_) => None,
        }
    }
}

/// Connects, so that a wrong address or password fails at once.
pub(crate) fn store(server: &Server) -> Result<Store, Failure> {
    connect(server, server.response_timeout)
}

fn connect(server: &Server, response_timeout: Option<Duration>) -> Result<Store, Failure> {
    let connected = match (postgres(server, response_timeout), redis(server, response_timeout)) {
        (Some(builder), _) => builder.connect().map(Store::Postgres),
        (None, Some(builder)) => builder.connect().map(Store::Redis),
        (None, None) => return file(server).map(Store::File),
    };
    let store = connected.map_err(|error| explained(server, error))?;
    if let Store::Redis(backend) = &store
        && backend.begins_life()
    {
        // An attempt to connect may be repeated.
        TOLD_OF_LIFE.call_once(|| say(BEGINS_LIFE));
    }
    Ok(store)
}

/// A file that is missing when the command starts is a mistake. Later it may be missing while it is replaced.
pub(crate) fn check_password_file(server: &Server) -> Result<(), Failure> {
    let read = server.password_file.as_ref().map_or(Ok(()), |path| Login::from_file(path).map(drop));
    read.map_err(|error| Failure::ours(format!("{error} (--password-file, FAIRLOCK_PASSWORD_FILE)")))
}

static TOLD_OF_LIFE: Once = Once::new();

/// In a cluster already a look begins it.
const BEGINS_LIFE: &str = "no program has been durable on this server so far: the first one that takes or frees a lock with --durable begins \
                           the server's life, and from then on programs without durable are refused, also those that run, until \
                           the key fairlock_life is deleted";

/// The failure with the option that names the store, if the store does not answer.
pub(crate) fn explained(server: &Server, error: fairlock::Error) -> Failure {
    let mut failure = Failure::from(error);
    if failure.exit == Exit::Unavailable || server.on_this_machine().is_some() {
        failure.message += match (&server.postgres, &server.redis) {
            (Some(_), _) => " (--postgres, FAIRLOCK_POSTGRES)",
            (None, Some(_)) => " (--redis, FAIRLOCK_REDIS)",
            (None, None) => " (--dir, FAIRLOCK_DIR)",
        };
    }
    failure
}

/// A client that holds no lock.
pub(crate) fn client(server: &Server) -> Result<Client, Failure> {
    Ok(Client::new(store(server)?.backend())?)
}

/// A client with these terms, and its store.
pub(crate) fn holder(server: &Server, terms: &Terms) -> Result<(Client, Store), Failure> {
    // A lease has to be twice as long as an answer may take.
    let response_timeout = server.response_timeout.unwrap_or_else(|| RESPONSE.min(terms.lease() / 2));
    let store = connect(server, Some(response_timeout))?;
    let mut builder = Client::builder(store.backend()).lease(terms.lease());
    if let Some(time) = terms.place_ttl {
        builder = builder.place_ttl(time);
    }
    if let Some(limit) = terms.outage_limit {
        builder = builder.outage_limit(limit);
    }
    if let Some(label) = &terms.label {
        builder = builder.label(label.as_str());
    }
    Ok((builder.build()?, store))
}

/// With `--durable` the default lease is the longest that the server grants.
///
/// # Errors
/// A `--lease` that is longer.
pub(crate) fn with_a_durable_lease(mut args: Args) -> Result<Args, Failure> {
    let longest = redis(&args.server, None).and_then(|builder| builder.longest_lease());
    let terms = match &mut args.command {
        Command::Run(run) => Some(&mut run.terms),
        Command::Take(take) => Some(&mut take.terms),
        _ => None,
    };
    if let (Some(terms), Some(longest)) = (terms, longest) {
        let longest = longest.max(SHORTEST_LEASE);
        if let Some(lease) = terms.lease.filter(|lease| *lease > longest) {
            let [lease, longest] = [lease, longest].map(exact);
            return Err(Failure::ours(format!(
                "--lease is {lease}, but with --durable the server grants {longest} at most: choose a shorter --lease, or a \
                 longer trust for all programs"
            )));
        }
        terms.lease = Some(terms.lease().min(longest));
    }
    Ok(args)
}

/// The locks of this machine.
pub(crate) fn file(server: &Server) -> Result<FileBackend, Failure> {
    let dir = server.on_this_machine().unwrap_or_default();
    let is_usual = server.dir.is_none();
    let refused = |why| Failure::ours(format!("{why}: name a directory (--dir, FAIRLOCK_DIR)"));
    if is_usual {
        check_that_all_see(&dir).map_err(refused)?;
    }
    let backend = FileBackend::open(&dir).map_err(|error| explained(server, error))?;
    // Only now: it stays the directory that was opened.
    if is_usual {
        check_owner(&dir).map_err(refused)?;
    }
    Ok(backend)
}

/// The first line of what a command shows, if no server keeps the locks: an empty list then is no list of the company's locks.
pub(crate) fn where_it_looks(server: &Server) -> String {
    server
        .on_this_machine()
        .map_or_else(String::new, |dir| format!("on this machine, in {}\n", dir.display()))
}

/// The same at the end of a line.
pub(crate) fn and_where(server: &Server) -> String {
    server.on_this_machine().map_or_else(String::new, |dir| format!(" on this machine, in {}", dir.display()))
}

/// None where the settings name no such server.
pub(crate) fn redis(server: &Server, response_timeout: Option<Duration>) -> Option<RedisBuilder> {
    let url = server.with_tls_files(server.redis.as_ref()?);
    let mut builder = RedisBackend::builder(&url).discipline(server.discipline);
    if let Some(durability) = server.durable {
        builder = builder.durable(durability);
    }
    if let Some(path) = server.password_file.clone() {
        builder = builder.login(move || Login::from_file(&path));
    }
    if let Some((user, password)) = &server.sentinel_login {
        builder = builder.sentinel_login(user, password);
    }
    if !server.map.is_empty() {
        let map = server.map.clone();
        builder = builder.map_address(move |host, port| {
            let reached = map.iter().find(|(announced, _)| announced.0 == host && announced.1 == port);
            reached.map_or_else(|| (host.to_owned(), port), |(_, reached)| reached.clone())
        });
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
    Some(builder)
}

/// None where the settings name no such server.
pub(crate) fn postgres(server: &Server, response_timeout: Option<Duration>) -> Option<PostgresBuilder> {
    let mut builder = PostgresBackend::builder(&server.with_tls_files(server.postgres.as_ref()?));
    if let Some(path) = server.password_file.clone() {
        builder = builder.login(move || Login::from_file(&path));
    }
    if let Some(url) = &server.listen_on {
        builder = builder.listen_on(&server.with_tls_files(url));
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
    Some(builder)
}
