//! Semaphores and read-write locks: several holders, and a line in which no request passes another.

use fairlock_core::LockKind;

use crate::story::{READ_WRITE, SEMAPHORE_OF_2, SEMAPHORE_OF_3, SEMAPHORE_OF_5, Story, tell};

stories! {
    fn readers_hold_together_and_a_writer_alone() {
        READ_WRITE "a gets; b gets; held by a b; taken 2; w*all waits 0; a releases; held by b; taken 1; b releases
        w hears; held by w; taken 4294967295; d busy; w releases; d gets"
    }

    fn no_reader_passes_a_waiting_writer_not_even_an_attempt() {
        READ_WRITE "a gets; w*all waits 0; c busy; line w; d waits 1; d waits 1; d beats 1; a releases; w hears
        line d"
    }

    fn readers_behind_a_writer_enter_together_up_to_the_next_writer() {
        READ_WRITE "a*all gets; b@1 waits 0; c@2 waits 1; w@3*all waits 2; e@4 waits 3; a releases; b hears
        c hears; held by b c; taken 2; b releases; c releases; w hears; line e"
    }

    fn a_release_grants_all_that_fit_and_stops_at_the_first_that_does_not() {
        SEMAPHORE_OF_5 "a*5 gets; b@1*2 waits 0; c@2*4 waits 1; d@3 waits 2; a releases; b hears
        taken 2 (three are free, and the next wants four); client 3 hears nothing; b releases; c hears; d hears
        held by c d; taken 5"
    }

    fn there_are_never_more_holders_than_permits() {
        SEMAPHORE_OF_3 "a gets; b gets; c gets; d waits 0; e busy; b releases; d hears; held by a c d; taken 3"
    }

    fn a_newcomer_that_would_fit_does_not_pass_a_waiter_that_does_not() {
        SEMAPHORE_OF_5 "a*3 gets; b*3 waits 0; c busy; c waits 1; taken 3"
    }

    fn a_repeated_acquire_has_the_same_token_and_takes_its_units_once() {
        SEMAPHORE_OF_5 "a*2 gets; b*2 gets; a keeps; b keeps; a keeps; held by a b; taken 4; c*2 waits 0
        a keeps (also past a waiter: it holds them already); a releases; c hears; c keeps; taken 4"
    }

    fn a_waiter_that_gets_its_units_by_its_own_call_takes_them_once() {
        SEMAPHORE_OF_5 "a*5 gets; b waits 0; lose hold; b gets; held by b; taken 1"
    }

    fn a_repeated_release_frees_nothing_twice() {
        SEMAPHORE_OF_2 "a gets; b gets; c waits 0; d waits 1; a releases; a releases gone; b=a releases gone
        c hears; held by b c; taken 2; b releases; d hears; held by c d; taken 2"
    }

    fn two_requests_of_one_owner_are_two_holds() {
        SEMAPHORE_OF_2 "a gets; a' gets; taken 2; a=a' releases gone; a releases; held by a'"
    }

    fn force_takes_all_holds_and_tells_each_holder() {
        READ_WRITE "a@1 gets; b@1 gets; w*all waits 0; force; a hears taken; b hears taken; w hears; held by w
        taken 4294967295; a releases gone"
    }

    fn one_hold_is_taken_by_force_and_no_other() {
        SEMAPHORE_OF_2 "a gets; b@1 gets; c waits 0; a=b is-taken gone; c=a is-taken gone; b is-taken
        b hears taken; held by a c; taken 2; c hears; c releases; b gets (with another hold); b=b#1 is-taken gone
        held by a b; taken 2"
    }
}

/// One attempt takes the place of its request away.
#[test]
fn a_blocked_first_waiter_that_leaves_lets_the_others_in() {
    let block = "a gets; w*all waits 0; c@1 waits 1; d@1 waits 2";
    for leaves in ["w leaves", "w busy"] {
        tell(
            READ_WRITE,
            &format!("{block}; {leaves}; held by a c d; taken 3; line nobody; c hears; d hears"),
        );
    }
    let kicked =
        "w is-kicked; client 0 hears recheck-of-one; held by a c d; line w; c hears; d hears; w waits 0";
    tell(READ_WRITE, &format!("{block}; {kicked}"));
}

#[test]
fn inspect_shows_all_holders_and_what_each_waiter_wants() {
    let mut story = Story::of(SEMAPHORE_OF_5);
    assert_eq!(story.seen().capacity, None);
    story.tell(
        "a*3 gets; b gets; c*4 waits 0; b counts 2; a has 30s 1; b has 30s 2; taken 4; held by a b; line c",
    );
    let state = story.seen();
    assert_eq!((state.capacity, state.line_length, state.line[0].takes), (Some(5), 1, 4));
    story.tell("a releases; taken 5; c hears");
    story.ends();
}

#[test]
fn a_thousand_readers_enter_by_one_release() {
    let each = |does: fn(u32) -> String| (0..1000).map(does).collect::<String>();
    let mut story = Story::of(READ_WRITE);
    story.tell(&format!("w*all gets; {} w releases", each(|reader| format!("r{reader} waits {reader};"))));
    story.tell(&each(|reader| format!("r{reader} hears;")));
    story.tell(&format!(
        "taken 1000; line nobody; w waits 0; {}",
        each(|reader| format!("r{reader} releases;"))
    ));
    story.tell("w hears");
    story.ends();
}

/// More than are looked through one by one.
#[test]
fn each_of_many_holders_is_counted_by_itself_and_told_when_it_is_forced_out() {
    let each = |does: &str| (0..100).map(|holder| format!("h{holder} {does};")).collect::<String>();
    let mut story = Story::of(LockKind::Semaphore { permits: 100 });
    story.tell(&format!("{} h70 counts 3; h71 renews 2; h70 has 30s 3; h71 has 30s 2", each("gets")));
    assert_eq!(story.seen().holders.iter().map(|holder| holder.hold_count).sum::<u32>(), 103);
    story.tell(&format!("force; {}", each("hears taken")));
    story.ends();
}
