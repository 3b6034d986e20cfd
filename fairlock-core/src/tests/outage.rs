//! When the log says that an outage begins and that it is over.

use super::logger::lines_about;
use super::store::{Op, down, queued};
use super::support::{S, World, ms};

/// What the log has said of outages of this client.
fn said(world: &World) -> Vec<String> {
    let about = lines_about(world.label()).into_iter().map(|(_, line)| line);
    about.filter(|line| line.contains("outage")).collect()
}

#[test]
fn an_outage_is_not_over_while_a_release_is_still_not_answered() {
    let world = World::new();
    let kept = world.lock("kept").lock().unwrap();
    let dropped = world.lock("dropped").lock().unwrap();
    world.clock.advance(9 * S);
    world.store.cut("dropped");
    world.store.take_down(Op::Renew);
    drop(dropped);
    world.clock.advance(2 * S);
    assert_eq!(said(&world).len(), 1, "{:?}", said(&world));
    world.store.bring_up(Op::Renew);
    world.clock.advance(3 * S);
    assert!(!kept.is_lost());
    assert_eq!(said(&world).len(), 1, "{:?}", said(&world));
    world.store.restore("dropped");
    world.clock.advance(S);
    let lines = said(&world);
    assert!(lines.len() == 2 && lines[1].contains("the outage is over after "), "{lines:?}");
}

#[test]
fn an_outage_is_not_over_while_a_hold_is_still_not_renewed() {
    let world = World::new();
    let _kept = world.lock("renewed").lock().unwrap();
    let _cut = world.lock("cut").lock().unwrap();
    world.store.cut("cut");
    world.clock.advance(15 * S);
    let lines = said(&world);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("an outage has begun, affecting 1 hold and 0 waiters of"), "{lines:?}");
    world.store.restore("cut");
    world.clock.advance(S);
    assert_eq!(said(&world).len(), 2, "{:?}", said(&world));
}

/// As many calls are answered as are not, so neither is a majority; one hold was not due yet.
#[test]
fn an_outage_where_other_servers_answer_concerns_the_holds_that_failed() {
    let world = World::new();
    let take = |name: &str| world.lock(name).lock().unwrap();
    let _held = ["cut:1", "cut:2", "ok:1", "ok:2"].map(take);
    world.clock.advance(6 * S);
    let _later = take("later");
    world.store.cut("cut:1");
    world.store.cut("cut:2");
    world.clock.advance(4 * S);
    let lines = said(&world);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("affecting 2 holds and 0 waiters of"), "{lines:?}");
}

#[test]
fn an_outage_tells_of_the_holds_and_waiters_that_no_server_has_heard_of_since() {
    let world = World::new();
    world.store.plan().acquire.extend([queued(0), queued(0), queued(0)]);
    let _requests = [1, 2, 3].map(|n| world.lock(&format!("waits:{n}")).request().unwrap());
    let _held = [1, 2].map(|n| world.lock(&format!("held:{n}")).lock().unwrap());
    world.store.take_down(Op::Renew);
    world.clock.advance(2 * S);
    let lines = said(&world);
    assert!(lines.len() == 1 && lines[0].contains("affecting 2 holds and 3 waiters of"), "{lines:?}");
}

/// An answer to any call shows that the server is back.
#[test]
fn an_outage_in_which_all_that_failed_has_gone_ends_with_the_next_answer() {
    let world = World::new();
    let guard = world.lock("gone").lock().unwrap();
    world.store.take_down(Op::Renew);
    world.clock.advance(10 * S);
    assert_eq!(said(&world).len(), 1);
    guard.unlock().unwrap();
    world.settle();
    let lines = said(&world);
    assert!(lines.len() == 2 && lines[1].contains("the outage is over after "), "{lines:?}");
    // The next one begins anew: its first repeat has no pause.
    world.store.bring_up(Op::Renew);
    world.store.asked();
    let _guard = world.lock("gone").lock().unwrap();
    world.store.plan().renew.extend([down(), down()]);
    world.clock.advance(10 * S);
    let renewals = world.store.times(Op::Renew);
    assert!(renewals[1] - renewals[0] == ms(0) && renewals.len() == 3, "{renewals:?}");
}

#[test]
fn an_outage_tells_of_the_releases_that_are_repeated() {
    let world = World::new();
    let dropped = world.lock("dropped").lock().unwrap();
    world.store.take_down(Op::Release);
    drop(dropped);
    world.clock.advance(3 * S);
    let lines = said(&world);
    assert!(lines.len() == 1 && lines[0].contains(" (1 unanswered release or withdrawal)"), "{lines:?}");
}
