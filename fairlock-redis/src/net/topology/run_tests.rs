//! When a run of a voter counts as old.

use super::*;

#[test]
fn a_run_is_old_by_its_clock_or_by_that_of_the_client() {
    const LEAST: Duration = Duration::from_secs(10);
    let read = |id: char, uptime: i64| {
        let id: String = [id; 12].iter().collect();
        let info = format!("run_id:{id}\r\nuptime_in_seconds:{uptime}\r\n");
        Run::read(&Value::BulkString(info.into_bytes())).expect("a run")
    };
    let (mut runs, begin) = (Runs::default(), Instant::now());
    let mut is_old = |id, uptime, after| {
        runs.is_older("voter", &read(id, uptime), LEAST, begin + Duration::from_secs(after))
    };
    assert!(is_old('a', 11, 0));
    assert!(!is_old('b', 10, 0));
    // The voter's clock was set back to before its start.
    assert!(!is_old('b', -3600, 10));
    assert!(is_old('b', -3600, 11));
    assert!(!is_old('c', -3600, 12), "another run");
    assert!(!is_old('b', -3600, 13), "it is not that one any more");
}
