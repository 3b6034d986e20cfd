//! The options and commands, and what is made from them: help, shell completions and the man page.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::time::Duration;

use clap::{ArgAction, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use fairlock::admin::LockKind;

use crate::process::{EXIT_CODES, Exit, Failure, print};
use crate::settings::{Server, Terms};
use crate::words::{parse, period};

const SERVERS: &str = "\
Servers (user:password@ stands before the hosts; rediss for TLS, with ?sslrootcert=FILE&sslcert=FILE&sslkey=FILE):
  redis://host:6379/0
  unix:///path/to/redis.sock
  redis+sentinel://host1,host2:26380/mymaster
  redis+cluster://host1,host2:6380
  postgres://user@host1,host2:5433/database?sslmode=require  (--postgres)
Without a server the locks are those of this machine, in files (--dir).
Set a password by --password-file, FAIRLOCK_REDIS or FAIRLOCK_POSTGRES: every user of the machine can see options.

Exit codes of all commands except run, which has its own:
  0    done
  1    the answer is no: the lock was not held (show: only with --exit-code), no such waiter, something is unsafe
  122  the server can't be reached
  125  any other failure";

/// Run programs under a fair lock (first come, first served) of this machine, or of many machines with a server, and show its holder and its
/// waiters.
#[derive(Parser)]
#[command(name = "fairlock", version, after_help = SERVERS, max_term_width = 110)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) server: Server,
    /// Say more: -v the grant with label, wait and token, and warnings; -vv every step of a normal run.
    #[arg(short, long, global = true, display_order = 100, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// The command line. `-h` has the first clause of what is said of each command and option, `--help` and the man page the whole.
    pub(crate) fn briefly() -> clap::Command {
        brief(Args::command())
    }
}

fn brief(command: clap::Command) -> clap::Command {
    let whole = command.get_about().map(ToString::to_string).unwrap_or_default();
    let command = command.about(first_clause(&whole)).long_about(whole).mut_args(|argument| {
        let whole = argument.get_help().map(ToString::to_string).unwrap_or_default();
        argument.help(first_clause(&whole)).long_help(whole)
    });
    command.mut_subcommands(brief)
}

fn first_clause(text: &str) -> String {
    let ends = [". ", "; ", ": ", " [", " ("].iter().filter_map(|end| text.find(end));
    text[..ends.min().unwrap_or(text.len())].to_owned()
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Take(Take),
    /// Release a lock that `fairlock take` holds.
    Give(Hold),
    /// Print the token of a hold of `fairlock take`, if the lock is held by it; else end with 123.
    Check(Hold),
    Show(Show),
    Ls(Ls),
    Unlock(Unlock),
    Doctor(Doctor),
    Migrate(Migrate),
    /// Print completions for a shell.
    #[command(after_help = "Example:\n  fairlock completions bash > /etc/bash_completion.d/fairlock")]
    Completions {
        shell: Shell,
    },
    /// Print the man page.
    #[command(after_help = "Example:\n  fairlock man > /usr/local/share/man/man1/fairlock.1")]
    Man,
}

/// The process that ends the program in time, and gives the lock back, even if fairlock itself is killed. It is no command: no
/// help, man page or completion has it.
#[derive(Parser)]
#[command(name = MINDER)]
pub(crate) struct Minder {
    #[command(flatten)]
    pub(crate) server: Server,
    #[command(flatten)]
    pub(crate) kind: Kind,
    pub(crate) kill_after_ms: u64,
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
}

/// The first argument of the minder's command line.
pub(crate) const MINDER: &str = "__minder";

const RUN_HELP: &str = "\
The program gets FAIRLOCK_NAME, FAIRLOCK_TOKEN (a number that only grows: let the resource refuse an \
old one) and FAIRLOCK_OWNER. With several names the first two have one word for each, in the order \
that was given, and each lock has its own tokens. FAIRLOCK_OUTER has the owners of the commands around \
this one: a command in the program that can't get its lock because one of them has it ends with 125. It \
has its own process group; HUP, INT, QUIT, TERM, USR1 and USR2 are \
passed on to the whole group. Signals that were ignored when fairlock started (by nohup, or INT and \
QUIT by a script's `&`) stay ignored, for the program too. As the first process of a container, fairlock \
gives 128 + n for a signal that would end it, and collects orphans. The lock is released when the program ends; \
processes that it left in the background then run without the lock.

