//! Mistakes that a person could make in the Lua: the comparison with the model must find all of them.

use crate::lua::Mistake;

const PLACES: &str = "lib/places.lua";
const HAND_OFF: &str = "lib/hand_off.lua";
const ACQUIRE: &str = "hand_off/acquire.lua";
const RELEASE: &str = "hand_off/release.lua";
const SHARED_ACQUIRE: &str = "shared/acquire.lua";
const SHARED_RELEASE: &str = "shared/release.lua";

pub(crate) const MISTAKES: [(&str, Mistake); 21] = [
    ("an overdue waiter gets the lock", mistake(PLACES, "place.deadline > state.clock and ", "")),
    (
        "a waiter is overdue a millisecond late",
        mistake(PLACES, "place.deadline > state.clock", "place.deadline >= state.clock"),
    ),
    ("a deaf waiter gets the lock", mistake(PLACES, "~= 0\n  end", "~= -1\n  end")),
    (
        "a waiter that comes back stands at the tail",
        mistake(PLACES, "ticket - PARKED or", "next_number(state) or"),
    ),
    (
        "the line clock follows the server's without a limit",
        mistake(PLACES, "math.floor(least_ttl / 2)", "math.huge"),
    ),
    (
        "the line clock moves by half of the asker's time to live",
        mistake(
            PLACES,
            "state.length == 0 or state.ttl <= state.least_ttl or state.clock >= state.least_ttl_until",
            "true",
        ),
    ),
    (
        "the least time to live is never forgotten",
        mistake(
            PLACES,
            "state.length == 0 or state.ttl <= state.least_ttl or state.clock >= state.least_ttl_until",
            "state.ttl <= state.least_ttl",
        ),
    ),
    (
        "a place that is gone is put back at the tail",
        mistake(
            PLACES,
            "add_place(state, member, ticket, lease, label)\n  state.length",
            "add_place(state, member, state.last, lease, label)\n  state.length",
        ),
    ),
    (
        "a place is put back above the sequence",
        mistake(PLACES, " or ticket > math.max(state.last, now_micros)", ""),
    ),
    (
        "a waiter that was kicked is put back",
        mistake(PLACES, "kicked_member == member and ticket <= tonumber(last)", "false"),
    ),
    (
        "a line that comes back goes to the first who speaks",
        mistake(HAND_OFF, "is_resting(state) or reserve_for_redisson(state)", "reserve_for_redisson(state)"),
    ),
    (
        "a place is put back and no number drawn",
        mistake(PLACES, "  next_number(state)\n  add_place(", "  add_place("),
    ),
    (
        "a heartbeat puts back what was served",
        mistake("hand_off/renew.lua", "told_ticket > state.served", "told_ticket > 0"),
    ),
    (
        "a push is compared with the ticket",
        mistake(ACQUIRE, "state.last, redisson_line", "ticket or state.last, redisson_line"),
    ),
    (
        "a token is printed as a float",
        mistake(HAND_OFF, "member .. ' ' .. format_int(token)", "member .. ' ' .. tostring(token)"),
    ),
    (
        "tokens stand still with the clock",
        mistake(PLACES, "math.max(state.last + 1, now_micros)", "now_micros"),
    ),
    (
        "a grant is for longer than the place",
        mistake(HAND_OFF, "math.min(place.deadline - state.clock, place.lease)", "place.lease"),
    ),
    ("a newcomer barges", mistake(ACQUIRE, "    winner, granted, lasts = hand_on(state)\n", "")),
    (
        "any request of the owner releases",
        mistake(
            RELEASE,
            "string.find(hold, named, 1, true)",
            "string.find(hold, string.match(named, '^.*:'), 1, true)",
        ),
    ),
    ("a renewal shortens the lease", mistake("lib/hold.lua", "left < tonumber(lease)", "true")),
    (
        "a withdrawal does not hand on a free lock",
        mistake("hand_off/withdraw.lua", "if free then\n  hand_on(state)", "if false then\n  hand_on(state)"),
    ),
];

