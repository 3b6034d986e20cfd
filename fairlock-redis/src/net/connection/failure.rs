//! Failures of a call, and what each means for its caller.

use std::fmt;
use std::io;

use fairlock_core::backend::{BackendError, BackendErrorKind};
use redis::{ErrorKind, RedisError};

use super::secrets::{Said, Secrets};

/// Why there is no reply. The variants differ by what is known of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The server refused the request (or its certificate was refused): the request was not executed, except as far as a
    /// script got before it failed. The connection is fine.
    Refused { code: String, message: Said },
    /// The link failed after the request was, or may have been, written: whether it was executed is unknown.
    Broken(String),
    /// The request was never sent, and so certainly not executed.
    NotSent(String),
}

/// Not a code of Redis: stands for a refused certificate of the server.
const CERTIFICATE: &str = "CERTIFICATE";

/// In place of the server's words, for a login without a password.
const ONLY_USER: &str = "the address has a user and no password";

/// How the cause of [`Failure::Broken`] begins when the answer was no Redis reply.
const GARBLED: &str = "an unintelligible answer";

/// In words, a refusal that has no meaning to us.
const REFUSED: &str = "the server refused";

/// How a script's error shows a missing right: its code is a bare ERR in every version.
const RIGHTS: [&str; 4] =
    ["ACL failure in script", "can't run this command or subcommand", "No permissions", "no permissions"];

impl Failure {
    /// A server's error reply. A code that the server wrapped in an `ERR` is unwrapped.
    pub(crate) fn refused(code: &str, message: &str) -> Failure {
        Failure::refused_hiding(&Secrets::default(), code, message)
    }

    /// The same of a server that may repeat a secret. That is looked for before anything is cut off, which could leave a part of it.
    fn refused_hiding(secrets: &Secrets, code: &str, message: &str) -> Failure {
        let whole = secrets.hide(&format!("{code} {message}"));
        let (shown_code, shown) = whole.split_once(' ').unwrap_or((&whole, ""));
        let (_, shown) = Failure::unwrapped(code, shown);
        let (code, said) = Failure::unwrapped(code, message);
        // What stands where a code does may be the secret, unless it means something.
        let has_meaning = matches!(&*code, "ERR" | "NOSCRIPT") || verdict(&code, "").1 != REFUSED;
        let code = if has_meaning { code } else { one_line(shown_code) };
        Failure::Refused { code, message: Said::new(said, shown) }
    }

    fn unwrapped(code: &str, message: &str) -> (String, String) {
        // A server whose AUTH was renamed, or a proxy without it, replies
        // `ERR unknown command 'AUTH', with args beginning with: 'secret'`.
        let message = message.split(", with args").next().unwrap_or_default();
        let code = match code {
            "ERR" if RIGHTS.iter().any(|words| message.contains(words)) => "NOPERM",
            "ERR" if message.starts_with("Error running script") => wrapped(message).unwrap_or("ERR"),
            code => code,
        };
        // The position in a script helps with an unknown error only, and what follows the first sentence is for the
        // server's administrator.
        let message = match code {
            "ERR" => message,
            _ if message.starts_with("Error running script") => {
                let last = message.rsplit(": ").next().unwrap_or_default().trim_start_matches('-');
                last.strip_prefix(code).unwrap_or(last)
            }
            _ => message.split(" script: ").next().unwrap_or_default(),
        };
        let message = message.split(". ").next().unwrap_or_default();
        (one_line(code), one_line(message))
    }

    /// There was no answer until the deadline.
    pub(crate) fn no_answer() -> Failure {
        Failure::Broken("no answer in time".to_owned())
    }

    /// The answer was no Redis reply.
    pub(super) fn garbled(what: &str) -> Failure {
        Failure::Broken(format!("{GARBLED} ({what})"))
    }

