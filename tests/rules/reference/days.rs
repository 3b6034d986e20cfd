//! Days of one lock, in virtual time: what is in use is never forgotten. (That queue and record live for a day after each command is
//! seen by `lua_replies::Stored`.)

use fairlock_core::LockKind;

use crate::KINDS;
use crate::commands::{Scale, Slot, Step, Time};
use crate::lua::{LuaServer, LuaSubject, Parts};
use crate::subject::differ;
use crate::words::Millis;
use Step::{Advance, Ask, Release, Renew, Withdraw};

const HOUR: Millis = 3_600_000;
/// Fast parts raise times to live where the clock comes to a multiple of this.
const RAISED_EVERY: Millis = 10_000_000;

/// Leases outlast the pauses between commands.
fn scale(kind: LockKind) -> Scale {
    Scale { leases: [10 * HOUR; 3], ttls: [6_000; 2], time: Time::Virtual, kind }
}

/// All units, or one, by requests of two clients.
fn slots(choice: usize) -> [Slot; 3] {
    [0, 1, 2].map(|client| Slot { client, owner: 0, lock: 0, choice })
}

fn plays(kind: LockKind, steps: &[Step]) {
    let lua = LuaServer::start(Parts::Both);
    differ(LuaSubject::new(&lua, kind), scale(kind), steps).unwrap_or_else(|story| panic!("{story}"));
}

/// After the first two, this again and again by turns, for three days.
fn days(pause: Millis, first: &[Step], turn: impl Fn(bool) -> Vec<Step>) -> Vec<Step> {
    let turns = (0..72 * HOUR / pause).flat_map(|number| turn(number % 2 == 0));
    first.iter().copied().chain(turns).collect()
}

fn pauses() -> [Millis; 4] {
    [HOUR, RAISED_EVERY - 5, RAISED_EVERY - 1, RAISED_EVERY / 2]
}

#[test]
fn a_queue_that_is_always_waited_for_is_never_lost() {
    for kind in KINDS {
        let [a, b, _] = slots(if kind.is_shared() { 32 } else { 2 });
        for pause in pauses() {
            // Each waiter is served before its first heartbeat.
            let steps = days(pause, &[Ask(a), Ask(b)], |even| {
                let [holder, next] = if even { [a, b] } else { [b, a] };
                vec![Advance(pause - 5), Release(holder), Renew(next), Advance(5), Ask(holder)]
            });
            plays(kind, &steps);
        }
    }
}

#[test]
fn a_queue_of_waits_that_time_out_is_never_lost() {
    for kind in KINDS {
        let [a, b, holder] = slots(if kind.is_shared() { 32 } else { 2 });
        for pause in pauses() {
            let steps = days(pause, &[Ask(holder), Ask(a)], |even| {
                let [leaves, comes] = if even { [a, b] } else { [b, a] };
                vec![Advance(pause - 5), Renew(holder), Ask(comes), Advance(5), Withdraw(leaves)]
            });
            plays(kind, &steps);
        }
    }
}

#[test]
fn the_last_number_is_kept_for_a_day_after_its_use() {
    for kind in KINDS {
        let [a, b, c] = slots(2);
        for pause in [HOUR / 2, 5 * HOUR, 23 * HOUR, RAISED_EVERY - 1] {
            let steps = days(pause, &[], |even| match even {
                true => vec![Ask(a), Release(a), Advance(pause)],
                false => vec![Ask(a), Ask(b), Ask(c), Release(a), Release(b), Release(c), Advance(pause)],
            });
            plays(kind, &steps);
        }
    }
}
