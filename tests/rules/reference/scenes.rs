//! Short stories for the comparisons: what chance makes seldom, once each.

use crate::commands::{A_MONTH, Harm, Scale, Slot, Step};
use crate::differential::{Ways, differ};
use crate::lua::LuaServer;
use crate::words::{Condition, Millis};
use Step::{
    Adopt, AdoptFormer, Advance, Ask, AskIf, Expire, Force, GoesDeaf, Hears, LoseQueue, ReEnter, Release,
    ReleaseFormer, Renew, Repeat, Try, TryIf, Withdraw,
};

/// Returns the first difference.
pub(crate) fn play_scenes(
    fast: &LuaServer,
    general: &LuaServer,
    ways: &mut Ways,
    scale: Scale,
) -> Result<(), String> {
    scenes(scale).iter().try_for_each(|steps| differ(fast, general, ways, scale, steps))
}

/// Those in which nothing happens that the rules do not know.
pub(crate) fn without_harm(scale: Scale) -> Vec<Vec<Step>> {
    let mut scenes = scenes(scale);
    scenes.retain(|steps| steps.iter().all(|step| !matches!(step, Step::Harm(_))));
    scenes
}

fn scenes(scale: Scale) -> Vec<Vec<Step>> {
    let scenes = match scale.kind.is_shared() {
        false => of_one_holder(scale),
        true => [newcomers(), releases(scale), absent(scale), losses(), ends(scale)].concat(),
    };
    [scenes, late(), rests_of_nobody(scale), once_in_a_period(), behind(scale), adopted(scale)].concat()
}

/// A lease that outlasts the scene, and one unit.
const fn slot(client: usize, owner: u64) -> Slot {
    Slot { client, owner, lock: 0, choice: 2 }
}

/// Only clients 0 and 2 have the same time to live.
const A: Slot = slot(0, 0);
const B: Slot = slot(1, 0);
const C: Slot = slot(1, 1);
const D: Slot = slot(2, 0);
const E: Slot = slot(2, 1);
const F: Slot = slot(0, 1);

/// The same for two units, for more than half, for all: a writer.
const fn two(slot: Slot) -> Slot {
    Slot { choice: 20, ..slot }
}

const fn most(slot: Slot) -> Slot {
    Slot { choice: 26, ..slot }
}

const fn all(slot: Slot) -> Slot {
    Slot { choice: 32, ..slot }
}

/// The same with the shortest lease, and with the one between.
const fn short(slot: Slot) -> Slot {
    Slot { choice: slot.choice - 2, ..slot }
}

const fn longer(slot: Slot) -> Slot {
    Slot { choice: slot.choice - 1, ..slot }
}

/// A scene of two lines.
fn long<const N: usize, const M: usize>(first: [Step; N], then: [Step; M]) -> Vec<Step> {
    [&first[..], &then].concat()
}

/// After this the sixth digit of a number, which is in microseconds, changes.
const CHANGE: Millis = 10_000_000;
const AHEAD: Step = Step::Harm(Harm::RunsAhead { lock: 0, by: 5000 });
const BACK: Step = Step::Harm(Harm::SetBack(4000));
const LATE: Step = Step::Harm(Harm::ArriveLate(true));
const IN_TIME: Step = Step::Harm(Harm::ArriveLate(false));

/// The key of this index.
const fn lose(key: usize) -> Step {
    Step::Harm(Harm::LoseKey { lock: 0, key })
}

