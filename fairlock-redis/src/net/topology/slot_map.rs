//! Which node keeps which hash slots: what the nodes of a cluster say, and which of their views counts.

use std::collections::HashMap;

use redis::Value;

use crate::net::connection::{Address, Failure};
use crate::net::hash_slot::SLOTS;
use crate::net::value::{items, number, text};

/// The cluster as one node sees it.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// First slot, last slot, and the node that keeps them; in order.
    pub(super) ranges: Vec<(u16, u16, Address)>,
    /// All known nodes by their addresses, including replicas.
    pub(super) nodes: HashMap<String, Address>,
}

impl View {
    /// Reads the reply to CLUSTER SLOTS: ranges of first slot, last slot, primary, replicas; a node is host, port, id and
    /// more. A missing host is that of the node that replied.
    pub(super) fn read(of: &Address, answer: &Value) -> Result<View, Failure> {
        let mut view = View { ranges: Vec::new(), nodes: HashMap::new() };
        for range in items(answer).map_err(|_| unintelligible())? {
            let parts = items(range).map_err(|_| unintelligible())?;
            let [first, last, primary, replicas @ ..] = parts else { return Err(unintelligible()) };
            let (first, last) = (slot(first)?, slot(last)?);
            if first > last {
                return Err(unintelligible());
            }
            let primary = node(of, primary)?;
            view.know(&primary);
            view.ranges.push((first, last, primary));
            for replica in replicas {
                view.know(&node(of, replica)?);
            }
        }
        if view.ranges.is_empty() {
            return Err(Failure::refused("CLUSTERDOWN", "the node knows of no hash slots"));
        }
        view.ranges.sort_by_key(|(first, ..)| *first);
        Ok(view)
    }

    fn know(&mut self, node: &Address) {
        self.nodes.entry(node.to_string()).or_insert_with(|| node.clone());
    }

    fn agrees(&self, other: &View) -> bool {
        let pairs = || self.ranges.iter().zip(&other.ranges);
        self.ranges.len() == other.ranges.len()
            && pairs().all(|(a, b)| a.0 == b.0 && a.1 == b.1 && a.2.is_same_server(&b.2))
    }

    /// The view that most nodes share, or the earliest of several: a node that was cut off from the others still names
    /// nodes that were replaced, and may be the quickest to answer. With it, how many share it.
    pub(super) fn most_common(views: &[View]) -> Option<(&View, usize)> {
        let votes = |view: &View| views.iter().filter(|other| view.agrees(other)).count();
        // `max_by_key` returns the last of equals.
        views.iter().rev().map(|view| (view, votes(view))).max_by_key(|(_, votes)| *votes)
    }
}

fn slot(value: &Value) -> Result<u16, Failure> {
    let slot = number(value).ok().and_then(|slot| u16::try_from(slot).ok());
    slot.filter(|slot| *slot < SLOTS).ok_or_else(unintelligible)
}

fn node(of: &Address, value: &Value) -> Result<Address, Failure> {
    let [host, port, ..] = items(value).map_err(|_| unintelligible())? else { return Err(unintelligible()) };
    let host = if *host == Value::Nil { "" } else { text(host).map_err(|_| unintelligible())? };
    let port = number(port).ok().and_then(|port| u16::try_from(port).ok()).ok_or_else(unintelligible)?;
    Ok(named_by(of, host, port))
}

/// A node as another node names it. An empty host or `?` stands for the host of the naming node.
pub(super) fn named_by(of: &Address, host: &str, port: u16) -> Address {
    let host = if host.is_empty() || host == "?" { of.host().unwrap_or_default() } else { host };
    of.announced(host, port, of)
}

/// The target of MOVED and ASK: slot and node, as in `3999 127.0.0.1:6381`.
pub(super) fn redirection(of: &Address, message: &str) -> Option<(u16, Address)> {
    let (slot, rest) = message.split_once(' ')?;
    let (host, port) = rest.split(' ').next()?.rsplit_once(':')?;
    let slot = slot.parse().ok().filter(|slot| *slot < SLOTS)?;
    Some((slot, named_by(of, host, port.parse().ok()?)))
}

