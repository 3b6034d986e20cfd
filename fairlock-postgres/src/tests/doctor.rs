//! What the doctor says of a server whose clock is wrong, and of one that refuses what a check tries.

use fairlock_core::backend::{Finding, Verdict};

use super::*;

fn finding<'a>(found: &'a [Finding], topic: &str) -> &'a Finding {
    found.iter().find(|found| found.topic == topic).unwrap()
}

/// Its functions stand before those of the system.
#[test]
fn a_clock_that_is_far_off_gets_a_note() {
    let url = new_database();
    let behind = "create function public.clock_timestamp() returns timestamptz language sql as \
                  $$ select pg_catalog.clock_timestamp() - interval '1 min' $$";
    session(&url).script(behind, soon()).unwrap();
    for (path, verdict) in [("pg_catalog,public", Verdict::Good), ("public,pg_catalog", Verdict::Note)] {
        let backend = patient(&format!("{url}?options=-c%20search_path%3D{path}")).connect().unwrap();
        let found = backend.doctor().unwrap();
        assert_eq!(finding(&found, "clock").verdict, verdict, "{found:?}");
    }
}

/// The check goes on behind a refusal in the middle of a transaction, and deletes its row.
#[test]
fn a_check_that_is_refused_spoils_no_later_one() {
    let (backend, mut con) = stage();
    let refuses = "create function refuse() returns trigger language plpgsql as $$ begin raise 'not that'; end $$; \
                   create trigger refuse before update on fairlock.lock for each row \
                   when (new.h_owner is not distinct from old.h_owner) execute function refuse()";
    con.script(refuses, soon()).unwrap();
    let found = backend.doctor().unwrap();
    let verdicts = ["commit time", "trial"].map(|topic| finding(&found, topic).verdict);
    assert_eq!(verdicts, [Verdict::Unknown, Verdict::Good], "{found:?}");
    assert_eq!(number(&mut con, "select count(*) from fairlock.lock"), 0);
}
