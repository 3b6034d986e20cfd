//! What sentinels say together; sentinels that forget the others, and some that are gone for good.

#[cfg(feature = "night")]
mod far;

use super::*;
use crate::net::connection::Address;

/// The sentinel `id` tells of these, each named by one character.
fn report(id: &str, told: Option<&str>) -> MasterReport {
    let told = told.map(|told| told.chars().map(String::from).collect::<BTreeSet<_>>());
    MasterReport {
        address: Address::parse("redis://h:1").expect("an address"),
        epoch: 1,
        sentinels: told.as_ref().map_or(5, BTreeSet::len),
        told,
        id: id.to_owned(),
        run: None,
        is_old: true,
    }
}

struct Scene {
    electorate: Electorate,
    now: Instant,
}

impl Scene {
    fn with(configured: usize) -> Scene {
        Scene { electorate: Electorate::new(configured), now: Instant::now() }
    }

    /// A round in which each of these sentinels tells of these; and how many there are after it.
    fn hears(&mut self, round: &[(&str, &str)]) -> usize {
        let heard = round.iter().filter(|(id, told)| self.electorate.hear(&report(id, Some(told)), self.now));
        let heard = heard.count();
        self.electorate.settle(heard, self.now);
        self.electorate.count()
    }

    /// The same round each second for the time in which the others would come back.
    fn hears_for_long(&mut self, round: &[(&str, &str)]) -> usize {
        let end = self.now + SETTLED;
        while self.now < end {
            self.hears(round);
            self.now += Duration::from_secs(1);
        }
        self.hears(round)
    }
}

#[test]
fn all_count_of_whom_any_has_told() {
    let mut scene = Scene::with(3);
    assert_eq!(scene.electorate.count(), 3);
    assert_eq!(scene.hears(&[("a", "abc"), ("b", "abcd")]), 4);
    // It has no right to say which.
    assert!(scene.electorate.hear(&report("c", None), scene.now));
    assert_eq!(scene.electorate.count(), 5);
}

/// Two of five that were reset while they are cut off would be a majority of those that they know.
#[test]
fn a_minority_that_has_forgotten_the_others_stays_one() {
    let mut scene = Scene::with(3);
    scene.hears(&[("a", "abcde"), ("b", "abcde"), ("c", "abcde")]);
    assert_eq!(scene.hears_for_long(&[("a", "ab"), ("b", "ab")]), 5);
    // Half are no majority either.
    let mut scene = Scene::with(4);
    assert_eq!(scene.hears_for_long(&[("a", "ab"), ("b", "ab")]), 4);
}

#[test]
fn a_majority_that_knows_no_other_is_all_that_there_are() {
    let mut scene = Scene::with(3);
    let [before, after] = ["abcd", "abc"].map(|told| [("a", told), ("b", told), ("c", told)]);
    assert_eq!(scene.hears_for_long(&before), 4);
    // They may have been reset just now.
    assert_eq!(scene.hears(&after), 4);
    assert_eq!(scene.hears_for_long(&after), 3);
    // And of these, some may be silent.
    assert_eq!(scene.hears_for_long(&after[..2]), 3);
    assert_eq!(scene.hears_for_long(&[("b", "ab"), ("a", "ab")]), 2);
}

/// A configured address that has vanished counts until a majority knows better.
#[test]
fn a_vanished_address_counts_until_a_majority_knows() {
    let mut scene = Scene::with(4);
    let all = [("a", "abc"), ("b", "abc"), ("c", "abc")];
    assert_eq!(scene.hears_for_long(&all[..2]), 4);
    assert_eq!(scene.hears_for_long(&all), 3);
}

#[test]
fn while_one_still_knows_the_others_they_count() {
    let mut scene = Scene::with(3);
    let rolling = [("a", "abc"), ("b", "abc"), ("c", "abcd")];
    assert_eq!(scene.hears_for_long(&rolling), 4);
    // Their time begins with the last one that has told of another.
    let after = [("a", "abc"), ("b", "abc"), ("c", "abc")];
    assert_eq!(scene.hears(&after), 4);
    scene.now += SETTLED / 2;
    scene.electorate.hear(&report("c", None), scene.now);
    scene.now += SETTLED / 2;
    assert_eq!(scene.hears(&after), 5);
    assert_eq!(scene.hears_for_long(&after), 3);
}

/// A sentinel that was removed does not count until another sentinel tells of it.
#[test]
fn a_removed_sentinel_counts_when_another_tells_of_it() {
    let mut scene = Scene::with(3);
    scene.hears(&[("a", "abcd"), ("b", "abcd"), ("c", "abcd"), ("d", "abcd")]);
    let after = [("a", "abc"), ("b", "abc"), ("c", "abc")];
    assert_eq!(scene.hears_for_long(&after), 3);
    let again = |scene: &mut Scene| scene.electorate.hear(&report("d", Some("abcd")), scene.now);
    assert!(!again(&mut scene));
    assert_eq!(scene.hears(&after), 3);
    assert!(!again(&mut scene));
    assert_eq!(scene.hears(&[("a", "abcd")]), 4);
    assert!(scene.electorate.hear(&report("d", Some("abcd")), scene.now));
}

#[test]
fn a_new_sentinel_counts_although_all_others_have_settled() {
    let mut scene = Scene::with(3);
    let all = [("a", "abc"), ("b", "abc"), ("c", "abc")];
    assert_eq!(scene.hears_for_long(&all), 3);
    assert_eq!(scene.hears(&[("d", "abcd")]), 4);
}

