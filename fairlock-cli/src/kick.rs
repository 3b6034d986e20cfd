//! `fairlock kick`: takes a waiter's place away, after a question.

use fairlock::OwnerId;

use crate::args::{Kick, Server};
use crate::ask::confirm;
use crate::exit::{Exit, Failure};
use crate::names::escaped;
use crate::report::say;
use crate::server;

pub(crate) fn kick(server: &Server, options: &Kick) -> Result<Exit, Failure> {
    let client = server::client(server)?;
    let lock = server::fair_lock(&client, &options.name)?;
    let Some((rank, waiter)) = lock.find_waiter(&OwnerId::new(&options.owner))? else {
        return no_place(options);
    };
    let name = escaped(waiter.label.as_deref().unwrap_or(&options.owner));
    let question =
        format!("Take the place of {name}, number {} in the line of {}?", rank + 1, escaped(&options.name));
    if !confirm(&question, options.yes)? {
        return Ok(Exit::No);
    }
    if lock.kick(&waiter)? { Ok(Exit::Done) } else { no_place(options) }
}

fn no_place(options: &Kick) -> Result<Exit, Failure> {
    say(&format!("{} has no place in the line of {}", escaped(&options.owner), escaped(&options.name)));
    Ok(Exit::No)
}
