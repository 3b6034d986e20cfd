//! `--durable`: the durability that all clients of a server have, as a user writes it.

use std::ops::RangeInclusive;
use std::time::Duration;

use fairlock::Durability;

use crate::duration;

/// The library's limits.
const TRUST: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);
const SKEW: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(60);

/// Reads `true`, or the times that differ from their defaults: `trust=20s,skew=1s`. None for any other text.
pub(crate) fn parse(text: &str) -> Option<Durability> {
    let mut durability = Durability::default();
    for setting in text.split(',').filter(|_| text != "true") {
        durability = match setting.split_once('=') {
            Some(("trust", time)) => durability.trust(read(time, TRUST)?),
            Some(("skew", time)) => durability.skew(read(time, SKEW)?),
            _ => return None,
        };
    }
    Some(durability)
}

fn read(time: &str, allowed: RangeInclusive<Duration>) -> Option<Duration> {
    duration::parse(time).ok().filter(|time| allowed.contains(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        let (usual, seconds) = (Durability::default(), Duration::from_secs);
        for (text, expected) in [
            ("true", usual),
            ("trust=20s", usual.trust(seconds(20))),
            ("skew=2s", usual.skew(seconds(2))),
            ("trust=20", usual.trust(seconds(20))),
            ("skew=0,trust=1m", usual.trust(seconds(60)).skew(seconds(0))),
        ] {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "10s",
            "trust=8s,",
            "trust",
            "trust=1x",
            "trust=0.9",
            "trust=61m",
            "skew=61",
            "life",
            "true,skew=1s",
            "lease=2s",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
