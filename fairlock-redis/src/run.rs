//! Runs scripts on the servers that keep their locks: one, or many in one round trip; loads those that are not known.

use fairlock_core::backend::BackendError;
use redis::Value;

use crate::net::{Failure, Route, Topology, Trouble};
use crate::scripts::Script;

/// A script and what it is called with.
pub(crate) struct Call {
    script: &'static Script,
    /// The name of the lock: it says which server is asked.
    lock: String,
    packed: Vec<u8>,
}

impl Call {
    /// The first key is the lock itself. The arguments are text: numbers in decimal, names as they are.
    pub(crate) fn new(script: &'static Script, keys: &[&str], arguments: &[&str]) -> Call {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&script.sha).arg(keys.len()).arg(keys).arg(arguments);
        let lock = keys.first().copied().unwrap_or_default().to_owned();
        Call { script, lock, packed: command.get_packed_command() }
    }
}

/// Runs one script.
pub(crate) fn run(servers: &Topology, call: &Call) -> Result<Value, BackendError> {
    let answer = servers.ask(&call.lock, |route| run_there(route, call));
    answer.map_err(|trouble| trouble.explain(call.script.name))
}

fn run_there(route: &Route, call: &Call) -> Result<Value, Failure> {
    match route.call(&call.packed) {
        // After a restart, a fail-over or SCRIPT FLUSH the server does not know the script, and nothing was run.
        Err(failure) if is_unknown(&failure) => {
            let mut load = redis::cmd("SCRIPT");
            route.lanes.call(load.arg("LOAD").arg(&call.script.source).get_packed_command())?;
            route.call(&call.packed)
        }
        answer => answer,
    }
}

fn is_unknown(failure: &Failure) -> bool {
    failure.code() == Some("NOSCRIPT")
}

/// Runs many scripts, in one round trip to each server; one answer each, in order.
pub(crate) fn run_all(servers: &Topology, calls: &[Call]) -> Vec<Result<Value, BackendError>> {
    let locks: Vec<&str> = calls.iter().map(|call| call.lock.as_str()).collect();
    let packed: Vec<&[u8]> = calls.iter().map(|call| call.packed.as_slice()).collect();
    let answers = servers.ask_all(&locks, &packed, |at, route| run_there(route, &calls[at]));
    let explained = |(answer, call): (Result<Value, Trouble>, &Call)| {
        answer.map_err(|trouble| trouble.explain(call.script.name))
    };
    answers.into_iter().zip(calls).map(explained).collect()
}