fn of_one_holder(scale: Scale) -> Vec<Vec<Step>> {
    let half = scale.ttls[1] / 2;
    vec![
        vec![Ask(B), Ask(C), Release(B), Release(C), Ask(B), Repeat],
        vec![Ask(A), Ask(B), Repeat, Ask(C), Release(A)],
        vec![Ask(A), Ask(B), Ask(C), Repeat, Release(A), Release(B)],
        // Overdue, and deaf.
        vec![Ask(A), Ask(B), Advance(half), Ask(C), Advance(half), Release(A)],
        vec![Ask(A), Ask(B), GoesDeaf(1), Release(A)],
        vec![Ask(A), Ask(B), GoesDeaf(1), Release(A), Ask(D), Hears(1), Release(D)],
        // The queue clock is behind.
        vec![Ask(A), Ask(B), Advance(half + 500), Release(A)],
        vec![Ask(A), Ask(B), Advance(half + 500), Ask(C), Release(A)],
        // The least time to live is silent.
        vec![Ask(A), Ask(D), Advance(half), Ask(B), Release(A)],
        // The queue was lost, and one is back after the rest.
        vec![Ask(A), Ask(B), Ask(D), LoseQueue(0), Ask(B), Step::Live(9100), Release(A), Ask(D), Release(B)],
        // Numbers ahead of the clock.
        vec![Ask(A), Ask(B), AHEAD, Release(A), Ask(C), Release(B), Release(C), Ask(D)],
        vec![Ask(A), Ask(B), Ask(C), LoseQueue(0), Expire(0), Ask(C), Ask(B)],
        vec![Ask(A), Ask(B), Ask(C), lose(1), lose(2), Ask(C), Ask(B), Release(A)],
        // The numbers are lost, and the clock is behind the tickets.
        vec![Ask(A), Ask(B), lose(2), BACK, Ask(C), Ask(D), Ask(B), Release(A)],
        vec![Ask(A), Ask(B), Ask(C), Try(B), Try(D), Release(A)],
        // An attempt after its end: of a newcomer, of the holder, of waiters, and after the queue was lost.
        vec![Ask(A), Ask(D), LATE, Ask(F), IN_TIME, Ask(F), LATE, Repeat, Release(A)],
        long(
            [LATE, Ask(A), Try(B), IN_TIME, Ask(A), LATE, Repeat],
            [Try(B), Ask(B), IN_TIME, Ask(B), LATE, Repeat, Release(A)],
        ),
        long(
            [Ask(A), Ask(B), LoseQueue(0), LATE, Step::Heartbeats],
            [Ask(B), Force(0), IN_TIME, Ask(B), Force(0)],
        ),
    ]
}

/// Newcomers enter beside holders, or are refused, or queue.
fn newcomers() -> Vec<Vec<Step>> {
    let raw = |slot| Slot { lock: 1, ..slot };
    vec![
        vec![Ask(A), Repeat, Ask(B), Repeat, Ask(D), Release(B), Release(D), Release(A), Ask(B)],
        vec![Ask(two(A)), Ask(B), Ask(two(D)), Try(two(E)), Ask(two(E)), Ask(F), Release(A), Release(B)],
        vec![Ask(most(A)), Ask(B), Ask(most(D)), Release(A), Release(D), Release(B)],
        // Full, and somebody waits or not.
        vec![Ask(all(A)), Try(B), Repeat, Ask(C), Try(B), Try(C), Ask(C), Release(A), Try(all(D))],
        vec![Ask(all(A)), Try(A), Ask(D), Release(A), Try(D), Ask(D), ReEnter(D), Try(D)],
        vec![Ask(A), Try(all(B)), Try(B), Try(all(D)), Release(B), Release(A)],
        // Behind a head that does not fit: nobody passes it.
        vec![Ask(A), Ask(all(B)), Ask(C), Repeat, Ask(D), Try(E), Ask(F), Release(A), Release(B)],
        vec![Ask(A), Ask(all(D)), Ask(E), Repeat, Ask(F), Try(B), Release(A), Release(D), Release(E)],
        // A waiter asks again, also with another lease.
        vec![Ask(all(A)), Ask(D), Ask(E), Ask(longer(D)), Repeat, Ask(E), Release(A)],
        vec![Ask(all(A)), Ask(all(D)), Repeat, Release(A), Repeat, Ask(D), Release(D), Repeat],
        // The other form of the keys' names.
        vec![Ask(raw(A)), Ask(raw(B)), Ask(raw(all(D))), Ask(raw(E)), Release(raw(A)), Release(raw(B))],
        // An attempt after its end.
        long(
            [LATE, Ask(A), IN_TIME, Ask(A), LATE, Repeat, Ask(B)],
            [Try(B), Ask(all(D)), IN_TIME, Ask(all(D)), LATE, Repeat],
        ),
        long(
            [Ask(all(A)), LATE, Ask(B), Try(D), IN_TIME, Ask(B)],
            [LoseQueue(0), LATE, Step::Heartbeats, Force(0), Ask(B)],
        ),
        // Numbers ahead of the clock, or a clock that was set back.
        vec![Ask(A), AHEAD, Ask(B), Release(A), Ask(D)],
        vec![Ask(all(A)), Ask(D), AHEAD, Ask(E), Release(A), Release(D), Ask(F)],
        vec![Ask(A), BACK, Ask(B), Release(A), Ask(all(D)), Ask(E), Release(B)],
        vec![Ask(all(A)), Ask(D), BACK, Ask(E), Release(A)],
    ]
}

