//! How many calls and lines of the log there may be in a minute.

use std::time::Duration;

use crate::crowd::LOSSES;
use crate::logs;
use crate::world::{Promise, World, locked};

/// The minute that is being counted.
#[derive(Default)]
pub struct Noise {
    pub since: Duration,
}

impl Noise {
    /// Counts the lines of the log and the calls of a minute.
    pub fn minute_is_over(&mut self, world: &World, now: Duration) {
        let minutes = (now - self.since).as_secs_f64() / 60.0;
        let ops = world.program.actors.iter().flat_map(|actor| &actor.ops);
        let ops = ops.filter(|op| op.at >= self.since && op.at < now).count() as u64;
        let lives = world.lives();
        let mut losses = 0;
        for life in &lives {
            let mut fate = locked(&life.fate);
            let calls = std::mem::take(&mut fate.in_minute);
            losses += fate.losses.iter().filter(|told| told.at >= self.since).count() as u64;
            drop(fate);
            let fixed = world
                .program
                .actors
                .iter()
                .flat_map(|actor| actor.ops.iter())
                .filter_map(|op| op.what.lease());
            let shortest = fixed.fold(life.settings.lease.min(life.settings.place_ttl), Duration::min);
            let threads =
                world.program.actors.iter().filter(|actor| actor.client == life.client).count() as u64;
            let renewals = 60.0 / (shortest / 3).as_secs_f64().max(0.003) * minutes.max(1.0);
            let allowed = 300 + 100 * ops + (threads + 1) * (renewals as u64 + 150);
            if calls > allowed {
                let what = format!("{life} made {calls} calls in the minute to {now:?}, {allowed} are many");
                world.found(Promise::Noise, what);
            }
        }
        losses += world.counts().get(LOSSES).copied().unwrap_or_default();
        let allowed = 8 * lives.len() as u64 + 4 * (ops + losses);
        for (event, lines) in logs::drain() {
            let quiet = event.contains("fairlock::clock");
            if quiet {
                world.found(
                    Promise::Bound,
                    "threads wait for something that is not the clock (10 s of real time)",
                );
            } else if lines > allowed {
                let what = format!("{lines} lines of {event} in the minute to {now:?}, {allowed} are many");
                world.found(Promise::Noise, what);
            }
        }
        self.since = now;
    }
}
