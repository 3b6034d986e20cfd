//! The commands as calls of scripts, with arguments in the order of the scripts' headers, as the Redis backend sends them.

use std::collections::BTreeSet;

use fairlock_core::LockKind;

use crate::commands::{Command, kind_of};
use crate::lua::client;
use crate::words::{Ask, ClientNumber, Condition, Member, Patience};

pub(crate) struct Call {
    pub(crate) script: String,
    pub(crate) lock: usize,
    pub(crate) arguments: Vec<String>,
}

/// Nothing for what happens without a script.
pub(crate) fn call_of(
    kind: LockKind,
    say_deaf: &BTreeSet<ClientNumber>,
    begin_by: &str,
    command: &Command,
) -> Option<Call> {
    let kind = kind_of(kind, command.request());
    let (begin_by, capacity) = (begin_by.to_owned(), kind.capacity().to_string());
    // The server knows all listeners.
    let options = "s".to_owned();
    let options_of = |client: ClientNumber| {
        if say_deaf.contains(&client) { options.clone() + "d" } else { options.clone() }
    };
    let (operation, arguments) = match command {
        Command::Acquire { ask, patience, .. } => {
            let waits = if *patience == Patience::Once { "" } else { "w" };
            let mut arguments = asker(ask).to_vec();
            arguments.extend([options_of(ask.member.client) + waits, ask.label.to_owned()]);
            arguments.extend([ask.units.to_string(), capacity, begin_by, ask.ticket.to_string()]);
            arguments.extend(ask.condition.and_then(|condition| match (patience, condition) {
                (Patience::Once, Condition::Every(period)) => Some(format!("e{}", period * 1000)),
                (Patience::Once, Condition::NotWithin(time)) => Some(format!("a{}", time * 1000)),
                (Patience::Wait, Condition::Behind(most)) => Some(format!("q{most}")),
                _ => None,
            }));
            ("acquire", arguments)
        }
        Command::RenewPlaces { ttl, places, .. } => {
            let mut arguments = vec![ttl.to_string(), options_of(places[0].member.client), capacity];
            for place in places {
                arguments.extend([member(place.member), place.lease.to_string(), place.ticket.to_string()]);
            }
            ("renew", arguments)
        }
        Command::RenewHold { member: request, token, count, lease, .. } => {
            let keys_of_each = if kind.is_shared() { "2" } else { "1" }.to_owned();
            let hold = [member(*request), token.to_string()];
            (
                "renew_holds",
                [vec![count.to_string(), lease.to_string(), keys_of_each], hold.to_vec()].concat(),
            )
        }
        Command::Release { member: request, token, units, .. } => {
            let units = units.to_string();
            ("release", vec![capacity, member(*request), units, token.to_string(), options])
        }
        Command::Adopt { member: request, token, adopter, lease, .. } => {
            let rest = [token.to_string(), member(*adopter), lease.to_string()];
            ("adopt", [vec![capacity, member(*request)], rest.to_vec()].concat())
        }
        Command::Withdraw { member: request, .. } => ("withdraw", vec![member(*request), capacity, options]),
        Command::ForceRelease { .. } => {
            ("force_release", vec![options, capacity, begin_by, String::new(), String::new()])
        }
        Command::TakeHold { member: request, token, .. } => {
            ("force_release", vec![options, capacity, begin_by, member(*request), token.to_string()])
        }
        Command::LoseHold { .. }
        | Command::LoseQueue { .. }
        | Command::GoesDeaf(_)
        | Command::Hears(_)
        | Command::Harm(_)
        | Command::Advance(_) => return None,
    };
    Some(Call { script: format!("hand_off/{operation}"), lock: command.lock()?, arguments })
}

fn asker(ask: &Ask) -> [String; 3] {
    [member(ask.member), ask.lease.to_string(), ask.ttl.to_string()]
}

fn member(member: Member) -> String {
    format!("{}:{}:{:016x}", client(member.client), member.owner, member.request)
}