Loss: without an answer from the server, the hold is certain only until its lease ends. The program \
gets KILL a twentieth of the lease before that, and TERM --kill-after before KILL: so it has ended before \
another owner can get the lock. The same happens if fairlock itself is stopped. If it is killed, TERM \
comes at once and KILL after --kill-after, and the lock is released when the program has ended. If the \
lock is taken by force, TERM comes at once and KILL after --kill-after, and the next holder does not wait \
for that.
";

const RUN_USAGE: &str = "fairlock run [OPTIONS] <NAME>... -- <PROGRAM> [ARGS]…\n       fairlock run [OPTIONS] <NAME>... -c <TEXT>";

/// Run a program under a lock: acquire the lock, run the program, release the lock.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = long_help(), override_usage = RUN_USAGE)]
pub(crate) struct Run {
    /// The lock's name, which is also its key in Redis or its row in PostgreSQL. It is a fair lock unless --plain, --shared, --write
    /// or --permits is given. A name in use as another kind is refused; only fair and plain locks may be mixed. Several names are
    /// fair locks that are taken together, all or none, whatever order they are given in.
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// How long to wait for the lock: for several, together; 0 for one attempt. A server that is full, restarting or away at the start is
    /// waited for as long. Default: no limit for the lock, and --outage-limit for the server.
    #[arg(short, long, visible_alias = "timeout", value_name = "TIME", value_parser = parse, allow_negative_numbers = true)]
    pub(crate) wait: Option<Duration>,
    /// Don't wait: the same as --wait 0.
    #[arg(short, long, alias = "nb", conflicts_with = "wait")]
    nonblock: bool,
    #[command(flatten)]
    pub(crate) terms: Terms,
    /// End the program when it has held the lock for this long: as after a loss; of several locks the first one counts.
    #[arg(long, value_name = "TIME", value_parser = parse, allow_negative_numbers = true)]
    pub(crate) max_hold: Option<Duration>,
    /// Run the program once in each period, at most: not if a run has begun in this period, wherever that was, and even if that run failed.
    /// Periods begin at the multiples of the time since 1970, UTC, by the store's clock. Never waits. From 1s to 31d.
    #[arg(long, value_name = "PERIOD", value_parser = period, conflicts_with_all = ["wait", "permits", "shared", "write", "most_waiting"])]
    pub(crate) every: Option<Duration>,
    /// Wait only if fewer than N requests wait: with 1, what waits covers what this run was for.
    #[arg(long, value_name = "N", conflicts_with_all = ["nonblock", "permits", "plain"], value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) most_waiting: Option<u32>,
    /// The time between TERM and KILL when the lock is lost; at most half of the lease and of --max-hold. Default: 5s, or a third
    /// of a shorter lease or --max-hold.
    #[arg(long, value_name = "TIME", value_parser = parse, allow_negative_numbers = true)]
    pub(crate) kill_after: Option<Duration>,
    #[command(flatten)]
    pub(crate) kind: Kind,
    /// The exit code when --wait is over: another owner still has the lock. Also for --every and --most-waiting.
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = Exit::TimedOut.code())]
    pub(crate) conflict_exit_code: u8,
    /// Say only failures: not that another owner has the lock, nor how the wait goes on, nor that locks are unsafe on this server. The exit
    /// code tells.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// A command line for `sh -c`, in place of a program.
    #[arg(short = 'c', long, alias = "command", value_name = "TEXT", conflicts_with = "program")]
    pub(crate) shell: Option<OsString>,
    /// The program and its arguments.
    #[arg(last = true, required_unless_present = "shell", value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// Which kind of lock. All that use a name at the same time use one kind; only fair and plain may be mixed.
