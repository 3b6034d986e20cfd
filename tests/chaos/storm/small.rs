//! The small Redis of a world (`world/src/net.rs`), where the whole client follows the seed: it is there if the test runs in a world.

use fairlock_tests::look_until;
use redis::{Client, Cmd, FromRedisValue, RedisResult};

use crate::look::BUSY;

/// The address of the test's own connections, which no fault hits.
pub const TEST: u8 = 255;

pub struct Small;

impl Small {
    /// Whether this process runs in a world.
    pub fn is_here() -> bool {
        std::env::var_os("WORLD_SEED").is_some()
    }

    /// The URL for a client.
    pub fn url(client: u8) -> String {
        format!("redis://10.0.0.{client}:6379/")
    }

    pub fn query<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let ask = || -> RedisResult<T> {
            let mut command = Cmd::new();
            words.iter().for_each(|word| _ = command.arg(word));
            command.query(&mut Client::open(Small::url(TEST))?.get_connection()?)
        };
        look_until(BUSY, || ask().ok()).unwrap_or_else(|| panic!("{words:?}"))
    }

    /// Its network or the server does this.
    pub fn suffers(&self, words: &[&str]) {
        let _: String = self.query(&[&["WORLD"], words].concat());
    }

    /// Keys without a time to live, and connections.
    pub fn left(&self, keys: &[String]) -> Vec<String> {
        let forever = keys.iter().filter(|key| self.query::<i64>(&["PTTL", key]) == -1);
        let mut left: Vec<String> = forever.map(|key| format!("{key}, without a time to live")).collect();
        let clients: i64 = self.query(&["WORLD", "CLIENTS"]);
        left.extend((clients > 0).then(|| format!("{clients} connections")));
        left
    }
}
