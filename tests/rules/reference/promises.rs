//! The model's own promises, checked after each command: otherwise all subjects might agree on a mistake.

use fairlock_tests::reference::{Hold, Lock, Presence};

use crate::cast::Cast;
use crate::commands::{Command, Scale, Step};
use crate::model::Model;

/// Runs the steps, and returns the first broken promise.
pub(crate) fn are_kept(scale: Scale, steps: &[Step]) -> Result<(), String> {
    let (mut model, mut cast) = (Model::new(scale.kind), Cast::new(scale));
    for step in steps.iter().flat_map(|step| step.parts(scale)) {
        for command in cast.commands(step, &model) {
            let before = command.lock().map(|lock| model.kept(lock));
            let outcome = model.run(&command);
            cast.learn(&command, &outcome);
            let Some((lock, before)) = command.lock().zip(before) else { continue };
            let after = model.kept(lock);
            let checked = grows(&before, &after)
                .and_then(|()| none_hold_too_much(&after))
                .and_then(|()| nobody_is_overtaken(&model, &command, &before, &after))
                .and_then(|()| a_repeat_changes_nothing(&mut model, lock, &command, [&before, &after]));
            checked.map_err(|what| format!("{what}: {command:?}\n  {before:?}\n  {after:?}"))?;
        }
    }
    Ok(())
}

/// P10: each acquisition has a greater token than all before.
fn grows(before: &Lock, after: &Lock) -> Result<(), String> {
    let mut last = before.sequence.0;
    for hold in newly_held(before, after) {
        if hold.token <= last {
            return Err("the token did not grow".to_owned());
        }
        last = hold.token;
    }
    Ok(())
}

/// P1: the holds together take no more units than there are.
fn none_hold_too_much(after: &Lock) -> Result<(), String> {
    let taken: u64 = after.holds.iter().map(|hold| u64::from(hold.takes)).sum();
    if taken > u64::from(after.capacity()) { Err(format!("{taken} units are held")) } else { Ok(()) }
}

/// P2, P4: grants go to the first places of all live waiters.
fn nobody_is_overtaken(model: &Model, command: &Command, before: &Lock, after: &Lock) -> Result<(), String> {
    newly_held(before, after).try_for_each(|hold| is_first(model, command, before, after, hold))
}

fn is_first(model: &Model, command: &Command, before: &Lock, after: &Lock, hold: Hold) -> Result<(), String> {
    // It may have been put back in this command.
    let told = match command {
        Command::Acquire { ask, .. } if ask.member == hold.member && ask.ticket <= before.sequence.0 => {
            Some(ask.ticket).filter(|ticket| *ticket > 0)
        }
        _ => None,
    };
    let ticket = before.line.place(hold.member).map(|place| place.ticket).or(told).unwrap_or(u64::MAX);
    let clock = after.line_clock.at(model.now);
    let is_overtaken = after.line.places.iter().any(|place| {
        let was_there = before.line.place(place.member).is_some_and(|was| was.presence == Presence::Present);
        let is_alive = place.deadline > clock && model.hearing.contains(&place.member.client);
        was_there && is_alive && place.ticket < ticket
    });
    if is_overtaken { Err("a live waiter was overtaken".to_owned()) } else { Ok(()) }
}

/// P8: after a lost answer, the same command comes again.
fn a_repeat_changes_nothing(
    model: &mut Model,
    lock: usize,
    command: &Command,
    [before, after]: [&Lock; 2],
) -> Result<(), String> {
    if matches!(command, Command::ForceRelease { .. }) {
        return Ok(()); // it means any holder, so a repeat means the next one
    }
    let saved = model.clone();
    model.run(command);
    let again = model.kept(lock);
    *model = saved;
    let present = |lock: &Lock| -> Vec<_> {
        let places = lock.line.places.iter().filter(|place| place.presence == Presence::Present);
        places.map(|place| (place.member, place.ticket)).collect()
    };
    // While a lost line comes back the lock stays free, until one command finds it whole, or empty.
    let rests_until = before.rests_until.max(after.rests_until);
    if after.free() > 0 && after.line_clock.at(model.now) < rests_until {
        return Ok(());
    }
    if again.holds != after.holds || present(&again) != present(after) {
        return Err(format!("a repeat changes more, to {again:?}"));
    }
    Ok(())
}

fn newly_held(before: &Lock, after: &Lock) -> impl Iterator<Item = Hold> {
    let was_held = |token| before.holds.iter().any(|held| held.token == token);
    after.holds.iter().filter(move |hold| !was_held(hold.token)).copied()
}
