//! Which key a script was refused for: the server's words don't say, so the server is asked.

use redis::{Cmd, Value, cmd};

use super::keys::Keys;
use super::reply::text;
use super::scripts::Script;
use crate::net::{Failure, ServerFailure, Servers};

/// The digest of no script.
const NO_SCRIPT: &str = "0000000000000000000000000000000000000000";

/// Names the key, after a refusal for a missing right or for a key's type; with the type of the value there. One more round
/// trip. None if the server does not tell.
pub(crate) fn key_at_fault(
    servers: &Servers,
    script: &Script,
    keys: &Keys,
    failed: &ServerFailure,
) -> Option<String> {
    let lock = keys.lock();
    match failed.failure.code()? {
        "NOPERM" => {
            // A script that does not exist is refused for its keys first. The first question is without a key: if that
            // is refused too, the right to EVALSHA is missing.
            let names = (script.keys)(keys);
            let ask = |key: Option<&str>| {
                cmd("EVALSHA").arg(NO_SCRIPT).arg(usize::from(key.is_some())).arg(key).to_owned()
            };
            let each = names.iter().map(|name| Some(*name));
            let questions: Vec<Cmd> = std::iter::once(None).chain(each).map(ask).collect();
            let answers = answers(servers, lock, &questions)?;
            let is_refused = |answer: &Answer| answer.as_ref().is_err_and(|why| why.code() == Some("NOPERM"));
            let refused = answers.iter().position(is_refused)?.checked_sub(1)?;
            Some(format!("key {}", shown(names[refused])))
        }
        // A hash without a holder, under the lock's own name.
        "FOREIGN" => Some(format!("key {} of type hash", shown(lock))),
        "WRONGTYPE" => {
            let typed = keys.typed();
            let questions: Vec<Cmd> = typed.iter().map(|(key, _)| cmd("TYPE").arg(key).to_owned()).collect();
            let answers = answers(servers, lock, &questions)?;
            typed.iter().zip(&answers).find_map(|((key, ours), answer)| {
                let kind = text(answer.as_ref().ok()?).ok().filter(|kind| kind != &"none" && kind != ours)?;
                Some(format!("key {} of type {kind}", shown(key)))
            })
        }
        _ => None,
    }
}

type Answer = Result<Value, Failure>;

fn answers(servers: &Servers, lock: &str, questions: &[Cmd]) -> Option<Vec<Answer>> {
    let packed: Vec<Vec<u8>> = questions.iter().map(Cmd::get_packed_command).collect();
    servers.call(lock, |route| Ok(route.pool.call_many(&packed))).ok()
}

/// As the names of locks are shown.
fn shown(key: &str) -> String {
    format!("`{}`", key.escape_debug())
}
