//! Open hash slots of a cluster: slots whose move to another node has begun, and is neither finished nor given up.

use redis::cmd;

use super::{Verdict, Visit};
use crate::net::Arrangement;
use crate::net::value::text;

impl Visit<'_> {
    pub(super) fn open_slots(&mut self) {
        if self.backend.0.shared.servers.arrangement() != Arrangement::Cluster {
            return;
        }
        // The user may lack this right, which no other check needs.
        let Ok(reply) = self.ask(cmd("CLUSTER").arg("NODES")) else { return };
        let own = |line: &&str| line.split(' ').nth(2).is_some_and(|flags| flags.contains("myself"));
        let line = text(&reply).ok().and_then(|nodes| nodes.lines().find(own)).unwrap_or_default();
        // `[93->-ID]` is on its way to that node, `[93-<-ID]` from it.
        let inside = |word: &str| Some(word.strip_prefix('[')?.strip_suffix(']')?.to_owned());
        for open in line.split(' ').filter_map(inside) {
            let (slot, to_or_from) = match open.split_once("->-") {
                Some((slot, id)) => (slot, format!("to {id}")),
                None => open
                    .split_once("-<-")
                    .map_or((&*open, String::new()), |(slot, id)| (slot, format!("from {id}"))),
            };
            let what = format!(
                "hash slot {slot} is on its way {to_or_from}: its locks can't be used; finish the move, or before it is given up \
                 (CLUSTER SETSLOT {slot} STABLE) {}",
                self.backend.0.shared.calls.before_a_move_is_given_up(slot)
            );
            self.say("slots", Verdict::Note, what);
        }
    }
}
