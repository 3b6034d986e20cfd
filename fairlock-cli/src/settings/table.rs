//! Each setting: its name, what it sets, what is allowed, and what is done with a value.

use std::time::Duration;

use fairlock::settings::Discipline;

use super::{Address, SHORTEST_LEASE, Server, Setting, Terms};
use crate::words::{durability, within};

/// The library's limits. Its shortest lease and place TTL are longer.
const SHORTEST: Duration = Duration::from_millis(10);
const SHORTEST_PLACE_TTL: Duration = Duration::from_millis(500);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);
pub(crate) const LONGEST: Duration = Duration::from_secs(36_500 * 24 * 3600);
const LONGEST_LABEL: usize = 128; // bytes

/// Those of all commands.
pub(super) const SERVER: [Setting<Server>; 16] = [
    Setting {
        name: "redis",
        value: "URL",
        is_usual: true,
        what: "A server that keeps the locks, for the programs of many machines",
        allowed: "an address in one of the forms that `fairlock --help` lists (for PostgreSQL use --postgres)",
        default: "none: the locks are those of this machine",
        set: |server, text| put(&mut server.redis, Some(text.to_owned()).filter(|url| !is_of_postgres(url))),
    },
    Setting {
        name: "postgres",
        value: "URL",
        is_usual: true,
        what: "A database, in place of Redis; `fairlock migrate` makes its tables",
        allowed: "an address of PostgreSQL, which begins with postgres: or postgresql: (for Redis use --redis)",
        default: "none",
        set: |server, text| {
            put(&mut server.postgres, Some(text.to_owned()).filter(|url| is_of_postgres(url)))
        },
    },
    Setting {
        name: "dir",
        value: "DIR",
        is_usual: true,
        what: "Where the locks of this machine are, which need no server. Users who are to share locks give one directory",
        allowed: "a directory of this machine, which is made if needed",
        default: "/tmp/fairlock-UID; for root /run/fairlock",
        set: |server, text| put(&mut server.dir, std::path::absolute(text).ok()),
    },
    Setting {
        name: "discipline",
        value: "WHICH",
        is_usual: true,
        what: "The queue to wait in, fairlock's own or that of Java's Redisson; all clients of a lock must use the same",
        allowed: "hand-off or redisson",
        default: "hand-off",
        set: |server, text| {
            server.discipline = match text {
                "hand-off" => Discipline::HandOff,
                "redisson" => Discipline::Redisson,
                _ => return None,
            };
            Some(())
        },
    },
    Setting {
        name: "durable",
        value: "TIMES",
        is_usual: true,
        what: "All programs that use this server are durable, with these times; leases are at most the trust, and with \
               sentinels or a cluster three quarters of it. The first lock that is taken so begins the server's life (the key \
               fairlock_life): from then on the server refuses programs that are not durable, also programs that run already",
        allowed: "true (also --durable alone), or other times than the defaults, as in trust=20s,skew=1s: a trust from 1s to 1h, a \
                  skew up to 1m",
        default: "they are not",
        set: |server, text| put(&mut server.durable, durability(text)),
    },
    Setting {
        name: "password-file",
        value: "FILE",
        is_usual: true,
        what: "A file with the password, in place of the address's password. The file is read for each connection, so a mounted secret \
               may be replaced",
        allowed: "the path of a file",
        default: "none",
        set: |server, text| put(&mut server.password_file, Some(text.into())),
    },
    Setting {
        name: "sentinel-login",
        value: "USER:PASSWORD",
        is_usual: false,
        what: "Another login for the sentinels than for the servers",
        allowed: "user and password with a colon between, or the password alone; only a colon for none",
        default: "that of the address",
        set: |server, text| {
            let (user, password) = text.split_once(':').unwrap_or(("", text));
            put(&mut server.sentinel_login, Some((user.to_owned(), password.to_owned())))
        },
    },
    Setting {
        name: "map",
        value: "HOST:PORT=HOST:PORT",
        is_usual: false,
        what: "Where a server is reached from here that sentinels or a cluster announce by another address, as behind NAT; several with \
               commas between",
        allowed: "HOST:PORT=HOST:PORT, the announced address first",
        default: "addresses are taken as announced",
        set: |server, text| {
            server.map = text.split(',').map(mapped).collect::<Option<_>>()?;
            Some(())
        },
    },
    Setting {
        name: "listen-on",
        value: "URL",
        is_usual: false,
        what: "The database's address for wake-ups, where --postgres names a pooler in transaction mode",
        allowed: "an address of PostgreSQL, with --postgres",
        default: "that of --postgres",
        set: |server, text| put(&mut server.listen_on, Some(text.to_owned())),
    },
    Setting {
        name: "sslrootcert",
        value: "FILE",
        is_usual: false,
        what: "With TLS: a file (PEM) of authorities, of which one has to have signed the server's certificate",
        allowed: "a file's path, or system",
        default: "that of the address, else the authorities of the system",
        set: |server, text| server.add_tls_file("sslrootcert", text),
    },
    Setting {
        name: "sslcert",
        value: "FILE",
        is_usual: false,
        what: "With TLS: a file (PEM) of the client's certificate, for servers that ask for one; behind it the authorities in between",
        allowed: "a file's path",
        default: "that of the address, else none",
        set: |server, text| server.add_tls_file("sslcert", text),
    },
    Setting {
        name: "sslkey",
        value: "FILE",
        is_usual: false,
        what: "With TLS: a file (PEM) of the private key of that certificate, not encrypted",
        allowed: "a file's path, with --sslcert",
        default: "that of the address, else in the file of the certificate",
        set: |server, text| server.add_tls_file("sslkey", text),
    },
    Setting {
        name: "connections",
        value: "N",
        is_usual: false,
        what: "How many connections to each server carry commands; one more listens",
        allowed: "a number from 1 to 8",
        default: "2, and up to 8 to a server that is far away, or to PostgreSQL",
        set: |server, text| put(&mut server.connections, text.parse().ok().filter(|n| (1..=8).contains(n))),
    },
    Setting {
        name: "connect-timeout",
        value: "TIME",
        is_usual: false,
        what: "How long connecting may take, including name look-up, TLS and login",
        allowed: "from 10ms to 1m",
        default: "1s",
        set: |server, text| put(&mut server.connect_timeout, within(text, SHORTEST..=MINUTE)),
    },
    Setting {
        name: "response-timeout",
        value: "TIME",
        is_usual: false,
        what: "How long an answer may take, at most half of the lease",
        allowed: "from 10ms to 1m",
        default: "1s, or half of a shorter lease",
        set: |server, text| put(&mut server.response_timeout, within(text, SHORTEST..=MINUTE)),
    },
    Setting {
        name: "thread-wait",
        value: "TIME",
        is_usual: false,
        what: "How long a silent waiter in Redisson's queue counts as alive; Java's clients must use the same",
        allowed: "from 10ms to 1d, with --discipline redisson",
        default: "5m",
        set: |server, text| put(&mut server.thread_wait, within(text, SHORTEST..=DAY)),
    },
];