#[test]
fn an_answer_that_names_nobody_brings_back_no_removed_sentinel() {
    let mut scene = Scene::with(4);
    assert_eq!(scene.hears_for_long(&[("a", "abc"), ("b", "abc"), ("c", "abc")]), 3);
    assert!(scene.electorate.hear(&report("c", None), scene.now));
    assert!(!scene.electorate.hear(&report("d", Some("abcd")), scene.now));
}

const LEAST: Duration = Duration::from_millis(11_600);

/// What the sentinels `(id, port, epoch, seconds up)` say together, of this many.
fn together(reports: &[(&str, u16, u64, u64)], all: usize) -> Result<(String, u64, String), String> {
    let servers = Address::parse("redis://h:1").expect("an address");
    let mut round = Round::new(reports.len());
    let reports = reports.iter().map(|&(id, port, epoch, uptime)| MasterReport {
        address: servers.announced("h", port, &servers),
        epoch,
        sentinels: 3,
        told: None,
        id: id.to_owned(),
        is_old: Duration::from_secs(uptime) > LEAST,
        run: Some(Run { id: format!("run-{id}"), uptime }),
    });
    reports.for_each(|report| round.hear(report));
    let named = round.named(all, LEAST);
    let told = |named: Named| {
        (named.address.to_string(), named.epoch, named.voters.as_deref().unwrap_or_default().to_owned())
    };
    named.map(told).map_err(|failure| failure.to_string())
}

/// More than half of all sentinels name one master under one epoch.
#[test]
fn a_majority_of_all_sentinels_names_one_master_and_epoch() {
    let named = |voters: &str| Ok(("h:7".to_owned(), 3, voters.to_owned()));
    let all = named("2 run-a run-b run-c");
    assert_eq!(together(&[("b", 7, 3, 99), ("a", 7, 3, 99), ("c", 7, 3, 99)], 3), all);
    assert_eq!(together(&[("a", 8, 2, 99), ("b", 7, 3, 99), ("c", 7, 3, 99)], 3), named("2 run-b run-c"));
    assert_eq!(together(&[("a", 7, 3, 99)], 1), named("1 run-a"));
    assert_eq!(together(&[("a", 7, 3, 99), ("b", 7, 3, 12), ("c", 8, 4, 11)], 3), named("2 run-a run-b"));
    for (reports, all, votes) in [
        (&[("a", 7, 3, 99)][..], 3, "1 of 3"),
        (&[("a", 7, 3, 99), ("b", 8, 3, 99)], 3, "1 of 3"),
        (&[("a", 7, 3, 99), ("b", 7, 4, 99)], 3, "1 of 3"),
        (&[("a", 7, 3, 99), ("b", 7, 3, 99)], 4, "2 of 4"),
        // One that is configured by two names.
        (&[("a", 7, 3, 99), ("a", 7, 3, 99)], 3, "1 of 3"),
        // Others that are not configured may name another master.
        (&[("a", 7, 3, 99), ("b", 7, 3, 99)], 5, "2 of 5"),
        // A sentinel that may have named another master before it lost its file.
        (&[("a", 7, 3, 99), ("b", 7, 3, 11)], 3, "1 of 3"),
    ] {
        let said = together(reports, all).expect_err("no majority");
        assert!(said.contains(&format!("no majority: {votes} sentinels named it")), "{said}");
    }
    let said = together(&[("a", 7, 3, 99)], 3).expect_err("no majority");
    assert!(!said.contains("forgotten"), "{said}");
    let said = together(&[("a", 7, 3, 99), ("b", 7, 3, 11)], 3).expect_err("no majority");
    assert!(said.contains("1 may have forgotten: up for less than 11.6s"), "{said}");
}

#[test]
fn a_round_is_open_while_missing_answers_can_decide() {
    assert!(!Round::new(1).is_open(2) && Round::new(3).is_open(5));
}

/// Only a sentinel that says its own id and those of all others tells which sentinels there are.
#[test]
fn a_sentinel_tells_of_all_sentinels_or_of_their_number() {
    use redis::Value;
    let at = Address::parse("redis://h:1").expect("an address");
    let words =
        |all: &[&str]| Value::Array(all.iter().map(|word| Value::BulkString((*word).into())).collect());
    let other = |id| words(&["runid", id, "ip", "h", "port", "2"]);
    let refused = || Err(Failure::refused("NOPERM", "x"));
    let told = |id: Result<Value, Failure>, others: Result<Value, Failure>| {
        let details = words(&["num-other-sentinels", "2"]);
        let replies = [Ok(words(&["h", "7"])), Ok(details), id, refused(), others];
        let report = MasterReport::of(&at, SentinelAnswer::read(&replies, &at, &at), false);
        report.expect("a master").told.map(|told| told.into_iter().collect::<String>())
    };
    let id = || Ok(Value::BulkString("a".into()));
    let others = |all: &[&'static str]| Ok(Value::Array(all.iter().map(|id| other(id)).collect()));
    assert_eq!(told(id(), others(&["b", "c"])).as_deref(), Some("abc"));
    assert_eq!(told(id(), refused()), None);
    assert_eq!(told(refused(), others(&["b", "c", "d"])), None);
}
