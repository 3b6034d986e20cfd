//! The columns of the table: what others have done to a key.

use super::world::{NAME, Rules, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Unchanged.
    Right,
    Absent,
    /// A string instead.
    OtherType,
    /// The right type, with a foreign entry.
    Foreign,
    /// The right type, with our entries garbled.
    Garbled,
    /// Without its TTL.
    NoTtl,
    /// With all its times in the past.
    Expired,
}

impl State {
    pub(crate) const ALL: [State; 7] = [
        State::Right,
        State::Absent,
        State::OtherType,
        State::Foreign,
        State::Garbled,
        State::NoTtl,
        State::Expired,
    ];

    /// Puts the key into this state.
    pub(crate) fn bring(self, world: &World, key: &str) {
        match self {
            State::Right => {}
            State::Absent => world.query(&["DEL", key]),
            State::OtherType => {
                world.query::<()>(&["DEL", key]);
                world.query(&["SET", key, "theirs"])
            }
            State::NoTtl => world.query(&["PERSIST", key]),
            State::Foreign => match kind(key) {
                Kind::Hash => world.query(&["HSET", key, "theirs", "1"]),
                Kind::Queue => world.query(&["ZADD", key, "1", "theirs"]),
                Kind::List => world.query(&["LPUSH", key, "theirs"]),
            },
            State::Garbled => garble(world, key, "99999999999999999999999999 1e400 -1 nan"),
            State::Expired if key == NAME => world.query(&["DEL", key]),
            State::Expired if key.starts_with("fairlock_record") => {
                for place in
                    world.query::<Vec<String>>(&["HKEYS", key]).iter().filter(|field| field.contains(':'))
                {
                    world.query::<()>(&["HSET", key, place, "1 1 1 1 60000 -- label"]);
                }
            }
            State::Expired if kind(key) == Kind::Queue => {
                for member in world.query::<Vec<String>>(&["ZRANGE", key, "0", "-1"]) {
                    world.query::<()>(&["ZADD", key, "1", &member]);
                }
            }
            State::Expired => {}
        }
    }
}

/// Replaces every value by this one.
fn garble(world: &World, key: &str, value: &str) {
    match kind(key) {
        Kind::Hash => {
            for field in world.query::<Vec<String>>(&["HKEYS", key]) {
                world.query::<()>(&["HSET", key, &field, value]);
            }
        }
        Kind::Queue => {
            for member in world.query::<Vec<String>>(&["ZRANGE", key, "0", "-1"]) {
                world.query::<()>(&["ZADD", key, "+inf", &member]);
            }
        }
        Kind::List => {}
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Hash,
    Queue,
    List,
}

fn kind(key: &str) -> Kind {
    match key {
        _ if key.starts_with("redisson_lock_queue") => Kind::List,
        _ if key.starts_with("redisson_lock_timeout") => Kind::Queue,
        _ if key.starts_with("fairlock_queue") || key.starts_with("fairlock_ends") => Kind::Queue,
        _ => Kind::Hash,
    }
}

/// Redisson's own keys have no TTL, whichever side writes them.
pub(crate) fn has_no_ttl_by_rule(rules: Rules, key: &str) -> bool {
    rules == Rules::Redisson && key.starts_with("redisson_")
}
