//! The rules themselves, without the Lua: after each drawn command fairlock-rules keep their promises.
#![allow(dead_code, reason = "`main.rs` uses the rest of these modules")]

mod cast;
mod commands;
mod drawn;
mod promises;
mod rules;
mod words;

use commands::Time;
use drawn::{check, kinds, scale};

#[test]
fn the_rules_keep_their_promises() {
    for (kind, cases) in kinds([150, 50, 50, 50]) {
        let scale = scale(Time::Virtual, kind);
        check(scale, cases, &mut |steps| promises::are_kept(scale, steps));
    }
}
