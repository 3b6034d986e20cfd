//! What becomes of each answer of the user's function, and of each refusal; and of first connections that fail.

use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;
use crate::backend::BackendErrorKind;
use crate::tests::logger::{install, lines_of_this_thread};

const SECOND: Duration = Duration::from_secs(1);

type Answer = Result<Login, String>;

fn soon() -> Instant {
    Instant::now() + 20 * SECOND
}

/// A function that says when it is called, and gives the answers of the test.
fn function() -> (Logins, Receiver<()>, Sender<Answer>) {
    let ((call, calls), (answer, answers)) = (channel(), channel::<Answer>());
    let (call, answers) = (Mutex::new(call), Mutex::new(answers));
    let logins = Logins::new(move || {
        call.lock().send(()).expect("the test hears of it");
        answers.lock().recv_timeout(20 * SECOND).expect("the test has an answer")
    });
    (logins, calls, answer)
}

fn password(login: &str) -> Answer {
    Ok(Login::new(login))
}

fn got(answer: Answer) -> String {
    answer.map_or_else(|error| error, |login| login.password)
}

/// Waits until the call that is under way has ended.
fn ends(logins: &Logins) {
    let mut state = logins.0.state.lock();
    let has_ended =
        !logins.0.ended.wait_while_until(&mut state, |state| state.under_way > 0, soon()).timed_out();
    assert!(has_ended);
}

#[test]
fn each_connection_asks_and_those_at_once_share_an_answer() {
    let (logins, calls, answer) = function();
    let both = thread::scope(|scope| {
        let [one, two] = [(); 2].map(|()| scope.spawn(|| got(logins.get(soon()))));
        while logins.0.state.lock().waiting < 2 {
            thread::yield_now();
        }
        answer.send(password("first")).expect("it listens");
        [one, two].map(|thread| thread.join().expect("no panic"))
    });
    assert_eq!(both, ["first"; 2]);
    answer.send(password("second")).expect("it listens");
    assert_eq!(got(logins.get(soon())), "second");
    assert_eq!(calls.try_iter().count(), 2);
}

/// A function that is slower than connecting may be serves the next attempt.
#[test]
fn a_late_answer_serves_the_next_connection() {
    let (logins, calls, answer) = function();
    let late = got(logins.get(Instant::now() + SECOND / 50));
    assert_eq!(late, "the function of `login` gave none in time");
    calls.recv_timeout(20 * SECOND).expect("it was called");
    answer.send(password("late")).expect("it listens");
    ends(&logins);
    assert_eq!(got(logins.get(Instant::now())), "late", "at once");
    assert!(calls.try_recv().is_err(), "by the same call");
    assert!(!logins.refused(), "none was accepted");
    answer.send(password("anew")).expect("it listens");
    assert_eq!(got(logins.get(soon())), "anew", "a refused login is not given again");
}

/// The first call never returns. The second one does; and the first one, which returns after all, tells an old password.
#[test]
fn a_function_that_hangs_is_called_again() {
    install();
    let (call, calls) = channel();
    let call = Mutex::new(call);
    let logins = Logins::new(move || -> Answer {
        let (answer, answers) = channel();
        call.lock().send(answer).expect("the test hears of it");
        answers.recv_timeout(20 * SECOND).expect("the test has an answer")
    });
    let next_call = || -> Sender<Answer> { calls.recv_timeout(20 * SECOND).expect("it is called") };
    assert_eq!(got(logins.get(Instant::now())), "the function of `login` gave none in time");
    assert_eq!(lines_of_this_thread("no login, 1 time(s): the function of `login` gave none in time"), 1);
    let first = next_call();
    assert!(logins.get(Instant::now()).is_err() && calls.try_recv().is_err(), "it may still return");
    let is_overdue = || logins.0.state.lock().begun_at = Instant::now().checked_sub(OVERDUE);
    is_overdue();
    let second = thread::scope(|scope| {
        let waits = scope.spawn(|| got(logins.get(soon())));
        next_call().send(password("second")).expect("it listens");
        waits.join().expect("no panic")
    });
    assert_eq!(second, "second");
    first.send(password("first")).expect("it listens");
    ends(&logins);
    assert!(logins.0.state.lock().unused().is_none());
    for _ in 0..9 {
        is_overdue();
        let _ = logins.get(Instant::now());
    }
    assert_eq!(logins.0.state.lock().under_way, MOST_CALLS);
    let hung = [(); MOST_CALLS].map(|()| next_call());
    hung[0].send(password("at last")).expect("it listens");
    let at_last = || logins.get(Instant::now()).is_ok_and(|login| login.password() == "at last");
    while !at_last() {
        thread::yield_now();
    }
    logins.0.state.lock().unused_since = None;
    assert!(logins.get(Instant::now()).is_err());
    next_call();
}

#[test]
fn a_function_that_fails_or_panics_is_an_error_in_words() {
    let (logins, _calls, answer) = function();
    answer.send(Err("the vault\nis sealed".to_owned())).expect("it listens");
    assert_eq!(got(logins.get(soon())), "the vault is sealed");
    let panics = Logins::new(|| -> Answer { panic!("planned") });
    for _ in 0..2 {
        assert_eq!(got(panics.get(soon())), "the function of `login` panicked");
    }
}

