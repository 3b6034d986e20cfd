//! `--durable`: the durability that all clients of a server have, as a user writes it.

use fairlock::Durability;

use crate::duration;

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
            Some(("trust", time)) => durability.trust(duration::parse(time).ok()?),
            Some(("skew", time)) => durability.skew(duration::parse(time).ok()?),
            _ => return None,
        };
    }
    Some(durability)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        for text in
            ["", "10s", "quorum:8s", "quorum,", "trust", "trust=1x", "skew=2s,life", "lease=2s", "replicas"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
