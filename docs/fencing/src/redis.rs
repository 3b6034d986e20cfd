//! Data in another Redis than the locks': a script compares and writes in one step.

use fairlock::FencingToken;
use redis::{ConnectionLike, RedisResult, Script};

use crate::Fence;

/// A hash has the value, and the token of its last writer. Lua's numbers are exact up to 2^53, which a token in microseconds reaches in 2255.
const SET: &str = "
    if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'token') or 0) then return 0 end
    redis.call('HSET', KEYS[1], 'token', ARGV[1], 'value', ARGV[2])
    return 1";

/// Writes the value, unless a newer hold has written it.
pub fn set(con: &mut dyn ConnectionLike, key: &str, token: FencingToken, value: &str) -> RedisResult<Fence> {
    let passed: bool = Script::new(SET).key(key).arg(token.get()).arg(value).invoke(con)?;
    Ok(if passed { Fence::Passed } else { Fence::Stale })
}
