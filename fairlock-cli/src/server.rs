//! The store that the settings name: connects to it, says whether locks are safe there (`fairlock doctor`), and makes the tables of a database
//! (`fairlock migrate`). Which store that is matters nowhere else.

use std::fs::{self, File};
use std::io::{self, stdout};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::Duration;

use fairlock::admin::{Finding, LockName, LockState, Verdict};
use fairlock::backend::Backend;
use fairlock::settings::{ClientBuilder, Login, PostgresBuilder, RedisBuilder};
use fairlock::{Client, Error, FileBackend, PostgresBackend, RedisBackend};
use nix::unistd::getuid;
use serde_json::{Value, json};

use crate::args::{Args, Command, Doctor, Migrate};
use crate::process::{Exit, Failure, JSON_VERSION, confirm, print, say, width_of};
use crate::settings::{SHORTEST_LEASE, Server, Terms, with_option};
use crate::words::{escaped, exact};

/// How long an answer may take, by default.
const RESPONSE: Duration = Duration::from_secs(1);

pub(crate) type Locks = Vec<(LockName, LockState)>;

/// A store, with what the library offers beside its trait.
#[derive(Clone)]
pub(crate) enum Store {
    Redis(RedisBackend),
    Postgres(PostgresBackend),
    File(FileBackend),
}

impl Store {
    pub(crate) fn backend(&self) -> Arc<dyn Backend> {
        match self {
            Store::Redis(backend) => Arc::new(backend.clone()),
            Store::Postgres(backend) => Arc::new(backend.clone()),
            Store::File(backend) => Arc::new(backend.clone()),
        }
    }

    /// The locks in use, and why others can't be read, where each lock is a file of its own.
    pub(crate) fn locks_and_unread(&self, pattern: Option<&str>) -> fairlock::Result<(Locks, Vec<Error>)> {
        match self {
            Store::Redis(backend) => Ok((backend.locks(pattern)?, Vec::new())),
            Store::Postgres(backend) => Ok((backend.locks(pattern)?, Vec::new())),
            Store::File(backend) => backend.locks_and_unread(pattern),
        }
    }

    /// What a process needs to keep this client's holds when its own process is killed. None where the lease does that.
    pub(crate) fn presence(&self, client: &Client) -> Option<File> {
        if let Store::File(backend) = self { backend.presence(client.id()) } else { None }
    }

    /// For how long the server grants nothing more.
    pub(crate) fn grace_left(&self) -> Option<Duration> {
        if let Store::Redis(backend) = self { backend.grace_left() } else { None }
    }
}

/// Connects, so that a wrong address or password fails at once.
pub(crate) fn store(server: &Server) -> Result<Store, Failure> {
    connect(server, server.response_timeout)
}

fn connect(server: &Server, response_timeout: Option<Duration>) -> Result<Store, Failure> {
    let connected = match (postgres(server, response_timeout), redis(server, response_timeout)) {
        (Some(builder), _) => builder.connect().map(Store::Postgres),
        (None, Some(builder)) => builder.connect().map(Store::Redis),
        (None, None) => return file(server).map(Store::File),
    };
    let store = connected.map_err(|error| explained(server, error))?;
    if let Store::Redis(backend) = &store
        && backend.begins_life()
    {
        // An attempt to connect may be repeated.
        TOLD_OF_LIFE.call_once(|| say(BEGINS_LIFE));
    }
    Ok(store)
}

/// A file that is missing when the command starts is a mistake. Later it may be missing while it is replaced.
pub(crate) fn check_password_file(server: &Server) -> Result<(), Failure> {
    let read = server.password_file.as_ref().map_or(Ok(()), |path| Login::from_file(path).map(drop));
    read.map_err(|error| Failure::ours(format!("{error} (--password-file, FAIRLOCK_PASSWORD_FILE)")))
}

static TOLD_OF_LIFE: Once = Once::new();

/// In a cluster already a look begins it.
const BEGINS_LIFE: &str = "no program has been durable on this server so far: the first one that takes or frees a lock with --durable begins \
                           the server's life, and from then on programs without durable are refused, also those that run, until \
                           the key fairlock_life is deleted";

/// The failure with the option that names the store, if the store does not answer.
pub(crate) fn explained(server: &Server, error: Error) -> Failure {
    let mut failure = Failure::from(error);
    if failure.exit == Exit::Unavailable || server.on_this_machine().is_some() {
        failure.message += match (&server.postgres, &server.redis) {
            (Some(_), _) => " (--postgres, FAIRLOCK_POSTGRES)",
            (None, Some(_)) => " (--redis, FAIRLOCK_REDIS)",
            (None, None) => " (--dir, FAIRLOCK_DIR)",
        };
    }
    failure
}