#[derive(Clone, Debug, clap::Args)]
#[group(multiple = false)]
pub(crate) struct Kind {
    /// A plain lock, without order, as with Redisson's getLock.
    #[arg(long)]
    pub(crate) plain: bool,
    /// Read under a read-write lock: beside other runs with --shared, but never beside one with --write.
    #[arg(long)]
    pub(crate) shared: bool,
    /// Write under a read-write lock: alone, in one queue with the runs with --shared.
    #[arg(long)]
    pub(crate) write: bool,
    /// Take one of N permits: at most N programs run at once. Users of one name may give different N, from 2 on: each program
    /// starts when the permits in use and its own fit into its own N. With --permits, FAIRLOCK_TOKEN only names the hold: no
    /// resource can refuse an old one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) permits: Option<u32>,
}

impl Kind {
    pub(crate) fn of_lock(&self) -> LockKind {
        match self.permits {
            Some(permits) => LockKind::Semaphore { permits },
            None if self.shared || self.write => LockKind::ReadWrite,
            None if self.plain => LockKind::Plain,
            None => LockKind::Fair,
        }
    }

    /// The option that asks for another kind than a fair lock.
    pub(crate) fn option(&self) -> Option<&'static str> {
        match self.of_lock() {
            LockKind::Semaphore { .. } => Some("--permits"),
            LockKind::ReadWrite if self.shared => Some("--shared"),
            LockKind::ReadWrite => Some("--write"),
            LockKind::Plain => Some("--plain"),
            _ => None,
        }
    }

    /// The options that say so, for the minder: to it a read is as a write.
    pub(crate) fn options(&self) -> Vec<String> {
        match self.of_lock() {
            LockKind::Semaphore { permits } => vec!["--permits".to_owned(), permits.to_string()],
            LockKind::ReadWrite => vec!["--write".to_owned()],
            LockKind::Plain => vec!["--plain".to_owned()],
            _ => Vec::new(),
        }
    }
}

impl Run {
    /// How long to wait; none for ever.
    pub(crate) fn limit(&self) -> Option<Duration> {
        if self.nonblock || self.every.is_some() { Some(Duration::ZERO) } else { self.wait }
    }

