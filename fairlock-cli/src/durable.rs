//! `--durable`: the durability that all clients of a server have, as a user writes it.

use fairlock::Durability;

use crate::duration;

/// `life` or `quorum`, then the times that differ from their defaults: `quorum,trust=20s,skew=1s`.
#[derive(Clone, Debug)]
pub(crate) struct Durable {
    pub(crate) durability: Durability,
    /// As it was written, for the minder.
    pub(crate) text: String,
}

/// # Errors
/// The expected form.
pub(crate) fn parse(text: &str) -> Result<Durable, String> {
    let (first, times) = text.split_once(',').map_or((text, None), |(first, times)| (first, Some(times)));
    let (mut durability, times) = match first {
        "life" => (Durability::life(), times),
        "quorum" => (Durability::quorum(), times),
        _ => (Durability::life(), Some(text)),
    };
    for setting in times.into_iter().flat_map(|times| times.split(',')) {
        durability = match setting.split_once('=') {
            Some(("trust", time)) => durability.trust(duration::parse(time)?),
            Some(("skew", time)) => durability.skew(duration::parse(time)?),
            _ => {
                return Err(
                    "expected life or quorum, and trust=TIME or skew=TIME, with commas between".to_owned()
                );
            }
        };
    }
    Ok(Durable { durability, text: text.to_owned() })
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
            ("quorum,skew=0,trust=1m", Durability::quorum().trust(seconds(60)).skew(seconds(0))),
        ] {
            let read = parse(text).unwrap();
            assert_eq!((read.durability, read.text.as_str()), (expected, text));
        }
        for text in
            ["", "10s", "quorum:8s", "quorum,", "trust", "trust=1", "skew=2s,life", "lease=2s", "replicas"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
