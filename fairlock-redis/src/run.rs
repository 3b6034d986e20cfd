//! Runs scripts on the servers that keep their locks: one, or many in one round trip; loads those that are not known.

use fairlock_core::backend::{BackendError, BackendErrorKind};
use redis::Value;

use crate::net::commands::Pool;
use crate::net::connection::Failure;
use crate::net::topology::{Route, ServerFailure, Topology};
use crate::replicas::WaitReplicas;
use crate::reply::unintelligible;
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
            load(&route.pool, call.script)?;
            route.call(&call.packed)
        }
        answer => answer,
    }
}

fn load(pool: &Pool, script: &Script) -> Result<(), Failure> {
    let mut command = redis::cmd("SCRIPT");
    pool.call(command.arg("LOAD").arg(&script.source).get_packed_command()).map(drop)
}

fn is_unknown(failure: &Failure) -> bool {
    failure.code() == Some("NOSCRIPT")
}

/// Runs a script on the connection for what takes long, and waits until so many replicas have all that was written there.
pub(crate) fn run_aside(servers: &Topology, call: &Call, wait: WaitReplicas) -> Result<(), BackendError> {
    let mut command = redis::cmd("WAIT");
    let wait_packed =
        command.arg(wait.count).arg(wait.within.as_millis().max(1).to_string()).get_packed_command();
    let answer = servers.ask(&call.lock, |route| {
        let aside = route.pool.aside(wait.within);
        let run = || -> Result<Value, Failure> {
            let mut answers = aside.call_many(&[call.packed.as_slice(), wait_packed.as_slice()]).into_iter();
            let none = || Err(Failure::Broken("no answer".to_owned()));
            answers.next().unwrap_or_else(none)?;
            answers.next().unwrap_or_else(none)
        };
        match run() {
            Err(failure) if is_unknown(&failure) => {
                load(aside, call.script)?;
                run()
            }
            answer => answer,
        }
    });
    let have = match answer {
        Ok(Value::Int(have)) => have,
        Ok(other) => return Err(unintelligible(&other)),
        Err(trouble) => return Err(trouble.explain("WAIT")),
    };
    if usize::try_from(have).is_ok_and(|have| have >= wait.count) {
        return Ok(());
    }
    let what = format!("{have} of {} replicas have the grant within {:?}", wait.count, wait.within);
    Err(BackendError::new(BackendErrorKind::Unavailable, format!("Redis at {servers}: only {what}")))
}

/// Runs many scripts, in one round trip to each server; one answer each, in order.
pub(crate) fn run_all(servers: &Topology, calls: &[Call]) -> Vec<Result<Value, BackendError>> {
    let locks: Vec<&str> = calls.iter().map(|call| call.lock.as_str()).collect();
    let packed: Vec<&[u8]> = calls.iter().map(|call| call.packed.as_slice()).collect();
    let answers = servers.ask_all(&locks, &packed, |at, route| run_there(route, &calls[at]));
    let explained = |(answer, call): (Result<Value, ServerFailure>, &Call)| {
        answer.map_err(|trouble| trouble.explain(call.script.name))
    };
    answers.into_iter().zip(calls).map(explained).collect()
}
