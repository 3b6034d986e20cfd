//! What can be asked for: options, commands and their help.

use std::ffi::OsString;
use std::time::Duration;

use clap::{ArgAction, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::duration::parse;
use crate::exit::EXIT_CODES;

const SERVERS: &str = "\
Servers (user:password@ goes before the hosts; rediss for TLS):
  redis://host:6379/0
  unix:///path/to/redis.sock
  redis+sentinel://host1,host2:26380/mymaster
  redis+cluster://host1,host2:6380
Give a password by FAIRLOCK_REDIS: options can be seen by every user of the machine.

Exit codes of all commands but run, which has its own:
  0    done
  1    the answer is no: nobody held it, no such waiter, something is unsafe
  122  the server can't be reached
  125  any other failure";

/// Runs programs under a distributed fair lock (first asked, first served), and shows who holds a lock and who waits.
#[derive(Debug, Parser)]
#[command(name = "fairlock", version, after_help = SERVERS, max_term_width = 110)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) server: Server,
    /// Say more: -v what went wrong on the way, -vv what happens, -vvv all of it.
    #[arg(short, long, global = true, display_order = 102, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Server {
    /// The server; `fairlock --help` has the forms of an address.
    #[arg(
        long,
        global = true,
        display_order = 100,
        value_name = "URL",
        env = "FAIRLOCK_REDIS",
        hide_env_values = true
    )]
    #[arg(default_value = "redis://127.0.0.1:6379")]
    pub(crate) redis: String,
    /// Whose line it is: fairlock's own, or the one that is shared with Java's Redisson. All clients of a lock have
    /// to agree on it.
    #[arg(long, global = true, display_order = 101, value_name = "WHICH", default_value = "hand-off")]
    pub(crate) discipline: Order,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    HandOff,
    Redisson,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Show(Show),
    Ls(Ls),
    Unlock(Unlock),
    Kick(Kick),
    Doctor(Doctor),
    /// Print completions for a shell.
    #[command(after_help = "Example:\n  fairlock completions bash > /etc/bash_completion.d/fairlock")]
    Completions {
        shell: Shell,
    },
    /// Print the man page.
    #[command(after_help = "Example:\n  fairlock man > /usr/local/share/man/man1/fairlock.1")]
    Man,
    /// Not for people: the process that ends the program in time when nobody else can.
    #[command(name = "__minder", hide = true)]
    Minder {
        grace_ms: u64,
    },
}

const RUN_HELP: &str = "\
The program gets FAIRLOCK_NAME, FAIRLOCK_TOKEN (a number that only grows: let the resource refuse an \
old one) and FAIRLOCK_OWNER. It has a process group of its own; HUP, INT, QUIT, TERM, USR1 and USR2 \
are passed on to all of it. The lock is given back when the program has ended; what it left running \
in the background then runs without the lock.

Loss: without an answer from the server the hold is certain only until its lease ends. The program \
gets KILL a twentieth of the lease before that, and TERM --grace before KILL, so it is gone before \
anybody else can have the lock. The same happens when fairlock itself is stopped; when it is killed, \
TERM comes at once and KILL after --grace. When somebody takes the lock away by force, TERM comes at \
once, KILL after --grace, and the next holder is not kept waiting for it.
";

/// Run a program under a lock: wait for our turn, run it, give the lock back.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  fairlock run nightly-report -- ./report.sh\n  fairlock run deploy --wait 0 -- make deploy || echo 'somebody else deploys'"
)]
#[command(after_long_help = long_help(), override_usage = "fairlock run [OPTIONS] <NAME> -- <PROGRAM> [ARGS]…")]
pub(crate) struct Run {
    /// The lock's name; the key in Redis is the same
    pub(crate) name: String,
    /// Wait at most so long for the lock; 0 for one attempt. Without it: for as long as it takes.
    #[arg(long, value_name = "TIME", value_parser = parse)]
    pub(crate) wait: Option<Duration>,
    /// How long the server keeps the lock without hearing from us; renewed every third of it. At least 1s.
    #[arg(long, value_name = "TIME", value_parser = parse, default_value = "30s")]
    pub(crate) lease: Duration,
    /// End the program, as after a loss, when it has held the lock for so long.
    #[arg(long, value_name = "TIME", value_parser = parse)]
    pub(crate) max_hold: Option<Duration>,
    /// What the program has between TERM and KILL when the lock is lost; at most half the lease. Default: 5s, or a third of
    /// a shorter lease.
    #[arg(long, value_name = "TIME", value_parser = parse)]
    pub(crate) grace: Option<Duration>,
    /// A plain lock: whoever comes first gets it, as with Redisson's getLock.
    #[arg(long)]
    pub(crate) plain: bool,
    /// What the others see of us, before host and process; 256 bytes with both.
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

fn long_help() -> String {
    let examples = "Examples:\n  fairlock run nightly-report -- ./report.sh\n  fairlock run deploy --wait 0 -- make deploy \
                    || echo 'somebody else deploys'";
    format!("{RUN_HELP}\n{EXIT_CODES}\n\n{examples}")
}

/// Show who holds a lock, how many wait in the line of --discipline, and the first of them in order. One round trip; more than
/// 500 waiters are read in several, between which the line may move.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  fairlock show orders --watch\n  fairlock show orders --from 101 --lines 50"
)]
pub(crate) struct Show {
    /// The lock's name.
    pub(crate) name: String,
    /// So many of the line; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) lines: u64,
    /// The number in the line of the first to show.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) from: u64,
    /// Look again and again, every so often.
    #[arg(long, value_name = "EVERY", value_parser = parse, num_args = 0..=1, require_equals = true, default_missing_value = "1s")]
    pub(crate) watch: Option<Duration>,
    /// One line of JSON for each look.
    #[arg(long)]
    pub(crate) json: bool,
}

/// List the locks that are held or waited for. It walks through the server's keys (SCAN), which takes a while where they are
/// many, and stops nobody. Where nobody waits in the line of --discipline, that of the other one is listed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  fairlock ls 'orders:*'")]
pub(crate) struct Ls {
    /// Only names like this: * for any text, ? for one character, [ab] for one of these.
    pub(crate) pattern: Option<String>,
    /// A JSON array.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Take a lock from whoever holds it. The next in line gets it; a fairlock holder is told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  fairlock unlock --force orders")]
pub(crate) struct Unlock {
    /// The lock's name.
    pub(crate) name: String,
    /// Yes, from somebody else.
    #[arg(long, required = true)]
    pub(crate) force: bool,
    /// Don't ask.
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Take a waiter's place away. One that is alive asks again, behind the last. It is looked for from the tail of the line, 500
/// waiters a round trip.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  fairlock kick orders 0d1a8b3c-5f0e-4c43-9d05-6c2f0c1f4a11:1")]
pub(crate) struct Kick {
    /// The lock's name.
    pub(crate) name: String,
    /// The owner, as `fairlock show` names it.
    pub(crate) owner: String,
    /// Don't ask.
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Look whether locks are safe on the server: version, role, eviction, replicas, persistence, clock, round trips, scripts and
/// rights. Exit code 1 if something is unsafe.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  fairlock doctor --redis redis+sentinel://s1,s2,s3/mymaster")]
pub(crate) struct Doctor {
    /// Look for the rights to this lock, which is not touched. Without it: to one named fairlock-doctor:…, which is taken and
    /// given back.
    pub(crate) name: Option<String>,
    /// A JSON array.
    #[arg(long)]
    pub(crate) json: bool,
}