/// A release frees units for nobody, for one, for several.
fn releases(scale: Scale) -> Vec<Vec<Step>> {
    let half = scale.ttls[0] / 2;
    vec![
        vec![Ask(A), Ask(D), Ask(all(E)), Ask(F), Release(A), Repeat, Release(D), Release(E)],
        vec![Ask(all(A)), Ask(all(D)), Ask(all(E)), Release(A), Release(D), Release(E), Repeat, Ask(A)],
        vec![Ask(all(A)), Ask(B), Ask(all(D)), Ask(C), Ask(E), Release(A), Release(B), Release(D)],
        // Several readers, of one client and of several.
        vec![Ask(all(A)), Ask(B), Ask(C), Ask(D), Release(A), Release(C), Release(B), Release(D)],
        vec![Ask(all(A)), Ask(D), Ask(E), Ask(two(F)), Ask(all(B)), Ask(C), Release(A), Release(E)],
        vec![Ask(most(A)), Ask(F), Ask(D), Ask(E), Ask(B), Release(A), Release(F), Release(D)],
        vec![Ask(all(A)), Ask(two(D)), Ask(most(E)), Ask(F), Release(A), Release(D), Release(E)],
        // The last waiter, and then a newcomer to the empty queue.
        vec![Ask(all(A)), Ask(B), Release(A), Ask(D), Ask(all(E)), Release(B), Release(D), Release(E)],
        // With a count, and twice.
        vec![Ask(A), ReEnter(A), Ask(D), Release(A), Repeat, Release(D)],
        vec![Ask(all(A)), ReEnter(A), Ask(D), Ask(E), Release(A), Repeat, Step::ReleaseFormer(A)],
        vec![Ask(A), Ask(all(D)), Step::ReleaseFormer(A), Release(D), Release(A)],
        vec![Ask(A), Ask(B), Ask(all(D)), Release(A), Repeat, Release(B), Release(D)],
        // The queue clock is behind.
        vec![Ask(all(A)), Ask(D), Ask(E), Advance(half + 500), Release(A)],
        vec![Ask(all(A)), Ask(D), Advance(half + 500), Ask(E), Release(A)],
        vec![Ask(all(A)), Ask(B), Advance(half + 500), Ask(D), Advance(half + 500), Ask(C), Release(A)],
        vec![Ask(A), Advance(4 * half), Ask(B), Advance(4 * half), Ask(all(D)), Release(A), Release(B)],
        hours(half, [Advance(half), Ask(all(D)), Release(A)]),
        hours(half, [Ask(all(D)), Advance(half), Release(A)]),
        // One hold is over, and one is released.
        vec![Ask(short(A)), Ask(two(D)), Ask(E), Ask(F), Advance(3500), Release(E), Release(D)],
        // The grant ends with the place.
        vec![Ask(all(A)), Ask(D), Ask(short(E)), Advance(half / 2), Release(A), Ask(F)],
        vec![Ask(all(A)), Ask(short(D)), Release(A), Advance(half), Ask(E)],
    ]
}

/// Fast parts renew the sequence's time to live when the sixth digit of a number changes. Here it changes twice in these steps:
/// two waiters join, or the lock is handed over.
fn hours(half: Millis, changes: [Step; 3]) -> Vec<Step> {
    let before = [Ask(all(A)), Advance(half), Ask(all(D)), Release(A), Release(D)];
    [&before[..], &[Advance(CHANGE - 2 * half), Ask(all(A))], &changes, &[Release(D)]].concat().repeat(2)
}

