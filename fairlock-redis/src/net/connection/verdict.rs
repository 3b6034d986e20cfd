//! What the refusals of Redis mean, and what to do about them.

use fairlock_core::backend::BackendErrorKind;

/// Not codes of Redis: the client does not trust the server's certificate, or the server the client's.
pub(super) const CERTIFICATE: &str = "CERTIFICATE";
pub(super) const NO_CERTIFICATE: &str = "NOCERTIFICATE";

/// Not a code of Redis: a replica of a master that is well, where no other server is known.
pub(crate) const REPLICA: &str = "REPLICA";

/// Not codes of Redis: what listens there instead.
pub(super) const POSTGRES: &str = "POSTGRESQL";
pub(super) const TLS: &str = "TLS";

/// In place of the server's words, for a login without a password.
pub(super) const ONLY_USER: &str = "the address has a user and no password";

/// In words, a refusal that has no meaning to us.
pub(super) const REFUSED: &str = "the server refused";

/// What a refusal means: its kind, in words, and what to do if that is not plain from the words.
pub(crate) type Meaning = (BackendErrorKind, &'static str, &'static str);

/// What a refusal of Redis means.
pub(super) fn verdict(code: &str, message: &str) -> Meaning {
    use BackendErrorKind::{Corrupt, Denied, InvalidConfig, InvalidName, Refused, Unavailable, Unsupported};
    let says = |words: &[&str]| words.iter().any(|words| message.contains(words));
    // Redis, services, and proxies (Envoy, twemproxy).
    let is_unknown =
        says(&["unknown command", "Unknown Redis command", "Unknown command", "unsupported command"]);
    match code {
        "OOM" => (
            Refused,
            "the server is out of memory",
            "free some, or raise its maxmemory; locks that are held or waited for go on",
        ),
        "MISCONF" => (
            Refused,
            "the server can't save its data and refuses writes",
            "its log has the reason, often a full disk or a missing right to write there",
        ),
        REPLICA => (
            InvalidConfig,
            "the server is a replica, it takes no writes",
            "connect to its master, or name the sentinels (redis+sentinel://HOSTS/MASTER)",
        ),
        "LAYOUT" => (
            Unsupported,
            "it has the layout of a newer version, and this version of fairlock knows layouts up to 1",
            "use a newer fairlock here",
        ),
        "LATE" => (Unavailable, "the request arrived after its end", ""),
        "OLDEPOCH" => (Unavailable, "another server was named in between", ""),
        "READONLY" => (Unavailable, "the server is a replica, it takes no writes", ""),
        "LOADING" => (Unavailable, "the server is still loading its data", ""),
        "BUSY" | "UNKILLABLE" => (Unavailable, "the server is busy with a script", ""),
        "TRYAGAIN" => (Unavailable, "the lock is being moved between servers", ""),
        "CLUSTERDOWN" => (Unavailable, "the cluster is down", ""),
        "MASTERDOWN" => (Unavailable, "the replica has lost its master", ""),
        "NOREPLICAS" => (Unavailable, "too few replicas are connected", ""),
        "NOAUTH" => (Denied, "the server asks for a password", ""),
        "WRONGPASS" if message == ONLY_USER => {
            (Denied, "wrong user or password", "a password without a user is written :PASSWORD@HOST")
        }
        "WRONGPASS" => (Denied, "wrong user or password", "ACL LIST at the server has its users"),
        // A user without PING can't run the command either.
        "NOPERM" if says(&["'ping'"]) => (Denied, "the user lacks a right", ""),
        "NOPERM" => {
            (Denied, "the user lacks a right", "`fairlock doctor NAME` lists the rights that lock NAME needs")
        }
        "DENIED" => (Denied, "the server's protected mode lets no other host in", ""),
        "WRONGTYPE" => (Corrupt, "a key has another type", ""),
        "CROSSSLOT" => (
            InvalidName,
            "a cluster can't keep the keys of this name together",
            "put text between the first { and the next }, or leave braces out",
        ),
        "MOVED" | "ASK" => (
            InvalidConfig,
            "the server is one of a cluster, which was not connected to as one",
            "write redis+cluster for redis in the address",
        ),
        "NOMASTER" => (InvalidConfig, "the sentinels know no master of that name", ""),
        POSTGRES => (InvalidConfig, "what listens there is not Redis", "check host and port"),
        TLS => (InvalidConfig, "the port has TLS", "write rediss for redis in the address"),
        CERTIFICATE => (InvalidConfig, "the server's certificate is not trusted", ""),
        NO_CERTIFICATE => (InvalidConfig, "the server refuses the connection", ""),
        "ERR" if says(&["DB index is out of range", "invalid DB index", "SELECT is not allowed"]) => {
            (InvalidConfig, "the server has no such database", "")
        }
        "ERR" if says(&["No such master with that name"]) => {
            (InvalidConfig, "the sentinels know no master of that name", "")
        }
        "ERR" if says(&["cluster support disabled"]) => (
            InvalidConfig,
            "the server is not in cluster mode",
            "connect to it as a single server: RedisBackend::connect, or redis:// in place of redis+cluster://",
        ),
        "ERR" if is_unknown && says(&["SENTINEL"]) => (
            InvalidConfig,
            "no sentinel answers there, but a server",
            "name the sentinels' port (26379), or connect to the server itself by redis://HOST:PORT",
        ),
        "ERR" if is_unknown => (InvalidConfig, "the server lacks a command", ""),
        "ERR" if says(&["without any password configured", "no password is set"]) => (
            Denied,
            "the address has a password, but the server has none",
            "leave the password out for this server, or set one there (requirepass)",
        ),
        "ERR" if says(&["Client sent AUTH", "invalid password", "for 'auth' command"]) => {
            (Denied, "wrong user or password", "")
        }
        // An unknown answer: it may be another one the next time.
        _ => (Unavailable, REFUSED, ""),
    }
}
