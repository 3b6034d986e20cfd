//! Runs scripts on the server: one, or many in one round trip; loads those that it does not know.

use fairlock_core::backend::BackendError;
use redis::Value;

use crate::net::{Failure, Lanes};
use crate::scripts::Script;

/// A script and what it is called with.
pub(crate) struct Call {
    script: &'static Script,
    packed: Vec<u8>,
}

impl Call {
    /// The arguments are text: numbers in decimal, names as they are.
    pub(crate) fn new(script: &'static Script, keys: &[&str], arguments: &[&str]) -> Call {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&script.sha).arg(keys.len()).arg(keys).arg(arguments);
        Call { script, packed: command.get_packed_command() }
    }
}

/// Runs one script.
pub(crate) fn run(lanes: &Lanes, call: &Call) -> Result<Value, BackendError> {
    let mut answer = lanes.call(call.packed.clone());
    if answer.as_ref().is_err_and(is_unknown) {
        load(lanes, call.script)?;
        answer = lanes.call(call.packed.clone());
    }
    answer.map_err(|failure| explain(lanes, &failure, call.script))
}

/// Runs many scripts in one round trip; one answer each, in order.
pub(crate) fn run_all(lanes: &Lanes, calls: &[Call]) -> Vec<Result<Value, BackendError>> {
    let packed: Vec<Vec<u8>> = calls.iter().map(|call| call.packed.clone()).collect();
    let answers = lanes.call_many(&packed);
    let explained = |(answer, call): (Result<Value, Failure>, &Call)| match answer {
        // It did not run, so it may be run now. A server forgets all scripts at once: this is rare.
        Err(failure) if is_unknown(&failure) => run(lanes, call),
        answer => answer.map_err(|failure| explain(lanes, &failure, call.script)),
    };
    answers.into_iter().zip(calls).map(explained).collect()
}

/// After a restart, a fail-over or SCRIPT FLUSH the server does not know the script, and nothing was run.
fn load(lanes: &Lanes, script: &'static Script) -> Result<(), BackendError> {
    let mut command = redis::cmd("SCRIPT");
    command.arg("LOAD").arg(&script.source);
    match lanes.call(command.get_packed_command()) {
        Ok(_) => Ok(()),
        Err(failure) => Err(explain(lanes, &failure, script)),
    }
}

fn is_unknown(failure: &Failure) -> bool {
    failure.code() == Some("NOSCRIPT")
}

fn explain(lanes: &Lanes, failure: &Failure, script: &Script) -> BackendError {
    failure.explain(lanes.address(), script.name)
}