/// The head is overdue or deaf, fits or not.
fn absent(scale: Scale) -> Vec<Vec<Step>> {
    let half = scale.ttls[1] / 2;
    let deaf = Step::Harm(Harm::SaysDeaf(1));
    vec![
        vec![Ask(all(A)), Ask(B), Advance(half), Ask(C), Advance(half), Release(A), Ask(B)],
        vec![Ask(all(A)), Ask(B), Advance(half - 1), Ask(C), Advance(half), Release(A)],
        vec![Ask(A), Ask(all(B)), Advance(half), Ask(C), Advance(half), Ask(D), Release(A), Ask(B)],
        vec![Ask(all(A)), Ask(B), GoesDeaf(1), Release(A), Ask(D), Hears(1), Ask(B)],
        vec![Ask(all(A)), Ask(all(B)), GoesDeaf(1), Release(A), Ask(D), Hears(1), Ask(all(B))],
        vec![Ask(all(A)), Ask(B), Ask(D), GoesDeaf(1), Release(A), Hears(1), Release(D), Ask(B)],
        vec![Ask(all(A)), Ask(D), Ask(B), Ask(E), GoesDeaf(1), Release(A), Release(D), Release(E)],
        vec![Ask(all(A)), Ask(B), GoesDeaf(1), Release(A), Ask(all(D)), Hears(1), Ask(E), Release(D)],
        // One that is deaf is passed only once it is silent, if it does not fit.
        vec![Ask(A), Ask(all(B)), GoesDeaf(1), Ask(D), Try(E), Release(A)],
        vec![Ask(A), Ask(all(B)), GoesDeaf(1), Ask(D), Advance(half), Ask(E), Ask(F), Release(A)],
        vec![Ask(A), Ask(all(B)), GoesDeaf(1), Advance(half), Ask(C), Release(A)],
        vec![Ask(A), Ask(F), Ask(all(B)), Ask(D), GoesDeaf(1), Advance(half), Release(A), Release(F)],
        vec![Ask(A), Ask(F), Ask(all(B)), Ask(D), GoesDeaf(1), Release(A), Ask(E), Release(F)],
        vec![Ask(A), Ask(F), Ask(all(B)), GoesDeaf(1), Advance(half), Release(A), Release(F)],
        vec![
            Ask(A),
            Ask(F),
            Ask(all(B)),
            Ask(D),
            GoesDeaf(1),
            Advance(half),
            Ask(D),
            Advance(half),
            Release(A),
        ],
        long(
            [Ask(A), Ask(F), Ask(all(B)), Ask(D), GoesDeaf(1), Advance(half / 2), Ask(D)],
            [Advance(half / 2), Ask(D), Advance(half), Release(A)],
        ),
        long(
            [Ask(A), Ask(F), Ask(all(B)), Ask(D), GoesDeaf(1), Advance(half), Ask(D)],
            [Advance(half / 2), Ask(D), Advance(half), Release(A)],
        ),
        // The least time to live is silent, so half of the newcomer's counts.
        long(
            [Ask(A), Ask(all(B)), Ask(D), GoesDeaf(1), Advance(half / 2), Ask(E)],
            [Advance(half), Ask(C), Release(A)],
        ),
        // It is passed, and fits.
        vec![Ask(all(A)), Ask(B), GoesDeaf(1), Release(A), Ask(D), Ask(E), Ask(F)],
        // One that says so counts as reached.
        vec![Ask(all(A)), deaf, Ask(B), Ask(D), Release(A), Release(D)],
        vec![Ask(all(A)), deaf, Ask(B), Ask(D), GoesDeaf(1), Release(A)],
        vec![Ask(A), deaf, Ask(all(B)), Ask(C), GoesDeaf(1), Release(A), Release(B)],
    ]
}

