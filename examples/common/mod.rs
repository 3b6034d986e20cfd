//! What the examples share: memory by default, `--redis URL` or, with feature `postgres`, `--postgres URL` for the real thing.

use std::sync::LazyLock;

use fairlock::settings::ClientBuilder;
use fairlock::{Client, MemoryBackend, Result};

static MEMORY: LazyLock<MemoryBackend> = LazyLock::new(MemoryBackend::new);

/// A client on the backend that the command line asks for. Each is as in its own process.
#[allow(dead_code, reason = "examples with settings use `builder`")]
pub(crate) fn connect() -> Result<Client> {
    builder()?.build()
}

/// The same with settings to come.
pub(crate) fn builder() -> Result<ClientBuilder> {
    #[cfg(feature = "redis")]
    if let Some(url) = option("--redis") {
        return Ok(Client::builder(fairlock::RedisBackend::connect(&url)?));
    }
    #[cfg(feature = "postgres")]
    if let Some(url) = option("--postgres") {
        fairlock::PostgresBackend::migrate(&url)?; // the tables, if they are not there
        return Ok(Client::builder(fairlock::PostgresBackend::connect(&url)?));
    }
    for store in ["redis", "postgres"] {
        if option(&format!("--{store}")).is_some() {
            eprintln!("--{store} needs the feature: cargo run --features {store} …");
            std::process::exit(2);
        }
    }
    Ok(Client::builder(MEMORY.clone()))
}

/// The value of an option on the command line; empty if nothing follows it.
pub(crate) fn option(name: &str) -> Option<String> {
    let mut arguments = std::env::args();
    arguments.find(|argument| argument == name)?;
    Some(arguments.next().unwrap_or_default())
}
