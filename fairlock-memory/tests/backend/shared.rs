//! Semaphores and read-write locks: several holders, and a line in which no request passes another.

use fairlock_core::backend::{
    Acquired, Backend, ForceReleased, HoldCountSet, Released, Renewal, Wait, Withdrawn,
};

use crate::support::{Asker, Fixture, Heard, LEASE};

const WRITE: u32 = u32::MAX;

fn is_busy(asker: &Asker<'_>) {
    assert!(matches!(asker.acquire(Wait::No), Ok(Acquired::Busy { .. })));
}

#[test]
fn readers_hold_together_and_a_writer_alone() {
    let fixture = Fixture::read_write();
    let client = fixture.client();
    let [a, b, c, d] = fixture.requests(&client);
    let c = c.taking(WRITE);
    let tokens = [a.gets_it(), b.gets_it()];
    assert!(tokens[0] < tokens[1]);
    assert_eq!(fixture.holders(), (vec![a.owner.clone(), b.owner.clone()], 2));
    c.queues(0);
    a.release(tokens[0]).unwrap();
    assert_eq!(fixture.holders(), (vec![b.owner.clone()], 1));
    b.release(tokens[1]).unwrap();
    let token = c.told_by(&client);
    assert_eq!(fixture.holders(), (vec![c.owner.clone()], WRITE));
    is_busy(&d);
    c.release(token).unwrap();
    d.gets_it();
}

#[test]
fn no_reader_passes_a_waiting_writer_not_even_an_attempt() {
    let fixture = Fixture::read_write();
    let client = fixture.client();
    let [a, b, c, d] = fixture.requests(&client);
    let b = b.taking(WRITE);
    let token = a.gets_it();
    b.queues(0);
    is_busy(&c);
    assert_eq!(fixture.line(), std::slice::from_ref(&b.owner));
    d.queues(1);
    d.queues(1);
    assert!(matches!(d.renew_place().unwrap(), Renewal::Waiting { rank: 1, .. }));
    a.release(token).unwrap();
    b.told_by(&client);
    assert_eq!(fixture.line(), [d.owner]);
}

#[test]
fn readers_behind_a_writer_enter_together_up_to_the_next_writer() {
    let fixture = Fixture::read_write();
    let clients = [(); 5].map(|()| fixture.client());
    let ask = |number: usize, takes| fixture.request(&clients[number], number as u64).taking(takes);
    let [a, b, c, d, e] = [ask(0, WRITE), ask(1, 1), ask(2, 1), ask(3, WRITE), ask(4, 1)];
    let token = a.gets_it();
    [&b, &c, &d, &e].into_iter().zip(0..).for_each(|(waiter, rank)| waiter.queues(rank));
    a.release(token).unwrap();
    let readers = [b.told_by(&clients[1]), c.told_by(&clients[2])];
    assert!(token < readers[0] && readers[0] < readers[1]);
    assert_eq!(fixture.holders(), (vec![b.owner.clone(), c.owner.clone()], 2));
    b.release(readers[0]).unwrap();
    c.release(readers[1]).unwrap();
    assert!(d.told_by(&clients[3]) > readers[1]);
    assert_eq!(fixture.line(), [e.owner]);
}

#[test]
fn a_release_grants_all_that_fit_and_stops_at_the_first_that_does_not() {
    let fixture = Fixture::semaphore(5);
    let clients = [(); 4].map(|()| fixture.client());
    let ask = |number: usize, takes| fixture.request(&clients[number], number as u64).taking(takes);
    let [a, b, c, d] = [ask(0, 5), ask(1, 2), ask(2, 4), ask(3, 1)];
    let token = a.gets_it();
    [&b, &c, &d].into_iter().zip(0..).for_each(|(waiter, rank)| waiter.queues(rank));
    a.release(token).unwrap();
    let token = b.told_by(&clients[1]);
    assert_eq!(
        (fixture.holders().1, clients[3].heard()),
        (2, vec![]),
        "three are free, and the next wants four"
    );
    b.release(token).unwrap();
    c.told_by(&clients[2]);
    d.told_by(&clients[3]);
    assert_eq!(fixture.holders(), (vec![c.owner.clone(), d.owner.clone()], 5));
}

#[test]
fn there_are_never_more_holders_than_permits() {
    let fixture = Fixture::semaphore(3);
    let client = fixture.client();
    let [a, b, c, d, e] = fixture.requests(&client);
    let tokens = [&a, &b, &c].map(Asker::gets_it);
    d.queues(0);
    is_busy(&e);
    b.release(tokens[1]).unwrap();
    d.told_by(&client);
    assert_eq!(fixture.holders(), (vec![a.owner, c.owner, d.owner], 3));
}

