//! The wanted channels, how many callers want each, and what the server said: shared by callers and listener.
//!
//! The listener alone subscribes and unsubscribes: it takes the changes from here, and keeps track of the server's confirmations.
//! A channel is live only while it is wanted *and* the listener has seen the confirmation. The step that ends the last interest
//! in a channel also ends "live", before the listener learns of the change. So no caller is told "live" of a channel that is
//! about to be unsubscribed.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::net::connection::Failure;

#[derive(Default)]
pub(super) struct Channels {
    state: Mutex<ChannelsState>,
    /// Signals a verdict, or the end.
    changed: Condvar,
}

#[derive(Default)]
struct ChannelsState {
    wanted: HashMap<String, Interest>,
    /// Channels whose interest began or ended since the listener last took the changes.
    touched: HashSet<String>,
    ended: bool,
}

struct Interest {
    count: usize,
    /// What the server said: the channel is live, or refused. None as long as that is open.
    verdict: Option<Result<(), Failure>>,
}

impl Channels {
    /// Counts an interest in the channel; true if the channel is live. If not, the caller has to wake the listener *after* this
    /// call, so that the listener finds the interest, and wait for the [`verdict`](Self::verdict).
    pub(super) fn want(&self, channel: &str) -> bool {
        let mut state = self.state.lock();
        let interest = match state.wanted.get_mut(channel) {
            Some(interest) => interest,
            None => {
                let new = Interest { count: 0, verdict: None };
                state.wanted.entry(channel.to_owned()).or_insert(new)
            }
        };
        interest.count += 1;
        if interest.verdict == Some(Ok(())) {
            return true;
        }
        // Also after a refusal: the rights may have changed, and each attempt asks once.
        interest.verdict = None;
        state.touched.insert(channel.to_owned());
        false
    }

    /// Waits until a wanted channel is live, or refused. On failure the interest ends.
    pub(super) fn verdict(&self, channel: &str, until: Instant) -> Result<(), Failure> {
        let mut state = self.state.lock();
        let said =
            |state: &ChannelsState| state.wanted.get(channel).and_then(|interest| interest.verdict.clone());
        let is_open = |state: &mut ChannelsState| !state.ended && said(state).is_none();
        self.changed.wait_while_until(&mut state, is_open, until);
        let verdict = said(&state).unwrap_or_else(|| {
            Err(match state.ended {
                true => Failure::NotSent("the listener has ended".into()),
                false => Failure::Broken("no answer to a subscription in time".into()),
            })
        });
        if verdict.is_err() {
            state.unwant(channel);
        }
        verdict
    }

    pub(super) fn unwant(&self, channel: &str) {
        self.state.lock().unwant(channel);
    }

    /// For the listener: the channels that have changed since its last call, and whether they are wanted now. None if it has to end.
    pub(super) fn take_changes(&self) -> Option<Vec<(String, bool)>> {
        let mut state = self.state.lock();
        let touched = std::mem::take(&mut state.touched).into_iter();
        let changed = touched.map(|channel| (state.wanted.contains_key(&channel), channel));
        (!state.ended).then(|| changed.map(|(wanted, channel)| (channel, wanted)).collect())
    }

    /// For the listener on a new connection: all wanted channels, with every change until now.
    pub(super) fn all(&self) -> Vec<(String, bool)> {
        let mut state = self.state.lock();
        state.touched.clear();
        state.wanted.keys().map(|channel| (channel.clone(), true)).collect()
    }

    /// For the listener: the server has confirmed or refused the channel. That is not kept for a channel that is no
    /// longer wanted; the end of the interest is among the changes.
    pub(super) fn settle(&self, channel: &str, verdict: Result<(), Failure>) {
        if let Some(interest) = self.state.lock().wanted.get_mut(channel) {
            interest.verdict = Some(verdict);
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
        self.changed.wait_while_until(&mut state, |state| !state.ended, until);
        !state.ended
    }
}

impl ChannelsState {
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
        channels.take_changes().unwrap_or_default()
    }

    /// A channel is live from its confirmation to the end of the last interest.
    #[test]
    fn a_channel_lives_from_confirmation_to_last_interest() {
        let channels = Channels::default();
        assert!(!channels.want("c") && !channels.want("c"));
        assert_eq!(changes(&channels), [("c".to_owned(), true)]);
        channels.settle("c", Ok(()));
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
        channels.settle("c", Ok(()));
        channels.unwant("c");
        assert_eq!(changes(&channels), [("c".to_owned(), false)]);
        // The listener unsubscribes at this moment.
        assert!(!channels.want("c"));
        assert!(channels.verdict("c", now()).is_err());
        assert_eq!(changes(&channels), [("c".to_owned(), false)]);
        channels.settle("c", Ok(()));
        assert!(!channels.want("c"));
    }

    #[test]
    fn a_refusal_is_reported_once_and_the_next_caller_asks_again() {
        let channels = Channels::default();
        channels.want("c");
        changes(&channels);
        let refusal = Failure::refused("NOPERM", "no");
        channels.settle("c", Err(refusal.clone()));
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
        assert!(channels.take_changes().is_none());
    }

    #[test]
    fn a_pause_lasts_its_time() {
        let (channels, until) = (Channels::default(), now() + Duration::from_millis(20));
        assert!(channels.pause(until) && now() >= until);
    }
}
