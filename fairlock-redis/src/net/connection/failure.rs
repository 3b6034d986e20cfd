//! Failures of a call, what each means for its caller, and what to do about it. Of a server's words only what may be shown is shown.

use std::ops::Deref;
use std::time::Duration;
use std::{fmt, io};

use fairlock_core::backend::{BackendError, BackendErrorKind, Text};
use fairlock_net::{NO_ANSWER, Secrets, TlsFailure, in_words, one_line, within};
use redis::RedisError;

/// Why there is no reply. The variants differ by what is known of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The server refused the request (or its certificate was refused): the request was not executed, except as far as a
    /// script got before it failed. The connection is fine. `is_unsent`: it refused the connection, so the request was never sent.
    Refused { code: String, message: ServerText, is_unsent: bool },
    /// The link failed after the request was, or may have been, written: whether it was executed is unknown.
    Broken(Text),
    /// The request was never sent, and so certainly not executed.
    NotSent(Text),
}

/// How the cause of [`Failure::Broken`] begins when the answer was no Redis reply.
const GARBLED: &str = "an unintelligible answer";

/// What listens at the address if the first answer was no Redis reply.
const NO_REDIS: &str = "what answers there is not a Redis server; check host and port";

/// How the cause begins if TLS can't be begun from here.
const NO_TLS_HERE: &str = "there is no TLS from here: ";

/// The other end has closed the connection. In front of what answers nothing to Redis it does so at once.
const CLOSED: &str = "the server closed the connection";

/// How TLS says that the peer does not speak it.
const NO_TLS: &str = "corrupt message";

/// How a script's error shows a missing right: its code is a bare ERR in every version, and in 6.2 the script's place where the script
/// returns what `pcall` gave.
const RIGHTS: [&str; 4] =
    ["ACL failure in script", "can't run this command or subcommand", "No permissions", "no permissions"];

impl Failure {
    /// A server's error reply. A code that the server wrapped in an `ERR` is unwrapped.
    pub(crate) fn refused(code: &str, message: &str) -> Failure {
        Failure::refused_hiding(&Secrets::default(), code, message)
    }

    /// The error reply of a server that may repeat a secret in its words.
    pub(super) fn hiding(secrets: &Secrets, error: &RedisError) -> Failure {
        let (code, detail) = (error.code().unwrap_or("ERR"), error.detail().unwrap_or_default());
        Failure::refused_hiding(secrets, code, detail)
    }

    fn of_certificate(code: &str, cause: &str) -> Failure {
        Failure::Refused { code: code.to_owned(), message: cause.into(), is_unsent: true }
    }

    /// A server's error reply that may repeat a secret. The secret is removed before the text is cut: a cut could leave a part of it.
    fn refused_hiding(secrets: &Secrets, code: &str, message: &str) -> Failure {
        let whole = secrets.hide(&format!("{code} {message}"));
        let (shown_code, shown) = whole.split_once(' ').unwrap_or((&whole, ""));
        let (_, shown) = Failure::unwrapped(code, shown);
        let (code, said) = Failure::unwrapped(code, message);
        // What stands where a code does may be the secret, unless it means something.
        let has_meaning = matches!(&*code, "ERR" | "NOSCRIPT") || verdict(&code, "").1 != REFUSED;
        let code = if has_meaning { code } else { one_line(shown_code) };
        Failure::Refused { code, message: ServerText::new(said, shown), is_unsent: false }
    }

