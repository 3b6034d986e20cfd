//! Mistakes that a person could make in the Lua: the comparison with the model must find all of them.

use crate::lua::Mistake;

const LINE: &str = "lib/line.lua";
const HOLDS: &str = "lib/holds.lua";
const ACQUIRE: &str = "line/acquire.lua";
const RELEASE: &str = "line/release.lua";

pub(crate) const MISTAKES: [(&str, Mistake); 21] = [
    (
        "an overdue waiter gets the lock",
        mistake(LINE, "if place.deadline <= state.clock then return false end", ""),
    ),
    (
        "a waiter is overdue a millisecond late",
        mistake(LINE, "place.deadline <= state.clock", "place.deadline < state.clock"),
    ),
    ("a deaf waiter gets the lock", mistake(LINE, "~= 0\n  end", "~= -1\n  end")),
    (
        "a waiter that comes back stands at the tail",
        mistake(
            LINE,
            "ticket = ticket % PARKED",
            "ticket = ticket < PARKED and ticket or next_number(state)",
        ),
    ),
    (
        "the line clock follows the server's without a limit",
        mistake(LINE, "math.floor(least_ttl / 2)", "math.huge"),
    ),
    (
        "the line clock moves by half of the asker's time to live",
        mistake(
            LINE,
            "state.length == 0 or state.ttl <= state.least_ttl or state.clock >= state.least_ttl_until",
            "true",
        ),
    ),
    (
        "the least time to live is never forgotten",
        mistake(
            LINE,
            "state.length == 0 or state.ttl <= state.least_ttl or state.clock >= state.least_ttl_until",
            "state.ttl <= state.least_ttl",
        ),
    ),
    (
        "a place that is gone is put back at the tail",
        mistake(
            LINE,
            "add_place(state, member, ticket, lease, label)\n  state.length",
            "add_place(state, member, state.last, lease, label)\n  state.length",
        ),
    ),
    (
        "a place is put back above the sequence",
        mistake(LINE, " or ticket > math.max(state.last, now_micros)", ""),
    ),
    (
        "a waiter that was kicked is put back",
        mistake(
            LINE,
            "return not at or ticket > tonumber(string.match(kicked, '^%d+', at + 1) or 0)",
            "return true",
        ),
    ),
    (
        "a line that comes back goes to the first who speaks",
        mistake(HOLDS, "state.length > 0 and is_resting(state) then return end", "false then return end"),
    ),
    (
        "a place is put back and no number drawn",
        mistake(LINE, "  next_number(state)\n  add_place(", "  add_place("),
    ),
    (
        "a heartbeat puts back what was served",
        mistake("line/renew.lua", " told_ticket > state.served", " told_ticket > 0"),
    ),
    (
        "a push is compared with the ticket",
        mistake(ACQUIRE, "state.last, redisson_line", "ticket or state.last, redisson_line"),
    ),
    ("a token is printed as a float", mistake(HOLDS, "'%.0f %s %.0f 1 %s%s'", "'%.0f %s %s 1 %s%s'")),
    (
        "tokens stand still with the clock",
        mistake(LINE, "math.max(state.last + 1, now_micros)", "now_micros"),
    ),
    (
        "a grant is for longer than the place",
        mistake(HOLDS, "math.min(place.deadline - state.clock, place.lease)", "place.lease"),
    ),
    (
        "a newcomer barges",
        mistake(
            ACQUIRE,
            "if ticket then keep_line(state) end\nhand_on(state)",
            "if ticket then keep_line(state) end",
        ),
    ),
    (
        "any request of the owner releases",
        mistake(
            RELEASE,
            "string.find(mode, named, 1, true) == 1",
            "string.find(mode, string.match(named, '^.*:'), 1, true) == 1",
        ),
    ),
    ("a renewal shortens the lease", mistake("lib/hold.lua", "if left < lease or", "if true or")),
    (
        "a withdrawal does not hand on a free lock",
        mistake("line/withdraw.lua", "hand_on(state)\nsettle", "settle"),
    ),
];

/// The same for locks of several units.
pub(crate) const SHARED_MISTAKES: [(&str, Mistake); 7] = [
    (
        "a small request passes a large one",
        mistake(HOLDS, "if not fits then return 'stop' end", "if not fits then return 'next' end"),
    ),
    (
        "units stay used",
        mistake(
            HOLDS,
            "state.used = math.max(0, state.used - (",
            "state.used = math.max(0, state.used - 0 * (",
        ),
    ),
    (
        "a hold that is over counts",
        mistake(HOLDS, "'BYSCORE', 'LIMIT', 0, MOST_OVER", "'BYSCORE', 'LIMIT', 0, 0"),
    ),
    (
        "the keys end with the newest hold",
        mistake(
            HOLDS,
            "math.max(1, left_of(state, 'last') or 1) + KEEP_FOR",
            "state.new_ends[1] - now + KEEP_FOR",
        ),
    ),
    (
        "the first in line looks when the last hold ends",
        mistake(
            HOLDS,
            "local left = left_of(state, 'first')\n  if is_free",
            "local left = left_of(state, 'last')\n  if is_free",
        ),
    ),
    (
        "a waiter that does not fit and is deaf is passed at once",
        mistake(HOLDS, "not fits and place.deadline - state.clock > state.least_ttl / 2", "false"),
    ),
    (
        "a renewal of a part shortens the lease",
        mistake("lib/hold.lua", "until_when < now + lease or", "true or"),
    ),
];

