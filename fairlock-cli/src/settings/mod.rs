//! The settings of a client, and which place they name: a Redis, a PostgreSQL, or the directory of this machine. The options, the environment
//! variables, the help and the man page are made from `table`. What is meant for another place is refused.

mod table;

use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Command, FromArgMatches};
use fairlock::Error;
use fairlock::settings::{Discipline, Durability};
use nix::unistd::getuid;

pub(crate) use self::table::LONGEST;
use self::table::{RUN, SERVER};
use crate::process::{Exit, Failure};
use crate::words::{FORM, escaped, fit_name, parse};

/// The shortest `--lease`.
pub(crate) const SHORTEST_LEASE: Duration = Duration::from_secs(1);

/// Host and port.
pub(crate) type Address = (String, u16);

/// What every command needs to know of the server, and of the connection to it. None stands for the default of the library.
#[derive(Clone, Default)]
pub(crate) struct Server {
    /// At most one of these three is given.
    pub(crate) redis: Option<String>,
    pub(crate) postgres: Option<String>,
    pub(crate) dir: Option<PathBuf>,
    pub(crate) listen_on: Option<String>,
    pub(crate) discipline: Discipline,
    pub(crate) durable: Option<Durability>,
    pub(crate) password_file: Option<PathBuf>,
    pub(crate) sentinel_login: Option<(String, String)>,
    /// Addresses that sentinels or a cluster announce, and where these servers are reached.
    pub(crate) map: Vec<(Address, Address)>,
    /// Options of an address, and their files.
    tls_files: Vec<(&'static str, String)>,
    pub(crate) connections: Option<usize>,
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) response_timeout: Option<Duration>,
    pub(crate) thread_wait: Option<Duration>,
    /// The variables that say the same.
    variables: Vec<(String, String)>,
}

/// What only `run` needs to know of its holds and places.
#[derive(Clone, Debug, Default)]
pub(crate) struct Terms {
    pub(crate) lease: Option<Duration>,
    pub(crate) place_ttl: Option<Duration>,
    pub(crate) outage_limit: Option<Duration>,
    pub(crate) label: Option<String>,
}

impl Terms {
    /// 30 s, as in the library, unless another one was given.
    pub(crate) fn lease(&self) -> Duration {
        self.lease.unwrap_or(Duration::from_secs(30))
    }
}

/// One setting: the option `--NAME`, which goes before the variable `FAIRLOCK_NAME`.
struct Setting<T> {
    name: &'static str,
    /// What stands for the value in help.
    value: &'static str,
    /// Whether the short help has it.
    is_usual: bool,
    what: &'static str,
    /// Completes `it has to be`.
    allowed: &'static str,
    default: &'static str,
    /// None for a value that is not allowed.
    set: fn(&mut T, &str) -> Option<()>,
}

impl<T> Setting<T> {
    fn variable(&self) -> String {
        format!("FAIRLOCK_{}", self.name.to_uppercase().replace('-', "_"))
    }

    /// Not by clap's own variables: a global argument with a value from there is shown as required in usage messages, and an error
    /// does not name the variable.
    fn option(&self) -> Arg {
        let Setting { name, what, allowed, default, .. } = self;
        let help = format!("{what} [allowed: {allowed}] [env: {}] [default: {default}]", self.variable());
        let option =
            Arg::new(*name).long(*name).value_name(self.value).help(help).hide_short_help(!self.is_usual);
        let option = option.allow_negative_numbers(true); // to say what is allowed
        match *name {
            // `--durable` without a value means the usual times.
            "durable" => option.num_args(0..=1).require_equals(true).default_missing_value("true"),
            _ => option,
        }
    }

    /// The value, and where it is from. A variable that is empty says nothing: `FAIRLOCK_LEASE=""` is how scripts unset one.
    fn given(&self, matches: &ArgMatches) -> Option<(String, String)> {
        if let Some(text) = matches.get_one::<String>(self.name) {
            return Some((format!("--{}", self.name), text.clone()));
        }
        let variable = self.variable();
        let text = std::env::var_os(&variable).filter(|text| !text.is_empty())?;
        Some((variable, text.to_string_lossy().into_owned()))
    }

    fn refusal(&self, source: &str, text: &str) -> clap::Error {
        let is = if text.is_empty() { "empty".to_owned() } else { escaped(&fit_name(text, 60)) };
        let is_unread = self.value == "TIME" && parse(text).is_err();
        let form = if is_unread { format!(", {FORM}") } else { String::new() };
        wrong(format!("{source} is {is}: it has to be {}{form}", self.allowed))
    }
}