    fn unwrapped(code: &str, message: &str) -> (String, String) {
        // A server whose AUTH was renamed, or a proxy without it, replies
        // `ERR unknown command 'AUTH', with args beginning with: 'secret'`.
        let message = message.split(", with args").next().unwrap_or_default();
        let code = match code {
            "ERR" | "@user_script:" if RIGHTS.iter().any(|words| message.contains(words)) => "NOPERM",
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
        let message = message.split(". ").next().unwrap_or_default().trim_end_matches('.');
        (one_line(code), one_line(message))
    }

    /// Whether the other end has closed the connection before it was of use.
    pub(super) fn was_closed(&self) -> bool {
        matches!(self, Failure::NotSent(cause) if **cause == *CLOSED)
    }

    /// There was no answer until the deadline.
    pub(crate) fn no_answer() -> Failure {
        Failure::Broken(NO_ANSWER.into())
    }

    /// The failure with the setting whose time was over: reads and writes know a deadline only.
    pub(crate) fn within_connect(self, limit: Duration) -> Failure {
        self.within(limit, "connect_timeout")
    }

    /// See [`within_connect`](Failure::within_connect).
    pub(crate) fn within_response(self, limit: Duration) -> Failure {
        self.within(limit, "response_timeout")
    }

    fn within(self, limit: Duration, setting: &'static str) -> Failure {
        let named =
            |cause: Text| within(&cause, limit).map_or(cause, |late| Text::from(late).about_setting(setting));
        match self {
            Failure::Broken(cause) => Failure::Broken(named(cause)),
            Failure::NotSent(cause) => Failure::NotSent(named(cause)),
            refused => refused,
        }
    }

    /// The answer was no Redis reply.
    pub(super) fn garbled(what: &str) -> Failure {
        Failure::Broken(format!("{GARBLED} ({what})").into())
    }

    /// The first word of the server's refusal; none for other failures.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Failure::Refused { code, .. } => Some(code),
            Failure::Broken(_) | Failure::NotSent(_) => None,
        }
    }

    /// Of the failures of several servers the one to tell: a refusal says more than silence; otherwise the later failure.
    pub(crate) fn or(self, later: Failure) -> Failure {
        if self.code().is_some() && later.code().is_none() { self } else { later }
    }

    /// The same failure for a request that waited for a connection, which could not be made.
    pub(crate) fn before_sending(self) -> Failure {
        match self {
            Failure::Broken(cause) if cause.starts_with(GARBLED) => Failure::NotSent(NO_REDIS.into()),
            Failure::Broken(cause) => Failure::NotSent(cause),
            Failure::Refused { code, message, .. } => Failure::Refused { code, message, is_unsent: true },
            unsent => unsent,
        }
    }

    /// What is known, and the setting whose time was over.
    pub(crate) fn text(&self) -> Text {
        match self {
            Failure::Refused { code, message, .. } => said(verdict(code, message).1, code, message).into(),
            Failure::Broken(cause) => {
                cause.clone().reworded(|cause| format!("{cause}; whether it was carried out is not known"))
            }
            Failure::NotSent(cause) => cause.clone(),
        }
    }

    /// Whether the request was never sent.
    fn is_unsent(&self) -> bool {
        matches!(self, Failure::NotSent(_) | Failure::Refused { is_unsent: true, .. })
    }

    /// Whether the server refuses this request now and later: a right is missing, or the command is. Not if it is busy, or loads.
    pub(crate) fn is_lasting_refusal(&self) -> bool {
        let Failure::Refused { code, message, is_unsent: false } = self else { return false };
        let (kind, words, _) = verdict(code, message);
        kind != BackendErrorKind::Unavailable || words == REFUSED
    }

    /// Whether one end does not accept the other's certificate.
    pub(super) fn is_of_certificate(&self) -> bool {
        matches!(self.code(), Some(CERTIFICATE | NO_CERTIFICATE))
    }

    /// Whether the server refused the login.
    pub(super) fn is_of_login(&self) -> bool {
        let Failure::Refused { code, message, .. } = self else { return false };
        matches!(&**code, "WRONGPASS" | "NOAUTH" | "ERR")
            && verdict(code, message).0 == BackendErrorKind::Denied
    }

    /// The failure with the user that was refused.
    pub(super) fn of_user(self, user: &str) -> Failure {
        match self {
            Failure::Refused { code, message, is_unsent } if code != "NOAUTH" => Failure::Refused {
                code,
                message: message.and(&format!(", user `{}`", one_line(user))),
                is_unsent,
            },
            other => other,
        }
    }

    /// This failure of a login with a user and no password.
    pub(super) fn without_password(self) -> Failure {
        match self {
            Failure::Refused { code, is_unsent, .. } if code == "WRONGPASS" => {
                Failure::Refused { code, message: ONLY_USER.into(), is_unsent }
            }
            other => other,
        }
    }

    /// The error for the backend's caller; `asked` says in a few words what the server was asked for.
    pub(crate) fn explain(&self, address: &impl fmt::Display, asked: &str) -> BackendError {
        self.explain_as(None, address, asked)
    }

    /// The error at the first contact: a peer that is no Redis server, or has no TLS, stays so. Later the same failure may come from a
    /// proxy that has lost its server.
    pub(crate) fn explain_first(&self, address: &impl fmt::Display, asked: &str) -> BackendError {
        let error = self.explain(address, asked);
        match self {
            Failure::NotSent(cause)
                if **cause == *NO_REDIS || cause.starts_with(NO_TLS_HERE) || cause.contains(NO_TLS) =>
            {
                BackendError::new(BackendErrorKind::InvalidConfig, &error)
            }
            _ => error,
        }
    }

    /// The error for a refusal whose code means something to the caller.
    pub(crate) fn explain_as(
        &self,
        meaning: Option<Meaning>,
        address: &impl fmt::Display,
        asked: &str,
    ) -> BackendError {
        let (kind, what) = match self {
            Failure::Refused { code, message, .. } => {
                let (kind, words, to_do) = meaning.unwrap_or_else(|| verdict(code, message));
                let then = if to_do.is_empty() { "" } else { "; " };
                (kind, format!("{}{then}{to_do}", said(words, code, message)).into())
            }
            Failure::Broken(_) | Failure::NotSent(_) => (BackendErrorKind::Unavailable, self.text()),
        };
        let error =
            BackendError::new(kind, what.reworded(|what| format!("Redis at {address}, {asked}: {what}")));
        if self.is_unsent() { error.unsent() } else { error }
    }
}