    /// The first word of the server's refusal; none for other failures.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Failure::Refused { code, .. } => Some(code),
            Failure::Broken(_) | Failure::NotSent(_) => None,
        }
    }

    /// Of the failures of several servers, the one to tell: a refusal says more than the silence of another, else the later one.
    pub(crate) fn or(self, later: Failure) -> Failure {
        if self.code().is_some() && later.code().is_none() { self } else { later }
    }

    /// The same failure for a request that waited for a connection, which could not be made.
    pub(crate) fn before_sending(self) -> Failure {
        match self {
            Failure::Broken(cause) if cause.contains("invalid peer certificate") => {
                Failure::Refused { code: CERTIFICATE.to_owned(), message: cause.as_str().into() }
            }
            Failure::Broken(cause) if cause.starts_with(GARBLED) => {
                let what = "what answers there is not a Redis server; check host and port";
                Failure::NotSent(what.to_owned())
            }
            Failure::Broken(cause) => Failure::NotSent(cause),
            settled => settled,
        }
    }

    /// The same failure in a TLS handshake. A port without TLS says nothing, closes, or sends something else.
    #[cfg(feature = "tls-rustls")]
    pub(super) fn in_handshake(self) -> Failure {
        match self.before_sending() {
            Failure::NotSent(cause) => {
                let to_do = "if this port has no TLS, write redis for rediss in the address";
                Failure::NotSent(format!("the TLS handshake failed: {cause}; {to_do}"))
            }
            settled => settled,
        }
    }

    /// The same failure of a login that gave a user and no password.
    pub(super) fn without_password(self) -> Failure {
        match self {
            Failure::Refused { code, .. } if code == "WRONGPASS" => {
                Failure::Refused { code, message: ONLY_USER.into() }
            }
            other => other,
        }
    }

    /// The error for the backend's caller; `asked` says in a few words what the server was asked for.
    pub(crate) fn explain(&self, address: &impl fmt::Display, asked: &str) -> BackendError {
        self.explain_as(None, address, asked)
    }

    /// The same of a refusal whose code means something to the one who asked.
    pub(crate) fn explain_as(
        &self,
        meaning: Option<Meaning>,
        address: &impl fmt::Display,
        asked: &str,
    ) -> BackendError {
        let (kind, what) = match self {
            Failure::Refused { code, message } => {
                let (kind, words, to_do) = meaning.unwrap_or_else(|| verdict(code, message));
                let then = if to_do.is_empty() { "" } else { "; " };
                (kind, format!("{words} ({code} {message}){then}{to_do}"))
            }
            Failure::Broken(_) | Failure::NotSent(_) => (BackendErrorKind::Unavailable, self.to_string()),
        };
        BackendError::new(kind, format!("Redis at {address}, {asked}: {what}"))
    }
}

/// What a refusal means: its kind, in words, and what to do if that is not plain from the words.
pub(crate) type Meaning = (BackendErrorKind, &'static str, &'static str);

/// The code in what Redis 6.2 says of a script's error, as in `… @user_script:1: -READONLY You can't write`.
fn wrapped(message: &str) -> Option<&str> {
    let is_code = |word: &&str| word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_uppercase());
    let first_words = message.split(": ").filter_map(|part| part.split_whitespace().next());
    first_words.map(|word| word.trim_start_matches('-')).find(is_code)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused { code, message } => {
                write!(f, "{} ({code} {message})", verdict(code, message).1)
            }
            Failure::Broken(cause) => write!(f, "{cause}; whether it was carried out is not known"),
            Failure::NotSent(cause) => f.write_str(cause),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Failure::no_answer(),
            _ => Failure::Broken(one_line(&error.to_string())),
        }
    }
}

impl Failure {
    /// Of a server that may repeat a secret in its words.
    pub(super) fn hiding(secrets: &Secrets, error: RedisError) -> Failure {
        let words = secrets.hide(&error.to_string());
        match error.kind() {
            ErrorKind::Server(_) | ErrorKind::Extension => {
                let (code, detail) = (error.code().unwrap_or("ERR"), error.detail().unwrap_or_default());
                Failure::refused_hiding(secrets, code, detail)
            }
            ErrorKind::AuthenticationFailed => Failure::refused("WRONGPASS", &words),
            ErrorKind::Io if error.is_timeout() => Failure::no_answer(),
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => Failure::garbled(&one_line(&words)),
            // Of the others, only that of the link itself comes from a part of the crate that is used here.
            _ => Failure::Broken(one_line(&words)),
        }
    }
}