/// A client that holds no lock.
pub(crate) fn client(server: &Server) -> Result<Client, Failure> {
    Ok(Client::new(store(server)?.backend())?)
}

/// A client with these terms, and its store.
pub(crate) fn holder(server: &Server, terms: &Terms) -> Result<(Client, Store), Failure> {
    // A lease has to be twice as long as an answer may take.
    let response_timeout = server.response_timeout.unwrap_or_else(|| RESPONSE.min(terms.lease() / 2));
    let store = connect(server, Some(response_timeout))?;
    let builder = Client::builder(store.backend()).lease(terms.lease());
    let builder = with(builder, terms.place_ttl, ClientBuilder::place_ttl);
    let builder = with(builder, terms.outage_limit, ClientBuilder::outage_limit);
    let builder = with(builder, terms.label.as_deref(), ClientBuilder::label);
    Ok((builder.build()?, store))
}

/// The builder with this setting, if it is given.
fn with<B, T>(builder: B, value: Option<T>, set: impl FnOnce(B, T) -> B) -> B {
    match value {
        Some(value) => set(builder, value),
        None => builder,
    }
}

/// With `--durable` the default lease is the longest that the server grants.
///
/// # Errors
/// A `--lease` that is longer.
pub(crate) fn with_a_durable_lease(mut args: Args) -> Result<Args, Failure> {
    let longest = redis(&args.server, None).and_then(|builder| builder.longest_lease());
    let terms = match &mut args.command {
        Command::Run(run) => Some(&mut run.terms),
        Command::Take(take) => Some(&mut take.terms),
        _ => None,
    };
    if let (Some(terms), Some(longest)) = (terms, longest) {
        let longest = longest.max(SHORTEST_LEASE);
        if let Some(lease) = terms.lease.filter(|lease| *lease > longest) {
            let [lease, longest] = [lease, longest].map(exact);
            return Err(Failure::ours(format!(
                "--lease is {lease}, but with --durable the server grants {longest} at most: choose a shorter --lease, or a \
                 longer trust for all programs"
            )));
        }
        terms.lease = Some(terms.lease().min(longest));
    }
    Ok(args)
}

/// The first line of what a command shows, if no server keeps the locks: an empty list then is no list of the company's locks.
pub(crate) fn where_it_looks(server: &Server) -> String {
    let dir = server.on_this_machine();
    dir.map(|dir| format!("on this machine, in {}\n", dir.display())).unwrap_or_default()
}

/// The same at the end of a line.
pub(crate) fn and_where(server: &Server) -> String {
    let dir = server.on_this_machine();
    dir.map(|dir| format!(" on this machine, in {}", dir.display())).unwrap_or_default()
}

/// None where the settings name no such server.
fn redis(server: &Server, response_timeout: Option<Duration>) -> Option<RedisBuilder> {
    let url = server.with_tls_files(server.redis.as_ref()?);
    let mut builder = RedisBackend::builder(&url).discipline(server.discipline);
    if let Some((user, password)) = &server.sentinel_login {
        builder = builder.sentinel_login(user, password);
    }
    if !server.map.is_empty() {
        let map = server.map.clone();
        builder = builder.map_address(move |host, port| {
            let reached = map.iter().find(|(announced, _)| announced.0 == host && announced.1 == port);
            reached.map_or_else(|| (host.to_owned(), port), |(_, reached)| reached.clone())
        });
    }
    let builder = with(builder, server.durable, RedisBuilder::durable);
    let builder = with(builder, password(server), RedisBuilder::login);
    let builder = with(builder, server.connections, RedisBuilder::connections);
    let builder = with(builder, server.connect_timeout, RedisBuilder::connect_timeout);
    let builder = with(builder, response_timeout, RedisBuilder::response_timeout);
    Some(with(builder, server.thread_wait, RedisBuilder::thread_wait))
}

/// None where the settings name no such server.
fn postgres(server: &Server, response_timeout: Option<Duration>) -> Option<PostgresBuilder> {
    let builder = PostgresBackend::builder(&server.with_tls_files(server.postgres.as_ref()?));
    let listen_on = server.listen_on.as_ref().map(|url| server.with_tls_files(url));
    let builder = with(builder, listen_on, |builder, url| builder.listen_on(&url));
    let builder = with(builder, password(server), PostgresBuilder::login);
    let builder = with(builder, server.connections, PostgresBuilder::connections);
    let builder = with(builder, server.connect_timeout, PostgresBuilder::connect_timeout);
    Some(with(builder, response_timeout, PostgresBuilder::response_timeout))
}

