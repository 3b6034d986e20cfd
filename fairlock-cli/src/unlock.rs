//! `fairlock unlock`: takes a lock from its holder, after a question.

use crate::args::{Server, Unlock};
use crate::ask::confirm;
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::names::escaped;
use crate::report::say;
use crate::server;

pub(crate) fn unlock(server: &Server, options: &Unlock) -> Result<Exit, Failure> {
    let client = server::client(server)?;
    let lock = server::fair_lock(&client, &options.name)?;
    let Some(holder) = lock.inspect_line(0..0)?.holder else { return not_held(&options.name) };
    let name = escaped(holder.label.as_deref().unwrap_or_else(|| holder.owner.as_str()));
    let since = holder
        .held_for
        .map_or_else(String::new, |time| format!(", which has held it for {}", duration::show(time)));
    let question = format!("Take {} from its holder {name}{since}?", escaped(&options.name));
    if !confirm(&question, options.yes)? {
        return Ok(Exit::No);
    }
    if lock.force_unlock()? { Ok(Exit::Done) } else { not_held(&options.name) }
}

fn not_held(name: &str) -> Result<Exit, Failure> {
    say(&format!("{} is not held", escaped(name)));
    Ok(Exit::No)
}
