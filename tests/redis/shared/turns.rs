//! Four readers, a writer, four readers in one line: who is granted together, in which order, and by how many scripts.

use std::thread;
use std::time::{Duration, Instant};

use fairlock::backend::{Acquired, Released};
use fairlock::{Client, FencingToken, LockKind, OwnedRequest, Owner, RedisBackend};
use fairlock_tests::server_state::scripts_run;

use crate::support::{Asker, Told, World};

/// How long each holds.
const TURN: Duration = Duration::from_millis(300);
const WRITER: u64 = 4;
const SECOND_BATCH: std::ops::Range<u64> = 5..9;

/// The line of the scene: readers 0 to 3, writer 4, readers 5 to 8.
fn cast(world: &World) -> Vec<Asker> {
    let all = LockKind::ReadWrite.capacity();
    (0..9).map(|number| world.asker(number, if number == WRITER { all } else { 1 })).collect()
}

/// The next grants: the numbers of the owners, and their tokens.
fn told(world: &World, grants: usize) -> Vec<(u64, FencingToken)> {
    let grant = || match world.next_told() {
        Told::Granted(number, token) => (number, token),
        other => panic!("{other:?}"),
    };
    (0..grants).map(|_| grant()).collect()
}

#[test]
fn readers_go_in_batches_around_a_writer_and_each_release_is_one_script() {
    let world = World::of(LockKind::ReadWrite);
    let cast = cast(&world);
    let release = |number: u64, token| {
        assert_eq!(world.release(&cast[number as usize], token), Released::Released);
    };
    // A former writer, so that all nine wait. The scripts are loaded from here on.
    let before = world.asker(9, LockKind::ReadWrite.capacity());
    let token = world.granted(&before);
    assert_eq!(world.release(&before, token), Released::Released);
    let token = world.granted(&before);
    let asked = scripts_run(&world.server);
    for (rank, asker) in cast.iter().enumerate() {
        assert_eq!(world.queued(asker).0, rank as u64);
    }
    assert_eq!(scripts_run(&world.server), asked + 9);

    // One release grants the first batch, in the order of the line, and nobody else.
    assert_eq!(world.release(&before, token), Released::Released);
    assert_eq!(scripts_run(&world.server), asked + 10);
    let first = told(&world, 4);
    assert_eq!(numbers(&first), [0, 1, 2, 3]);
    assert_eq!(world.holders(), [0, 1, 2, 3]);
    assert_eq!(world.line(), [WRITER, 5, 6, 7, 8]);
    // No reader passes the writer, whether it waits or only tries.
    let newcomer = world.asker(10, 1);
    assert!(matches!(world.try_once(&newcomer), Ok(Acquired::Busy { .. })));

    // The writer gets its turn with the last of them, and not before.
    let released = scripts_run(&world.server);
    for (left, (number, token)) in first.iter().enumerate() {
        assert!(world.told.try_recv().is_err(), "after {left} of four releases");
        release(*number, *token);
    }
    assert_eq!(scripts_run(&world.server), released + 4);
    let writer = told(&world, 1);
    assert_eq!(numbers(&writer), [WRITER]);
    assert_eq!((world.holders(), world.line()), (vec![WRITER], SECOND_BATCH.collect()));

    // The second batch goes together as the first one did.
    let released = scripts_run(&world.server);
    release(WRITER, writer[0].1);
    assert_eq!(scripts_run(&world.server), released + 1);
    let second = told(&world, 4);
    assert_eq!(numbers(&second), SECOND_BATCH.collect::<Vec<_>>());
    let tokens: Vec<FencingToken> =
        first.iter().chain(&writer).chain(&second).map(|(_, token)| *token).collect();
    assert!(tokens.is_sorted() && tokens[0] > token, "{tokens:?}");
    for (number, token) in second {
        release(number, token);
    }
    assert!(world.holders().is_empty() && world.line().is_empty());
}

/// By the handles that users have: nine holds of one length take three of it, since each batch works at the same time.
#[test]
fn four_readers_a_writer_and_four_readers_take_three_turns() {
    let world = World::of(LockKind::Fair); // for its server
    let client = Client::new(RedisBackend::connect(&world.server.url()).unwrap()).unwrap();
    let table = client.rw_lock("table").unwrap();
    let owners: Vec<Owner> = (0..9).map(|_| client.new_owner()).collect();
    let former = table.write().unwrap();
    let requests: Vec<OwnedRequest> = (0..)
        .zip(&owners)
        .map(|(number, owner)| {
            let table = table.owned_by(owner).unwrap();
            if number == WRITER { table.writer().request() } else { table.reader().request() }.unwrap()
        })
        .collect();
    let started = Instant::now();
    former.unlock().unwrap();
    thread::scope(|scope| {
        for request in requests {
            scope.spawn(|| {
                let guard = request.wait().unwrap();
                thread::sleep(TURN);
                guard.unlock().unwrap();
            });
        }
    });
    let took = started.elapsed();
    assert!(took >= 3 * TURN, "the writer was not alone: {took:?}");
    assert!(took < 6 * TURN, "the readers did not work together: {took:?}");
}

fn numbers(grants: &[(u64, FencingToken)]) -> Vec<u64> {
    grants.iter().map(|(number, _)| *number).collect()
}
