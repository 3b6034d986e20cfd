//! Which place the settings name: a Redis, a PostgreSQL, or the directory of this machine. What is meant for another place is refused.
//! Where the settings name no place, a user's locks are in the user's own directory.

use std::path::PathBuf;

use clap::ArgMatches;
use nix::unistd::getuid;

use super::table::SERVER;
use super::{Server, Setting, wrong};

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
pub(super) fn source(name: &str, matches: &ArgMatches) -> Option<String> {
    setting(name)?.given(matches).map(|(source, _)| source)
}

fn is_option(source: &str) -> bool {
    source.starts_with('-')
}

/// Which place the settings name, and what else they name.
pub(super) struct Chosen {
    place: usize,
    /// The places whose variables are for other programs: each is named by a variable, and another place by an option.
    others: Vec<usize>,
}

impl Chosen {
    /// An option goes before a variable. Without either the locks are those of this machine.
    ///
    /// # Errors
    /// Two places are named alike.
    pub(super) fn of(matches: &ArgMatches) -> Result<Chosen, clap::Error> {
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
    pub(super) fn ignored(&self) -> Vec<&'static str> {
        let mut ignored: Vec<_> = self.others.iter().flat_map(|at| PLACES[*at].settings).copied().collect();
        if self.place == MACHINE && !self.others.is_empty() {
            ignored.extend(OF_SERVERS);
        }
        ignored
    }

    /// # Errors
    /// For a setting that is meant here and is for another place.
    pub(super) fn refuse(&self, matches: &ArgMatches) -> Result<(), clap::Error> {
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

/// One directory for all processes of a user, however each was started. So it depends on nothing but the user: not on `XDG_RUNTIME_DIR`, nor
/// on `/run/user/UID`, which a job of cron does not have before the user logs in, and which goes with the session.
pub(super) fn own_dir() -> PathBuf {
    match getuid() {
        root if root.is_root() => "/run/fairlock".into(),
        user => format!("/tmp/fairlock-{user}").into(),
    }
}
