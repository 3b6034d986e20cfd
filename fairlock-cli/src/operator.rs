//! What an operator changes: `fairlock unlock` takes a lock from its holders, or from one of them, and `fairlock kick` moves a waiter to the
//! tail of the queue, each after a question.

use fairlock::admin::{Admin, Holder, LockState, Waiter};
use fairlock::owner::OwnerId;

use crate::args::{Kick, Unlock};
use crate::process::{Exit, Failure, confirm, say};
use crate::server;
use crate::settings::Server;
use crate::show::read;
use crate::words::{escaped, how_long, name_of};

pub(crate) fn unlock(server: &Server, options: &Unlock) -> Result<Exit, Failure> {
    let admin = server::client(server)?.admin(&options.name)?;
    let state = admin.inspect_queue(0..0)?;
    let name = escaped(&options.name);
    let one = match &options.holder {
        Some(text) => Some(find(&state, text)?.ok_or_else(|| no_hold(text, &name))?),
        None => None,
    };
    let question = match (one, state.holders.as_slice()) {
        (Some(holder), _) | (None, [holder]) => {
            let since = how_long(", which has held it", holder.held_for);
            format!("Take {name} from its holder {}{since}?", holder_name(holder))
        }
        (None, []) => return not_held(&name),
        (None, all) => format!("Take {name} from all its {} holders?", all.len()),
    };
    if !confirm(&question, options.yes)? {
        return Ok(Exit::No);
    }
    let is_taken = match one {
        Some(holder) if state.capacity.is_some() => admin.force_unlock_of(&holder.owner)?,
        _ => admin.force_unlock()?,
    };
    if !is_taken {
        return not_held(&name);
    }
    let from: Vec<_> = one.map_or(&*state.holders, std::slice::from_ref).iter().map(holder_name).collect();
    say(&format!("{name} was taken from {}", from.join(", ")));
    Ok(Exit::Done)
}

/// The only holder that goes by this name, or is this owner.
fn find<'a>(state: &'a LockState, text: &str) -> Result<Option<&'a Holder>, Failure> {
    if let Some(holder) = state.holders.iter().find(|holder| holder.owner.as_str() == text) {
        return Ok(Some(holder));
    }
    let goes_by = |holder: &&Holder| holder.label.as_deref().is_some_and(|label| goes_by(label, text));
    let found = state.holders.iter().filter(goes_by).collect();
    the_only(found, "holders", text, |holder| {
        format!("{} ({})", holder_name(holder), escaped(holder.owner.as_str()))
    })
}

fn holder_name(holder: &Holder) -> String {
    name_of(&holder.label, &holder.owner)
}

fn no_hold(text: &str, name: &str) -> Failure {
    Failure::new(Exit::No, format!("{} does not hold {name}", escaped(text)))
}

fn not_held(name: &str) -> Result<Exit, Failure> {
    say(&format!("{name} is not held"));
    Ok(Exit::No)
}

pub(crate) fn kick(server: &Server, options: &Kick) -> Result<Exit, Failure> {
    let admin = server::client(server)?.admin(&options.name)?;
    let found = match admin.find_waiter(&OwnerId::new(&options.waiter))? {
        Some(found) => Some(found),
        None => find_by_label(&admin, &options.waiter)?,
    };
    let Some((rank, waiter)) = found else { return no_place(options) };
    let name = escaped(waiter.label.as_deref().unwrap_or(&options.waiter));
    let question =
        format!("Take the place of {name}, number {} in the queue of {}?", rank + 1, escaped(&options.name));
    if !confirm(&question, options.yes)? {
        return Ok(Exit::No);
    }
    if !admin.kick(&waiter)? {
        return no_place(options);
    }
    say(&format!("{name} is at the tail of the queue of {}", escaped(&options.name)));
    Ok(Exit::Done)
}

/// The rank and the place of the only waiter that goes by this name.
fn find_by_label(admin: &Admin, text: &str) -> Result<Option<(u64, Waiter)>, Failure> {
    let all = (0..).zip(read(admin, 0, u64::MAX)?.queue);
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

/// Whether the text is this label, or one of the two parts of `label (host:pid)`.
fn goes_by(label: &str, text: &str) -> bool {
    let parts = label.strip_suffix(')').and_then(|label| label.rsplit_once(" ("));
    label == text || parts.is_some_and(|(given, process)| given == text || process == text)
}

/// The only match for this text; each match is described in a line.
///
/// # Errors
/// If there are several, with the lines of the first ten.
fn the_only<T>(
    mut found: Vec<T>,
    what: &str,
    text: &str,
    line: impl Fn(&T) -> String,
) -> Result<Option<T>, Failure> {
    if found.len() <= 1 {
        return Ok(found.pop());
    }
    let mut message = format!("{} {what} go by {}; name one by its owner:", found.len(), escaped(text));
    found.iter().take(10).for_each(|one| message.push_str(&format!("\n{}", line(one))));
    Err(Failure::ours(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_goes_by_its_parts() {
        for (label, text, is) in [
            ("nightly (h:12)", "nightly (h:12)", true),
            ("nightly (h:12)", "nightly", true),
            ("nightly (h:12)", "h:12", true),
            ("nightly (h:12)", "night", false),
            ("h:12", "h:12", true),
            ("h:12", "h", false),
            ("", "", true),
        ] {
            assert_eq!(goes_by(label, text), is, "{label} by {text}");
        }
    }
}