/// Keys are lost, or others use them.
fn losses() -> Vec<Vec<Step>> {
    let [units, gives, intrudes, resizes] =
        [Harm::PlainTakes(0), Harm::PlainGives(0), Harm::Intrudes(0), Harm::Resizes(0)].map(Step::Harm);
    let persists = Step::Harm(Harm::Persists(0));
    let mut scenes = vec![
        vec![Ask(all(A)), Ask(B), Ask(C), LoseQueue(0), Expire(0), Ask(C), Ask(B), Release(C)],
        vec![Ask(all(A)), Ask(D), Ask(E), LoseQueue(0), Ask(E), Ask(F), Release(A), Ask(D)],
        vec![Ask(all(A)), Ask(D), Ask(E), Expire(0), Ask(E), Release(D)],
        vec![units, Ask(A), Try(A), gives, Ask(A), units, Ask(B), Release(A)],
        vec![Ask(A), units, Ask(B), Expire(0), units, Ask(all(D)), Release(A), gives, Ask(E)],
        vec![Ask(all(A)), Ask(B), Expire(0), units, Ask(D), Release(A), gives, Ask(D)],
        vec![Ask(all(A)), Ask(B), intrudes, Ask(D), Release(A)],
        vec![Ask(A), Ask(all(D)), intrudes, Release(A)],
        // Made endless by hand: it gets an end again, and none of its holds loses its own.
        vec![Ask(A), persists, Ask(short(B)), Release(A), Release(B)],
        vec![Ask(A), Ask(short(D)), persists, Step::Renew(D), Ask(E), Release(A)],
        vec![Ask(all(A)), Ask(D), persists, Ask(E), Step::Renew(A), Release(A), Release(D)],
        // Another capacity: of holds, of waiters, of both.
        vec![Ask(A), resizes, Ask(B), Try(D), Repeat, Release(A), Ask(B)],
        vec![Ask(all(A)), resizes, Try(D), Ask(E), Release(A)],
        vec![Ask(A), resizes, Expire(0), Ask(B)],
        vec![Ask(all(A)), Ask(D), Ask(E), resizes, Ask(F), Release(A), Ask(F), Release(D), Release(E)],
        vec![Ask(all(A)), Ask(D), resizes, Expire(0), Ask(E), Ask(F), Release(D)],
        vec![Ask(A), Ask(all(D)), resizes, Release(A), Ask(E)],
    ];
    // Lock and holds alone are torn; also of a full lock, with waiters, and for a release.
    for key in 0..4 {
        scenes.extend([
            vec![Ask(A), Ask(B), lose(key), Ask(D), Release(A), Release(B), Release(D)],
            vec![Ask(A), Ask(B), lose(key), Release(A), Ask(all(D)), Release(B)],
            vec![Ask(A), lose(key), Release(A), Ask(B)],
            vec![Ask(all(A)), lose(key), Try(D), Release(D)],
            vec![Ask(all(A)), Ask(D), Ask(E), lose(key), Release(A), Ask(F), Ask(D)],
            vec![Ask(all(A)), Ask(D), lose(key), Ask(E), Ask(D), Release(A), Release(D)],
            vec![Ask(A), Ask(F), Ask(all(D)), Ask(E), lose(key), Release(A), Release(F)],
        ]);
    }
    // The numbers are lost, and the clock is behind the tickets.
    scenes.push(vec![Ask(all(A)), Ask(B), lose(2), BACK, Ask(C), Ask(D), Ask(B), Release(A)]);
    scenes
}

/// Commands of requests that are over come late.
fn late() -> Vec<Vec<Step>> {
    let beats = Step::HeartbeatOfFormer;
    let beat_of = |slot: Slot| Step::Heartbeat { client: slot.client, lock: slot.lock, missing: 0 };
    vec![
        vec![Ask(A), Release(A), Ask(A), Step::ReleaseFormer(A), Ask(B), Step::WithdrawFormer(A)],
        vec![Ask(all(A)), Ask(D), Withdraw(D), beats(D), Ask(E), Release(A)],
        vec![Ask(all(A)), Ask(D), Release(A), Release(D), Ask(A), beats(D), Release(A), Ask(B)],
        vec![Ask(all(A)), Ask(D), Ask(E), LoseQueue(0), Withdraw(D), beats(D), Ask(E), Release(A)],
        // A heartbeat names the ticket of a place that was lost, after an ask without an answer has made another one.
        vec![Ask(all(A)), Ask(D), LoseQueue(0), Step::Forge(D), beat_of(D), Advance(1), Ask(D), Release(A)],
    ]
}

