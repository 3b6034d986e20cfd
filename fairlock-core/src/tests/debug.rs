//! What a program sees when it prints a handle with `{:?}`: which one it is, and no state.

use super::support::World;
use crate::{Client, Clock, ManualClock};

#[test]
fn the_debug_form_of_a_handle_says_which_it_is() {
    let world = World::new();
    let client = format!("Client {{ id: {:?}, .. }}", world.client.id());
    assert_eq!(format!("{:?}", world.shared), client);
    assert!(format!("{:?}", world.client).contains(&client));
    let builder = format!("{:?}", Client::builder(world.store.clone()).label("worker 3"));
    assert!(builder.starts_with("ClientBuilder { ") && builder.contains("\"worker 3\""), "{builder}");
    let lock = world.lock("debug");
    let guard = lock.lock().unwrap();
    let claim = world.claim("debug");
    let shown = format!("Claim {{ lock: {:?}, owner: {:?}, .. }}", claim.lock.name, claim.owner);
    assert_eq!(format!("{claim:?}"), shown);
    assert!(format!("{guard:?}").contains(&shown));
}

#[test]
fn the_debug_form_of_a_clock_says_which_kind_it_is() {
    let manual = ManualClock::new();
    assert_eq!(format!("{manual:?} {:?}", manual.attend_here()), "ManualClock Attendance");
    assert_eq!(
        format!("{:?} {:?}", Clock::from(manual), Clock::system()),
        "Clock(Manual(ManualClock)) Clock(System)"
    );
}
