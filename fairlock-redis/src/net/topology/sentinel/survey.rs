//! What each sentinel says of itself, of the others and of the master: for an operator, who learns which one is wrong.

use std::time::Duration;

use redis::{Cmd, Value, cmd};

use super::Sentinel;
use super::report::{count, question};
use crate::net::connection::{Address, Failure};
use crate::net::topology::fan_out::fan_out;
use crate::net::topology::voter::{self, Run};
use crate::net::value::{items, text};

/// One sentinel that is configured.
pub(crate) struct Surveyed {
    pub(crate) sentinel: Address,
    pub(crate) said: Result<Said, Failure>,
}

/// Each part may be refused by itself.
pub(crate) struct Said {
    /// The master's host and port.
    pub(crate) master: Option<String>,
    pub(crate) details: Result<Details, Failure>,
    pub(crate) id: Result<String, Failure>,
    /// For how long it has been up, in whole seconds.
    pub(crate) uptime: Result<Duration, Failure>,
    /// The other sentinels that it knows: id, host and port.
    pub(crate) others: Vec<(String, String)>,
}

/// What it says of the master: names and values.
pub(crate) struct Details(Value);

impl Details {
    /// 0 if the sentinel does not say.
    pub(crate) fn number(&self, name: &str) -> u64 {
        count(&self.0, name).unwrap_or(0)
    }
}

impl Sentinel {
    /// Asks each of them, for at most connect + response time-out.
    pub(super) fn ask_each(&self) -> Vec<Surveyed> {
        let all = &self.sentinels.all;
        let mut asked: Vec<Cmd> = question(&self.name).into();
        asked.extend([cmd("SENTINEL").arg("sentinels").arg(&self.name).to_owned(), voter::question()]);
        let answers = fan_out(all, self.settings.timeouts, &asked, all.len());
        let of = |sentinel: &Address| {
            let answer = answers.iter().find(|(from, _)| from.is_same_server(sentinel));
            let said = answer.map_or_else(|| Err(Failure::no_answer()), |(_, answer)| answer.clone());
            Surveyed { sentinel: sentinel.clone(), said: said.map(|replies| Said::read(&replies)) }
        };
        all.iter().map(of).collect()
    }
}

impl Said {
    fn read(replies: &[Result<Value, Failure>]) -> Said {
        let reply = |at: usize| {
            let none = || Err(Failure::Broken("no answer".to_owned()));
            replies.get(at).cloned().unwrap_or_else(none)
        };
        let master = reply(0).ok().and_then(|address| host_and_port(items(&address).ok()?.iter()));
        let details = reply(1).map(Details);
        let id = reply(2).map(|id| text(&id).unwrap_or_default().to_owned());
        let others = reply(3).ok().and_then(|all| Some(items(&all).ok()?.iter().filter_map(other).collect()));
        let run = reply(4).and_then(|info| Run::read(&info));
        let uptime = run.map(|run| Duration::from_secs(run.uptime));
        Said { master, details, id, uptime, others: others.unwrap_or_default() }
    }
}

fn other(details: &Value) -> Option<(String, String)> {
    let pairs = items(details).ok()?.chunks_exact(2);
    let of = |name: &str| {
        let mut pairs = pairs.clone();
        pairs.find(|pair| text(&pair[0]).is_ok_and(|field| field == name)).map(|pair| &pair[1])
    };
    let id = text(of("runid")?).ok()?.to_owned();
    Some((id, host_and_port([of("ip")?, of("port")?].into_iter())?))
}

fn host_and_port<'a>(words: impl Iterator<Item = &'a Value>) -> Option<String> {
    let words: Vec<&str> = words.filter_map(|word| text(word).ok()).collect();
    if words.len() == 2 { Some(words.join(":")) } else { None }
}
