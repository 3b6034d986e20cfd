//! Runs scripts on the servers that keep their locks, one or many in a round trip, and loads scripts that are missing.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Duration;

use fairlock_core::backend::{BackendError, BackendErrorKind};
use redis::Value;

use crate::key_at_fault::key_at_fault;
use crate::keys::{Keys, SENT_LIFE};
use crate::net::commands::Pool;
use crate::net::connection::Failure;
use crate::net::topology::{Order, Route, ServerFailure, Topology};
use crate::reply::unintelligible;
use crate::resp::{Argument, Bulk, evalsha, millis};
use crate::scripts::{Script, Text};
use crate::settings::WaitReplicas;

/// A script and its arguments.
pub(crate) struct Call {
    script: &'static Script,
    text: &'static Text,
    /// Those of the lock, whose name decides the server.
    keys: Arc<Keys>,
    packed: String,
}

impl Call {
    pub(crate) fn new(script: &'static Script, keys: &Arc<Keys>, arguments: &[Argument<'_>]) -> Call {
        Call::packed_with(script, &script.text, keys, &(script.keys)(keys), arguments)
    }

    /// The script of a durable client, if there is a `grace`; else the same as [`new`](Self::new).
    pub(crate) fn durable(
        script: &'static Script,
        grace: Option<Duration>,
        keys: &Arc<Keys>,
        arguments: &[Argument<'_>],
    ) -> Call {
        match grace {
            None => Call::new(script, keys, arguments),
            Some(grace) => Call::with_life(script, grace, keys, (script.keys)(keys).into_iter(), arguments),
        }
    }

    /// A script for many locks of one server: the keys of one lock follow those of another. None without any lock.
    pub(crate) fn for_many(
        script: &'static Script,
        grace: Option<Duration>,
        locks: &[Arc<Keys>],
        arguments: &[Argument<'_>],
    ) -> Option<Call> {
        let (first, names) = (locks.first()?, locks.iter().flat_map(|keys| (script.keys)(keys)));
        Some(match grace {
            None => Call::packed_with(script, &script.text, first, &names.collect::<Vec<_>>(), arguments),
            Some(grace) => Call::with_life(script, grace, first, names, arguments),
        })
    }

    fn with_life<'k>(
        script: &'static Script,
        grace: Duration,
        keys: &Arc<Keys>,
        names: impl Iterator<Item = Bulk<'k>>,
        arguments: &[Argument<'_>],
    ) -> Call {
        let names: Vec<_> = names.chain([SENT_LIFE]).collect();
        let arguments = [arguments, &[millis(grace).into()]].concat();
        Call::packed_with(script, script.durable(), keys, &names, &arguments)
    }

    fn packed_with(
        script: &'static Script,
        text: &'static Text,
        keys: &Arc<Keys>,
        names: &[Bulk<'_>],
        arguments: &[Argument<'_>],
    ) -> Call {
        let packed = evalsha(&text.sha, names, arguments);
        Call { script, text, keys: Arc::clone(keys), packed }
    }

    fn lock(&self) -> &str {
        self.keys.lock().text()
    }

    fn packed(&self) -> &[u8] {
        self.packed.as_bytes()
    }
}

/// Runs one script.
pub(crate) fn run(servers: &Topology, call: &Call) -> Result<Value, BackendError> {
    let answer = servers.ask(call.lock(), |route| run_there(route, call));
    answer.map_err(|failed| match key_at_fault(servers, call.script, &call.keys, &failed) {
        Some(key) => failed.explain(&format!("{} on {key}", call.script.name)),
        None => failed.explain(call.script.name),
    })
}

fn run_there(route: &Route, call: &Call) -> Result<Value, Failure> {
    match route.call(call.packed()) {
        // After a restart, a fail-over or SCRIPT FLUSH the server does not know the script, and ran nothing.
        Err(failure) if is_unknown(&failure) => {
            load(&route.pool, call.text)?;
            route.call(call.packed())
        }
        answer => answer,
    }
}

fn load(pool: &Pool, text: &Text) -> Result<(), Failure> {
    let mut command = redis::cmd("SCRIPT");
    pool.call(command.arg("LOAD").arg(&text.source).get_packed_command()).map(drop)
}

fn is_unknown(failure: &Failure) -> bool {
    failure.code() == Some("NOSCRIPT")
}

/// Runs a script on the connection for blocking commands, then waits until enough replicas have what it wrote.
pub(crate) fn run_and_replicate(
    servers: &Topology,
    call: &Call,
    wait: WaitReplicas,
) -> Result<(), BackendError> {
    let mut command = redis::cmd("WAIT");
    let wait_packed =
        command.arg(wait.count).arg(wait.within.as_millis().max(1).to_string()).get_packed_command();
    let answer = servers.ask(call.lock(), |route| {
        let pool = route.pool.for_blocking(wait.within);
        let run = || -> Result<Value, Failure> {
            let mut answers = pool.call_many(&[call.packed(), wait_packed.as_slice()]).into_iter();
            let none = || Err(Failure::Broken("no answer".to_owned()));
            answers.next().unwrap_or_else(none)?;
            answers.next().unwrap_or_else(none)
        };
        match run() {
            Err(failure) if is_unknown(&failure) => {
                load(pool, call.text)?;
                run()
            }
            answer => answer,
        }
    });
    let have = match answer {
        Ok(Value::Int(have)) => have,
        Ok(other) => return Err(unintelligible(&other)),
        Err(failed) => return Err(failed.explain("WAIT")),
    };
    if usize::try_from(have).is_ok_and(|have| have >= wait.count) {
        return Ok(());
    }
    let what = format!("{have} of {} replicas have the grant within {:?}", wait.count, wait.within);
    Err(BackendError::new(BackendErrorKind::Unavailable, format!("Redis at {servers}: only {what}")))
}

/// Runs many scripts, in few round trips to each server; one answer each, in order.
pub(crate) fn run_all<C: Borrow<Call>>(
    servers: &Topology,
    calls: &[C],
    order: Order,
) -> Vec<Result<Value, CallFailure>> {
    let locks: Vec<&str> = calls.iter().map(|call| call.borrow().lock()).collect();
    let packed: Vec<&[u8]> = calls.iter().map(|call| call.borrow().packed()).collect();
    let answers = servers.ask_all(&locks, &packed, order, |at, route| run_there(route, calls[at].borrow()));
    let failed = |(answer, call): (Result<Value, ServerFailure>, &C)| {
        answer.map_err(|failed| CallFailure {
            is_refusal: failed.failure.code().is_some(),
            error: failed.explain(call.borrow().script.name),
        })
    };
    answers.into_iter().zip(calls).map(failed).collect()
}

/// Why one of many scripts has no reply.
#[derive(Debug)]
pub(crate) struct CallFailure {
    /// The server answered, and refused it.
    pub(crate) is_refusal: bool,
    pub(crate) error: BackendError,
}
