//! Rows of unused locks are deleted, a window at a time.

use super::*;

/// A client that renews or releases deletes the rows of unused locks, however many there are.
#[test]
fn renewals_and_releases_delete_rows_of_unused_locks() {
    let ((backend, mut con), ann, used) = (stage(), OwnerId::new("ann:1"), lock("used"));
    let unused =
        "insert into fairlock.lock (name, dead_at) select int4send(n), 1 from generate_series(1, 2500) n";
    con.script(unused, soon()).unwrap();
    con.script("begin; select from fairlock.lock where name = int4send(7) for update", soon()).unwrap();
    let hold = hold(&used, &ann, take(&backend, &used, &ann));
    let renew = || drop(backend.renew(ClientId::random(), &[Renew::Hold { hold, holds: 1, lease: LEASE }]));
    let release = || assert!(only(backend.release(&[hold])).is_ok());
    // Anywhere in the table it begins; the last window may end behind the table.
    for round in 0..8 {
        backend.0.sweeper.lock().next = Instant::now();
        [&renew as &dyn Fn(), &release][round % 2]();
        let is_swept = || backend.0.sweeper.lock().next < Instant::now() + SECOND * 599;
        eventually("a window was swept", is_swept);
    }
    assert!(backend.0.sweeper.lock().next > Instant::now(), "the next window has its pause");
    assert_eq!(
        number(&mut con, "select count(*) from fairlock.lock"),
        2,
        "the one in use, and the locked one"
    );
}

#[test]
fn a_sweep_looks_at_one_window_however_many_rows_there_are() {
    let (backend, mut con) = stage();
    let unused = "insert into fairlock.lock (name, dead_at) select int4send(n), 1 from generate_series(1, 60000) n; \
                  analyze fairlock.lock";
    con.script(unused, soon()).unwrap();
    let found = backend.doctor().unwrap();
    let rows = found.iter().find(|found| found.topic == "rows").unwrap();
    assert!(rows.text.contains("(60000 over)"), "{rows:?}");
    let (_, pause) = backend.0.sweep().unwrap(); // it does not know yet how large the table is
    assert!(pause < SECOND * 60, "{pause:?}");
    // The next windows are anywhere, and one of two may be the first one again, which is empty by now.
    let deleted = [(); 2].map(|()| backend.0.sweep().unwrap().0);
    assert!(deleted.iter().all(|deleted| *deleted < 5000) && deleted != [0, 0], "{deleted:?}");
    let plan = Statement::made_up(format!("explain {}", SWEEP.replace("$1", "0")));
    let plan: Vec<_> = con.flight(&[plan], soon()).unwrap().remove(0);
    let lines: Vec<_> = plan.iter().map(|line| line.text(0).unwrap()).collect();
    assert!(lines.iter().all(|line| !line.contains("Seq Scan")), "{lines:#?}");
}
