//! The commands as calls of scripts, with arguments in the order of the scripts' headers, as the Redis backend sends them.

use std::collections::BTreeSet;

use fairlock_tests::reference::{Ask, ClientNumber, Kind, Member, Patience};

use crate::commands::Command;
use crate::lua::client;

pub(crate) struct Call {
    pub(crate) script: String,
    pub(crate) lock: usize,
    pub(crate) arguments: Vec<String>,
}

/// Nothing for what happens without a script. The scripts of a lock with several holders are told its capacity, and the
/// units of each request.
pub(crate) fn call_of(
    kind: Kind,
    say_deaf: &BTreeSet<ClientNumber>,
    begin_by: &str,
    command: &Command,
) -> Option<Call> {
    let begin_by = begin_by.to_owned();
    let (folder, capacity) = match kind {
        Kind::Exclusive => ("hand_off", None),
        Kind::Shared { capacity } => ("shared", Some(capacity.to_string())),
    };
    // The server knows all listeners, and Redisson's line may be looked at.
    let options = "sr".to_owned();
    let options_of = |client: ClientNumber| {
        if say_deaf.contains(&client) { options.clone() + "d" } else { options.clone() }
    };
    let (operation, arguments) = match command {
        Command::Acquire { ask, patience, .. } => {
            let waits = if *patience == Patience::Once { "" } else { "w" };
            let mut arguments = asker(ask).to_vec();
            arguments.extend([options_of(ask.member.client) + waits, ask.label.to_owned()]);
            match capacity {
                None => {
                    arguments.push(begin_by);
                    arguments.extend((ask.ticket > 0).then(|| ask.ticket.to_string()));
                }
                Some(capacity) => {
                    arguments.extend([ask.takes.to_string(), capacity, ask.ticket.to_string(), begin_by]);
                }
            }
            ("acquire", arguments)
        }
        Command::RenewPlaces { ttl, places, .. } => {
            let mut arguments = vec![ttl.to_string(), options_of(places[0].member.client)];
            match &capacity {
                None => arguments.push(begin_by),
                Some(capacity) => arguments.extend([capacity.clone(), begin_by, "0".to_owned()]),
            }
            for place in places {
                let (lease, ticket) = (place.lease.to_string(), place.ticket.to_string());
                arguments.extend([member(place.member), lease, ticket]);
                arguments.extend(capacity.iter().map(|_| place.takes.to_string()));
            }
            ("renew", arguments)
        }
        Command::RenewHold { member, token, count, lease, .. } => {
            let (named, count, lease) = (named(*member, *token), count.to_string(), lease.to_string());
            match capacity {
                None => ("renew_holds", vec![count, lease, named]),
                Some(capacity) => {
                    let no_ttl = String::new();
                    ("renew", vec![no_ttl, options, capacity, begin_by, "1".to_owned(), named, count, lease])
                }
            }
        }
        Command::Release { member, token, .. } => ("release", vec![named(*member, *token), options]),
        Command::Withdraw { member: request, .. } | Command::Kick { member: request, .. } => {
            let by_operator = u8::from(matches!(command, Command::Kick { .. })).to_string();
            ("withdraw", vec![member(*request), options, by_operator])
        }
        Command::ForceRelease { .. } => {
            ("force_release", [options].into_iter().chain(capacity).chain([begin_by]).collect())
        }
        // Only of several holds one is taken.
        Command::TakeHold { member, token, .. } => {
            ("force_release", vec![options, capacity?, begin_by, named(*member, *token)])
        }
        Command::LoseHold { .. }
        | Command::LoseLine { .. }
        | Command::GoesDeaf(_)
        | Command::Hears(_)
        | Command::Harm(_)
        | Command::Advance(_) => return None,
    };
    Some(Call { script: format!("{folder}/{operation}"), lock: command.lock()?, arguments })
}

fn asker(ask: &Ask) -> [String; 3] {
    [member(ask.member), ask.lease.to_string(), ask.ttl.to_string()]
}

/// A hold.
fn named(request: Member, token: u64) -> String {
    format!("{} {token} ", member(request))
}

fn member(member: Member) -> String {
    format!("{}:{}:{:016x}", client(member.client), member.owner, member.request)
}
