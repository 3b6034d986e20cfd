//! What the examples share: memory by default, `--redis URL` for the real thing.

use std::sync::LazyLock;

use fairlock::{Client, MemoryBackend, RedisBackend, Result};

static MEMORY: LazyLock<MemoryBackend> = LazyLock::new(MemoryBackend::new);

/// A client on the backend that the command line asks for. Each is as in a process of its own.
pub(crate) fn connect() -> Result<Client> {
    match option("--redis") {
        Some(url) => Client::new(RedisBackend::connect(&url)?),
        None => Client::new(MEMORY.clone()),
    }
}

/// The value of an option on the command line; empty if nothing follows it.
pub(crate) fn option(name: &str) -> Option<String> {
    let mut arguments = std::env::args();
    arguments.find(|argument| argument == name)?;
    Some(arguments.next().unwrap_or_default())
}