fn wrong(message: String) -> clap::Error {
    clap::Error::raw(ErrorKind::ValueValidation, message)
}

/// Reads a table's settings, but for these. Returns the variables that say the same.
fn read<T>(
    table: &[Setting<T>],
    except: &[&str],
    into: &mut T,
    matches: &ArgMatches,
) -> Result<Vec<(String, String)>, clap::Error> {
    let mut variables = Vec::new();
    for setting in table.iter().filter(|setting| !except.contains(&setting.name)) {
        let Some((source, text)) = setting.given(matches) else { continue };
        if text.is_empty() || (setting.set)(into, &text).is_none() {
            return Err(setting.refusal(&source, &text));
        }
        variables.push((setting.variable(), text));
    }
    Ok(variables)
}

impl Server {
    /// Says the same to another process, which gets no more than one store.
    pub(crate) fn pass_on(&self, command: &mut std::process::Command) {
        for setting in &SERVER {
            command.env_remove(setting.variable());
        }
        command.envs(self.variables.iter().cloned());
    }

    fn add_tls_file(&mut self, option: &'static str, file: &str) -> Option<()> {
        self.tls_files.push((option, file.to_owned()));
        Some(())
    }

    /// The address with the options' files for TLS, in place of the address's own.
    pub(crate) fn with_tls_files(&self, url: &str) -> String {
        let mut url = url.trim_end_matches(['\n', '\r']).to_owned();
        for (option, file) in &self.tls_files {
            url.push(if url.contains('?') { '&' } else { '?' });
            url += &format!("{option}=");
            for byte in file.bytes() {
                if byte.is_ascii_alphanumeric() || b"/.-_".contains(&byte) {
                    url.push(byte.into());
                } else {
                    url += &format!("%{byte:02X}");
                }
            }
        }
        url
    }

    /// The directory of the locks, if no server keeps them.
    pub(crate) fn on_this_machine(&self) -> Option<PathBuf> {
        let is_here = self.redis.is_none() && self.postgres.is_none();
        is_here.then(|| self.dir.clone().unwrap_or_else(own_dir))
    }
}

/// One directory for all processes of a user, however each was started. So it depends on nothing but the user: not on `XDG_RUNTIME_DIR`, nor
/// on `/run/user/UID`, which a job of cron does not have before the user logs in, and which goes with the session.
fn own_dir() -> PathBuf {
    match getuid() {
        root if root.is_root() => "/run/fairlock".into(),
        user => format!("/tmp/fairlock-{user}").into(),
    }
}

impl FromArgMatches for Server {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Server, clap::Error> {
        let mut server = Server::default();
        let chosen = Chosen::of(matches)?;
        server.variables = read(&SERVER, &chosen.ignored(), &mut server, matches)?;
        chosen.refuse(matches)?;
        if server.discipline != Discipline::Redisson && server.thread_wait.is_some() {
            let what = "is for --discipline redisson, or FAIRLOCK_DISCIPLINE";
            return Err(wrong(format!("{} {what}", source("thread-wait", matches).unwrap_or_default())));
        }
        Ok(server)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Server::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Server {
    fn augment_args(command: Command) -> Command {
        let option =
            |(at, setting): (usize, &Setting<Server>)| setting.option().global(true).display_order(101 + at);
        command.args(SERVER.iter().enumerate().map(option))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Server::augment_args(command)
    }
}

/// Where locks are kept, and the settings that mean something there alone; the first names the place.
struct Place {
    settings: &'static [&'static str],
    /// Completes `SETTING is for`.
    name: &'static str,
}

const PLACES: [Place; 3] = [
    Place {
        settings: &["redis", "discipline", "durable", "sentinel-login", "map", "thread-wait"],
        name: "Redis: give --redis, or FAIRLOCK_REDIS",
    },
    Place { settings: &["postgres", "listen-on"], name: "PostgreSQL: give --postgres, or FAIRLOCK_POSTGRES" },
    Place { settings: &["dir"], name: "the locks of this machine" },
];
const REDIS: usize = 0;
const POSTGRES: usize = 1;
const MACHINE: usize = 2;

/// What means nothing where no server is.
const OF_SERVERS: &[&str] = &[
    "password-file",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "connections",
    "connect-timeout",
    "response-timeout",
];

fn setting(name: &str) -> Option<&'static Setting<Server>> {
    SERVER.iter().find(|setting| setting.name == name)
}

/// Where the setting is given.
fn source(name: &str, matches: &ArgMatches) -> Option<String> {
    setting(name)?.given(matches).map(|(source, _)| source)
}

fn is_option(source: &str) -> bool {
    source.starts_with('-')
}

