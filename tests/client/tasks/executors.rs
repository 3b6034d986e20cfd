//! Every executor, every kind of lock, every discipline: exclusion, and order beside threads.

use std::sync::Arc;
use std::thread;

use fairlock::{AsyncLock, Client, Discipline};
use fairlock_tests::locks::patient;
use fairlock_tests::monitor::{self, Queue};
use fairlock_tests::{Alone, Monitor, RedisServer, assert_no_residue};

use crate::support::{
    EXECUTORS, Executor, Resource, Task, in_memory, is_free_soon, multi, on_redis, task, turn,
};

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
        [(permits.lock_of(1).unwrap(), 1, 3), (permits.lock_of(2).unwrap(), 2, 3)]
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

fn by_redissons_rules(server: &RedisServer) -> [Client; 2] {
    [(), ()].map(|()| {
        let backend = patient(&server.url()).discipline(Discipline::Redisson);
        Client::new(backend.connect().unwrap()).unwrap()
    })
}

/// Tasks and threads of two clients are served in the order in which the server saw them.
#[test]
fn tasks_and_threads_are_served_as_the_server_saw_them() {
    let _alone = Alone::here();
    for (queue, connect) in
        [(Queue::HandOff, on_redis as fn(&RedisServer) -> [Client; 2]), (Queue::Redisson, by_redissons_rules)]
    {
        let server = RedisServer::start();
        let monitor = Monitor::start(&server);
        let clients = connect(&server);
        let resource = Resource::new(1);
        let locks = clients.each_ref().map(|client| client.fair_lock("mixed").unwrap());
        let runtime = multi();
        let tasks: Vec<_> = (0..20)
            .map(|nth| {
                let (lock, resource) = (locks[nth % 2].to_async(), Arc::clone(&resource));
                runtime.spawn(async move {
                    for round in 0..20 {
                        turn(&lock, &resource, 1, nth + round).await;
                    }
                })
            })
            .collect();
        thread::scope(|scope| {
            for lock in &locks {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let guard = lock.lock().unwrap();
                        futures::executor::block_on(resource.work(1));
                        guard.unlock().unwrap();
                    }
                });
            }
        });
        for task in tasks {
            runtime.block_on(task).unwrap();
        }
        assert_eq!(resource.uses(), 440);
        clients.iter().for_each(|client| client.shutdown().unwrap());
        let seen = monitor::read(&monitor.until_now(&server), queue, "mixed");
        assert_eq!(monitor::grants(&seen), 440);
        monitor::check_order(&seen).unwrap();
        assert_no_residue(&server, &[]);
    }
}
