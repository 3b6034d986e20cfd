//! Takes the wake-ups of a client, and delivers what the faults leave of them.

use std::sync::Arc;
use std::time::Duration;

use fairlock::backend::{Wake, WakeSink};

use crate::life::{Letter, Life};
use crate::world::{World, locked};

pub struct Ear {
    pub world: Arc<World>,
    pub life: Arc<Life>,
}

impl WakeSink for Ear {
    fn wake(&self, wake: Wake<'_>) {
        let now = self.world.now();
        let letter = Letter::of(wake);
        if let (Letter::Granted { lock, request, token, .. }, None) = (&letter, self.world.store()) {
            locked(&self.world.order).granted(&self.world, lock, *request, *token);
        }
        let mut state = locked(&self.life.fate);
        state.wake_ups += 1;
        let nth = state.wake_ups;
        let late = match letter {
            Letter::Gap => Some(Duration::ZERO), // made by the driver, when a cut is over
            _ => self.world.weather.wake_up(self.life.client, now, nth),
        };
        let Some(late) = late else {
            state.missed = true;
            drop(state);
            return self.world.note(format_args!("  {} does not hear {letter:?}", self.life));
        };
        let stopped = self.world.weather.stopped_until(self.life.client, now);
        let at = (now + late).max(stopped.unwrap_or_default());
        if at > now {
            // In the order in which they were sent, as on one connection.
            let at = state.mail.back().map_or(at, |(before, _)| at.max(*before));
            state.mail.push_back((at, letter));
            return;
        }
        let sink = state.sink.clone();
        let waiting = state.mail.back().map(|(before, _)| *before);
        if let Some(before) = waiting {
            state.mail.push_back((before, letter));
            return;
        }
        drop(state);
        self.world.note(format_args!("  {} hears {letter:?}", self.life));
        if let Some(sink) = sink {
            letter.deliver(&*sink);
        }
    }
}
