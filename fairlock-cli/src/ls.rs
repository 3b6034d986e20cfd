//! `fairlock ls`: the locks that are held or waited for.

use fairlock::LockState;
use serde_json::Value;

use crate::args::{Ls, Server};
use crate::exit::{Exit, Failure};
use crate::kind::held_by;
use crate::names::escaped;
use crate::server;
use crate::show::summary;
use crate::tree;
use crate::watch::watch;

pub(crate) fn ls(server: &Server, options: &Ls) -> Result<Exit, Failure> {
    if options.blocked {
        return tree::blocked(server, options);
    }
    let store = server::store(server)?;
    watch(options.watch, || {
        let locks = store.locks(options.pattern.as_deref())?;
        if options.json {
            let all: Vec<Value> = locks.iter().map(|(name, state)| summary(name.as_str(), state)).collect();
            return Ok(format!("{}\n", Value::from(all)));
        }
        let longest = locks.iter().map(|(name, _)| escaped(name.as_str()).chars().count()).max();
        let width = longest.unwrap_or(0).min(40);
        let rows: String =
            locks.iter().map(|(name, state)| row(&escaped(name.as_str()), state, width)).collect();
        Ok(server::where_it_looks(server) + &rows)
    })
}

fn row(name: &str, state: &LockState, width: usize) -> String {
    let waiting = match state.waiting() {
        0 => String::new(),
        n => format!(", {n} waiting"),
    };
    format!("{name:width$}  {}{waiting}\n", held_by(state))
}
