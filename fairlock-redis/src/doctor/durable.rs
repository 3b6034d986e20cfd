//! The doctor for durable clients: whether a server has a new past, how an operator ends its grace, and which faults a hold survives.

use std::time::Duration;

use super::sentinels::{self, Agreed};
use super::{Finding, Text, Verdict, Visit};
use crate::backend::RedisBackend;
use crate::durable::{Durability, lives_of};
use crate::net::Arrangement;
use crate::shared::Shared;

impl RedisBackend {
    /// Ends the grace of each server by hand: each server counts as one with a known past, and grants locks at once. Returns what was
    /// left of the longest grace; zero if no grace was running, and the whole grace if it had not begun.
    ///
    /// **Two clients can hold one lock then**, if the server has forgotten a hold whose client still believes in it. Safe when no
    /// lock was held: on a new server, or when all workers were stopped.
    ///
    /// # Errors
    /// As [`doctor`](RedisBackend::doctor) without a name.
    pub fn begin_life(&self) -> fairlock_core::Result<Duration> {
        let Shared { servers, calls, .. } = &*self.0.shared;
        let usual = || Durability::default().among(servers.arrangement());
        let grace = calls.durability().unwrap_or_else(usual).grace();
        let mut longest = Duration::ZERO;
        for server in servers.servers().map_err(|failure| failure.explain(servers, "looking"))? {
            let lives = lives_of(servers, &server, calls.confirms_messages(), Some(grace));
            let lives = lives.map_err(|failure| failure.explain(server.pool.address(), "life.lua"))?;
            let left = lives.iter().map(|life| life.left.unwrap_or(grace)).max();
            longest = longest.max(left.unwrap_or_default());
        }
        Ok(longest)
    }

    /// The finding in one line; with sentinels, also what each sentinel says.
    pub(super) fn survey(&self, findings: &mut Vec<Finding>) {
        let durability = self.0.shared.calls.durability();
        let servers = &self.0.shared.servers;
        let has_sentinels = servers.arrangement() == Arrangement::Sentinels;
        let agreed = has_sentinels.then(|| sentinels::check(servers, durability, findings));
        let (verdict, text) = survives(durability, agreed.as_ref());
        findings.push(Finding::new(servers.to_string(), "durable", verdict, text));
    }
}

impl Visit<'_> {
    /// Without durable clients a failure does not matter: the user may lack the rights.
    pub(super) fn life(&mut self) {
        let (durability, shared) = (self.durability(), &self.backend.0.shared);
        let lives = match lives_of(&shared.servers, self.server, shared.calls.confirms_messages(), None) {
            Ok(lives) => lives,
            Err(_) if durability.is_none() => return,
            Err(failure) => return self.say("life", Verdict::Unknown, failure.text()),
        };
        let Some(ours) = durability.map(|durability| durability.grace().as_millis().to_string()) else {
            if lives.iter().any(|life| life.grace.is_some()) {
                let what = "other clients of this server are durable, and this one is not: it grants locks in a grace; set the same \
                            for all";
                self.say("life", Verdict::Unsafe, Text::from(what).about_setting("durable"));
            }
            return;
        };
        if let Some(theirs) =
            lives.iter().filter_map(|life| life.grace.as_ref()).find(|grace| **grace != ours)
        {
            let what = format!(
                "the grace is {theirs} ms here, and {ours} ms for this client, which is refused: give all clients the same \
                 times"
            );
            return self.say("life", Verdict::Unsafe, what);
        }
        let counted = |count: usize| match lives.len() {
            1 => String::new(),
            all => format!(" in {count} of {all} hash slots"),
        };
        let (begun, unbegun): (Vec<_>, Vec<_>) =
            lives.iter().map(|life| life.left).partition(Option::is_some);
        let running: Vec<Duration> = begun.into_iter().flatten().filter(|left| !left.is_zero()).collect();
        if let Some(longest) = running.iter().max() {
            let place = counted(running.len());
            let what = format!("a new past{place}: it grants nothing for {} more", Finding::shown(*longest));
            self.say("life", Verdict::Note, what);
        }
        if !unbegun.is_empty() {
            let what = format!(
                "a new past{}: with the first request it begins to grant nothing for {ours} ms; on a new server, end that \
                 with `fairlock doctor --begin-life`",
                counted(unbegun.len())
            );
            self.say("life", Verdict::Note, what);
        }
        if running.is_empty() && unbegun.is_empty() {
            self.say("life", Verdict::Good, "its past is known");
        }
    }
}

fn survives(durability: Option<Durability>, agreed: Option<&Agreed>) -> (Verdict, Text) {
    let Some(durability) = durability else {
        let missing = agreed.map_or(String::new(), |agreed| match agreed.spare() {
            _ if agreed.all < 3 => "; have three sentinels for that".to_owned(),
            None => "; a majority of the sentinels has to agree for that".to_owned(),
            Some(_) => format!(": {} of {} sentinels agree", agreed.agree, agreed.all),
        });
        let text = "off: two clients can hold a lock after a restart that forgets it, a flush or a fail-over; a setting closes that";
        return (Verdict::Note, Text::from(format!("{text}{missing}")).about_setting("durable"));
    };
    const SURVIVES: &str =
        "a hold survives a restart (empty, or with an old file), a flush, and the promotion of a replica";
    const DEPOSED: &str = "a master that was deposed and still answers";
    match durability.asks_quorum() {
        true => {
            let by = agreed.map_or(String::new(), |agreed| {
                format!("; {} of {} sentinels have to answer", agreed.majority(), agreed.all)
            });
            (Verdict::Good, format!("{SURVIVES}, and {DEPOSED}{by}").into())
        }
        false => {
            let text = format!("{SURVIVES} of a dead master, but not {DEPOSED}: that takes sentinels");
            (Verdict::Good, text.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_is_survived_and_what_is_missing_for_more() {
        let of = |agree, all| Some(Agreed { agree, all });
        let among = |servers| Some(Durability::default().among(servers));
        let (single, sentinels) = (among(Arrangement::Single), among(Arrangement::Sentinels));
        for (durability, agreed, verdict, words) in [
            (None, None, Verdict::Note, "a fail-over; a setting closes that"),
            (None, of(3, 3), Verdict::Note, "a setting closes that: 3 of 3 sentinels agree"),
            (None, of(2, 2), Verdict::Note, "have three sentinels for that"),
            (None, of(2, 4), Verdict::Note, "a majority of the sentinels has to agree for that"),
            (single, None, Verdict::Good, "of a dead master, but not a master that was deposed"),
            (sentinels, of(3, 5), Verdict::Good, "still answers; 3 of 5 sentinels have to answer"),
            (
                among(Arrangement::Cluster),
                None,
                Verdict::Good,
                "and a master that was deposed and still answers",
            ),
        ] {
            let (found, text) = survives(durability, agreed.as_ref());
            assert!(found == verdict && text.contains(words), "{text}");
            assert_eq!(text.setting(), (verdict == Verdict::Note).then_some("durable"));
        }
    }
}