    /// The program and its arguments.
    pub(crate) fn words(&self) -> Vec<&OsStr> {
        match &self.shell {
            Some(text) => vec![OsStr::new("sh"), OsStr::new("-c"), text],
            None => self.program.iter().map(OsString::as_os_str).collect(),
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  fairlock run nightly-report -- ./report.sh
  fairlock run -w 5 deploy -- make deploy
  fairlock run -n -E 75 deploy -c 'make && make deploy'
  fairlock run --every 1h -q -E 0 report -- make-report
  fairlock run --most-waiting 1 sync -- ./sync.sh
  fairlock run account:3 account:7 -- ./transfer.sh
  fairlock run --permits 5 api -- ./call.sh
  fairlock run --shared prices -- ./read.sh
  fairlock run --write prices -- ./update.sh";

fn long_help() -> String {
    format!("{RUN_HELP}\n{EXIT_CODES}\n\n{EXAMPLES}")
}

/// Take a lock for as long as a process lives: start a holder in the background, and print the hold's text, `FAIRLOCK_HOLD=…`. The lock is
/// free when that process has ended, after `fairlock give`, or after --for. If the holder is killed (KILL), the lock is free when its lease
/// ends, and on this machine's locks at once.
#[derive(Debug, clap::Args)]
#[command(after_help = TAKE_EXAMPLES)]
pub(crate) struct Take {
    /// The lock's name. It is a fair lock.
    pub(crate) name: String,
    /// Hold it while this process lives: in a shell $$. Default: the process that has started fairlock, as a rule the shell; with --for alone,
    /// none.
    #[arg(long = "while", value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) while_: Option<i32>,
    /// Hold it for this long, at most, from the grant on.
    #[arg(long = "for", value_name = "TIME", value_parser = parse, allow_negative_numbers = true)]
    pub(crate) for_: Option<Duration>,
    /// How long to wait for the lock; 0 for one attempt. Default: no limit.
    #[arg(short, long, value_name = "TIME", value_parser = parse, allow_negative_numbers = true)]
    wait: Option<Duration>,
    /// Don't wait: the same as --wait 0.
    #[arg(short, long, conflicts_with = "wait")]
    nonblock: bool,
    #[command(flatten)]
    pub(crate) terms: Terms,
}

impl Take {
    /// How long to wait; none for ever.
    pub(crate) fn limit(&self) -> Option<Duration> {
        if self.nonblock { Some(Duration::ZERO) } else { self.wait }
    }
}

const TAKE_EXAMPLES: &str = "\
Examples:
  hold=$(fairlock take deploy --while $$) || exit; export \"$hold\"   # in a script: until it ends, or gives
  fairlock check && make deploy
  fairlock give
  fairlock take deploy --for 2h >>\"$GITHUB_ENV\"   # in a job, whose steps have shells of their own
Exit codes: 0 done; 124 not acquired within --wait; 122, 125 as for run. give and check: 123 if the hold is over.";

/// A hold of `fairlock take`.
#[derive(Debug, clap::Args)]
#[command(after_help = TAKE_EXAMPLES)]
pub(crate) struct Hold {
    /// The text that `take` printed. Default: FAIRLOCK_HOLD.
    pub(crate) text: Option<String>,
}

/// Show who holds a lock, and who waits for it: the holders, the length of the queue of --discipline, and its first waiters in order. One
/// round trip, two for a read-write lock or a semaphore; more than 500 waiters take several, between which the queue may move.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  fairlock show orders --watch\n  fairlock show orders --from 101 --lines 50\n  fairlock show orders --exit-code >/dev/null && echo held"
)]
pub(crate) struct Show {
    /// The lock's name.
    pub(crate) name: String,
    /// How many waiters to show; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) lines: u64,
    /// The number of the first waiter to show.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) from: u64,
    /// Show it repeatedly, once every interval: on a terminal as one screen, with a mark (*) at what has changed, elsewhere one look
    /// after another. On a screen looks take a tenth of the time at most.
    #[arg(long, value_name = "EVERY", value_parser = parse, num_args = 0..=1, require_equals = true, default_missing_value = "1s")]
    pub(crate) watch: Option<Duration>,
    /// Also show owners, and how long places are kept; lines may be longer than 80 columns.
    #[arg(long)]
    pub(crate) wide: bool,
    /// Print one line of JSON each time.
    #[arg(long)]
    pub(crate) json: bool,
    /// End with 1 if nobody holds the lock.
    #[arg(long, conflicts_with = "watch")]
    pub(crate) exit_code: bool,
}

/// List the locks that are held or waited for. On Redis it walks through the server's keys (SCAN): many keys take a while, but
/// block no other client. If the queue of --discipline is empty, the other discipline's queue is listed.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  fairlock ls 'orders:*'\n  fairlock ls --watch=5s\n  fairlock ls --blocked"
)]
pub(crate) struct Ls {
    /// Only names that match: * is any text, ? one character, [ab] one of these.
    pub(crate) pattern: Option<String>,
    /// Show who waits for whom, as a tree, deadlocks first; exit code 1 if there is a deadlock. Reads the first 500 waiters of each
    /// lock, two round trips a lock. Owners are threads, `Owner`s, and commands. Tasks show no deadlock: each wait of a task is an
    /// owner of its own. Nor do locks without a queue (--plain), whose waiters can't be read.
    #[arg(long)]
    pub(crate) blocked: bool,
    /// List them repeatedly, once every interval: on a terminal as one screen, with a mark (*) at what has changed, elsewhere one list
    /// after another. On a screen looks take a tenth of the time at most: many locks are listed less often.
    #[arg(long, value_name = "EVERY", value_parser = parse, num_args = 0..=1, require_equals = true, default_missing_value = "1s")]
    pub(crate) watch: Option<Duration>,
    /// Print one line with a JSON array each time.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Take a lock from its holder, after asking: from all its holders, or from one. The next in the queue gets it; the holder is
/// told if it is a fairlock client.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  fairlock unlock orders\n  fairlock unlock api host-7:4123")]
pub(crate) struct Unlock {
    /// The lock's name.
    pub(crate) name: String,
    /// Only from this holder: its label (the given label, host:process, or both) or its owner. Default: from all holders.
    pub(crate) holder: Option<String>,
    /// Don't ask for confirmation.
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Check whether locks are safe on the server: version, role, eviction, replicas, persistence, clock, round trips, scripts,
/// rights and sentinels; and say which faults a hold survives, and how long a grace lasts. On PostgreSQL: version, role, commits,
/// what slows hand-overs (old snapshots, dead rows), pooler, wake-ups, tables and rights. Exit code 1 if something is unsafe.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  fairlock doctor --redis redis+sentinel://s1,s2,s3/mymaster\n  fairlock doctor --postgres postgres://locks@db1,db2/locks"
)]
pub(crate) struct Doctor {
    /// On Redis, check the rights to this lock without touching it. Default: a lock named fairlock-doctor:…, which is acquired and
    /// released.
    pub(crate) name: Option<String>,
    /// On Redis, end the grace of a server with a new past: locks are granted at once. If a client still holds a lock from
    /// before, two clients then hold this lock.
    #[arg(long)]
    pub(crate) begin_life: bool,
    /// Don't ask for confirmation.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Print a JSON array.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Create fairlock's tables in a PostgreSQL database: in the schema fairlock. Does nothing if they exist.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  fairlock migrate --postgres postgres://admin@db/locks\n  fairlock migrate --print | psql locks\n  \
                  fairlock migrate --print=sqlx migrations"
)]
pub(crate) struct Migrate {
    /// Print the SQL, without asking a server: for a user who may run it in one transaction, by `psql -1`, or as a migration of sqlx,
    /// refinery or Flyway.
    #[arg(long)]
    pub(crate) print: bool,
}

