//! Connections that are cut and brought back, and wake-ups that arrive late.

use std::time::Duration;

use crate::life::{Letter, Life};
use crate::weather::Harm;
use crate::world::{World, locked};

/// Cuts it off from the server, or brings it back and tells it that there was a gap.
pub fn connect(world: &World, life: &Life, now: Duration) {
    let (Some(id), Some(store)) = (life.id(), world.store()) else { return };
    let is_on = |harm: Harm| {
        let mut faults = world.weather.faults().iter();
        faults.any(|fault| fault.harm == harm && fault.hits(life.client) && fault.is_on(now))
    };
    let (cut, silent) = (is_on(Harm::Cut), is_on(Harm::Silence));
    let mut fate = locked(&life.fate);
    let changes = cut != fate.is_cut;
    fate.is_cut = cut;
    let gap = std::mem::take(&mut fate.missed);
    fate.missed = gap && (cut || silent);
    drop(fate);
    if changes && cut {
        world.note(format_args!("{life} is cut off"));
        store.faults().cut_off(id);
    } else if changes {
        world.note(format_args!("{life} is back"));
        store.faults().bring_back(id);
    } else if gap && !cut && !silent && !has_deaf(world, life, now) {
        let fate = locked(&life.fate);
        let sink = fate.sink.clone();
        drop(fate);
        // A connection that fell silent is made anew in the end; one that loses messages is not noticed.
        if let Some(sink) = sink.filter(|_| was_silent(world, life, now)) {
            world.note(format_args!("{life} hears of a gap"));
            Letter::Gap.deliver(&*sink);
        }
    }
}

/// What is due by now arrives.
pub fn deliver(world: &World, life: &Life, now: Duration) {
    loop {
        let mut fate = locked(&life.fate);
        let Some((_, letter)) = fate.mail.front().filter(|(at, _)| *at <= now).cloned() else { return };
        fate.mail.pop_front();
        let sink = fate.sink.clone();
        drop(fate);
        world.note(format_args!("  {life} hears late {letter:?}"));
        if let Some(sink) = sink {
            letter.deliver(&*sink);
        }
    }
}

fn has_deaf(world: &World, life: &Life, now: Duration) -> bool {
    let mut faults = world.weather.faults().iter();
    faults.any(|fault| matches!(fault.harm, Harm::Deafen(_)) && fault.hits(life.client) && fault.is_on(now))
}

fn was_silent(world: &World, life: &Life, now: Duration) -> bool {
    let mut faults = world.weather.faults().iter();
    faults.any(|fault| fault.harm == Harm::Silence && fault.hits(life.client) && fault.end() <= now)
}