/// What reads `--password-file`, for each connection anew.
fn password(server: &Server) -> Option<impl Fn() -> io::Result<Login> + Send + Sync + 'static> {
    server.password_file.clone().map(|path| move || Login::from_file(&path))
}

/// The locks of this machine.
fn file(server: &Server) -> Result<FileBackend, Failure> {
    let dir = server.on_this_machine().unwrap_or_default();
    let is_usual = server.dir.is_none();
    let refused = |why| Failure::ours(format!("{why}: name a directory (--dir, FAIRLOCK_DIR)"));
    if is_usual {
        check_that_all_see(&dir).map_err(refused)?;
    }
    let backend = FileBackend::open(&dir).map_err(|error| explained(server, error))?;
    // Only now: it stays the directory that was opened.
    if is_usual {
        check_owner(&dir).map_err(refused)?;
    }
    Ok(backend)
}

/// Fails if other processes of this user have another directory of that name.
fn check_that_all_see(dir: &Path) -> Result<(), String> {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let above = dir.parent().unwrap_or(dir);
    let above = above.canonicalize().unwrap_or_else(|_| above.into());
    let seen_by = |process: &str| {
        let path = format!("/proc/{process}/mountinfo");
        fs::read_to_string(&path)
            .map(|mounts| mount_of(&mounts, &above))
            .map_err(|error| format!("{path}: {error}"))
    };
    let shown = above.display();
    match (seen_by("self"), seen_by("1")) {
        (Ok(ours), Ok(of_first)) if ours.is_some() && ours == of_first => Ok(()),
        (Ok(_), Ok(_)) => {
            Err(format!("{shown} is another directory here than for process 1, as with PrivateTmp"))
        }
        (Err(error), _) | (_, Err(error)) => {
            Err(format!("can't tell whether other processes have another {shown} ({error})"))
        }
    }
}

/// Where this directory is, by a process's `mountinfo`: the device, and the path there.
fn mount_of(mounts: &str, dir: &Path) -> Option<(String, PathBuf)> {
    let parts = mounts.lines().filter_map(|line| {
        let mut parts = line.split(' ').skip(2);
        let (device, root, point) = (parts.next()?, parts.next()?, parts.next()?);
        Some((point.len(), device, Path::new(root).join(dir.strip_prefix(point).ok()?)))
    });
    // The nearest one above; of two at one point the later hides the other.
    parts.max_by_key(|(length, ..)| *length).map(|(_, device, path)| (device.to_owned(), path))
}

/// Fails if another user was faster, as anybody can be in /tmp.
fn check_owner(dir: &Path) -> Result<(), String> {
    match fs::symlink_metadata(dir) {
        Ok(found) if found.uid() == getuid().as_raw() => Ok(()),
        Ok(found) => Err(format!("{} belongs to another user ({})", dir.display(), found.uid())),
        Err(error) => Err(format!("can't look at {}: {error}", dir.display())),
    }
}

pub(crate) fn doctor(server: &Server, options: &Doctor) -> Result<Exit, Failure> {
    let lock = options.name.as_deref().map(LockName::new).transpose()?;
    let findings = match redis(server, server.response_timeout) {
        None if options.begin_life => return Err(Failure::ours("--begin-life is for Redis")),
        None if lock.is_some() => {
            return Err(Failure::ours("NAME is for Redis: elsewhere the rights are the same for all locks"));
        }
        None => match postgres(server, server.response_timeout) {
            Some(builder) => builder.doctor().map_err(|error| explained(server, error))?,
            None => file(server)?.doctor()?,
        },
        Some(builder) => match of_redis(server, builder, options, lock.as_ref())? {
            Some(findings) => findings,
            None => return Ok(Exit::No),
        },
    };
    let text = if options.json {
        let all: Vec<Value> = findings.iter().map(to_json).collect();
        format!("{}\n", Value::from(all))
    } else {
        where_it_looks(server) + &to_text(&findings, width_of(stdout()))
    };
    print(&text)?; // if nobody reads it, the exit code remains
    let unsafe_there = findings.iter().any(|finding| finding.verdict == Verdict::Unsafe);
    Ok(if unsafe_there { Exit::No } else { Exit::Done })
}

