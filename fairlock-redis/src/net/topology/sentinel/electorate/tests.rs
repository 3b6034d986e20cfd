//! Sentinels that forget the others, and some that are gone for good.

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
