//! What the examples share: memory by default, `--redis URL` for the real thing.

use std::sync::LazyLock;

use fairlock::{Client, ClientBuilder, MemoryBackend, RedisBackend, Result};

static MEMORY: LazyLock<MemoryBackend> = LazyLock::new(MemoryBackend::new);

/// A client on the backend that the command line asks for. Each is as in its own process.
#[allow(dead_code, reason = "examples with settings use `builder`")]
pub(crate) fn connect() -> Result<Client> {
    builder()?.build()
}

/// The same with settings to come.
pub(crate) fn builder() -> Result<ClientBuilder> {
    Ok(match option("--redis") {
        Some(url) => Client::builder(RedisBackend::connect(&url)?),
        None => Client::builder(MEMORY.clone()),
    })
}

/// The value of an option on the command line; empty if nothing follows it.
pub(crate) fn option(name: &str) -> Option<String> {
    let mut arguments = std::env::args();
    arguments.find(|argument| argument == name)?;
    Some(arguments.next().unwrap_or_default())
}
