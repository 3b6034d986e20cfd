//! Which faults a hold survives, as the servers and their clients are set up now.

use super::sentinels::{self, Agreed};
use super::{Finding, Verdict};
use crate::durability::Durability;
use crate::inner::RedisBackend;
use crate::net::topology::Topology;

impl RedisBackend {
    /// In one line; and with sentinels, what each of them says.
    pub(super) fn survey(&self, findings: &mut Vec<Finding>) {
        let durability = self.0.settings.durability;
        let agreed = match &*self.0.servers {
            Topology::Sentinel(sentinel) => Some(sentinels::check(sentinel, durability, findings)),
            _ => None,
        };
        let (verdict, text) = survives(durability, agreed.as_ref());
        findings.push(Finding { server: self.0.servers.to_string(), topic: "durable", verdict, text });
    }
}

fn survives(durability: Option<Durability>, agreed: Option<&Agreed>) -> (Verdict, String) {
    const SURVIVES: &str =
        "a hold survives a restart (empty, or with an old file), a flush, and the promotion of a replica";
    const DEPOSED: &str = "a master that was deposed and still answers";
    let missing = agreed.map_or(String::new(), |agreed| match agreed.spare() {
        _ if agreed.all < 3 => "; for `Durability::quorum()` have three sentinels".to_owned(),
        None => "; for `Durability::quorum()` a majority of the sentinels has to agree".to_owned(),
        Some(_) => {
            format!(
                "; `Durability::quorum()` covers that, too: {} of {} sentinels agree",
                agreed.agree, agreed.all
            )
        }
    });
    match durability {
        None => {
            let text = "off: two clients can hold a lock after a restart that forgets it, a flush or a fail-over; \
                        `Durability::life()` closes that";
            let but = if agreed.is_some() { format!(", except for {DEPOSED}") } else { String::new() };
            (Verdict::Note, format!("{text}{but}{missing}"))
        }
        Some(durability) if durability.proof_age().is_some() => {
            let by = agreed.map_or(String::new(), |agreed| {
                format!("; {} of {} sentinels have to answer", agreed.majority(), agreed.all)
            });
            (Verdict::Good, format!("quorum: {SURVIVES}, and {DEPOSED}{by}"))
        }
        Some(_) => {
            let verdict = if agreed.is_some() { Verdict::Note } else { Verdict::Good };
            (verdict, format!("life: {SURVIVES} of a dead master, but not {DEPOSED}{missing}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_is_survived_and_what_is_missing_for_more() {
        let (life, quorum) = (Some(Durability::life()), Some(Durability::quorum()));
        let of = |agree, all| Some(Agreed { agree, all });
        for (durability, agreed, verdict, words) in [
            (None, None, Verdict::Note, "a fail-over; `Durability::life()` closes that"),
            (
                None,
                of(3, 3),
                Verdict::Note,
                "`Durability::quorum()` covers that, too: 3 of 3 sentinels agree",
            ),
            (life, None, Verdict::Good, "of a dead master, but not a master that was deposed"),
            (life, of(2, 2), Verdict::Note, "for `Durability::quorum()` have three sentinels"),
            (life, of(2, 4), Verdict::Note, "a majority of the sentinels has to agree"),
            (quorum, of(3, 5), Verdict::Good, "still answers; 3 of 5 sentinels have to answer"),
        ] {
            let (found, text) = survives(durability, agreed.as_ref());
            assert!(found == verdict && text.contains(words), "{text}");
        }
    }
}
