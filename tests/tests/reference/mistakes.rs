//! Mistakes that a person could make in the Lua: the comparison with the model must find all of them.

use crate::lua::Mistake;

const LIB: &str = "lib/hand_off.lua";

pub(crate) const MISTAKES: [(&str, Mistake); 21] = [
    ("an overdue waiter gets the lock", mistake(LIB, "place.deadline > at.clock and ", "")),
    (
        "a waiter is overdue a millisecond late",
        mistake(LIB, "place.deadline > at.clock", "place.deadline >= at.clock"),
    ),
    ("a deaf waiter gets the lock", mistake(LIB, "~= 0\n  end", "~= -1\n  end")),
    (
        "a waiter that comes back stands at the tail",
        mistake(LIB, "whole(ticket - PARKED)", "whole(next_number(at))"),
    ),
    ("the line clock follows the server's without a limit", mistake(LIB, "math.floor(least / 2)", "passed")),
    (
        "the line clock moves by half of the asker's time to live",
        mistake(LIB, "at.length == 0 or at.ttl <= at.least or at.clock >= at.least_until", "true"),
    ),
    (
        "the least time to live is never forgotten",
        mistake(
            LIB,
            "at.length == 0 or at.ttl <= at.least or at.clock >= at.least_until",
            "at.ttl <= at.least",
        ),
    ),
    (
        "a place that is gone is put back at the tail",
        mistake(
            LIB,
            "'ZADD', at.line, whole(ticket), member)\n  at.length",
            "'ZADD', at.line, whole(at.last), member)\n  at.length",
        ),
    ),
    (
        "a place is put back above the sequence",
        mistake(LIB, " or ticket > math.max(at.last, now_micros)", ""),
    ),
    (
        "a waiter that was kicked is put back",
        mistake(LIB, "whose == member and ticket <= tonumber(last)", "false"),
    ),
    (
        "a line that comes back goes to the first who speaks",
        mistake(LIB, "rests(at) or steps_aside(at)", "steps_aside(at)"),
    ),
    ("a place is put back and no number drawn", mistake(LIB, "  next_number(at)\n  speak(", "  speak(")),
    (
        "a heartbeat puts back what was served",
        mistake("hand_off/renew.lua", "waiter.told > at.served", "waiter.told > 0"),
    ),
    (
        "a push is compared with the ticket",
        mistake("hand_off/acquire.lua", "ticket, at.last, beside", "ticket, ticket, beside"),
    ),
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
        "a withdrawal does not hand on a free lock",
        mistake("hand_off/withdraw.lua", "if free then\n  hand_on(at)", "if false then\n  hand_on(at)"),
    ),
];

const fn mistake(file: &'static str, right: &'static str, wrong: &'static str) -> Mistake {
    Mistake { file, right, wrong }
}
