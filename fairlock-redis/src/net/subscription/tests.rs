//! When a channel is live; at night, a subscriber on real servers.

#[cfg(feature = "night")]
mod subscriber;

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
