//! Runs scripts on the servers that keep their locks, one or many in a round trip, and loads scripts that are missing.

use std::borrow::{Borrow, Cow};
use std::sync::Arc;

use fairlock_core::backend::BackendError;
use redis::Value;

use crate::durability::Durability;
use crate::key_at_fault::key_at_fault;
use crate::keys::Keys;
use crate::net::commands::Pool;
use crate::net::connection::Failure;
use crate::net::topology::{Order, Route, ServerFailure, Topology};
use crate::resp::{Argument, Bulk, Evalsha};
use crate::scripts::{Script, Text};

/// A script and its arguments.
pub(crate) struct Call {
    script: &'static Script,
    text: &'static Text,
    /// Those of the lock, whose name decides the server.
    keys: Arc<Keys>,
    packed: Evalsha,
    /// The last arguments are the epoch of the server that it is sent to, and who named it.
    takes_epoch: bool,
}

impl Call {
    pub(crate) fn new(script: &'static Script, keys: &Arc<Keys>, arguments: &[Argument<'_>]) -> Call {
        Call::packed_with(script, None, keys, &(script.keys)(keys), arguments)
    }

    /// The script of a durable client; of another client the same as [`new`](Self::new).
    pub(crate) fn durable(
        script: &'static Script,
        durability: Option<Durability>,
        keys: &Arc<Keys>,
        arguments: &[Argument<'_>],
    ) -> Call {
        Call::packed_with(script, durability, keys, &(script.keys)(keys), arguments)
    }

    /// A script for many locks of one server: the keys of one lock follow those of another. None without any lock.
    pub(crate) fn for_many(
        script: &'static Script,
        durability: Option<Durability>,
        locks: &[Arc<Keys>],
        arguments: &[Argument<'_>],
    ) -> Option<Call> {
        let names: Vec<_> = locks.iter().flat_map(|keys| (script.keys)(keys)).collect();
        Some(Call::packed_with(script, durability, locks.first()?, &names, arguments))
    }

    fn packed_with(
        script: &'static Script,
        durability: Option<Durability>,
        keys: &Arc<Keys>,
        names: &[Bulk<'_>],
        arguments: &[Argument<'_>],
    ) -> Call {
        let keys = Arc::clone(keys);
        let Some(durability) = durability else {
            let packed = Evalsha::new(&script.text.sha, names, arguments, 0);
            return Call { script, text: &script.text, keys, packed, takes_epoch: false };
        };
        let (text, takes_epoch) = (script.durable(), durability.proof_age().is_some());
        let [kept, grace] = durability.arguments().map(Argument::Number);
        let life = [kept, grace, Argument::Number(0), Argument::Text("")];
        let known = if takes_epoch { &life[..2] } else { &life };
        let names = [names, &[durability.life_of(&keys)]].concat();
        let later = life.len() - known.len();
        let packed = Evalsha::new(&text.sha, &names, &[arguments, known].concat(), later);
        Call { script, text, keys, packed, takes_epoch }
    }

    fn lock(&self) -> &str {
        self.keys.lock().text()
    }

    /// Only the script of a durable client tells of a grace. The reply of another one says nothing of it, also not that it is over.
    fn heard(&self, pool: &Pool, reply: Value) -> Value {
        if std::ptr::eq(self.text, &self.script.text) { reply } else { pool.heard(reply) }
    }

    fn packed_for(&self, route: &Route) -> Cow<'_, [u8]> {
        let proof = [route.epoch.into(), route.voters.as_deref().unwrap_or_default().into()];
        self.packed.complete(|| route.pool.attempt_end(), if self.takes_epoch { &proof } else { &[] })
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
    let ask = || route.call(&call.packed_for(route));
    let answer = match ask() {
        // After a restart, a fail-over or SCRIPT FLUSH the server does not know the script, and ran nothing.
        Err(failure) if is_unknown(&failure) => {
            load(&route.pool, call.text)?;
            ask()
        }
        answer => answer,
    };
    let answer = match answer {
        // The server's clock was not known, or was stepped forward. It ran nothing, and its clock is known now.
        Err(failure) if route.pool.refused_late(&failure) => ask(),
        answer => answer,
    };
    answer.map(|reply| call.heard(&route.pool, reply))
}

fn load(pool: &Pool, text: &Text) -> Result<(), Failure> {
    let mut command = redis::cmd("SCRIPT");
    pool.call(command.arg("LOAD").arg(&text.source).get_packed_command()).map(drop)
}

fn is_unknown(failure: &Failure) -> bool {
    failure.code() == Some("NOSCRIPT")
}

/// Runs many scripts, in few round trips to each server; one answer each, in order.
pub(crate) fn run_all<C: Borrow<Call>>(
    servers: &Topology,
    calls: &[C],
    order: Order,
) -> Vec<Result<Value, CallFailure>> {
    let locks: Vec<&str> = calls.iter().map(|call| call.borrow().lock()).collect();
    let pack = |at: usize, route: &Route| calls[at].borrow().packed_for(route);
    let heard = |at: usize, pool: &Pool, reply| calls[at].borrow().heard(pool, reply);
    let answers =
        servers.ask_all(&locks, pack, order, heard, |at, route| run_there(route, calls[at].borrow()));
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