/// A lost queue comes back and rests, and its waiters leave again. Only waiters and grants move the clock of an empty queue: the fast
/// part of a release can't. By how much it moved shows at the next waiter, since that one rests for the remaining time.
fn rests_of_nobody(scale: Scale) -> Vec<Vec<Step>> {
    let [ttl, ..] = scale.ttls;
    let (third, more) = (ttl / 3, ttl / 6 + 1);
    let lost = |holder, leaves| vec![Ask(holder), Ask(all(D)), LoseQueue(0), Ask(D), leaves];
    let beats = |client| Step::Heartbeat { client, lock: 0, missing: 0 };
    let scene = |before: Vec<Step>, then: &[Step]| [&before[..], then].concat();
    let left = Withdraw(D);
    let mut scenes = vec![
        // Heartbeats: of a holder, of one with a longer time to live than the waiter had, and of a place that does not come back.
        scene(lost(all(A), left), &[Advance(third), beats(0), Advance(more), Ask(B), Release(A), Ask(B)]),
        scene(lost(all(B), left), &[beats(1), Advance(ttl * 2 / 3), Ask(F), Release(B), Ask(F)]),
        // A second waiter of the lost queue comes back after the first has left: a rest ends with the queue.
        scene(
            vec![Ask(all(A)), Ask(all(D)), Ask(E), LoseQueue(0), Ask(D), left],
            &[Ask(E), Release(A), Ask(E)],
        ),
        // Beside a waiter: the least time to live is that of the waiters.
        scene(vec![Ask(all(A)), Ask(B), beats(0)], &[Advance(ttl * 2 / 3), Release(A)]),
        // The end of a hold from before the rest, and of one that began in it.
        scene(
            lost(all(A), left),
            &[Advance(third), Release(A), Advance(more), Ask(all(B)), Ask(F), Release(B), Ask(F)],
        ),
        scene(
            lost(all(A), left),
            &long(
                [Release(A), Ask(all(B)), Advance(third), Release(B)],
                [Advance(more), Ask(all(B)), Ask(F), Release(B), Ask(F)],
            ),
        ),
        scene(
            lost(all(A), left),
            &[Advance(third), Force(0), Advance(more), Ask(all(B)), Ask(F), Release(B), Ask(F)],
        ),
        scene(lost(all(A), left), &[Advance(third), Try(B), Advance(more), Ask(B), Release(A), Ask(B)]),
    ];
    if scale.kind.is_shared() {
        let [lease, ..] = scale.leases;
        let waits = [Advance(1), Ask(all(B)), Advance(more), Ask(F), Release(A), Ask(F), Ask(B)];
        // One of two holds is over.
        for then in [Try(all(B)), Withdraw(D), beats(0), Release(short(F))] {
            let before = vec![Ask(short(F)), Ask(A), Ask(all(D)), LoseQueue(0), Ask(D), left];
            scenes.push(scene(before, &[&[Advance(lease), then, Advance(1)], &waits[..]].concat()));
        }
    }
    scenes
}

const fn every(slot: Slot, period: Millis) -> Step {
    TryIf(slot, Condition::Every(period))
}

