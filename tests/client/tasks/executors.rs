//! Every executor and every kind of lock: tasks exclude each other.

use std::sync::Arc;

use fairlock::{AsyncLock, Client};
use fairlock_tests::Alone;

use crate::support::{EXECUTORS, Executor, Resource, Task, in_memory, is_free_soon, task, turn};

const TASKS: usize = 30;
const TURNS: usize = 3;

/// A lock of one kind, with two ways to take it: the handle, how many units it takes, and how many there are.
type Kind = fn(&Client) -> [(AsyncLock, u32, u32); 2];

const EXCLUSIVE: [Kind; 2] = [
    |client| {
        let lock = client.fair_lock("lock:fair").unwrap().to_async();
        [(lock.clone(), 1, 1), (lock, 1, 1)]
    },
    |client| {
        let lock = client.plain_lock("lock:plain").unwrap().to_async();
        [(lock.clone(), 1, 1), (lock, 1, 1)]
    },
];

const SHARED: [Kind; 2] = [
    |client| {
        let lock = client.rw_lock("lock:rw").unwrap();
        [(lock.reader().to_async(), 1, 1000), (lock.writer().to_async(), 1000, 1000)]
    },
    |client| {
        let permits = client.semaphore("lock:permits", 3).unwrap().to_async();
        [(permits.many(1).unwrap(), 1, 3), (permits.many(2).unwrap(), 2, 3)]
    },
];

/// Tasks of both clients take turns.
fn takes_turns(clients: &[Client; 2], (name, executor): (&str, Executor), kind: Kind) {
    let locks = clients.each_ref().map(kind);
    let (_, _, units) = locks[0][0];
    let resource = Resource::new(units);
    let tasks = (0..TASKS).map(|nth| -> Task {
        let (lock, units, _) = locks[nth % 2][usize::from(nth % 5 == 0)].clone();
        let resource = Arc::clone(&resource);
        task(async move {
            for round in 0..TURNS {
                turn(&lock, &resource, units, nth + round).await;
            }
        })
    });
    executor(tasks.collect());
    assert_eq!(resource.uses() as usize, TASKS * TURNS, "{name}");
    let (all, ..) = &locks[0][1];
    is_free_soon(all);
}

#[test]
fn tasks_of_every_executor_share_every_kind_of_lock_in_memory() {
    let _alone = Alone::here();
    for executor in EXECUTORS {
        let clients = in_memory();
        EXCLUSIVE.iter().chain(&SHARED).for_each(|kind| takes_turns(&clients, executor, *kind));
    }
}