/// What a refusal of Redis means.
fn verdict(code: &str, message: &str) -> Meaning {
    use BackendErrorKind::{Corrupt, Denied, InvalidConfig, InvalidName, Unavailable};
    let says = |words: &[&str]| words.iter().any(|words| message.contains(words));
    let is_unknown = says(&["unknown command", "Unknown Redis command", "Unknown command"]);
    match code {
        "OOM" => (Unavailable, "the server is out of memory", ""),
        "MISCONF" => (Unavailable, "the server can't save its data and refuses writes", ""),
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
        "WRONGPASS" => (Denied, "wrong user or password", ""),
        // A user without PING can't run the command either.
        "NOPERM" if says(&["'ping'"]) => (Denied, "the user lacks a right", ""),
        "NOPERM" => {
            (Denied, "the user lacks a right", "`fairlock doctor NAME` lists the rights that lock NAME needs")
        }
        "DENIED" => (Denied, "the server's protected mode lets no other host in", ""),
        "WRONGTYPE" => (Corrupt, "a key has another type", ""),
        "CROSSSLOT" => (InvalidName, "a cluster can't keep the keys of this name together", ""),
        "MOVED" | "ASK" => (
            InvalidConfig,
            "the server is one of a cluster, which was not connected to as one",
            "write redis+cluster for redis in the address",
        ),
        "NOMASTER" => (InvalidConfig, "the sentinels know no master of that name", ""),
        CERTIFICATE => (InvalidConfig, "the server's certificate is not trusted", ""),
        "ERR" if says(&["DB index is out of range", "invalid DB index", "SELECT is not allowed"]) => {
            (InvalidConfig, "the server has no such database", "")
        }
        "ERR" if says(&["No such master with that name"]) => {
            (InvalidConfig, "the sentinels know no master of that name", "")
        }
        "ERR" if says(&["cluster support disabled"]) => (
            InvalidConfig,
            "the server is not in cluster mode",
            "write redis for redis+cluster in the address",
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

/// A text from the server, cut to one short line.
fn one_line(text: &str) -> String {
    const LONGEST: usize = 200;
    let line = text.trim().replace(char::is_control, " ");
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::connection::Address;
    use BackendErrorKind::*;

    /// The failure for an error reply on the wire.
    fn from_wire(reply: &str) -> Failure {
        let value = redis::parse_redis_value(format!("-{reply}\r\n").as_bytes()).expect("a reply");
        Failure::hiding(&Secrets::default(), value.extract_error().expect_err("an error"))
    }

    #[test]
    fn refusals_get_their_kind_by_the_code_even_where_it_is_wrapped() {
        for (reply, kind) in [
            ("OOM command not allowed when used memory > 'maxmemory'.", Unavailable),
            ("MISCONF Redis is configured to save RDB snapshots", Unavailable),
            ("READONLY You can't write against a read only replica.", Unavailable),
            ("LOADING Redis is loading the dataset in memory", Unavailable),
            ("BUSY Valkey is busy running a script", Unavailable),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Unavailable),
            ("CLUSTERDOWN Hash slot not served", Unavailable),
            ("MASTERDOWN Link with MASTER is down", Unavailable),
            ("NOREPLICAS Not enough good replicas to write.", Unavailable),
            ("ERR max number of clients reached", Unavailable),
            ("SOMETHING new", Unavailable),
            ("ONEWORD", Unavailable),
            ("NOAUTH Authentication required.", Denied),
            ("WRONGPASS invalid username-password pair or user is disabled.", Denied),
            ("NOPERM this user has no permissions to run the 'ping' command", Denied),
            ("ERR AUTH <password> called without any password configured for the default user.", Denied),
            ("ERR invalid password", Denied),
            ("DENIED Redis is running in protected mode", Denied),
            (
                "ERR The user executing the script can't run this command or subcommand script: 5f, on @user_script:1.",
                Denied,
            ),
            ("ERR ACL failure in script: User x has no permissions to run the 'set' command", Denied),
            (
                "ERR Error running script (call to f_1): @user_script:1: The user executing the script can't run this command or subcommand",
                Denied,
            ),
            (
                "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY You can't write",
                Unavailable,
            ),
            (
                "ERR Error running script (call to f_1): @user_script:1: WRONGTYPE Operation against a key",
                Corrupt,
            ),
            ("ERR Error running script (call to f_1): @user_script:1: -OOM command not allowed", Unavailable),
            (
                "WRONGTYPE Operation against a key holding the wrong kind of value script: 1, on @user_script:2.",
                Corrupt,
            ),
            ("CROSSSLOT Keys in request don't hash to the same slot", InvalidName),
            ("MOVED 3999 127.0.0.1:6381", InvalidConfig),
            ("ERR DB index is out of range", InvalidConfig),
            ("ERR unknown command 'EVALSHA', with args beginning with: 'x'", InvalidConfig),
            ("ERR unknown command `SENTINEL`, with args beginning with: `x`", InvalidConfig),
        ] {
            let address = Address::parse("redis://u:canary@h:1").expect("an address");
            let error = from_wire(reply).explain(&address, "acquire");
            assert_eq!(error.kind(), kind, "{reply}: {error}");
            assert!(error.message().starts_with("Redis at h:1, acquire: "), "{error}");
        }
        let hidden =
            from_wire("ERR Error running script (call to f_1): @user_script:1: -READONLY You can't write");
        assert_eq!(hidden.code(), Some("READONLY"));
        assert_eq!(from_wire("NOSCRIPT No matching script.").code(), Some("NOSCRIPT"));
    }

    #[test]
    fn messages_are_one_short_line_without_what_was_sent() {
        let long = Failure::refused("ERR", &format!("two\nlines {}", "x".repeat(1000)));
        assert!(long.to_string().len() < 300 && !long.to_string().contains('\n'), "{long}");
        let in_script = "Operation against a key script: 5f, on @user_script:1.";
        let of_6_2 = "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -WRONGTYPE";
        for reply in [format!("WRONGTYPE {in_script}"), format!("{of_6_2} Operation against a key")] {
            let shown = "a key has another type (WRONGTYPE Operation against a key)";
            assert_eq!(from_wire(&reply).to_string(), shown);
        }
        assert!(
            from_wire(&format!("ERR {in_script}")).to_string().contains("@user_script:1"),
            "it shows where"
        );
        let auth = from_wire("ERR unknown command `AUTH`, with args beginning with: `canary`, ");
        assert!(!format!("{auth:?}").contains("canary"), "{auth:?}");
    }

    #[test]
    fn without_a_reply_the_outcome_is_unknown_unless_nothing_was_sent() {
        let time_out = RedisError::from(std::io::Error::from(std::io::ErrorKind::WouldBlock));
        assert_eq!(
            Failure::hiding(&Secrets::default(), time_out),
            Failure::Broken("no answer in time".to_owned())
        );
        let garbage = redis::parse_redis_value(b"?x\r\n").expect_err("garbage");
        assert!(matches!(Failure::hiding(&Secrets::default(), garbage), Failure::Broken(_)));
        assert_eq!(Failure::Broken("x".to_owned()).before_sending(), Failure::NotSent("x".to_owned()));
        assert!(matches!(from_wire("NOAUTH x").before_sending(), Failure::Refused { .. }));
        let certificate =
            Failure::Broken("invalid peer certificate: UnknownIssuer".to_owned()).before_sending();
        let address = Address::parse("redis://h:1").expect("an address");
        assert_eq!(certificate.explain(&address, "connecting").kind(), InvalidConfig);
    }
}
