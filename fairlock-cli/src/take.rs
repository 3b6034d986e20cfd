//! `fairlock unlock --force` and `fairlock kick`: what takes something away from somebody asks first.

use fairlock::OwnerId;

use crate::args::{Kick, Server, Unlock};
use crate::ask::go_on;
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::names::plain;
use crate::report::say;
use crate::server;

pub(crate) fn unlock(server: &Server, options: &Unlock) -> Result<Exit, Failure> {
    let client = server::client(server)?;
    let lock = server::fair_lock(&client, &options.name)?;
    let Some(holder) = lock.inspect_line(0..0)?.holder else { return nobody(&options.name) };
    let who = plain(holder.label.as_deref().unwrap_or_else(|| holder.owner.as_str()));
    let since =
        holder.held_for.map_or_else(String::new, |time| format!(", for {} now", duration::show(time)));
    let question = format!("Take {} from {who}, who holds it{since}?", plain(&options.name));
    if !go_on(&question, options.yes)? {
        return Ok(Exit::No);
    }
    if lock.force_unlock()? { Ok(Exit::Done) } else { nobody(&options.name) }
}

fn nobody(name: &str) -> Result<Exit, Failure> {
    say(&format!("nobody holds {}", plain(name)));
    Ok(Exit::No)
}

pub(crate) fn kick(server: &Server, options: &Kick) -> Result<Exit, Failure> {
    let client = server::client(server)?;
    let lock = server::fair_lock(&client, &options.name)?;
    let Some((rank, waiter)) = lock.find_waiter(&OwnerId::new(&options.owner))? else {
        return no_place(options);
    };
    let who = plain(waiter.label.as_deref().unwrap_or(&options.owner));
    let question =
        format!("Take the place of {who}, number {} in the line of {}?", rank + 1, plain(&options.name));
    if !go_on(&question, options.yes)? {
        return Ok(Exit::No);
    }
    if lock.kick(&waiter)? { Ok(Exit::Done) } else { no_place(options) }
}

fn no_place(options: &Kick) -> Result<Exit, Failure> {
    say(&format!("{} has no place in the line of {}", plain(&options.owner), plain(&options.name)));
    Ok(Exit::No)
}