/// Mistakes in the fast parts: the comparison with the general parts must find them.
pub(crate) const FAST_MISTAKES: [(&str, Mistake); 12] = [
    ("an attempt after its end begins", mistake(ACQUIRE, "or number > begin_by or is_over", "or is_over")),
    (
        "a parked head gets the lock",
        mistake(
            RELEASE,
            "'^(%d+) (%d+) (%d+) (%d+)/(%d+) (.*)$'",
            "'^(%d+) (%d+) (%d+)p? (%d+)/(%d+) (.*)$'",
        ),
    ),
    ("an overdue head gets the lock", mistake(RELEASE, "left > 0 and left < 1e15", "left < 1e15")),
    (
        "a deaf head gets the lock",
        mistake(RELEASE, "is_plain = not listeners or listeners.err or listeners[2] ~= 0", ""),
    ),
    (
        "a hand-over goes back behind the sequence",
        mistake(RELEASE, "turn and texts[2] < number and passed >= 0", "turn"),
    ),
    (
        "a grant goes back behind the sequence",
        mistake(ACQUIRE, "not turn or state >= number or", "not turn or"),
    ),
    (
        "a repeat gets a place beside its hold",
        mistake(ACQUIRE, "string.find(mode, member, at, true) ~= at", "true"),
    ),
    (
        "a repeat gets a second place",
        mistake(ACQUIRE, "'ZADD', line, 'NX', number, member) == 1", "'ZADD', line, number, member)"),
    ),
    (
        "the line clock jumps in a hand-over",
        mistake(RELEASE, "if is_plain and passed > least_ttl / 2 then", "if false then"),
    ),
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
        mistake(ACQUIRE, "and not told_ticket and not grace_left then", "and not grace_left then"),
    ),
];

/// The same for locks of several units.
pub(crate) const SHARED_FAST_MISTAKES: [(&str, Mistake); 13] = [
    ("an attempt after its end begins", mistake(ACQUIRE, "or number > begin_by or is_over", "or is_over")),
    (
        "a lock of another capacity is entered",
        mistake(ACQUIRE, "first = of == capacity and call", "first = call"),
    ),
    (
        "a hold that is over counts",
        mistake(ACQUIRE, "first and (first <= since or #first ~= #since)", "false"),
    ),
    (
        "a newcomer passes the line",
        mistake(ACQUIRE, "has_room = first and exist == 2 and", "has_room = first and"),
    ),
    ("the lock ends with the newest hold", mistake(ACQUIRE, "not (first and left >= lasts + 1000)", "true")),
    (
        "a lock that was made endless ends with the newest hold",
        mistake(ACQUIRE, "if left and left < 0 then first = nil end", ""),
    ),
    (
        "a waiter joins behind a silent head",
        mistake(ACQUIRE, "heard - clock <= life / 2", "tonumber(heard) <= clock"),
    ),
    (
        "a hold that is over is released",
        mistake(RELEASE, "soonest[2] and soonest[2] > since and", "soonest[2] and"),
    ),
    (
        "the lock ends with the last to be granted it",
        mistake(
            RELEASE,
            "last_end, used = math.max(last_end, now + lasts),",
            "last_end, used = now + lasts,",
        ),
    ),
    (
        "a deaf waiter gets the lock",
        mistake(RELEASE, "is_plain = not listeners or listeners.err or listeners[2] ~= 0", ""),
    ),
    (
        "a parked waiter gets the lock",
        mistake(
            RELEASE,
            "'^(%d+) (%d+) (%d+) (%d+)/(%d+) (.*)$'",
            "'^(%d+) (%d+) (%d+)p? (%d+)/(%d+) (.*)$'",
        ),
    ),
    (
        "a silent waiter that does not fit holds up the others",
        mistake(RELEASE, "is_plain = left > least_ttl / 2", "is_plain = true"),
    ),
    (
        "only some of those that fit get the lock",
        mistake(RELEASE, "is_plain = waiter or #rest < most", "is_plain = true"),
    ),
];

const fn mistake(file: &'static str, right: &'static str, wrong: &'static str) -> Mistake {
    Mistake { file, right, wrong }
}