/// None if it was not confirmed.
fn of_redis(
    server: &Server,
    builder: RedisBuilder,
    options: &Doctor,
    lock: Option<&LockName>,
) -> Result<Option<Vec<Finding>>, Failure> {
    let connected = builder.connect();
    let backend = connected.map_err(|error| {
        let mut failure = explained(server, error);
        if failure.message.contains("no majority") {
            failure.message.push_str("; without --durable it says what each sentinel says");
        }
        failure
    })?;
    if options.begin_life {
        let question = "End the grace? Two clients can then hold a lock, if one of them held it before the server forgot it.";
        if !confirm(question, options.yes)? {
            return Ok(None);
        }
        backend.begin_life()?;
    }
    Ok(Some(lock.map_or_else(|| backend.doctor(), |lock| backend.doctor_for(lock))?))
}

/// The columns before the text of a finding.
const MARGIN: usize = 24;

fn to_text(findings: &[Finding], columns: usize) -> String {
    let (mut text, mut server) = (String::new(), "");
    for finding in findings {
        if finding.server != server {
            server = &finding.server;
            text.push_str(&format!("{server}\n"));
        }
        let what = escaped(&with_option(&finding.text, finding.setting));
        text.push_str(&format!("  {:<7}  {:<11}  ", word(finding.verdict), finding.topic));
        text.push_str(&wrapped(&what, columns.saturating_sub(MARGIN).max(20)));
        text.push('\n');
    }
    text
}

/// Lines of whole words behind the margin. A word that is longer than a line is one: it may be a key to copy.
fn wrapped(text: &str, columns: usize) -> String {
    let (mut lines, mut length) = (String::new(), 0);
    for word in text.split(' ') {
        let width = word.chars().count();
        if length > 0 && length + 1 + width > columns {
            lines.push_str(&format!("\n{:MARGIN$}", ""));
            length = 0;
        } else if length > 0 {
            lines.push(' ');
            length += 1;
        }
        lines.push_str(word);
        length += width;
    }
    lines
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Good => "good",
        Verdict::Note => "note",
        Verdict::Unsafe => "UNSAFE",
        _ => "unknown",
    }
}

fn to_json(finding: &Finding) -> Value {
    let verdict = word(finding.verdict).to_lowercase();
    let text = with_option(&finding.text, finding.setting);
    json!({ "version": JSON_VERSION, "server": finding.server, "topic": finding.topic, "verdict": verdict, "text": text })
}

pub(crate) fn migrate(server: &Server, options: &Migrate) -> Result<Exit, Failure> {
    if options.print {
        let _ = print(&PostgresBackend::migration())?;
    } else {
        let builder = postgres(server, None)
            .ok_or_else(|| Failure::ours("migrate needs a database: --postgres, or FAIRLOCK_POSTGRES"))?;
        builder.migrate().map_err(|error| explained(server, error))?;
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_broken_between_words_and_a_long_word_is_not() {
        let margin = " ".repeat(MARGIN);
        for (text, lines) in [
            ("a lock", vec!["a lock"]),
            ("a lock is lost", vec!["a lock is", "lost"]),
            ("key fairlock_record:{x} is", vec!["key", "fairlock_record:{x}", "is"]),
            ("é é é é é é", vec!["é é é é é", "é"]),
        ] {
            assert_eq!(wrapped(text, 9), lines.join(&format!("\n{margin}")));
        }
    }

    #[test]
    fn the_nearest_mount_above_a_directory_is_its_own() {
        let usual = "27 1 254:0 / / rw shared:1 - ext4 /dev/vda rw\n22 27 0:21 / /proc rw - proc proc rw\n";
        let itself = "31 27 254:0 /tmp /tmp rw - ext4 /dev/vda rw\n";
        let private = "31 27 254:0 /tmp/systemd-private-1/tmp /tmp rw - ext4 /dev/vda rw\n";
        let memory = "33 27 0:40 / /tmp rw - tmpfs tmpfs rw\n";
        let of = |more: &[&str]| mount_of(&(usual.to_owned() + &more.concat()), Path::new("/tmp")).unwrap();
        assert_eq!(of(&[]), ("254:0".to_owned(), "/tmp".into()));
        assert_eq!(of(&[itself]), of(&[]));
        assert_ne!(of(&[private]), of(&[]));
        assert_ne!(of(&[memory]), of(&[]));
        assert_eq!(of(&[itself, memory]), of(&[memory]));
        assert!(mount_of("", Path::new("/tmp")).is_none());
    }
}