/// Which place the settings name, and what else they name.
struct Chosen {
    place: usize,
    /// The places whose variables are for other programs: each is named by a variable, and another place by an option.
    others: Vec<usize>,
}

impl Chosen {
    /// An option goes before a variable. Without either the locks are those of this machine.
    ///
    /// # Errors
    /// Two places are named alike.
    fn of(matches: &ArgMatches) -> Result<Chosen, clap::Error> {
        let named =
            |(at, place): (usize, &Place)| source(place.settings[0], matches).map(|source| (at, source));
        let given: Vec<(usize, String)> = PLACES.iter().enumerate().filter_map(named).collect();
        let options: Vec<&(usize, String)> = given.iter().filter(|(_, source)| is_option(source)).collect();
        let asks_no_server = ONE_STORE.contains(&matches.subcommand_name().unwrap_or_default());
        let place = match (&options[..], &given[..]) {
            ([(_, one), (_, another), ..], _) => {
                return Err(wrong(format!("{one} and {another} name two places: give one of them")));
            }
            ([(at, _)], _) | ([], [(at, _)]) => *at,
            ([], []) => {
                if !asks_no_server {
                    refuse_empty()?;
                }
                MACHINE
            }
            ([], _) if asks_no_server => POSTGRES,
            ([], [(one_at, one), (another_at, another), ..]) => {
                let [a, b] = [one_at, another_at].map(|at| PLACES[*at].settings[0]);
                return Err(wrong(format!(
                    "{one} and {another} name two places: choose by --{a} or --{b}, or unset one, as `env -u {another} \
                     fairlock …` does"
                )));
            }
        };
        Ok(Chosen { place, others: given.iter().map(|(at, _)| *at).filter(|at| *at != place).collect() })
    }

    /// The variables that say nothing here.
    fn ignored(&self) -> Vec<&'static str> {
        let mut ignored: Vec<_> = self.others.iter().flat_map(|at| PLACES[*at].settings).copied().collect();
        if self.place == MACHINE && !self.others.is_empty() {
            ignored.extend(OF_SERVERS);
        }
        ignored
    }

    /// # Errors
    /// For a setting that is meant here and is for another place.
    fn refuse(&self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let ignored = self.ignored();
        let is_meant =
            |name: &&str| source(name, matches).filter(|by| is_option(by) || !ignored.contains(name));
        // A setting that names a place was looked at before.
        let first = |settings: &[&'static str]| settings.iter().find_map(is_meant);
        for (at, place) in PLACES.iter().enumerate().filter(|(at, _)| *at != self.place) {
            let Some(source) = first(&place.settings[1..]) else { continue };
            let name = match (at, self.place) {
                (REDIS, POSTGRES) => "Redis, and the server is PostgreSQL",
                _ => place.name,
            };
            return Err(wrong(format!("{source} is for {name}")));
        }
        match first(OF_SERVERS) {
            Some(source) if self.place == MACHINE => Err(wrong(format!(
                "{source} is for servers, and these locks are on this machine: give --redis or --postgres, or their variables"
            ))),
            _ => Ok(()),
        }
    }
}

/// Programs of many machines must not take turns on this machine alone because a secret was not set.
///
/// # Errors
/// The variable of a server's address is empty.
fn refuse_empty() -> Result<(), clap::Error> {
    let is_empty = |name: &String| std::env::var_os(name).is_some_and(|text| text.is_empty());
    let variables =
        PLACES[..MACHINE].iter().filter_map(|place| setting(place.settings[0])).map(Setting::variable);
    match variables.into_iter().find(is_empty) {
        Some(name) => Err(wrong(format!(
            "{name} is empty: give the server's address, or unset it for the locks of this machine"
        ))),
        None => Ok(()),
    }
}

/// The commands that ask no server, or only a database.
const ONE_STORE: [&str; 3] = ["migrate", "completions", "man"];

