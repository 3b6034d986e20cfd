//! What each sentinel says of itself, of the others and of the master: for a search, and for an operator who looks for the wrong
//! sentinel.

use std::time::Duration;

use redis::{Cmd, Value, cmd};

use super::Sentinel;
use crate::net::connection::{Address, Failure, items, number, text};
use crate::net::topology::{Run, fan_out, run_question};

/// One sentinel that is configured.
pub(crate) struct Surveyed {
    pub(crate) sentinel: Address,
    pub(crate) said: Result<SentinelAnswer, Failure>,
}

/// The answer of a sentinel; each part may be refused by itself.
pub(crate) struct SentinelAnswer {
    pub(crate) master: Result<Address, Failure>,
    pub(crate) details: Result<Details, Failure>,
    pub(crate) id: Result<String, Failure>,
    pub(super) run: Result<Run, Failure>,
    /// The other sentinels that this sentinel knows: id, host and port.
    pub(crate) others: Result<Vec<(String, String)>, Failure>,
}

/// What a sentinel says of the master: names and values.
pub(crate) struct Details(Value);

impl Details {
    /// 0 if the sentinel does not say.
    pub(crate) fn number(&self, name: &str) -> u64 {
        let found = value_of(&self.0, name).and_then(|value| number(value).ok());
        found.and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
    }
}

/// The master's address and properties, and the sentinel's own id (from 6.2). If it votes, also its process and the other
/// sentinels.
pub(super) fn question(name: &str, votes: bool) -> Vec<Cmd> {
    let ask = |what: &str| cmd("SENTINEL").arg(what).to_owned();
    let of_master = |what: &str| ask(what).arg(name).to_owned();
    let mut question = vec![of_master("get-master-addr-by-name"), of_master("master"), ask("myid")];
    if votes {
        question.extend([run_question(), of_master("sentinels")]);
    }
    question
}

impl Sentinel {
    /// Asks each sentinel, for at most connect + response time-out.
    pub(super) fn ask_each(&self) -> Vec<Surveyed> {
        let all = &self.sentinels.all;
        let asked = question(&self.name, true);
        let answers = fan_out(all, self.settings.timeouts, &asked, all.len());
        let of = |sentinel: &Address| {
            let answer = answers.iter().find(|(from, _)| from.is_same_server(sentinel));
            let said = answer.map_or_else(|| Err(Failure::no_answer()), |(_, answer)| answer.clone());
            Surveyed {
                sentinel: sentinel.clone(),
                said: said.map(|replies| SentinelAnswer::read(&replies, &self.servers, sentinel)),
            }
        };
        all.iter().map(of).collect()
    }
}

impl Sentinel {
    /// Adds the names of the known masters to the failure "no such master". Takes connect + response time-out at most.
    pub(super) fn with_known_masters(&self, failure: Failure) -> Failure {
        let is_unknown = |message: &str| message.contains(NO_SUCH_MASTER);
        if !matches!(&failure, Failure::Refused { message, .. } if is_unknown(message)) {
            return failure;
        }
        let question = [cmd("SENTINEL").arg("masters").to_owned()];
        let answers = fan_out(&self.sentinels.all, self.settings.timeouts, &question, 1);
        let replies = answers.into_iter().filter_map(|(_, replies)| replies.ok()).flatten().flatten();
        let mut names: Vec<String> = replies.flat_map(|masters| names(&masters)).collect();
        names.sort();
        names.dedup();
        if names.is_empty() {
            return failure;
        }
        Failure::refused("NOMASTER", &format!("they know {}", names.join(", ")))
    }
}

/// How a sentinel refuses a name.
const NO_SUCH_MASTER: &str = "No such master with that name";

/// The names in the reply to SENTINEL MASTERS.
fn names(masters: &Value) -> Vec<String> {
    let name =
        |details| text(value_of(details, "name")?).ok().map(|name| format!("`{}`", name.escape_debug()));
    items(masters).map_or_else(|_| Vec::new(), |masters| masters.iter().filter_map(name).collect())
}

impl SentinelAnswer {
    /// How many sentinels this sentinel knows, with itself. A user that may not see which sentinels still gets the number.
    pub(crate) fn known(&self) -> usize {
        let others = self.details.as_ref().map_or(0, |details| details.number("num-other-sentinels"));
        usize::try_from(others).unwrap_or(0).saturating_add(1)
    }

    /// Reads the replies to [`question`].
    pub(super) fn read(
        replies: &[Result<Value, Failure>],
        servers: &Address,
        sentinel: &Address,
    ) -> SentinelAnswer {
        let reply = |at: usize| {
            let none = || Err(Failure::Broken("no answer".into()));
            replies.get(at).cloned().unwrap_or_else(none)
        };
        SentinelAnswer {
            master: reply(0).and_then(|address| master(&address, servers, sentinel)),
            details: reply(1).map(Details),
            id: reply(2).and_then(|id| text(&id).map(str::to_owned).map_err(|_| unintelligible())),
            run: reply(3).and_then(|info| Run::read(&info)),
            others: reply(4).and_then(|all| others(&all)),
        }
    }

    /// For how long it has been up, in whole seconds.
    pub(crate) fn uptime(&self) -> Result<Duration, &Failure> {
        self.run.as_ref().map(|run| Duration::from_secs(run.uptime))
    }
}

fn master(address: &Value, servers: &Address, sentinel: &Address) -> Result<Address, Failure> {
    if *address == Value::Nil {
        return Err(Failure::refused("NOMASTER", NO_SUCH_MASTER));
    }
    let [host, port] = items(address).map_err(|_| unintelligible())? else { return Err(unintelligible()) };
    let host = text(host).ok().filter(|host| !host.is_empty()).ok_or_else(unintelligible)?;
    let port = number(port).ok().and_then(|port| u16::try_from(port).ok()).ok_or_else(unintelligible)?;
    Ok(servers.announced(host, port, sentinel))
}

fn others(all: &Value) -> Result<Vec<(String, String)>, Failure> {
    Ok(items(all).map_err(|_| unintelligible())?.iter().filter_map(other).collect())
}

fn other(details: &Value) -> Option<(String, String)> {
    let of = |name| text(value_of(details, name)?).ok();
    Some((of("runid")?.to_owned(), format!("{}:{}", of("ip")?, of("port")?)))
}

fn value_of<'v>(details: &'v Value, name: &str) -> Option<&'v Value> {
    let mut pairs = items(details).ok()?.chunks_exact(2);
    pairs.find(|pair| text(&pair[0]).is_ok_and(|field| field == name)).map(|pair| &pair[1])
}

fn unintelligible() -> Failure {
    Failure::Broken("an unintelligible answer of a sentinel".into())
}
