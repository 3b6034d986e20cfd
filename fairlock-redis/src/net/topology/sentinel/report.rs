//! The question to a sentinel about a master, and its answer.

use redis::{Cmd, Value, cmd};

use crate::net::connection::{Address, Failure};
use crate::net::topology::fan_out::Answer;
use crate::reply::{items, number, text};

/// Two commands: for the master's address, and for its other properties.
pub(super) fn question(name: &str) -> [Cmd; 2] {
    [
        cmd("SENTINEL").arg("get-master-addr-by-name").arg(name).to_owned(),
        cmd("SENTINEL").arg("master").arg(name).to_owned(),
    ]
}

/// The master as one sentinel names it.
#[derive(Debug)]
pub(super) struct MasterReport {
    pub(super) address: Address,
    /// 0 if the sentinel does not say.
    pub(super) epoch: i64,
}

impl MasterReport {
    pub(super) fn read((_, answer): &Answer, servers: &Address) -> Result<MasterReport, Failure> {
        let replies = answer.as_ref().map_err(Clone::clone)?;
        let [address, details] = &replies[..] else { return Err(unintelligible()) };
        let address = address.as_ref().map_err(Clone::clone)?;
        if *address == Value::Nil {
            return Err(Failure::refused("NOMASTER", "No such master with that name"));
        }
        let [host, port] = items(address).map_err(|_| unintelligible())? else {
            return Err(unintelligible());
        };
        let host = text(host).ok().filter(|host| !host.is_empty()).ok_or_else(unintelligible)?;
        let port = number(port).ok().and_then(|port| u16::try_from(port).ok()).ok_or_else(unintelligible)?;
        let epoch = details.as_ref().ok().and_then(epoch).unwrap_or(0);
        Ok(MasterReport { address: servers.at(host, port), epoch })
    }
}

fn epoch(details: &Value) -> Option<i64> {
    let mut pairs = items(details).ok()?.chunks_exact(2);
    let found = pairs.find(|pair| text(&pair[0]).is_ok_and(|field| field == "config-epoch"))?;
    number(&found[1]).ok()
}

fn unintelligible() -> Failure {
    Failure::Broken("an unintelligible answer of a sentinel".to_owned())
}
