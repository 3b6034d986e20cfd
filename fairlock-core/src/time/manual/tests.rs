//! A clock that a test moves.

use super::*;
use crate::time::Clock;

/// `advance` serves each deadline in order, and `jump` serves them at once.
#[test]
fn advance_serves_deadlines_in_order_jump_at_once() {
    let manual = ManualClock::new();
    let clock = Clock::from(manual.clone());
    let start = clock.now();
    let ticks = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _here = clock.attend();
            for _ in 0..4 {
                clock.sleep(Duration::from_secs(10));
                ticks.lock().push(clock.now() - start);
            }
        });
        manual.wait_for_waiters(1);
        manual.advance(Duration::from_secs(25));
        assert_eq!(*ticks.lock(), [Duration::from_secs(10), Duration::from_secs(20)]);
        manual.jump(Duration::from_secs(60));
        assert_eq!(ticks.lock()[2], Duration::from_secs(85));
        manual.advance(Duration::from_secs(10));
        assert_eq!(ticks.lock()[3], Duration::from_secs(95));
    });
}

/// The work of a thread that attends takes no time, and each step of the clock shows the work.
#[test]
fn an_attending_threads_work_takes_no_time() {
    let manual = ManualClock::new();
    let clock = Clock::from(manual.clone());
    let (start, rounds) = (clock.now(), Mutex::new(0));
    let (came, is_there) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _here = manual.attend_here();
            came.send(()).unwrap();
            for _ in 0..3 {
                clock.sleep(Duration::from_secs(2));
                std::thread::yield_now(); // between two calls the clock stands still
                *rounds.lock() += 1;
            }
        });
        is_there.recv().unwrap();
        let mut stops = Vec::new();
        while *rounds.lock() < 3 {
            stops.push(((manual.step(Duration::from_secs(3)) - start).as_secs(), *rounds.lock()));
        }
        assert_eq!(stops, [(2, 1), (4, 2), (6, 3)]);
        assert_eq!(manual.step(Duration::from_secs(3)) - start, Duration::from_secs(9));
    });
}

/// Raised or not, it runs when the driver moves the clock.
#[test]
fn no_thread_wakes_while_the_driver_runs() {
    let manual = ManualClock::new();
    let signal = Signal::new(&manual.clone().into());
    let woken = Mutex::new(0);
    std::thread::scope(|scope| {
        let driver = manual.drive_here();
        scope.spawn(|| {
            let _here = manual.attend_here();
            for seen in 0..10 {
                signal.wait(seen, None);
                *woken.lock() += 1;
            }
        });
        for raised in 0..10 {
            manual.wait_for_waiters(1);
            signal.raise();
            (0..100).for_each(|_| std::thread::yield_now());
            assert_eq!(*woken.lock(), raised, "it wakes beside the driver");
            manual.advance(Duration::ZERO);
            assert_eq!(*woken.lock(), raised + 1);
        }
        drop(driver);
    });
}

#[test]
fn no_move_goes_past_the_last_time() {
    let moves: [fn(&ManualClock); 3] = [
        |clock| clock.jump(Duration::MAX),
        |clock| clock.advance(Duration::MAX),
        |clock| _ = clock.step(Duration::MAX),
    ];
    const YEAR: u64 = 31_536_000; // seconds
    assert_eq!(LAST, Duration::from_secs(200 * YEAR));
    for move_it in moves {
        let clock = ManualClock::new();
        let start = clock.now();
        move_it(&clock);
        assert_eq!(clock.now() - start, LAST);
        move_it(&clock);
        clock.jump(Duration::from_secs(1));
        assert_eq!(clock.now() - start, LAST);
        assert!(clock.now().checked_add(crate::config::LONGEST).is_some());
    }
}

/// The clock waits until as many threads sleep as it is told, and no longer.
#[test]
fn the_clock_waits_for_as_many_sleepers_as_it_is_told() {
    let manual = ManualClock::new();
    let clock = Clock::from(manual.clone());
    std::thread::scope(|scope| {
        scope.spawn(|| clock.sleep(Duration::from_secs(1)));
        let began = Instant::now();
        manual.wait_for_waiters(1);
        let sleeps = |thread: &Thread| thread.asleep.is_some();
        assert_eq!(manual.0.state.lock().threads.values().map(sleeps).collect::<Vec<_>>(), [true]);
        assert!(began.elapsed() < PATIENCE);
        manual.advance(Duration::from_secs(1));
    });
}

#[test]
fn a_wait_at_the_end_of_a_client_is_given_up_in_real_time() {
    let manual = ManualClock::new();
    let signal = Signal::new(&manual.clone().into());
    assert_eq!(manual.wait(&signal, || false, None, Some(Instant::now())), Woken::TimeOut);
}

#[test]
fn a_thread_of_the_program_that_sleeps_is_a_waiter_and_no_other() {
    let mut state = ManualState::default();
    let asleep = || Some(Sleep { signal: 0, deadline: None });
    for (role, asleep, waiters) in [
        (Role::Caller, asleep(), 1),
        (Role::Caller, None, 0),
        (Role::Background, asleep(), 0),
        (Role::Background, None, 0),
    ] {
        state.threads.insert(thread::current().id(), Thread { role, depth: 1, asleep, bell: Arc::default() });
        assert_eq!(state.waiters(), waiters);
    }
}

#[test]
fn a_thread_that_leaves_the_library_is_not_waited_for() {
    let manual = ManualClock::new();
    let clock = Clock::from(manual.clone());
    drop(clock.attend());
    manual.advance(Duration::from_secs(1));
    assert!(manual.0.state.lock().threads.is_empty());
}