#[test]
fn a_newcomer_that_would_fit_does_not_pass_a_waiter_that_does_not() {
    let fixture = Fixture::semaphore(5);
    let client = fixture.client();
    let [a, b, c] = fixture.requests(&client);
    a.clone().taking(3).gets_it();
    b.taking(3).queues(0);
    is_busy(&c);
    c.queues(1);
    assert_eq!(fixture.holders().1, 3);
}

#[test]
fn a_blocked_first_waiter_that_leaves_lets_the_others_in() {
    let leaves: [fn(&Fixture, &Asker<'_>); 3] = [
        |_, first| assert_eq!(first.withdraw(), Withdrawn::Left),
        |fixture, first| assert_eq!(fixture.backend.kick(&first.place()).unwrap(), Withdrawn::Left),
        // One attempt takes the place of its request away.
        |_, first| is_busy(first),
    ];
    for leave in leaves {
        let fixture = Fixture::read_write();
        let clients = [(); 2].map(|()| fixture.client());
        let (a, b) = (fixture.request(&clients[0], 1), fixture.request(&clients[0], 2).taking(WRITE));
        let [c, d] = [3, 4].map(|number| fixture.request(&clients[1], number));
        a.gets_it();
        [&b, &c, &d].into_iter().zip(0..).for_each(|(waiter, rank)| waiter.queues(rank));
        leave(&fixture, &b);
        assert_eq!(fixture.holders(), (vec![a.owner, c.owner, d.owner], 3));
        assert_eq!(clients[1].heard().len(), 2);
        assert!(fixture.line().is_empty() && clients[0].heard().is_empty());
    }
}

#[test]
fn a_repeated_acquire_has_the_same_token_and_takes_its_units_once() {
    let fixture = Fixture::semaphore(5);
    let client = fixture.client();
    let [a, b, c] = fixture.requests(&client);
    let [a, b, c] = [a.taking(2), b.taking(2), c.taking(2)];
    let token = a.gets_it();
    let second = b.gets_it();
    assert_eq!([a.gets_it(), b.gets_it(), a.gets_it()], [token, second, token]);
    assert_eq!(fixture.holders(), (vec![a.owner.clone(), b.owner.clone()], 4));
    c.queues(0);
    assert_eq!(a.gets_it(), token, "also past a waiter: it holds them already");
    a.release(token).unwrap();
    let pushed = c.told_by(&client);
    assert_eq!((c.gets_it(), fixture.holders().1), (pushed, 4));
}

#[test]
fn a_waiter_that_gets_its_units_by_its_own_call_takes_them_once() {
    let fixture = Fixture::semaphore(4);
    let client = fixture.client();
    let [a, b] = fixture.requests(&client);
    a.clone().taking(4).gets_it();
    b.queues(0);
    fixture.faults().lose_hold("orders");
    b.gets_it();
    assert_eq!(fixture.holders(), (vec![b.owner], 1));
}

#[test]
fn a_repeated_release_frees_nothing_twice() {
    let fixture = Fixture::semaphore(2);
    let client = fixture.client();
    let [a, b, c, d] = fixture.requests(&client);
    let (token, other) = (a.gets_it(), b.gets_it());
    [&c, &d].into_iter().zip(0..).for_each(|(waiter, rank)| waiter.queues(rank));
    assert_eq!(a.release(token).unwrap(), Released::Released);
    assert_eq!(a.release(token).unwrap(), Released::NotHeld);
    assert_eq!(b.release(token).unwrap(), Released::NotHeld, "the token is another owner's");
    assert_eq!(fixture.holders(), (vec![b.owner.clone(), c.owner.clone()], 2));
    assert_eq!(b.release(other).unwrap(), Released::Released);
    assert_eq!(fixture.holders(), (vec![c.owner, d.owner], 2));
}

#[test]
fn two_requests_of_one_owner_are_two_holds() {
    let fixture = Fixture::semaphore(2);
    let client = fixture.client();
    let a = fixture.request(&client, 1);
    let again = fixture.request_of(&client, a.owner.clone(), 2);
    let tokens = [a.gets_it(), again.gets_it()];
    assert!(tokens[0] < tokens[1]);
    assert_eq!(fixture.holders().1, 2);
    assert_eq!(a.release(tokens[1]).unwrap(), Released::NotHeld);
    a.release(tokens[0]).unwrap();
    assert_eq!(fixture.inspect().holders[0].request, Some(again.request));
}

#[test]
fn force_takes_all_holds_and_tells_each_holder() {
    let fixture = Fixture::read_write();
    let (victims, client) = (fixture.client(), fixture.client());
    let [a, b] = fixture.requests(&victims);
    let c = fixture.request(&client, 3).taking(WRITE);
    let tokens = [a.gets_it(), b.gets_it()];
    c.queues(0);
    assert_eq!(fixture.backend.force_release(&fixture.lock).unwrap(), ForceReleased::Taken);
    let taken = [Heard::Taken(a.owner.clone(), tokens[0]), Heard::Taken(b.owner.clone(), tokens[1])];
    assert_eq!(victims.heard(), taken);
    c.told_by(&client);
    assert_eq!(fixture.holders(), (vec![c.owner], WRITE));
    assert_eq!(a.release(tokens[0]).unwrap(), Released::NotHeld);
}

#[test]
fn one_hold_is_taken_by_force_and_no_other() {
    let fixture = Fixture::semaphore(2);
    let (victim, client) = (fixture.client(), fixture.client());
    let (a, b, c) = (fixture.request(&client, 1), fixture.request(&victim, 2), fixture.request(&client, 3));
    let (first, second) = (a.gets_it(), b.gets_it());
    c.queues(0);
    let take = |hold| fixture.backend.take_hold(&hold).unwrap();
    assert_eq!([take(a.hold(second)), take(c.hold(first))], [ForceReleased::NotHeld; 2]);
    assert_eq!(take(b.hold(second)), ForceReleased::Taken);
    assert_eq!(victim.heard(), [Heard::Taken(b.owner.clone(), second)]);
    assert_eq!(fixture.holders(), (vec![a.owner.clone(), c.owner.clone()], 2));
    // The owner is back, with another hold.
    c.release(c.told_by(&client)).unwrap();
    b.gets_it();
    assert_eq!(take(b.hold(second)), ForceReleased::NotHeld);
    assert_eq!(fixture.holders(), (vec![a.owner, b.owner], 2));
}

#[test]
fn inspect_shows_all_holders_and_what_each_waiter_wants() {
    let fixture = Fixture::semaphore(5);
    let client = fixture.client();
    assert_eq!(fixture.inspect().capacity, None);
    let [a, b, c] = fixture.requests(&client);
    let [a, b, c] = [a.taking(3), b.taking(1), c.taking(4)];
    let tokens = [a.gets_it(), b.gets_it()];
    c.queues(0);
    fixture.backend.set_hold_count(&b.hold(tokens[1]), 2).unwrap();
    let state = fixture.inspect();
    assert_eq!((state.capacity, state.taken(), state.line_length), (Some(5), 4, 1));
    let holders: Vec<_> = state.holders.iter().map(|h| (h.takes, h.hold_count, h.token, h.request)).collect();
    assert_eq!(holders, [(3, 1, Some(tokens[0]), Some(a.request)), (1, 2, Some(tokens[1]), Some(b.request))]);
    assert_eq!(state.holders[1].lease_left, Some(LEASE));
    assert_eq!((state.line[0].takes, state.line[0].request), (4, Some(c.request)));
    a.release(tokens[0]).unwrap();
    assert_eq!(fixture.holders().1, 5);
}

#[test]
fn a_thousand_readers_enter_by_one_release() {
    let fixture = Fixture::read_write();
    let client = fixture.client();
    let writer = fixture.request(&client, 0).taking(WRITE);
    let readers: Vec<_> = (1..=1000).map(|number| fixture.request(&client, number)).collect();
    let token = writer.gets_it();
    readers.iter().zip(0..).for_each(|(reader, rank)| reader.queues(rank));
    writer.release(token).unwrap();
    let told: Vec<_> = client
        .heard()
        .into_iter()
        .map(|heard| match heard {
            Heard::Granted(owner, _, token) => (owner, token),
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(told.iter().map(|(owner, _)| owner).eq(readers.iter().map(|reader| &reader.owner)));
    assert!(told.is_sorted_by(|(_, one), (_, next)| one < next));
    assert_eq!((fixture.holders().1, fixture.line()), (1000, vec![]));
    writer.queues(0);
    readers.iter().zip(told).for_each(|(reader, (_, token))| _ = reader.release(token).unwrap());
    writer.told_by(&client);
}

/// More than are looked through one by one.
#[test]
fn each_of_many_holders_is_counted_by_itself_and_told_when_it_is_forced_out() {
    let fixture = Fixture::semaphore(100);
    let client = fixture.client();
    let askers: [Asker<'_>; 100] = fixture.requests(&client);
    let tokens = askers.each_ref().map(Asker::gets_it);
    let set = fixture.backend.set_hold_count(&askers[70].hold(tokens[70]), 3).unwrap();
    assert_eq!(set, HoldCountSet::Set);
    assert_eq!(askers[71].renew_hold(tokens[71], 2).unwrap(), Renewal::Renewed);
    let counts: Vec<u32> = fixture.inspect().holders.iter().map(|holder| holder.hold_count).collect();
    assert_eq!((counts[69..73].to_vec(), counts.iter().sum::<u32>()), (vec![1, 3, 2, 1], 103));
    assert_eq!(fixture.backend.force_release(&fixture.lock).unwrap(), ForceReleased::Taken);
    let taken = askers.iter().zip(tokens).map(|(asker, token)| Heard::Taken(asker.owner.clone(), token));
    assert_eq!(client.heard(), taken.collect::<Vec<_>>());
}