/// Every grant counts from the first such ask on, whoever made it.
fn once_in_a_period() -> Vec<Vec<Step>> {
    const MINUTE: Millis = 60_000;
    let ago = |slot, time| TryIf(slot, Condition::NotWithin(time));
    let (a, b, d, e) = (all(A), all(B), all(D), all(E));
    let next = Advance(MINUTE);
    vec![
        // At the start of a minute.
        long(
            [every(a, MINUTE), Repeat, every(b, MINUTE), Release(a), every(b, MINUTE), Repeat],
            [Advance(MINUTE - 20_001), every(b, MINUTE), Advance(1), every(b, MINUTE), Release(b)],
        ),
        long(
            [ago(a, 5000), Release(a), Advance(4999), ago(b, 5000), Advance(1), ago(b, 5000)],
            [Advance(1), ago(b, 5000), Release(b), ago(a, 5000), ago(a, A_MONTH)],
        ),
        // A grant before the first such ask does not count. By a newcomer, a release, a heartbeat, a withdrawal, by force, and by an ask.
        vec![Ask(a), Release(a), every(b, MINUTE), Release(b), next, Ask(d), Release(d), every(b, MINUTE)],
        vec![Ask(a), every(b, MINUTE), Ask(d), Release(a), Release(d), every(b, MINUTE), Repeat],
        vec![Ask(a), every(b, MINUTE), Ask(d), Ask(e), Release(a), Release(d), Expire(0), every(b, MINUTE)],
        vec![Ask(a), every(b, MINUTE), Ask(d), Expire(0), Step::Heartbeats, Release(d), every(b, MINUTE)],
        vec![Ask(a), every(b, MINUTE), Ask(d), Ask(e), Expire(0), Withdraw(d), Release(e), every(b, MINUTE)],
        vec![Ask(a), every(b, MINUTE), Ask(d), Force(0), Release(d), every(b, MINUTE)],
        vec![Ask(a), every(b, MINUTE), Ask(d), Expire(0), Ask(d), Release(d), every(b, MINUTE)],
        vec![Ask(a), every(b, MINUTE), Ask(d), Expire(0), Try(E), Release(d), every(b, MINUTE)],
        vec![every(A, MINUTE), Release(A), next, Ask(B), Ask(D), Release(B), Release(D), every(A, MINUTE)],
        // The longest period counts, also if a request that is declined names it; and nothing makes the record end before.
        vec![every(a, MINUTE), Release(a), every(a, A_MONTH), Ask(b), Ask(d), Release(b), Release(d)],
        vec![
            every(a, A_MONTH),
            Ask(d),
            Ask(e),
            Release(a),
            Advance(CHANGE),
            Ask(b),
            every(E, 1000),
            Withdraw(b),
        ],
        vec![every(a, A_MONTH), Release(a), next, every(b, MINUTE), Release(b), Ask(d), Release(d)],
        vec![Ask(A), Ask(d), every(B, A_MONTH), Ask(E), Release(A), Release(d), Release(E), every(B, MINUTE)],
        // One that has a place or a hold is no newcomer.
        vec![Ask(a), Ask(b), every(b, MINUTE), Ask(d), Release(a), every(b, MINUTE)],
        vec![Ask(a), every(a, MINUTE), Release(a), every(a, MINUTE), every(a, MINUTE)],
        // Its clock was set back, numbers are ahead, and it comes late.
        vec![every(a, MINUTE), Release(a), BACK, every(b, MINUTE), Ask(b), Release(b), Advance(A_MONTH)],
        vec![every(a, MINUTE), Release(a), AHEAD, Ask(b), Release(b), next, every(a, MINUTE)],
        vec![every(a, 1000), Release(a), LATE, every(b, A_MONTH), IN_TIME, next, every(b, MINUTE)],
        vec![every(a, MINUTE), Release(a), lose(2), every(b, MINUTE), lose(2), Release(b), Ask(d)],
    ]
}

/// Those that leave at this turn are not ahead.
fn behind(scale: Scale) -> Vec<Vec<Step>> {
    let behind = |slot, most| AskIf(slot, Condition::Behind(most));
    let (a, b, c, d, e) = (all(A), all(B), all(C), all(D), all(E));
    let half = scale.ttls[1] / 2;
    vec![
        vec![behind(a, 0), behind(b, 0), behind(c, 0), behind(c, 1), behind(c, 0), Repeat, Release(a)],
        vec![Ask(a), Ask(b), Ask(c), behind(d, 1), behind(d, 2), Release(a), behind(e, 1), behind(e, 2)],
        // Absent ones, and one that may be granted in this very script.
        vec![Ask(a), Ask(b), Repeat, GoesDeaf(1), Expire(0), Ask(d), behind(e, 0), Release(d), behind(e, 0)],
        long(
            [Ask(a), Ask(b), Repeat, Ask(c), Repeat, GoesDeaf(1), Expire(0)],
            [behind(D, 0), behind(E, 0), Release(D), behind(F, 0)],
        ),
        long(
            [Ask(A), Ask(b), Repeat, Ask(c), Repeat, GoesDeaf(1), Advance(half), behind(d, 1)],
            [Advance(half), behind(d, 0), behind(e, 0), Release(A)],
        ),
        vec![Ask(a), Ask(b), Expire(0), behind(d, 0), behind(e, 0), Release(b)],
        vec![Ask(a), LATE, behind(b, 0), IN_TIME, behind(b, 0), LATE, behind(d, 0), behind(b, 0)],
        vec![Ask(a), Ask(b), LoseQueue(0), behind(b, 0), behind(d, 0), Release(a), behind(b, 0)],
    ]
}