/// Prints completions for the shell.
pub(crate) fn completions(shell: Shell) -> Result<Exit, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::briefly(), "fairlock", &mut text);
    print(&String::from_utf8_lossy(&text)).map(|_| Exit::Done)
}

/// Prints one page for all commands, with a section for each.
pub(crate) fn man() -> Result<Exit, Failure> {
    let mut command = Args::briefly().mut_args(|option| option.hide_short_help(false));
    command.build();
    let mut text = Vec::new();
    let mut render = || -> io::Result<()> {
        clap_mangen::Man::new(command.clone()).render(&mut text)?;
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
            writeln!(text, ".SH \"FAIRLOCK {}\"", sub.get_name().to_uppercase())?;
            // Those of all commands stand above.
            let own = sub.clone().mut_args(|option| {
                let is_hidden = option.is_hide_set() || option.is_global_set();
                option.hide(is_hidden).hide_short_help(false)
            });
            let page = clap_mangen::Man::new(own);
            // Clap's own synopsis has neither the `--` before the program nor the order of the arguments.
            let usage = sub.clone().render_usage().to_string().replace("Usage: ", "");
            let usage = usage.replace("\n       ", "\n").replace('-', "\\-");
            writeln!(text, ".SH SYNOPSIS\n.nf\n{usage}\n.fi")?;
            page.render_description_section(&mut text)?;
            page.render_options_section(&mut text)?;
            page.render_extra_section(&mut text)?;
        }
        Ok(())
    };
    render().map_err(|error| Failure::ours(format!("no man page: {error}")))?;
    // Clap calls examples, exit codes and addresses "extra", and refers to a page for each command, which does not exist.
    let mut text = String::from_utf8_lossy(&text).replace(".SH EXTRA", ".SH NOTES");
    for sub in command.get_subcommands() {
        let name = sub.get_name();
        text = text.replace(&format!("fairlock\\-{name}(1)"), &format!("fairlock {name}"));
    }
    print(&text).map(|_| Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Asked {
        #[command(flatten)]
        kind: Kind,
    }

    fn asked(options: &str) -> Kind {
        let words = format!("run {options}");
        <Asked as clap::Parser>::try_parse_from(words.split_whitespace()).unwrap().kind
    }

    /// Else a killed `fairlock run` would leave its hold to the lease.
    #[test]
    fn the_minder_gets_the_kind_of_lock_that_was_asked_for() {
        for (options, is_told) in [
            ("", ""),
            ("--plain", "--plain"),
            ("--write", "--write"),
            ("--shared", "--write"),
            ("--permits 3", "--permits 3"),
        ] {
            let kind = asked(options);
            assert_eq!(kind.options().join(" "), is_told);
            assert_eq!(asked(is_told).of_lock(), kind.of_lock());
        }
    }
}
