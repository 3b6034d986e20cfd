//! What the examples share: memory by default, `--redis URL` for the real thing.

use fairlock::{Client, MemoryBackend, RedisBackend, Result};

/// A client on the backend that the command line asks for.
pub(crate) fn connect() -> Result<Client> {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.iter().position(|argument| argument == "--redis") {
        Some(at) => Client::new(RedisBackend::connect(arguments.get(at + 1).map_or("", String::as_str))?),
        None => Client::new(MemoryBackend::new()),
    }
}