/// Holds end by themselves.
fn ends(scale: Scale) -> Vec<Vec<Step>> {
    let [lease, ..] = scale.leases;
    vec![
        // The one that ends last is released, or another; and a renewal makes it end later.
        vec![Ask(short(A)), Ask(B), Release(B), Release(A)],
        vec![Ask(short(A)), Ask(B), Release(A), Release(B)],
        vec![Ask(A), Ask(short(B)), Ask(longer(D)), Release(A), Release(D)],
        vec![Ask(short(A)), Ask(longer(B)), Step::Renew(A), Release(A), Ask(short(D))],
        vec![Ask(A), Ask(short(D)), Ask(all(E)), Release(A), Release(D)],
        // In its last millisecond, when it is over, and when the keys are gone.
        vec![Ask(short(A)), Advance(lease - 1), Ask(B), Advance(1), Ask(D)],
        vec![Ask(short(A)), Ask(B), Advance(lease), Ask(D), Release(A), Release(B)],
        vec![Ask(short(all(A))), Advance(lease), Try(B), Release(B)],
        vec![Ask(short(all(A))), Advance(lease - 1), Try(B), Advance(1), Try(B)],
        vec![Ask(short(all(A))), Advance(lease), Ask(B), Release(A)],
        vec![Ask(short(A)), Advance(lease), Release(A), Ask(B)],
        vec![Ask(short(A)), Advance(lease), Ask(A), Repeat],
        vec![Ask(short(A)), Advance(lease + 1000), Ask(B)],
        vec![Ask(short(A)), Advance(lease + 1001), Ask(B), Release(A)],
        // With waiters.
        vec![Ask(short(A)), Ask(D), Ask(all(E)), Ask(F), Advance(lease), Release(D), Release(E)],
        vec![Ask(short(A)), Ask(D), Ask(all(E)), Advance(lease), Ask(F), Release(A), Release(D)],
        vec![Ask(short(all(A))), Ask(D), Advance(lease), Ask(E), Try(F)],
        vec![Ask(short(all(A))), Ask(D), Ask(E), Advance(lease), Release(A), Release(D)],
        vec![Ask(short(all(A))), Ask(all(D)), Advance(lease - 1), Try(E), Ask(D), Advance(1), Ask(D)],
    ]
}

/// B adopts the hold of A, and E that of B.
fn adopted(scale: Scale) -> Vec<Vec<Step>> {
    let [lease, ..] = scale.leases;
    let by_e = Slot { choice: 5, ..A };
    vec![
        // Nothing that names the former owner finds it, and a repeat is a renewal.
        long(
            [Ask(A), ReEnter(A), Ask(D), Adopt(A), ReleaseFormer(A), AdoptFormer(by_e), AdoptFormer(A)],
            [ReEnter(B), AdoptFormer(A), AdoptFormer(short(A)), Release(B), AdoptFormer(A), Release(D)],
        ),
        // With an earlier end, and when it is over.
        long(
            [Ask(A), Ask(D), Adopt(short(A)), Repeat, Advance(lease - 5), Ask(D), Renew(short(B))],
            [Advance(lease + 5), Ask(D), AdoptFormer(A), ReleaseFormer(B), Release(D)],
        ),
        vec![Ask(short(A)), Advance(lease + 5), Adopt(A), Ask(D), AdoptFormer(A)],
        // From one to the next; of several units beside others.
        vec![Ask(two(A)), Ask(D), Ask(most(F)), Adopt(two(A)), Adopt(two(B)), Ask(E), Release(D), Force(0)],
    ]
}
