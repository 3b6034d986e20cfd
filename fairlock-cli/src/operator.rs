//! What an operator changes: `fairlock unlock` takes a lock from its holders, or from one of them, after a question; `fairlock migrate` makes the tables in a PostgreSQL database, or prints the SQL that does.

use fairlock::PostgresBackend;
use fairlock::admin::{Holder, LockState};

use crate::args::{Migrate, Server, Unlock};
use crate::exit::{Exit, Failure};
use crate::kind::holder_name;
use crate::names::{escaped, goes_by, the_only};
use crate::report::{confirm, print, say};
use crate::{duration, server};

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
            let since =
                holder.held_for.map(|time| format!(", which has held it for {}", duration::show(time)));
            format!("Take {name} from its holder {}{}?", holder_name(holder), since.unwrap_or_default())
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

fn no_hold(text: &str, name: &str) -> Failure {
    Failure::new(Exit::No, format!("{} does not hold {name}", escaped(text)))
}

fn not_held(name: &str) -> Result<Exit, Failure> {
    say(&format!("{name} is not held"));
    Ok(Exit::No)
}

pub(crate) fn migrate(server: &Server, options: &Migrate) -> Result<Exit, Failure> {
    if options.print {
        let _ = print(&PostgresBackend::migration())?;
    } else {
        let builder = server::postgres(server, None)
            .ok_or_else(|| Failure::ours("migrate needs a database: --postgres, or FAIRLOCK_POSTGRES"))?;
        builder.migrate().map_err(|error| server::explained(server, error))?;
    }
    Ok(Exit::Done)
}
