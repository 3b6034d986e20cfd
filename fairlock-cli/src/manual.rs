//! Shell completions and the man page, made from the options.

use std::io::Write;

use clap_complete::Shell;

use crate::args::Args;
use crate::exit::{Exit, Failure};
use crate::report::print;

pub(crate) fn completions(shell: Shell) -> Result<Exit, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::briefly(), "fairlock", &mut text);
    print(&String::from_utf8_lossy(&text))?;
    Ok(Exit::Done)
}

/// One page for all commands, with a section for each.
pub(crate) fn man() -> Result<Exit, Failure> {
    let mut command = Args::briefly().mut_args(|option| option.hide_short_help(false));
    command.build();
    let mut text = Vec::new();
    let mut render = || {
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
    render().map_err(|error: std::io::Error| Failure::ours(format!("no man page: {error}")))?;
    // Clap calls examples, exit codes and addresses "extra", and refers to a page for each command, which does not exist.
    let mut text = String::from_utf8_lossy(&text).replace(".SH EXTRA", ".SH NOTES");
    for sub in command.get_subcommands() {
        let name = sub.get_name();
        text = text.replace(&format!("fairlock\\-{name}(1)"), &format!("fairlock {name}"));
    }
    print(&text)?;
    Ok(Exit::Done)
}
