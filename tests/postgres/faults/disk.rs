//! A full disk: no file of the server's may grow, which it takes as it takes a disk without space.

use fairlock::Error;
use fairlock_tests::{Alone, PostgresServer};

use super::support::{SLACK, SOON, client, granted, request, take, until_nothing_left, within};

/// What the table of locks holds beside some locks: rows that nobody deletes, one a page.
const FILL: &str =
    "insert into fairlock.lock (name, dead_at, state) select convert_to('fill' || n, 'UTF8'), 9e18::bigint,
                    decode(repeat('00', 7000), 'hex') from generate_series($1::int, $1::int + 99) n";
/// More than fit.
const PARTS: i32 = 40;

#[test]
fn a_full_disk_is_an_error_in_words_and_space_ends_it() {
    let _alone = Alone::here();
    let server = PostgresServer::builder().largest_file(20).set("synchronous_commit", "off").start();
    let (ours, theirs) = (client(&server.url()), client(&server.url()));
    let held = take(&ours.fair_lock("held").unwrap());
    let mut con = server.con();
    let full = (0..PARTS).find_map(|part| con.execute(FILL, &[&(part * 100)]).err());
    let full = full.expect("the file can't grow for ever").as_db_error().unwrap().to_string();
    assert!(full.contains("could not extend file"), "{full}");
    // A new lock needs a new row. Some may find room in a page that has some left.
    let refused = (0..500).find_map(|number| {
        let lock = ours.fair_lock(format!("new:{number}")).unwrap();
        within(SOON, || lock.try_lock()).err()
    });
    let refused = refused.expect("not all have room");
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused:?}");
    assert!(refused.to_string().contains("could not extend file"), "{refused}");
    // A lock that has a row goes on.
    let waiting = request(&theirs, "held");
    held.renew().unwrap();
    held.unlock().unwrap();
    granted(waiting, SOON).unlock().unwrap();
    con.batch_execute("delete from fairlock.lock where name like 'fill%'").unwrap();
    con.batch_execute("vacuum fairlock.lock").unwrap();
    within(SLACK, || take(&theirs.fair_lock("new:499").unwrap())).unlock().unwrap();
    until_nothing_left(&server);
}
