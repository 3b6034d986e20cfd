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
