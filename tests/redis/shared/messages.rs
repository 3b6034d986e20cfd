//! What holders and waiters are told, and what `inspect` shows.

use fairlock::LockKind;
use fairlock::backend::{Backend, ForceReleased, Renew, Renewal, Wait};

use fairlock_tests::server_state::scripts_run;

use crate::support::{Told, World};

#[test]
fn one_hold_is_taken_by_force_and_its_holder_is_told() {
    let world = World::with(2);
    let [one, two, next] = [1, 2, 3].map(|number| world.asker(number, 1));
    let (token, other) = (world.granted(&one), world.granted(&two));
    world.queued(&next);
    assert_eq!(world.take(&one, other), ForceReleased::NotHeld, "that is no hold of its");
    assert_eq!(world.take(&one, token), ForceReleased::Taken);
    assert_eq!(world.next_told(), Told::Taken(1, token));
    assert!(matches!(world.next_told(), Told::Granted(3, _)));
    assert_eq!(world.take(&one, token), ForceReleased::NotHeld);
    assert_eq!(world.holders(), [2, 3]);
}

#[test]
fn the_holder_of_a_fair_lock_is_told_as_well() {
    let world = World::of(LockKind::Fair);
    let [one, next] = [1, 2].map(|number| world.asker(number, 1));
    let token = world.granted(&one);
    world.queued(&next);
    assert_eq!(world.take(&next, token), ForceReleased::NotHeld);
    assert_eq!(world.take(&one, token), ForceReleased::Taken);
    assert_eq!(world.next_told(), Told::Taken(1, token));
    assert!(matches!(world.next_told(), Told::Granted(2, _)));
    assert_eq!(world.take(&one, token), ForceReleased::NotHeld);
}

#[test]
fn all_holds_are_taken_by_force_and_all_holders_are_told() {
    let world = World::of(LockKind::ReadWrite);
    let readers = [1, 2, 3].map(|number| world.asker(number, 1));
    let tokens = readers.each_ref().map(|reader| world.granted(reader));
    world.queued(&world.asker(9, u32::MAX));
    assert_eq!(world.backend.force_release(&world.lock).unwrap(), ForceReleased::Taken);
    let told: Vec<_> = (0..3).map(|_| world.next_told()).collect();
    let expected: Vec<_> = (1..).zip(tokens).map(|(number, token)| Told::Taken(number, token)).collect();
    assert_eq!(told, expected);
    assert!(matches!(world.next_told(), Told::Granted(9, _)));
    assert_eq!((world.holders(), world.line()), (vec![9], vec![]));
}

#[test]
fn inspect_tells_capacity_holders_and_units() {
    let world = World::with(5);
    let empty = world.backend.inspect(&world.lock, 0..9).unwrap();
    assert_eq!((empty.capacity, empty.holders.len(), empty.line_length), (None, 0, 0));
    let [two, three, four] = [(1, 2), (2, 3), (3, 4)].map(|(n, takes)| world.asker(n, takes));
    let tokens = [world.granted(&two), world.granted(&three)];
    world.queued(&four);
    let items = [Renew::Hold { hold: world.hold(&three, tokens[1]), holds: 7, lease: three.lease }];
    assert_eq!(world.backend.renew(world.client, &items).remove(0).unwrap(), Renewal::Renewed);
    let state = world.backend.inspect(&world.lock, 0..9).unwrap();
    assert_eq!((state.capacity, state.taken(), state.line_length), (Some(5), 5, 1));
    let holders = state.holders.iter().zip([(&two, 1), (&three, 7)]).zip(tokens);
    for ((holder, (asker, count)), token) in holders {
        assert_eq!((&holder.owner, holder.takes), (&asker.owner, asker.takes));
        assert_eq!(
            (holder.hold_count, holder.token, holder.request),
            (count, Some(token), Some(asker.request))
        );
        assert!(holder.lease_left.unwrap() <= asker.lease && holder.held_for.is_some());
        assert_eq!(holder.label, None);
    }
    let waiter = &state.line[0];
    assert_eq!((&waiter.owner, waiter.takes, waiter.request), (&four.owner, 4, Some(four.request)));
    // A hold that is over is none.
    world.end(&two);
    let state = world.backend.inspect(&world.lock, 0..0).unwrap();
    assert_eq!((state.holders.len(), state.taken()), (1, 3));
}

#[test]
fn holds_and_places_of_many_locks_are_renewed_in_one_call() {
    let world = World::with(2);
    let [one, two, next] = [1, 2, 3].map(|number| world.asker(number, 1));
    let tokens = [world.granted(&one), world.granted(&two)];
    world.queued(&next);
    let fair = fairlock::backend::LockId::new(fairlock::LockName::new("fair").unwrap(), LockKind::Fair);
    let place = fairlock::backend::Place::new(&fair, &one.owner, one.request);
    let ask = fairlock::backend::Acquire::new(place, one.lease);
    let fairlock::backend::Acquired::Granted { token, .. } = world.backend.acquire(&ask).unwrap() else {
        panic!()
    };
    let exclusive = fairlock::backend::Hold::new(&fair, &one.owner, one.request, token);
    let items = [
        Renew::Place { place: world.place(&next, Wait::Forever), lease: next.lease },
        Renew::Hold { hold: world.hold(&one, tokens[0]), holds: 1, lease: one.lease },
        Renew::Hold { hold: exclusive, holds: 1, lease: one.lease },
        Renew::Hold { hold: world.hold(&two, tokens[0]), holds: 1, lease: one.lease },
        Renew::Hold { hold: world.hold(&two, tokens[1]), holds: 1, lease: one.lease },
    ];
    let answers: Vec<_> = world.backend.renew(world.client, &items).into_iter().map(Result::unwrap).collect();
    assert!(matches!(answers[0], Renewal::Waiting { rank: 0, .. }), "{answers:?}");
    assert_eq!(answers[1..], [Renewal::Renewed, Renewal::Renewed, Renewal::Lost, Renewal::Renewed]);
}

/// A script looks at some hundred holders. Those who are granted the lock between two scripts keep it.
#[test]
fn a_force_takes_the_lock_from_more_holders_than_one_script_looks_at() {
    let world = World::of(LockKind::ReadWrite);
    for number in 1..=1200 {
        world.granted(&world.asker(number, 1));
    }
    let state = world.backend.inspect(&world.lock, 0..9).unwrap();
    assert_eq!((state.holders.len(), state.unlisted_holders, state.taken()), (500, 700, 1200));
    world.queued(&world.asker(5000, u32::MAX));
    let before = scripts_run(&world.server);
    assert_eq!(world.backend.force_release(&world.lock).unwrap(), ForceReleased::Taken);
    assert_eq!(scripts_run(&world.server) - before, 4, "the first one was not known");
    let mut told: Vec<u64> = (0..1200)
        .map(|_| match world.next_told() {
            Told::Taken(number, _) => number,
            other => panic!("{other:?}"),
        })
        .collect();
    told.sort_unstable();
    assert_eq!(told, Vec::from_iter(1..=1200));
    assert!(matches!(world.next_told(), Told::Granted(5000, _)));
    assert_eq!(world.holders(), [5000]);
}
