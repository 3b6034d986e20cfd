//! Waits that are given up: by a drop, a time-out, a cancel, or because nobody polls them any more.

use std::time::{Duration, Instant};

use fairlock::{Cancel, Client, Error, LostCause, RedisBackend, TryLock};
use fairlock_tests::{Alone, RedisServer, assert_no_residue, eventually};
use futures::executor::block_on;

use crate::support::{SLACK, SOON, begin, current, in_memory, is_free_soon, on_redis, take, unlock};

/// On both backends.
fn on_each_backend(test: impl Fn(&[Client; 2])) {
    let _alone = Alone::here();
    test(&in_memory());
    let server = RedisServer::start();
    let clients = on_redis(&server);
    test(&clients);
    clients.iter().for_each(|client| client.shutdown().unwrap());
    assert_no_residue(&server, &[]);
}

#[test]
fn a_wait_that_is_dropped_leaves_the_line() {
    on_each_backend(|[one, other]| {
        let lock = one.fair_lock("lock:a").unwrap();
        let held = take(&other.fair_lock("lock:a").unwrap().to_async());
        let mut waits: Vec<_> = (0..10).map(|_| lock.to_async().lock()).collect();
        waits.iter_mut().for_each(begin);
        let in_line =
            |n: u64| eventually(SOON, "the line has its length", || lock.inspect().unwrap().line_length == n);
        in_line(10);
        drop(waits.drain(..9));
        in_line(1);
        unlock(held);
        unlock(block_on(waits.remove(0)).unwrap());
    });
}

#[test]
fn a_grant_that_no_poll_took_goes_to_the_next_waiter_when_its_wait_is_dropped() {
    on_each_backend(|[one, other]| {
        let held = take(&one.fair_lock("lock:a").unwrap().to_async());
        let mut first = one.fair_lock("lock:a").unwrap().to_async().lock();
        begin(&mut first);
        eventually(SOON, "it stands in line", || {
            one.fair_lock("lock:a").unwrap().inspect().unwrap().line_length == 1
        });
        let mut second = other.fair_lock("lock:a").unwrap().to_async().lock();
        begin(&mut second);
        unlock(held);
        eventually(SOON, "the first wait is granted", || !one.held().is_empty());
        let dropped = Instant::now();
        drop(first);
        unlock(block_on(second).unwrap());
        assert!(dropped.elapsed() < SLACK, "{:?}", dropped.elapsed());
    });
}

#[test]
fn a_timed_wait_ends_on_time_and_a_time_out_of_the_runtime_is_a_drop() {
    on_each_backend(|[one, other]| {
        let time = Duration::from_millis(80);
        let held = take(&one.fair_lock("lock:a").unwrap().to_async());
        let lock = other.fair_lock("lock:a").unwrap();
        let is_on_time = |began: Instant| {
            let took = began.elapsed();
            assert!(took >= time && took < time + SLACK, "{took:?}");
            eventually(SOON, "the line is empty", || lock.inspect().unwrap().line_length == 0);
        };
        let began = Instant::now();
        assert!(matches!(block_on(lock.to_async().try_lock_for(time)), Ok(TryLock::Busy)));
        is_on_time(began);
        let began = Instant::now();
        let waiting = lock.to_async();
        current().block_on(async { tokio::time::timeout(time, waiting.lock()).await.unwrap_err() });
        is_on_time(began);
        assert!(matches!(block_on(lock.to_async().try_lock()), Ok(TryLock::Busy)));
        unlock(held);
        unlock(take(&lock.to_async()));
    });
}

#[test]
fn a_cancel_ends_waits_under_way_and_later_ones() {
    on_each_backend(|[one, other]| {
        let held = take(&one.fair_lock("lock:a").unwrap().to_async());
        let cancel = Cancel::new();
        let lock = other.fair_lock("lock:a").unwrap().cancelled_by(&cancel).to_async();
        current().block_on(async {
            let waits: Vec<_> = (0..3).map(|_| tokio::spawn(lock.lock())).collect();
            while other.waiting().len() < 3 {
                crate::support::pause().await;
            }
            cancel.cancel();
            for wait in waits {
                let error = wait.await.unwrap().unwrap_err();
                assert!(matches!(error, Error::Cancelled { .. }), "{error}");
            }
            assert!(matches!(lock.lock().await, Err(Error::Cancelled { .. })));
        });
        unlock(held);
    });
}

#[test]
fn an_attempt_after_a_drop_finds_the_lock_free() {
    on_each_backend(|[one, _]| {
        let lock = one.fair_lock("lock:a").unwrap().to_async();
        for _ in 0..100 {
            drop(take(&lock));
        }
        is_free_soon(&lock);
    });
}

#[test]
fn a_wait_outside_of_a_select_loop_keeps_its_place() {
    on_each_backend(|[one, other]| {
        let held = take(&one.fair_lock("lock:a").unwrap().to_async());
        let lock = other.fair_lock("lock:a").unwrap().to_async();
        current().block_on(async {
            let (tell, mut told) = tokio::sync::mpsc::channel(1);
            let mut waiting = lock.lock();
            begin(&mut waiting);
            eventually(SOON, "it is next", || waiting.rank() == Some(0));
            let behind = tokio::spawn(lock.lock());
            tokio::spawn(async move {
                for turn in 0..10 {
                    tell.send(turn).await.unwrap();
                }
                held.unlock().await.unwrap();
            });
            let guard = loop {
                tokio::select! {
                    guard = &mut waiting => break guard.unwrap(),
                    Some(_) = told.recv() => assert!(matches!(waiting.rank(), Some(0) | None)),
                }
            };
            let token = guard.token();
            guard.unlock().await.unwrap();
            let next = behind.await.unwrap().unwrap();
            assert!(next.token() > token);
            next.unlock().await.unwrap();
        });
    });
}

#[test]
fn a_grant_that_nobody_polls_for_is_lost_after_two_leases_at_most() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let lease = Duration::from_secs(1);
    let connect = || {
        let backend = RedisBackend::builder(&server.url()).response_timeout(lease / 2).connect().unwrap();
        Client::builder(backend).lease(lease).build().unwrap()
    };
    let (one, other) = (connect(), connect());
    let held = take(&one.fair_lock("lock:a").unwrap().to_async());
    let mut forgotten = one.fair_lock("lock:a").unwrap().to_async().lock();
    begin(&mut forgotten);
    eventually(SOON, "it is next", || forgotten.rank() == Some(0));
    let (tell, told) = std::sync::mpsc::channel();
    one.on_lost(move |lost| tell.send(lost.clone()).unwrap());
    let mut next = other.fair_lock("lock:a").unwrap().to_async().lock();
    begin(&mut next);
    let released = Instant::now();
    unlock(held);
    std::mem::forget(forgotten);
    unlock(block_on(next).unwrap());
    let took = released.elapsed();
    assert!(took > lease / 2 && took < 2 * lease + SLACK, "{took:?}");
    let lost = told.recv_timeout(SOON).unwrap();
    assert!(matches!(
        lost.cause,
        LostCause::NotRenewed | LostCause::LeaseOver | LostCause::MaxHold | LostCause::Taken
    ));
    one.shutdown().unwrap();
    assert!(told.try_recv().is_err(), "it was told once");
    other.shutdown().unwrap();
    assert_no_residue(&server, &[]);
}
