//! `fairlock`, the command: runs programs under a distributed fair lock, and shows its holder and its waiters.
//!
//! `args` has the options, completions and the man page, `settings` the options of the client, `server` connects (doctor, migrate), and each
//! command has a file: `run/`, `take` (give, check), `operator` (show, ls, unlock), `blocked` (ls --blocked). `screen` repeats what is
//! shown. `process` has exit codes, messages, signals and threads, `words` how durations, names and holders are written.

mod args;
mod blocked;
mod operator;
mod process;
mod run;
mod screen;
mod server;
mod settings;
mod take;
mod words;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{FromArgMatches, Parser};

use args::{Args, Command, MINDER, Minder, Run};
use process::{Exit, Failure};
use words::escaped;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|first| first == MINDER) {
        let minder = Minder::try_parse_from(std::env::args_os().skip(1));
        return minder.map_or(Exit::Failed, |minder| run::mind(&minder)).into();
    }
    let read = Args::briefly().try_get_matches();
    let ended = match read.and_then(|matches| Args::from_arg_matches(&matches)) {
        Ok(args) => server::check_password_file(&args.server)
            .and_then(|()| server::with_a_durable_lease(args))
            .and_then(|args| carry_out(&args)),
        Err(error) => answer(error),
    };
    match ended {
        Ok(exit) => exit.into(),
        Err(failure) => {
            if !failure.message.is_empty() {
                process::say(&failure.message);
            }
            failure.exit.into()
        }
    }
}

/// Help, or what is wrong with the arguments.
fn answer(mut error: clap::Error) -> Result<Exit, Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            process::printed(error.print())?;
            return Ok(Exit::Done);
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            process::printed(Args::briefly().print_help())?;
            return Ok(Exit::Failed);
        }
        _ => {}
    }
    advise(&mut error);
    // The message quotes the arguments, and one of them may be an address in the wrong place.
    let message = without_addresses(&error.render().to_string());
    let message = message.trim_start_matches("error: ").trim_end();
    // The usage would hide a value that was refused.
    let is_about_a_value = error.kind() == ErrorKind::ValueValidation;
    Err(Failure::ours(if is_about_a_value { message.lines().next().unwrap_or(message) } else { message }))
}

/// Mends what clap says: `run NAME PROGRAM` lacks the `--`, `lock` is no `unlock`. And what stands behind the `--` is the program, and no
/// argument of fairlock.
fn advise(error: &mut clap::Error) {
    let lacks_program = |value: &ContextValue| value.to_string().contains("<PROGRAM>");
    if error.get(ContextKind::InvalidArg).is_some_and(lacks_program) {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![without_program().into()]));
    }
    let names_no_command = |value: &ContextValue| ["lock", "acquire", "hold"].contains(&&*value.to_string());
    if error.get(ContextKind::InvalidSubcommand).is_some_and(names_no_command) {
        let tip = "`fairlock run NAME -- PROGRAM` runs a program under a lock".into();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
        error.remove(ContextKind::SuggestedSubcommand);
    }
    let is_run =
        error.get(ContextKind::Usage).is_some_and(|usage| usage.to_string().contains("fairlock run "));
    if is_run && let Some(ContextValue::StyledStrs(mut tips)) = error.remove(ContextKind::Suggested) {
        tips.retain(|tip| !tip.to_string().contains("as a value, use '-- "));
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
}

/// What to write when all words were taken for names of locks: they are read once more, with a program behind them.
fn without_program() -> String {
    let words = std::env::args_os().chain(["--".into(), "true".into()]);
    match Args::briefly().try_get_matches_from(words).and_then(|matches| Args::from_arg_matches(&matches)) {
        Ok(Args { command: Command::Run(Run { names, .. }), .. }) if names.len() > 1 => {
            let (name, program) = (escaped(&names[0]), names[1..].iter().map(|word| escaped(word)));
            let program = program.collect::<Vec<_>>().join(" ");
            format!(
                "{} names and no program: put `--` before it, as in `run {name} -- {program}`",
                names.len()
            )
        }
        _ => "put `--` before the program and its arguments".to_owned(),
    }
}

/// Leaves only the scheme of each server address, which may contain a password.
fn without_addresses(text: &str) -> String {
    let mut parts = text.split("://");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(char::is_whitespace).unwrap_or(part.len());
        let quote = if part[..end].ends_with('\'') { "'" } else { "" };
        shown.push_str(&format!("://…{quote}{}", &part[end..]));
    }
    shown
}

fn carry_out(args: &Args) -> Result<Exit, Failure> {
    process::set_level(args.verbose, !matches!(&args.command, Command::Run(run) if !run.quiet));
    if !matches!(args.command, Command::Run(_)) {
        process::end_by_signals();
    }
    match &args.command {
        Command::Run(options) => run::run(&args.server, options),
        Command::Take(options) => take::take(&args.server, options),
        Command::Give(options) => take::give(&args.server, options),
        Command::Check(options) => take::check(&args.server, options),
        Command::Show(options) => operator::show(&args.server, options),
        Command::Ls(options) if options.blocked => blocked::blocked(&args.server, options),
        Command::Ls(options) => operator::ls(&args.server, options),
        Command::Unlock(options) => operator::unlock(&args.server, options),
        Command::Doctor(options) => server::doctor(&args.server, options),
        Command::Migrate(options) => server::migrate(&args.server, options),
        Command::Completions { shell } => args::completions(*shell),
        Command::Man => args::man(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_not_repeated() {
        let text = "unexpected 'redis://u:it's@h' found\n\nunix:///a?pass=b redis://c";
        assert_eq!(without_addresses(text), "unexpected 'redis://…' found\n\nunix://… redis://…");
        assert_eq!(without_addresses("no address"), "no address");
    }
}