/// Mistakes in the fast parts: the comparison with the general parts must find them.
pub(crate) const FAST_MISTAKES: [(&str, Mistake); 13] = [
    (
        "an attempt after its end is granted the lock",
        mistake(ACQUIRE, "#number and number <= begin_by then", "#number then"),
    ),
    ("an attempt after its end gets a place", mistake(ACQUIRE, "number <= begin_by and passed", "passed")),
    (
        "a parked head gets the lock",
        mistake(RELEASE, "(%d+) (%d+) (%d+) (.*)$'", "(%d+) (%d+) (%d+)p? (.*)$'"),
    ),
    ("an overdue head gets the lock", mistake(RELEASE, "left > 0 and left < 1e15", "left < 1e15")),
    ("a deaf head gets the lock", mistake(RELEASE, "and is_reachable then", "then")),
    (
        "a hand-over goes back behind the sequence",
        mistake(RELEASE, "last < number and #last == #number and passed >= 0", "passed >= 0"),
    ),
    (
        "a grant goes back behind the sequence",
        mistake(ACQUIRE, "if last and last < number and #last == #number and", "if last and"),
    ),
    (
        "a repeat gets a place beside its hold",
        mistake(ACQUIRE, "string.find(hold, member, 1, true) == 1", "false"),
    ),
    (
        "a repeat gets a second place",
        mistake(ACQUIRE, "'ZADD', line, 'NX', number, member) == 1", "'ZADD', line, number, member)"),
    ),
    ("the line clock jumps in a hand-over", mistake(RELEASE, "if passed > half then", "if false then")),
    (
        "the line clock jumps when a waiter joins",
        mistake(ACQUIRE, "if passed > life / 2 then", "if false then"),
    ),
    (
        "the turn of Redisson's line is missed",
        mistake(RELEASE, "mark = first and not refused and mark or", "mark ="),
    ),
    (
        "the first to ask after the line was lost gets the lock",
        mistake(ACQUIRE, "if exist == 0 and not told_ticket then", "if exist == 0 then"),
    ),
];

/// The same for locks with several holders.
pub(crate) const SHARED_FAST_MISTAKES: [(&str, Mistake); 13] = [
    ("an attempt after its end begins", mistake(SHARED_ACQUIRE, "number <= begin_by and passed", "passed")),
    (
        "a lock of another capacity is entered",
        mistake(SHARED_ACQUIRE, "exist == 0 or of == capacity and first", "exist == 0 or first"),
    ),
    (
        "a hold that is over counts",
        mistake(SHARED_ACQUIRE, "and passed >= 0 and ends > now", "and passed >= 0"),
    ),
    (
        "a newcomer passes the line",
        mistake(SHARED_ACQUIRE, "elseif has_room and exist ~= 4", "elseif has_room"),
    ),
    (
        "a grant goes back behind the sequence",
        mistake(SHARED_ACQUIRE, "last and last < number and #last == #number and", "last and"),
    ),
    (
        "the lock ends with the newest hold",
        mistake(SHARED_ACQUIRE, "exist == 2 and call('PTTL', lock) >= keep", "false"),
    ),
    (
        "a waiter joins behind a silent head",
        mistake(SHARED_ACQUIRE, "deadline - clock > life / 2", "deadline > clock"),
    ),
    ("a hold that is over is released", mistake(SHARED_RELEASE, "tonumber(earliest[2]) > now and", "")),
    (
        "the lock ends with the hold that was released",
        mistake(SHARED_RELEASE, "if new_last_end < last_end then", "if false then"),
    ),
    ("a deaf waiter gets the lock", mistake(SHARED_RELEASE, "and listeners[2] == 0", "and false")),
    (
        "a parked waiter gets the lock",
        mistake(
            SHARED_RELEASE,
            "'^(%d+) (%d+) (%d+) (%d+)/(%d+) (.*)$'",
            "'^(%d+) (%d+) (%d+)p? (%d+)/(%d+) (.*)$'",
        ),
    ),
    (
        "a silent waiter that does not fit holds up the others",
        mistake(SHARED_RELEASE, "left > least_ttl / 2, true", "true, true"),
    ),
    (
        "only some of those that fit get the lock",
        mistake(SHARED_RELEASE, "is_plain and (is_blocked or #members <= most)", "is_plain"),
    ),
];

const fn mistake(file: &'static str, right: &'static str, wrong: &'static str) -> Mistake {
    Mistake { file, right, wrong }
}