impl FromArgMatches for Terms {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Terms, clap::Error> {
        let mut terms = Terms::default();
        read(&RUN, &[], &mut terms, matches)?;
        Ok(terms)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Terms::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Terms {
    fn augment_args(command: Command) -> Command {
        command.args(RUN.iter().map(Setting::option))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Terms::augment_args(command)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let exit = match error {
            Error::Unavailable { .. } => Exit::Unavailable,
            Error::Lost(_) => Exit::Lost,
            _ => Exit::Failed,
        };
        // The text ends with the setting.
        let (text, setting) = (error.to_string(), error.setting());
        let words = setting.and_then(|setting| text.strip_suffix(&format!(" ({setting})")));
        Failure::new(exit, with_option(words.unwrap_or(&text), setting))
    }
}

/// What the library says, with the option for the setting that this is about, in parentheses. Where the command has no such option, the
/// library's name stands there.
pub(crate) fn with_option(words: &str, setting: Option<&str>) -> String {
    let Some(setting) = setting else { return words.to_owned() };
    let name = match setting {
        "trust" | "skew" => "durable".to_owned(),
        same => same.replace('_', "-"),
    };
    let mut options = SERVER.iter().map(|setting| setting.name).chain(RUN.iter().map(|setting| setting.name));
    match options.find(|known| *known == name) {
        Some(option) => format!("{words} (--{option})"),
        None => format!("{words} ({setting})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlock::Error;
    use fairlock::admin::LockName;
    use fairlock::backend::{BackendError, BackendErrorKind};

    fn refused<T>(table: &[Setting<T>], into: &mut T, name: &str, text: &str) -> bool {
        let setting = table.iter().find(|setting| setting.name == name).unwrap();
        (setting.set)(into, text).is_none()
    }

    #[test]
    fn what_the_tables_allow_is_what_they_say() {
        let mut server = Server::default();
        for (name, good, bad) in [
            ("discipline", &["hand-off", "redisson"][..], &["Redisson", "java"][..]),
            ("durable", &["true", "trust=20s"], &["on", "trust:8s"]),
            ("connections", &["1", "8"], &["0", "9", "-1", "two"]),
            ("connect-timeout", &["10ms", "1m", "0.5"], &["9ms", "60001ms", "1 s"]),
            ("response-timeout", &["10ms", "1m"], &["9ms", "61s"]),
            ("thread-wait", &["10ms", "1d"], &["9ms", "25h"]),
            (
                "map",
                &["a:1=b:2", "a:1=[::1]:2,c:3=d:4"],
                &["a:1", "a=b:2", "a:1=:2", "a:1=b:2,", "a:1=b:65536"],
            ),
            ("postgres", &["postgres://db/a", "postgresql:///a"], &["redis://a", "db/a"]),
            ("redis", &["redis://a", "unix:///a"], &["postgres://db/a"]),
        ] {
            let mut is_refused = |text: &&&str| refused(&SERVER, &mut server, name, text);
            assert_eq!(good.iter().filter(&mut is_refused).count(), 0, "{name}");
            assert_eq!(bad.iter().filter(&mut is_refused).count(), bad.len(), "{name}");
        }
        let mut terms = Terms::default();
        for (name, good, bad) in [
            ("lease", ["1s", "36500d"], ["999ms", "36501d"]),
            ("place-ttl", ["500ms", "36500d"], ["499ms", "36501d"]),
            ("outage-limit", ["10ms", "36500d"], ["0", "36501d"]),
            ("label", ["nightly", "Büro 2"], [&*"x".repeat(129), "a\u{1b}[2J"]),
        ] {
            let mut is_refused = |text: &&&str| refused(&RUN, &mut terms, name, text);
            assert_eq!(good.iter().filter(&mut is_refused).count(), 0, "{name}");
            assert_eq!(bad.iter().filter(&mut is_refused).count(), 2, "{name}");
        }
    }

    #[test]
    fn only_the_setting_of_an_error_is_shown_as_an_option() {
        for (words, setting, shown) in [
            ("no answer within 1s", Some("connect_timeout"), "no answer within 1s (--connect-timeout)"),
            ("the time is 0 s", Some("skew"), "the time is 0 s (--durable)"),
            ("the time is 0 s", Some("slow_wait"), "the time is 0 s (slow_wait)"),
            ("database `postgres` (connect_timeout)", None, "database `postgres` (connect_timeout)"),
        ] {
            assert_eq!(with_option(words, setting), shown);
        }
        // A server, a database and a lock with the names of settings.
        let said = "Redis at `durable`, user (connect_timeout): no answer within 1s (response_timeout)";
        let error = BackendError::new(BackendErrorKind::Unavailable, said).about_setting("response_timeout");
        for error in
            [Error::about(&LockName::new("(response_timeout)").unwrap(), error.clone()), error.into()]
        {
            let (whole, said) = (Failure::from(error).message, format!("{said} (--response-timeout)"));
            assert!(whole.ends_with(&said), "{whole}");
        }
        let lock = LockName::new("durable").unwrap();
        let none =
            BackendError::new(BackendErrorKind::InvalidConfig, "the server has no database `postgres`");
        let said = "invalid configuration: lock `durable`: the server has no database `postgres`";
        assert_eq!(Failure::from(Error::about(&lock, none)).message, said);
    }
}
