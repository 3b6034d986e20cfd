//! What a program sees when it prints a handle with `{:?}`: which one it is, and no state.

use super::support::World;
use crate::{Client, ManualClock};

#[test]
fn the_debug_form_of_a_handle_says_which_it_is() {
    let world = World::new();
    assert_eq!(format!("{:?}", ManualClock::new()), "ManualClock");
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
