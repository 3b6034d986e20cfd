//! The wanted channels, how many callers want each, and what the server said: shared by callers and listener.
//!
//! The listener alone subscribes and unsubscribes; it keeps track of what the server has confirmed, and takes the
//! changes from here. A channel is live only while it is wanted *and* the listener has seen it confirmed. It stops
//! being live in the step that ends the last interest in it, before the listener learns of that. So no caller is
//! told "live" of a channel that is about to be unsubscribed.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::net::connection::Failure;

#[derive(Default)]
pub(super) struct Channels {
    state: Mutex<State>,
    /// Signals a verdict, or the end.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    wanted: HashMap<String, Interest>,
    /// Channels whose interest began or ended since the listener last took the changes.
    touched: HashSet<String>,
    ended: bool,
}

struct Interest {
    count: usize,
    verdict: Verdict,
}

enum Verdict {
    Open,
    Live,
    Refused(Failure),
}

/// What the listener has to do.
pub(super) enum Changes {
    None,
    /// Channels, and whether they are wanted now.
    Some(Vec<(String, bool)>),
    Ended,
}

impl Channels {
    /// Counts an interest in the channel; true if it is live. If it is not, the caller has to wake the listener *after*
    /// this, so that it finds the interest, and then wait for the [`verdict`](Self::verdict).
    pub(super) fn want(&self, channel: &str) -> bool {
        let mut state = self.state.lock();
        let interest = match state.wanted.get_mut(channel) {
            Some(interest) => interest,
            None => {
                let new = Interest { count: 0, verdict: Verdict::Open };
                state.wanted.entry(channel.to_owned()).or_insert(new)
            }
        };
        interest.count += 1;
        if matches!(interest.verdict, Verdict::Live) {
            return true;
        }
        // Also after a refusal: the rights may have changed, and each attempt asks once.
        interest.verdict = Verdict::Open;
        state.touched.insert(channel.to_owned());
        false
    }

    /// Waits until a wanted channel is live, or refused. On failure the interest ends.
    pub(super) fn verdict(&self, channel: &str, until: Instant) -> Result<(), Failure> {
        let mut state = self.state.lock();
        let failure = loop {
            match state.wanted.get(channel).map(|interest| &interest.verdict) {
                Some(Verdict::Live) => return Ok(()),
                Some(Verdict::Refused(failure)) => break failure.clone(),
                Some(Verdict::Open) if !state.ended => {}
                _ => break Failure::NotSent("the listener has ended".to_owned()),
            }
            if self.changed.wait_until(&mut state, until).timed_out() {
                // A verdict that arrived at the same moment counts.
                if matches!(state.wanted.get(channel).map(|i| &i.verdict), Some(Verdict::Open)) {
                    break Failure::Broken("no answer to a subscription in time".to_owned());
                }
            }
        };
        state.unwant(channel);
        Err(failure)
    }

    pub(super) fn unwant(&self, channel: &str) {
        self.state.lock().unwant(channel);
    }

    /// For the listener: the changes since its last call.
    pub(super) fn take_changes(&self) -> Changes {
        let mut state = self.state.lock();
        if state.ended {
            return Changes::Ended;
        }
        if state.touched.is_empty() {
            return Changes::None;
        }
        let touched = std::mem::take(&mut state.touched);
        let changed = touched.into_iter().map(|channel| {
            let wanted = state.wanted.contains_key(&channel);
            (channel, wanted)
        });
        Changes::Some(changed.collect())
    }

    /// For the listener on a new connection: all wanted channels, with every change until now.
    pub(super) fn all(&self) -> Vec<String> {
        let mut state = self.state.lock();
        state.touched.clear();
        state.wanted.keys().cloned().collect()
    }

    /// For the listener: the server has confirmed or refused the channel. That is not kept for a channel that is no
    /// longer wanted; the end of the interest is among the changes.
    pub(super) fn settle(&self, channel: &str, refusal: Option<Failure>) {
        let mut state = self.state.lock();
        if let Some(interest) = state.wanted.get_mut(channel) {
            interest.verdict = refusal.map_or(Verdict::Live, Verdict::Refused);
            drop(state);
            self.changed.notify_all();
        }
    }

    /// The subscriber was dropped, or its thread ended: waiting callers fail, and the listener ends at its next check.
    pub(super) fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }

    /// For the listener: sleeps until then; false if it has to end.
    pub(super) fn pause(&self, until: Instant) -> bool {
        let mut state = self.state.lock();
        while !state.ended && !self.changed.wait_until(&mut state, until).timed_out() {}
        !state.ended
    }
}

impl State {
    fn unwant(&mut self, channel: &str) {
        let Some(interest) = self.wanted.get_mut(channel) else { return };
        interest.count -= 1;
        if interest.count == 0 {
            // It stops being live here. A caller that wants it again before the listener checks makes a new, open
            // interest. The listener decides on that by what the server confirmed: the channel is still subscribed and
            // live at once, or is being unsubscribed and is subscribed again after that.
            self.wanted.remove(channel);
            self.touched.insert(channel.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn now() -> Instant {
        Instant::now()
    }

    fn changes(channels: &Channels) -> Vec<(String, bool)> {
        match channels.take_changes() {
            Changes::Some(changed) => changed,
            Changes::None | Changes::Ended => Vec::new(),
        }
    }

    #[test]
    fn a_channel_is_live_from_its_confirmation_to_the_end_of_the_last_interest() {
        let channels = Channels::default();
        assert!(!channels.want("c") && !channels.want("c"));
        assert_eq!(changes(&channels), [("c".to_owned(), true)]);
        channels.settle("c", None);
        assert_eq!(channels.verdict("c", now()), Ok(()));
        assert!(channels.want("c"));
        (0..2).for_each(|_| channels.unwant("c"));
        assert!(changes(&channels).is_empty());
        channels.unwant("c");
        assert_eq!(changes(&channels), [("c".to_owned(), false)]);
    }

    #[test]
    fn a_channel_wanted_again_before_it_is_unsubscribed_is_not_live() {
        let channels = Channels::default();
        channels.want("c");
        channels.settle("c", None);
        channels.unwant("c");
        assert_eq!(changes(&channels), [("c".to_owned(), false)]);
        // The listener unsubscribes at this moment.
        assert!(!channels.want("c"));
        assert!(channels.verdict("c", now()).is_err());
        assert_eq!(changes(&channels), [("c".to_owned(), false)]);
        channels.settle("c", None);
        assert!(!channels.want("c"));
    }

    #[test]
    fn a_refusal_is_reported_once_and_the_next_caller_asks_again() {
        let channels = Channels::default();
        channels.want("c");
        changes(&channels);
        let refusal = Failure::refused("NOPERM", "no");
        channels.settle("c", Some(refusal.clone()));
        assert_eq!(channels.verdict("c", now()), Err(refusal));
        assert!(!channels.want("c"));
        assert_eq!(changes(&channels), [("c".to_owned(), true)]);
    }

    #[test]
    fn the_end_wakes_waiting_callers() {
        let channels = Channels::default();
        channels.want("c");
        std::thread::scope(|scope| {
            scope.spawn(|| channels.end());
            let until = now() + Duration::from_secs(10);
            assert!(matches!(channels.verdict("c", until), Err(Failure::NotSent(_))));
            assert!(!channels.pause(until));
        });
        assert!(matches!(channels.take_changes(), Changes::Ended));
    }
}
