//! `fairlock kick`: moves a waiter to the tail of the queue, after a question.

use fairlock::{OwnerId, Waiter};

use crate::args::{Kick, Server};
use crate::ask::confirm;
use crate::exit::{Exit, Failure};
use crate::kind::AnyLock;
use crate::names::{escaped, goes_by, the_only};
use crate::report::say;
use crate::server;
use crate::show::read;

pub(crate) fn kick(server: &Server, options: &Kick) -> Result<Exit, Failure> {
    let client = server::client(server)?;
    let any = AnyLock::new(&client, &options.name)?;
    let (lock, _) = any.look(0..0)?;
    let found = match lock.find_waiter(&OwnerId::new(&options.waiter))? {
        Some(found) => Some(found),
        None => find_by_label(&any, &options.waiter)?,
    };
    let Some((rank, waiter)) = found else { return no_place(options) };
    let name = escaped(waiter.label.as_deref().unwrap_or(&options.waiter));
    let question =
        format!("Take the place of {name}, number {} in the queue of {}?", rank + 1, escaped(&options.name));
    if !confirm(&question, options.yes)? {
        return Ok(Exit::No);
    }
    if lock.kick(&waiter)? { Ok(Exit::Done) } else { no_place(options) }
}

/// The rank and the place of the only waiter that goes by this name.
fn find_by_label(lock: &AnyLock, text: &str) -> Result<Option<(u64, Waiter)>, Failure> {
    let all = (0..).zip(read(lock, 0, u64::MAX)?.queue);
    let found =
        all.filter(|(_, waiter)| waiter.label.as_deref().is_some_and(|label| goes_by(label, text))).collect();
    the_only(found, "waiters", text, |(rank, waiter)| {
        let (label, owner) = (waiter.label.as_deref().unwrap_or_default(), waiter.owner.as_str());
        let absent = if waiter.is_absent() { ", absent" } else { "" };
        format!("{:>6}  {} ({}){absent}", rank + 1, escaped(label), escaped(owner))
    })
}

fn no_place(options: &Kick) -> Result<Exit, Failure> {
    say(&format!("{} has no place in the queue of {}", escaped(&options.waiter), escaped(&options.name)));
    Ok(Exit::No)
}
