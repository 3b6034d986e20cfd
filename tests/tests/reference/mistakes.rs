//! Mistakes that a person could make in the Lua: the comparison with the model has to find every one of them.

use crate::lua::Mistake;

const LIB: &str = "lib/hand_off.lua";

pub(crate) const MISTAKES: [(&str, Mistake); 12] = [
    ("an overdue waiter gets the lock", mistake(LIB, "place.deadline > at.clock and ", "")),
    (
        "a waiter is overdue a millisecond late",
        mistake(LIB, "place.deadline > at.clock", "place.deadline >= at.clock"),
    ),
    ("a deaf waiter gets the lock", mistake(LIB, "~= 0\n  end", "~= -1\n  end")),
    ("who comes back stands at the tail", mistake(LIB, "whole(ticket - PARKED)", "whole(next_number(at))")),
    ("the line clock follows the server's without a limit", mistake(LIB, "math.floor(least / 2)", "passed")),
    (
        "a token is printed as a float",
        mistake(LIB, "member .. ' ' .. whole(token)", "member .. ' ' .. tostring(token)"),
    ),
    ("tokens stand still with the clock", mistake(LIB, "math.max(at.last + 1, now_micros)", "now_micros")),
    (
        "a grant is for longer than the place",
        mistake(LIB, "math.min(place.deadline - at.clock, place.lease)", "place.lease"),
    ),
    ("a newcomer barges", mistake("hand_off/acquire.lua", "    winner, granted, lasts = hand_on(at)\n", "")),
    (
        "any token releases",
        mistake("hand_off/release.lua", " and held[2] == owner .. ':' .. request .. ' ' .. token", ""),
    ),
    ("a renewal shortens the lease", mistake("hand_off/renew_hold.lua", "left < tonumber(lease)", "true")),
    (
        "a withdrawal leaves a free lock to nobody",
        mistake("hand_off/withdraw.lua", "if free then\n  hand_on(at)", "if false then\n  hand_on(at)"),
    ),
];

const fn mistake(file: &'static str, right: &'static str, wrong: &'static str) -> Mistake {
    Mistake { file, right, wrong }
}
