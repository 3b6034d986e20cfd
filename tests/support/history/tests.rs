//! What is recorded is read back.

use super::*;
use crate::workdir::WorkDir;

#[test]
fn a_recorded_history_is_read_back() {
    let dir = WorkDir::new();
    let path = dir.file("history");
    let before = now_ns();
    let recorder = Recorder::open(&path).unwrap();
    recorder.ask("worker 1", "a b\n{c}", None);
    recorder.ask("worker 1", "a b\n{c}", Some(Duration::from_millis(1500)));
    recorder.failed("worker 1", "a b\n{c}");
    recorder.unknown("worker 1", "a b\n{c}");
    recorder.granted("worker 1", "a b\n{c}", 7);
    recorder.release("worker 1", "a b\n{c}");
    recorder.released("worker 1", "a b\n{c}");
    recorder.lost("worker 2", "", 5);
    recorder.gone(99, 6);
    let events = read(&path).unwrap();
    let seen: Vec<_> = events.iter().map(|e| (e.pid, e.who.as_str(), e.lock.as_str(), e.what)).collect();
    let me = std::process::id();
    assert_eq!(
        seen,
        [
            (me, "worker 2", "", What::Lost),
            (99, "", "", What::Gone),
            (me, "worker 1", "a b\n{c}", What::Ask { limit: None }),
            (me, "worker 1", "a b\n{c}", What::Ask { limit: Some(1500) }),
            (me, "worker 1", "a b\n{c}", What::Failed),
            (me, "worker 1", "a b\n{c}", What::Unknown),
            (me, "worker 1", "a b\n{c}", What::Granted { token: 7 }),
            (me, "worker 1", "a b\n{c}", What::Release),
            (me, "worker 1", "a b\n{c}", What::Released),
        ]
    );
    assert!(before <= events[2].at && events[8].at <= now_ns());
}

#[test]
fn lines_of_many_threads_do_not_mix() {
    let dir = WorkDir::new();
    let path = dir.file("history");
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let path = &path;
            scope.spawn(move || {
                let recorder = Recorder::open(path).unwrap();
                (0..200).for_each(|token| recorder.granted(&format!("w{worker}"), &"x".repeat(512), token));
            });
        }
    });
    assert_eq!(count(&read(&path).unwrap(), &"x".repeat(512)), 1600);
}

#[test]
fn a_malformed_queue_is_refused_with_its_number() {
    let dir = WorkDir::new();
    let path = dir.file("history");
    for bad in [
        "",
        "1 2 w ask - x y",
        "1 2 w granted - x",
        "1 2 w ask soon x",
        "1 2 w release 5 x",
        "1 2 w waits - x",
        "-1 2 w ask - x",
    ] {
        fs::write(&path, format!("1 2 w ask - x\n{bad}\n")).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("history:2: not a line of a history"), "{error}");
    }
}
