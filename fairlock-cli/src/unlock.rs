//! `fairlock unlock`: takes a lock from its holders, or from one of them, after a question.

use fairlock::{Holder, LockState};

use crate::args::{Server, Unlock};
use crate::ask::confirm;
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::kind::{self, AnyLock, holder_name};
use crate::names::{escaped, goes_by, the_only};
use crate::report::say;
use crate::server;

pub(crate) fn unlock(server: &Server, options: &Unlock) -> Result<Exit, Failure> {
    let client = server::client(server)?;
    let any = AnyLock::new(&client, &options.name)?;
    let (lock, state) = any.look(0..0)?;
    let name = escaped(&options.name);
    let one = match &options.holder {
        Some(text) => Some(find(&state, text)?.ok_or_else(|| no_hold(text, &name))?),
        None => None,
    };
    let question = match (one, state.holders.as_slice()) {
        (Some(holder), _) | (None, [holder]) => {
            let since =
                holder.held_for.map(|time| format!(", which has held it for {}", duration::show(time)));
            match kind::kept(holder) {
                Some(kept) => format!("Free {name}, {kept}?"),
                None => format!(
                    "Take {name} from its holder {}{}?",
                    holder_name(holder),
                    since.unwrap_or_default()
                ),
            }
        }
        (None, []) => return not_held(&name),
        (None, all) => format!("Take {name} from all its {} holders?", all.len()),
    };
    if !confirm(&question, options.yes)? {
        return Ok(Exit::No);
    }
    let is_taken = match (one, any.shared(), kind::permits(&state)) {
        (Some(holder), Some(shared), _) if state.capacity.is_some() => {
            shared.force_unlock_of(&holder.owner)?
        }
        (None, _, Some(permits)) => client.semaphore(&options.name, permits)?.force_unlock()?,
        _ => lock.force_unlock()?,
    };
    if is_taken { Ok(Exit::Done) } else { not_held(&name) }
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

fn no_hold(text: &str, name: &str) -> Failure {
    Failure::new(Exit::No, format!("{} does not hold {name}", escaped(text)))
}

fn not_held(name: &str) -> Result<Exit, Failure> {
    say(&format!("{name} is not held"));
    Ok(Exit::No)
}