/// What a refusal means, and the server's words. A code that is not Redis's is not shown.
fn said(words: &str, code: &str, message: &ServerText) -> String {
    match code {
        CERTIFICATE | NO_CERTIFICATE => format!("{words}: {message}"),
        _ => format!("{words} ({code} {message})"),
    }
}

/// The code in what Redis 6.2 says of a script's error, as in `… @user_script:1: -READONLY You can't write`.
fn wrapped(message: &str) -> Option<&str> {
    let is_code = |word: &&str| word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_uppercase());
    let first_words = message.split(": ").filter_map(|part| part.split_whitespace().next());
    first_words.map(|word| word.trim_start_matches('-')).find(is_code)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text().fmt(f)
    }
}

impl From<Failure> for Text {
    fn from(failure: Failure) -> Text {
        failure.text()
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        if let Some(failure) = TlsFailure::of(&error) {
            return failure.into();
        }
        match error.kind() {
            // NotFound is that of a socket's path.
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
                Failure::Broken(format!("{}; is Redis running there?", in_words(&error)).into())
            }
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                Failure::Broken(CLOSED.into())
            }
            _ => Failure::Broken(in_words(&error).into()),
        }
    }
}

impl From<TlsFailure> for Failure {
    fn from(failure: TlsFailure) -> Failure {
        match failure {
            TlsFailure::NotBegun(cause) => Failure::NotSent(format!("{NO_TLS_HERE}{cause}").into()),
            TlsFailure::Certificate(cause) => Failure::of_certificate(CERTIFICATE, &cause),
            TlsFailure::Refused(cause) => Failure::of_certificate(NO_CERTIFICATE, &cause),
            // A port without TLS says nothing, closes, or sends something else.
            TlsFailure::Handshake(_) => {
                let to_do = "if this port has no TLS, write redis for rediss in the address";
                Failure::NotSent(format!("{failure}; {to_do}").into())
            }
        }
    }
}

/// Not codes of Redis: the client does not trust the server's certificate, or the server the client's.
const CERTIFICATE: &str = "CERTIFICATE";
const NO_CERTIFICATE: &str = "NOCERTIFICATE";

/// Not a code of Redis: a replica of a master that is well, where no other server is known.
pub(crate) const REPLICA: &str = "REPLICA";

/// Not codes of Redis: what listens there instead.
pub(super) const POSTGRES: &str = "POSTGRESQL";
pub(super) const TLS: &str = "TLS";

/// In place of the server's words, for a login without a password.
const ONLY_USER: &str = "the address has a user and no password";

/// In words, a refusal that has no meaning to us.
const REFUSED: &str = "the server refused";

/// What a refusal means: its kind, in words, and what to do if that is not plain from the words.
pub(crate) type Meaning = (BackendErrorKind, &'static str, &'static str);

/// What a refusal of Redis means.
fn verdict(code: &str, message: &str) -> Meaning {
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

/// A server's words. `Debug` and `Display` hide secrets. The rest of the code reads the words unchanged: a password may well be a
/// word that the code looks for.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ServerText {
    said: String,
    shown: Option<String>,
}

impl ServerText {
    fn new(said: String, shown: String) -> ServerText {
        let shown = Some(shown).filter(|shown| *shown != said);
        ServerText { said, shown }
    }

    /// The server's words, and behind them words of ours.
    fn and(self, more: &str) -> ServerText {
        ServerText { said: self.said + more, shown: self.shown.map(|shown| shown + more) }
    }
}

impl From<&str> for ServerText {
    fn from(said: &str) -> ServerText {
        ServerText { said: said.to_owned(), shown: None }
    }
}

impl Deref for ServerText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.said
    }
}

impl fmt::Display for ServerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.shown.as_ref().unwrap_or(&self.said))
    }
}

impl fmt::Debug for ServerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.shown.as_ref().unwrap_or(&self.said), f)
    }
}

#[cfg(test)]
mod tests;
