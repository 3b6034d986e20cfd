//! `fairlock ls`: the locks that are held or waited for.

use fairlock::Error;
use fairlock::admin::{Holder, LockName, LockState};
use serde_json::Value;

use crate::args::Ls;
use crate::blocked::blocked;
use crate::process::{Exit, Failure, say};
use crate::screen::{Picture, Row, table, watch};
use crate::server::{self, Locks};
use crate::settings::Server;
use crate::show::summary;
use crate::words::{self, and_more, duration, escaped, name_of, waits_per_second};

const COLUMNS: [(&str, usize); 6] =
    [("LOCK", 0), ("HELD BY", 0), ("HOW", 8), ("FOR", 6), ("WAITING", 7), ("WAITS/S", 7)];

pub(crate) fn ls(server: &Server, options: &Ls) -> Result<Exit, Failure> {
    if options.blocked {
        return blocked(server, options);
    }
    let store = server::store(server)?;
    let text = |(locks, unread): &(Locks, Vec<Error>)| {
        if options.json {
            unread.iter().for_each(|error| say(&error.to_string()));
            let all: Vec<Value> = locks.iter().map(|(name, state)| summary(name.as_str(), state)).collect();
            return format!("{}\n", Value::from(all));
        }
        let unread: String = unread.iter().map(|error| format!("{error}\n")).collect();
        let table = match locks.is_empty() {
            true if unread.is_empty() => "no lock is held or waited for\n".to_owned(),
            true => String::new(),
            false => table(&COLUMNS, &locks.iter().map(|(name, state)| row(name, state)).collect::<Vec<_>>()),
        };
        server::where_it_looks(server) + &table + &unread
    };
    let picture = |(locks, unread): &(Locks, Vec<Error>)| Picture {
        head: format!("locks: {}{}", locks.len(), server::and_where(server)),
        columns: &COLUMNS,
        rows: locks
            .iter()
            .map(|(name, state)| row(name, state))
            .chain(unread.iter().map(unread_row))
            .collect(),
        ..Picture::default()
    };
    let look = || Ok(store.locks_and_unread(options.pattern.as_deref())?);
    watch(options.watch, look, text, (!options.json).then_some(picture))
}

/// A lock is marked when a holder or the number of its waiters is another one.
fn row(name: &LockName, state: &LockState) -> Row {
    let holds = state.holders.iter().map(|holder| (&holder.owner, holder.token));
    let (holder, how, held_for) = match state.holder() {
        Some(first) => (
            name_of(&first.label, &first.owner) + &and_more(state),
            how_held(state, first),
            first.held_for.map(duration).unwrap_or_default(),
        ),
        None => Default::default(),
    };
    Row {
        key: name.as_str().to_owned(),
        state: format!("{:?} {}", holds.collect::<Vec<_>>(), state.waiting()),
        cells: vec![
            escaped(name.as_str()),
            holder,
            how,
            held_for,
            state.waiting().to_string(),
            waits_per_second(state, 0),
        ],
    }
}

fn unread_row(error: &Error) -> Row {
    let name = error.lock_name().map(|name| escaped(name.as_str())).unwrap_or_default();
    let cells = [vec![name, error.to_string()], vec![String::new(); COLUMNS.len() - 2]].concat();
    Row { key: error.to_string(), state: String::new(), cells }
}

/// How the lock is held, in a word or two: nothing to say of a lock that one holder has.
fn how_held(state: &LockState, first: &Holder) -> String {
    match (words::permits(state), words::units(state, first.units)) {
        (Some(permits), _) => format!("{} of {permits}", state.taken()),
        (None, units) => units.unwrap_or_default(),
    }
}
