//! `--durable`: the durability that all clients of a server have, as a user writes it.

use std::ops::RangeInclusive;
use std::time::Duration;

use fairlock::Durability;

use crate::duration;

/// The library's limits.
const TRUST: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);
const SKEW: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(60);

/// Reads `life` or `quorum`, then the times that differ from their defaults: `quorum,trust=20s,skew=1s`. None for any other text.
pub(crate) fn parse(text: &str) -> Option<Durability> {
    let (first, times) = text.split_once(',').map_or((text, None), |(first, times)| (first, Some(times)));
    let (mut durability, times) = match first {
        "life" => (Durability::life(), times),
        "quorum" => (Durability::quorum(), times),
        _ => (Durability::life(), Some(text)),
    };
    for setting in times.into_iter().flat_map(|times| times.split(',')) {
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
    fn a_rule_and_its_times_are_read() {
        let seconds = Duration::from_secs;
        for (text, expected) in [
            ("life", Durability::life()),
            ("quorum", Durability::quorum()),
            ("trust=20s", Durability::life().trust(seconds(20))),
            ("life,skew=2s", Durability::life().skew(seconds(2))),
            ("trust=20", Durability::life().trust(seconds(20))),
            ("quorum,skew=0,trust=1m", Durability::quorum().trust(seconds(60)).skew(seconds(0))),
        ] {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "10s",
            "quorum:8s",
            "quorum,",
            "trust",
            "trust=1x",
            "trust=0.9",
            "trust=61m",
            "skew=61",
            "skew=2s,life",
            "lease=2s",
            "replicas",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
