//! The promises of the rules themselves, checked after each command: otherwise the rules and the Lua might agree on a mistake.

use std::collections::BTreeMap;

use crate::cast::Cast;
use crate::commands::{Command, LOCKS, Scale, Step, kind_of};
use crate::rules::Rules;
use crate::words::{Answer, Member, Outcome, Seen, SeenHolder};

/// Runs the steps, and returns the first broken promise.
pub(crate) fn are_kept(scale: Scale, steps: &[Step]) -> Result<(), String> {
    let (mut rules, mut cast) = (Rules::new(scale.kind), Cast::new(scale));
    let (mut tickets, mut was_lost) = (BTreeMap::new(), [false; LOCKS]);
    for step in steps.iter().flat_map(|step| step.parts(scale)) {
        for command in cast.commands(step, &rules) {
            let before = rules.clone();
            let outcome = rules.run(&command);
            cast.learn(&command, &outcome);
            learn_ticket(&mut tickets, &command, &outcome);
            let Some(lock) = command.lock() else { continue };
            was_lost[lock] |= matches!(command, Command::LoseQueue { .. });
            let seen = [before.seen(lock), rules.seen(lock)];
            let grown = grow(before.last_number(lock), &seen);
            let checked = grown
                .and_then(|()| none_hold_too_much(scale, &seen[1]))
                .and_then(|()| nobody_is_overtaken(&rules, &command, &tickets, &seen))
                .and_then(|()| a_repeat_changes_nothing(&rules, lock, &command, &outcome, was_lost[lock]));
            let [was, is] = seen;
            checked.map_err(|what| format!("{what}: {command:?}\n  {was:?}\n  {is:?}"))?;
        }
    }
    Ok(())
}

fn learn_ticket(tickets: &mut BTreeMap<Member, u64>, command: &Command, outcome: &Outcome) {
    if let (Command::Acquire { ask, .. }, [Answer::Queued { ticket, .. }]) = (command, &outcome.answers[..]) {
        tickets.insert(ask.member, *ticket);
    }
}

/// P10: each acquisition has a greater token than all before.
fn grow(mut last: u64, seen: &[Seen; 2]) -> Result<(), String> {
    for hold in newly_held(seen) {
        if hold.token <= last {
            return Err("the token did not grow".to_owned());
        }
        last = hold.token;
    }
    Ok(())
}

/// P1: the holds together take no more units than there are, by the number of the request that was granted last.
fn none_hold_too_much(scale: Scale, seen: &Seen) -> Result<(), String> {
    let taken: u64 = seen.holders.iter().map(|hold| u64::from(hold.units)).sum();
    let last = seen.holders.last().map_or(0, |hold| hold.member.request);
    let most = u64::from(kind_of(scale.kind, last).capacity());
    if taken > most { Err(format!("{taken} units of {most} are held")) } else { Ok(()) }
}

/// P2, P4: grants go to the first places of all live waiters.
fn nobody_is_overtaken(
    rules: &Rules,
    command: &Command,
    tickets: &BTreeMap<Member, u64>,
    seen: &[Seen; 2],
) -> Result<(), String> {
    let [before, after] = seen;
    let had_place = |member: Member| before.queue.iter().any(|place| place.member == member);
    for hold in newly_held(seen) {
        // It may have been put back in this command.
        let is_told = |ticket| matches!(command, Command::Acquire { ask, .. } if ask.ticket == ticket);
        let ticket = tickets.get(&hold.member).filter(|ticket| had_place(hold.member) || is_told(**ticket));
        let is_overtaken = after.queue.iter().any(|place| {
            let was_alive = before.queue.iter().any(|was| was.member == place.member && was.left > 0);
            let is_alive = place.left > 0 && rules.hearing.contains(&place.member.client);
            was_alive && is_alive && tickets.get(&place.member) < ticket.or(Some(&u64::MAX))
        });
        if is_overtaken {
            return Err("a live waiter was overtaken".to_owned());
        }
    }
    Ok(())
}

/// P8: after a lost answer, the same command comes again.
fn a_repeat_changes_nothing(
    rules: &Rules,
    lock: usize,
    command: &Command,
    outcome: &Outcome,
    was_lost: bool,
) -> Result<(), String> {
    if matches!(command, Command::ForceRelease { .. }) {
        return Ok(()); // it means any holder, so a repeat means the next one
    }
    // A place that is put back gets a free lock by the next command, which is to come at once.
    if let [Answer::Queued { recheck: Some(0), .. }] = outcome.answers[..] {
        return Ok(());
    }
    let mut again = rules.clone();
    again.run(command);
    // While a lost queue comes back the lock stays free, until one command finds it whole, or empty.
    if was_lost {
        return Ok(());
    }
    let [is, was] = [&again, rules].map(|rules| rules.seen(lock).holders);
    if is != was || !again.heads(lock).eq(rules.heads(lock)) {
        return Err(format!("a repeat changes more, to {is:?}"));
    }
    Ok(())
}

fn newly_held([before, after]: &[Seen; 2]) -> impl Iterator<Item = &SeenHolder> {
    let was_held = |token| before.holders.iter().any(|held| held.token == token);
    after.holders.iter().filter(move |hold| !was_held(hold.token))
}