/// Those of `run` alone.
pub(super) const RUN: [Setting<Terms>; 4] = [
    Setting {
        name: "lease",
        value: "TIME",
        is_usual: true,
        what: "How long the server keeps the lock without a renewal; it is renewed every third of that",
        allowed: "from 1s to 36500d",
        default: "30s; with --durable the longest that the server grants: 10s, with a quorum 7.5s",
        set: |terms, text| put(&mut terms.lease, within(text, SHORTEST_LEASE..=LONGEST)),
    },
    Setting {
        name: "place-ttl",
        value: "TIME",
        is_usual: false,
        what: "How long the server keeps a place in the queue without a heartbeat; one comes every third of that",
        allowed: "from 500ms to 36500d",
        default: "5s",
        set: |terms, text| put(&mut terms.place_ttl, within(text, SHORTEST_PLACE_TTL..=LONGEST)),
    },
    Setting {
        name: "outage-limit",
        value: "TIME",
        is_usual: false,
        what: "How long a wait goes on without any answer, also for a server that is full or away at the start without --wait, before it \
               ends with code 122",
        allowed: "from 10ms to 36500d",
        default: "10s; for locks of this machine none",
        set: |terms, text| put(&mut terms.outage_limit, within(text, SHORTEST..=LONGEST)),
    },
    Setting {
        name: "label",
        value: "TEXT",
        is_usual: true,
        what: "The name that others see, before host and process",
        allowed: "at most 128 bytes without control characters",
        default: "only host and process",
        set: |terms, text| {
            let is_short = text.len() <= LONGEST_LABEL && !text.contains(char::is_control);
            put(&mut terms.label, is_short.then(|| text.to_owned()))
        },
    },
];

fn put<V>(place: &mut Option<V>, value: Option<V>) -> Option<()> {
    *place = Some(value?);
    Some(())
}

fn is_of_postgres(url: &str) -> bool {
    ["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme))
}

/// `announced:port=reached:port`.
fn mapped(text: &str) -> Option<(Address, Address)> {
    let address = |text: &str| {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Some((host.to_owned(), port.parse().ok()?)).filter(|(host, _)| !host.is_empty())
    };
    let (announced, reached) = text.split_once('=')?;
    Some((address(announced)?, address(reached)?))
}
