//! `fairlock`, the command: runs programs under a distributed fair lock, and shows who holds a lock and who waits.
//!
//! `args` says what can be asked for, `server` connects, and each command has a file: `run/`, `show`, `ls`, `take`
//! (unlock and kick), `doctor`, `manual` (completions and man page). `exit` has the exit codes.

mod args;
mod ask;
mod doctor;
mod duration;
mod exit;
mod ls;
mod manual;
mod names;
mod report;
mod run;
mod server;
mod show;
mod take;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use args::{Args, Command};
use exit::{Exit, Failure};
use names::without_addresses;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            let _ = error.print(); // nobody reads us
            return Exit::Done.into();
        }
        Err(error) => {
            // It repeats what was typed in, which may be an address in the wrong place.
            let message = without_addresses(&error.render().to_string());
            report::say(message.trim_start_matches("error: ").trim_end());
            return Exit::Failed.into();
        }
    };
    report::set_level(args.verbose);
    match carry_out(&args) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            report::say(&failure.message);
            failure.exit.into()
        }
    }
}

fn carry_out(args: &Args) -> Result<Exit, Failure> {
    match &args.command {
        Command::Run(options) => run::run(&args.server, options),
        Command::Show(options) => show::show(&args.server, options),
        Command::Ls(options) => ls::ls(&args.server, options),
        Command::Unlock(options) => take::unlock(&args.server, options),
        Command::Kick(options) => take::kick(&args.server, options),
        Command::Doctor(options) => doctor::doctor(&args.server, options),
        Command::Completions { shell } => manual::completions(*shell),
        Command::Man => manual::man(),
        Command::Minder { grace_ms } => run::mind(*grace_ms),
    }
}