#[test]
fn the_next_login_is_asked_for_once_a_second_and_nobody_waits() {
    let (logins, calls, answer) = function();
    for _ in 0..100 {
        assert!(logins.next().is_none());
    }
    answer.send(password("next")).expect("it listens");
    ends(&logins);
    for _ in 0..100 {
        assert_eq!(logins.next().map(|login| login.password).as_deref(), Some("next"));
    }
    assert_eq!(calls.try_iter().count(), 1);
    // Refused: it is asked for anew, after a pause, which lasts for a while here.
    logins.refused();
    logins.0.state.lock().ahead = Some(soon());
    assert!(logins.next().is_none() && calls.try_recv().is_err());
    logins.0.state.lock().ahead = None;
    assert!(logins.next().is_none());
    answer.send(Ok(Login::new("ends").valid_for(Duration::ZERO))).expect("it listens");
    ends(&logins);
    assert!(logins.next().is_none(), "what is about to end replaces nothing");
}

#[test]
fn a_refused_login_is_an_outage_after_one_was_accepted() {
    let logins = Logins::new(|| password("x"));
    assert!(!logins.refused());
    logins.accepted();
    assert!(logins.refused() && logins.refused());
    let long_ago = Instant::now().checked_sub(CHANGES_WITHIN);
    logins.0.state.lock().refused_since = Some(long_ago.expect("the machine is up for longer"));
    assert!(!logins.refused());
    logins.accepted();
    assert!(logins.refused());
}

#[test]
fn a_login_is_renewed_when_a_quarter_of_its_time_is_left() {
    for (time, before) in [(10, 2.5), (60, 15.0), (3600, 300.0)] {
        let (made, time) = (Instant::now(), Duration::from_secs(time));
        let renew_at = Login::new("x").valid_for(time).renew_at().expect("it ends");
        let early = (renew_at - made).abs_diff(time - Duration::from_secs_f64(before));
        assert!(early < SECOND, "{early:?}");
    }
    assert!(Login::new("x").valid_for(Duration::MAX).renew_at().is_none());
    assert!(Login::new("x").renew_at().is_none());
}

#[test]
fn a_password_file_is_read_each_time_and_its_faults_name_it() {
    let path = std::env::temp_dir().join(format!("fairlock-login-{}", std::process::id()));
    for (text, password) in [("canary", "canary"), ("canary\n", "canary"), (" canary \r\n", " canary ")] {
        fs::write(&path, text).expect("written");
        assert_eq!(Login::from_file(&path).expect("read").password(), password);
    }
    for (bytes, fault) in
        [(&b""[..], "is empty"), (b"\n", "is empty"), (b"canary\xff", "can't be read: stream did not")]
    {
        fs::write(&path, bytes).expect("written");
        let said = Login::from_file(&path).expect_err("no password").to_string();
        assert!(said.contains(fault) && said.contains(&*path.to_string_lossy()), "{said}");
        assert!(!said.contains("canary"), "{said}");
    }
    fs::remove_file(&path).expect("removed");
    let said = Login::from_file(&path).expect_err("no file").to_string();
    assert!(said.contains("can't be read: No such file"), "{said}");
}

#[test]
fn no_secret_is_shown() {
    let login = Login::new("canary").with_user("ann").valid_for(SECOND);
    let logins = Logins::new({
        let login = login.clone();
        move || -> Answer { Ok(login.clone()) }
    });
    let shown = format!("{login:?} {login:#?} {logins:?} {logins:#?}");
    assert!(!shown.contains("canary") && shown.contains("ann"), "{shown}");
}

const MS: Duration = Duration::from_millis(1);

/// The number of attempts, and their time in all, if each attempt fails like this.
fn fails(within: Duration, kind: BackendErrorKind) -> (u32, Duration) {
    let (mut attempts, began) = (0, Instant::now());
    let failed = connect_within::<()>(within, || {
        attempts += 1;
        Err(BackendError::new(kind, attempts.to_string()))
    });
    assert_eq!(failed.expect_err("always").message(), attempts.to_string(), "the last one is told");
    (attempts, began.elapsed())
}

#[test]
fn it_is_tried_until_the_time_is_over_and_once_more() {
    for kind in [BackendErrorKind::Unavailable, BackendErrorKind::Refused] {
        let (attempts, took) = fails(900 * MS, kind);
        assert!(attempts > 2 && took >= 900 * MS && took < 9000 * MS, "{attempts} in {took:?}");
        assert_eq!(fails(Duration::ZERO, kind).0, 1);
    }
}

#[test]
fn what_would_be_the_same_the_next_time_ends_it_at_once() {
    use BackendErrorKind::{Corrupt, Denied, InvalidConfig, InvalidName, Mismatch, Unsupported};
    for kind in [Corrupt, Denied, InvalidConfig, InvalidName, Mismatch, Unsupported] {
        assert_eq!(fails(Duration::MAX, kind).0, 1, "{kind:?}");
    }
    let mut answers = [Err(BackendError::new(BackendErrorKind::Unavailable, "away")), Ok(7)].into_iter();
    let connected = connect_within(Duration::MAX, || answers.next().expect("no third attempt"));
    assert_eq!(connected.expect("connected"), 7);
}
