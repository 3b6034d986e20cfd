//! A service over HTTP: the token travels in a header.

use fairlock::FencingToken;

/// Where a client sends the token of its hold.
pub const HEADER: &str = "Fencing-Token";

/// The answer to a write with this header, if the newest token is this one: 204 if the write may be done, with its token as the newest;
/// 412 (Precondition Failed) if a newer hold has written, 428 (Precondition Required) without a token, 400 for what is none. Call it in
/// the transaction that writes, or under the mutex of the data.
pub fn check(header: Option<&str>, newest: &mut FencingToken) -> u16 {
    let Some(text) = header else { return 428 };
    let Ok(token) = text.parse().map(FencingToken::new) else { return 400 };
    if token < *newest {
        return 412;
    }
    *newest = token;
    204
}
