//! The Lua and the rules of fairlock-rules side by side: the same commands, answers and messages, the same lock for who looks.
//!
//! Differences by design, and how the comparison handles them:
//!
//! - The tickets of fairlock-rules count the places of a queue; those of the Lua are numbers of the sequence. They are paired as
//!   they are told, and must grow alike.
//! - A hold ends *with* its last millisecond, while Redis keeps a key through it. So no command comes in such a millisecond
//!   ([`Time::Virtual`](crate::commands::Time)).
//! - The Lua counts a wait from the place's ticket, also if the place was lost and put back meanwhile.
//!
//! What the keys must be like besides is checked by [`Stored`](crate::lua_replies::Stored).

use std::fmt::Write as _;

use fairlock_core::LockKind;

use crate::cast::Cast;
use crate::commands::{Command, LOCKS, Scale, Step};
use crate::lua::LuaSubject;
use crate::rules::Rules;
use crate::words::{Answer, Outcome};

/// Runs the steps on both, and returns the first difference with the steps before it.
pub(crate) fn differ(lua: LuaSubject<'_>, scale: Scale, steps: &[Step]) -> Result<(), String> {
    let (mut both, mut cast) = (Both::new(lua, scale.kind), Cast::new(scale));
    for step in steps.iter().flat_map(|step| step.parts(scale)) {
        for command in cast.commands(step, &both.rules) {
            let outcome = both.run(command.clone())?;
            cast.learn(&command, &outcome);
        }
    }
    Ok(())
}

struct Both<'a> {
    rules: Rules,
    lua: LuaSubject<'a>,
    /// Of each lock: the tickets of fairlock-rules, and of the Lua.
    tickets: [Vec<(u64, u64)>; LOCKS],
    story: String,
}

impl<'a> Both<'a> {
    fn new(lua: LuaSubject<'a>, kind: LockKind) -> Both<'a> {
        Both { rules: Rules::new(kind), lua, tickets: Default::default(), story: String::new() }
    }

    /// Gives both the command. Returns the outcome by the rules, or the difference.
    fn run(&mut self, mut command: Command) -> Result<Outcome, String> {
        let expected = self.rules.run(&command);
        let _ = writeln!(self.story, "  {command:?}\n    -> {expected:?}");
        self.put_tickets(&mut command);
        let (mut got, stored) =
            self.lua.run(&command).map_err(|what| format!("{}  but: {what}", self.story))?;
        if let Some(lock) = command.lock() {
            self.pair_tickets(lock, &expected, &mut got);
        }
        let Both { rules, story, .. } = self;
        if got != expected {
            return Err(format!("{story}  but it was\n    -> {got:?}"));
        }
        for (lock, mut stored) in stored.into_iter().enumerate() {
            let expected = rules.seen(lock);
            stored.count_waits_alike(&expected, rules.now);
            if stored.record_ends < rules.note_ends(lock) {
                return Err(format!(
                    "{story}  lock {lock} should keep its note until {}, and its record ends at {}",
                    rules.note_ends(lock),
                    stored.record_ends
                ));
            }
            let got = stored.seen;
            if got != expected {
                return Err(format!(
                    "{story}  lock {lock} should be\n    {expected:?}\n  but is\n    {got:?}"
                ));
            }
            let (expected, got) = (rules.last_number(lock), stored.last_number);
            if got != expected {
                return Err(format!("{story}  lock {lock} has drawn {expected}, not {got}"));
            }
        }
        Ok(expected)
    }

    /// The clients learn the tickets of fairlock-rules.
    fn put_tickets(&self, command: &mut Command) {
        let told: Vec<(usize, &mut u64)> = match command {
            Command::Acquire { lock, ask, .. } => vec![(*lock, &mut ask.ticket)],
            Command::RenewPlaces { lock, places, .. } => {
                places.iter_mut().map(|place| (*lock, &mut place.ticket)).collect()
            }
            _ => Vec::new(),
        };
        for (lock, ticket) in told {
            let pair = self.tickets[lock].iter().find(|(rules, _)| rules == ticket);
            *ticket = pair.map_or(*ticket, |(_, lua)| *lua);
        }
    }

    /// A ticket of the Lua that is the one of fairlock-rules becomes that. Any other stays, and shows as a difference.
    fn pair_tickets(&mut self, lock: usize, expected: &Outcome, got: &mut Outcome) {
        let pairs = &mut self.tickets[lock];
        for answers in expected.answers.iter().zip(&mut got.answers) {
            let (Answer::Queued { ticket: rules, .. }, Answer::Queued { ticket: lua, .. }) = answers else {
                continue;
            };
            if pairs.last().is_none_or(|last| last.0 < *rules && last.1 < *lua) {
                pairs.push((*rules, *lua));
            }
            if pairs.contains(&(*rules, *lua)) {
                *lua = *rules;
            }
        }
    }
}