fn unintelligible() -> Failure {
    Failure::Broken("an unintelligible answer to CLUSTER SLOTS".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Address {
        Address::parse("redis://u:canary@asked:7000").expect("an address")
    }

    fn view(wire: &str) -> Result<View, Failure> {
        View::read(&asked(), &redis::parse_redis_value(wire.as_bytes()).expect("a value"))
    }

    fn shown(view: &View) -> Vec<String> {
        view.ranges.iter().map(|(first, last, node)| format!("{first}-{last} {node}")).collect()
    }

    /// Ranges and nodes are read, and a missing host is the host that was asked.
    #[test]
    fn ranges_and_nodes_are_read_also_without_a_host() {
        let read = view(
            "*3\r\n\
             *4\r\n:100\r\n:16383\r\n*3\r\n$2\r\nh2\r\n:2\r\n$2\r\nid\r\n*2\r\n$2\r\nh3\r\n:3\r\n\
             *3\r\n:0\r\n:98\r\n*2\r\n$0\r\n\r\n:1\r\n\
             *3\r\n:99\r\n:99\r\n*4\r\n$-1\r\n:1\r\n$2\r\nid\r\n*0\r\n",
        )
        .expect("a view");
        assert_eq!(shown(&read), ["0-98 asked:1", "99-99 asked:1", "100-16383 h2:2"]);
        let mut nodes: Vec<_> = read.nodes.keys().collect();
        nodes.sort();
        assert_eq!(nodes, ["asked:1", "h2:2", "h3:3"]);
        assert_eq!(read.nodes["h2:2"].credentials(), Some((Some("u"), "canary")));
    }

    #[test]
    fn garbage_is_no_view() {
        for wire in [
            "+OK\r\n",
            "*0\r\n",
            "*1\r\n:1\r\n",
            "*1\r\n*2\r\n:0\r\n:1\r\n",
            "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n+h\r\n:1\r\n",
            "*1\r\n*3\r\n:-1\r\n:1\r\n*2\r\n+h\r\n:1\r\n",
            "*1\r\n*3\r\n:2\r\n:1\r\n*2\r\n+h\r\n:1\r\n",
            "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n+h\r\n:70000\r\n",
            "*1\r\n*3\r\n:0\r\n:1\r\n*1\r\n+h\r\n",
            "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n*0\r\n:1\r\n",
        ] {
            assert!(view(wire).is_err(), "{wire}");
        }
    }

    #[test]
    fn redirections_are_read() {
        let to = |message: &str| redirection(&asked(), message).map(|(slot, to)| (slot, to.to_string()));
        assert_eq!(to("3999 127.0.0.1:6381"), Some((3999, "127.0.0.1:6381".to_owned())));
        assert_eq!(to("1 ::1:6381"), Some((1, "[::1]:6381".to_owned())));
        assert_eq!(to("1 :6381"), Some((1, "asked:6381".to_owned())));
        assert_eq!(to("1 ?:6381"), Some((1, "asked:6381".to_owned())));
        for message in ["", "1", "x h:1", "16384 h:1", "1 h", "1 h:x"] {
            assert_eq!(to(message), None, "{message}");
        }
    }

    #[test]
    fn the_view_of_most_nodes_counts() {
        let range = |port: u16| format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\nh\r\n:{port}\r\n");
        let views: Vec<View> = [1, 2, 2].map(|port| view(&range(port)).expect("a view")).to_vec();
        assert_eq!(shown(View::most_common(&views).expect("one").0), ["0-16383 h:2"]);
        assert_eq!(shown(View::most_common(&views[..2]).expect("one").0), ["0-16383 h:1"]);
        assert!(View::most_common(&[]).is_none());
        let part = |last: u16| format!("*1\r\n*3\r\n:0\r\n:{last}\r\n*2\r\n$1\r\nh\r\n:1\r\n");
        let views: Vec<View> = [1, 2, 2].map(|last| view(&part(last)).expect("a view")).to_vec();
        assert_eq!(shown(View::most_common(&views).expect("one").0), ["0-2 h:1"]);
    }
}
