//! The server as a [`LockEntry`], and back. All operations run at the same moment: times are moved instead.

use std::sync::LazyLock;
use std::time::Duration;

use fairlock_core::backend::{LockId, Place as Asked, RequestId, Wait};
use fairlock_core::{FencingToken, LockKind, LockName, OwnerId};
use fairlock_rules::{
    ClockParts, GrantedHold, LockEntry, Moment, OperationContext, Parts, PlaceParts, Presence, QueueParts,
    StoreContext, WakeUpKind,
};

use super::bounds::{Bounds, Discipline};
use super::messages::{Member, Push};
use super::state::State;
use super::store::{Hold, Place, Server};

/// A tick: much longer than the time after the end of a hold at which the first waiter looks.
const TICK: Duration = Duration::from_secs(1);
/// The moment of all operations.
pub const NOW: Moment = Duration::from_secs(60);
/// The time by the queue's clock.
const CLOCK: Moment = Duration::from_secs(30);
/// The number 0. Not below the microseconds of `NOW`: so each number that is drawn is the next one.
const ZERO: u64 = 60_000_000;

const CLIENTS: [&str; 4] = ["0:1", "1:1", "2:1", "3:1"];
static OWNERS: LazyLock<[OwnerId; 4]> = LazyLock::new(|| CLIENTS.map(OwnerId::new));
static NAME: LazyLock<LockName> =
    LazyLock::new(|| LockName::new("lock").unwrap_or_else(|_| unreachable!("it is a name")));
static PLAIN: LazyLock<LockId> = LazyLock::new(|| LockId::new(NAME.clone(), LockKind::Plain));
static LOCKS: LazyLock<[LockId; 4]> =
    LazyLock::new(|| [0, 1, 2, 3].map(|units| LockId::new(NAME.clone(), kind_of(units))));

fn kind_of(capacity: u8) -> LockKind {
    match capacity {
        0 | 1 => LockKind::Fair,
        permits => LockKind::Semaphore { permits: permits.into() },
    }
}

/// So many ticks.
pub fn ticks(ticks: u8) -> Duration {
    TICK * ticks.into()
}

/// Whole ticks.
pub fn in_ticks(time: Duration) -> u8 {
    u8::try_from(time.as_secs() / TICK.as_secs()).unwrap_or(u8::MAX)
}

/// A ticket or token as the entry has it; 0 for none.
pub fn number(number: u8) -> u64 {
    if number == 0 { 0 } else { ZERO + u64::from(number) }
}

/// A ticket or token as the model has it; 0 for none.
pub fn small(number: u64) -> u8 {
    number.checked_sub(ZERO).map_or(0, |number| u8::try_from(number).unwrap_or(u8::MAX))
}

/// The client's owner.
pub fn owner(client: u8) -> &'static OwnerId {
    &OWNERS[usize::from(client)]
}

/// The number of a member's request.
pub fn request(member: Member) -> RequestId {
    RequestId::new(member.request.into())
}

fn member(owner: &OwnerId, request: RequestId) -> Member {
    Member { client: owner.as_str().as_bytes()[0] - b'0', request: request.get() as u8 }
}

impl Bounds {
    /// The lock as a client asks for it.
    pub fn lock(&self, client: u8) -> &'static LockId {
        match self.discipline {
            Discipline::Plain => &PLAIN,
            _ => &LOCKS[usize::from(self.capacity(client))],
        }
    }

    /// What a request says of itself, with the ticket that it was told.
    pub fn place(&self, member: Member, ticket: u8) -> Asked<'static> {
        let mut place = Asked::new(self.lock(member.client), owner(member.client), request(member));
        place.wait = if self.discipline == Discipline::Plain { Wait::No } else { Wait::Forever };
        place.ttl = ticks(self.times.place);
        place.ticket = number(ticket);
        place.units = self.takes(member.client).into();
        place
    }

    /// Runs an operation on the lock. Messages are on their way then.
    pub fn on_entry<A>(
        &self,
        state: &mut State,
        rule: impl FnOnce(&mut LockEntry, &mut OperationContext<'_>) -> A,
    ) -> A {
        let mut entry = self.entry(&state.server);
        let clients = &state.clients;
        let listens = |owner: &OwnerId| {
            let client = usize::from(owner.as_str().as_bytes()[0] - b'0');
            Presence::if_listening(!clients[client].deaf)
        };
        let mut store_context = StoreContext::after(ZERO + u64::from(state.server.last));
        let mut context = store_context.operation(&NAME, NOW, &listens);
        context.wrong = self.rules.mistake();
        let answer = rule(&mut entry, &mut context);
        let wake_ups = store_context.take_wake_ups();
        let before = self.read_back(state, entry);
        state.server.last = small(store_context.last_number());
        for wake_up in wake_ups {
            let (request, token, taken) = match wake_up.kind {
                WakeUpKind::Granted { request, token } => (request.get() as u8, token.get(), false),
                WakeUpKind::Taken { token } => {
                    let hold = before.holds.iter().find(|hold| number(hold.token) == token.get());
                    (hold.map_or(0, |hold| hold.member.request), token.get(), true)
                }
                WakeUpKind::Recheck | WakeUpKind::RecheckAny => continue,
            };
            let client = member(&wake_up.owner, RequestId::new(0)).client;
            state.clients[usize::from(client)].be_told(Push { request, token: small(token), taken });
        }
        answer
    }

    fn entry(&self, server: &Server) -> LockEntry {
        let Server { capacity, holds, queue, last: _, served, rests, silent } = server;
        let hold = |hold: &Hold| GrantedHold {
            owner: owner(hold.member.client).clone(),
            request: request(hold.member),
            token: FencingToken::new(number(hold.token)),
            units: hold.takes.into(),
            holds: 1,
            since: NOW,
            ends: NOW + ticks(hold.left),
            label: "".into(),
        };
        let place = |place: &Place| PlaceParts {
            ticket: number(place.ticket),
            owner: owner(place.member.client).clone(),
            request: request(place.member),
            units: place.takes.into(),
            capacity: self.capacity(place.member.client).into(),
            lease: ticks(place.lease),
            is_heard: place.heard,
            deadline: CLOCK + ticks(place.left) - ticks(place.late),
        };
        let queue = QueueParts {
            places: queue.iter().map(place).collect(),
            served: number(*served),
            rests_until: CLOCK + ticks(*rests),
            clock: ClockParts { value: CLOCK, pulse: NOW - ticks(*silent), ttl: ticks(self.times.place) },
        };
        let kind = if self.discipline == Discipline::Plain { LockKind::Plain } else { kind_of(*capacity) };
        Parts::new(kind, holds.iter().map(hold).collect(), queue).into()
    }

    /// The state of the server is what the entry is now. Returns what it was.
    fn read_back(&self, state: &mut State, entry: LockEntry) -> Server {
        let Parts { kind, holds, queue, .. } = entry.into();
        let QueueParts { places, served, rests_until, clock } = queue;
        let known = std::mem::take(&mut state.server);
        let hold = |hold: GrantedHold| {
            let (token, left) = (small(hold.token.get()), in_ticks(hold.ends.saturating_sub(NOW)));
            let old = known.holds.iter().find(|old| old.token == token);
            Hold {
                token,
                member: member(&hold.owner, hold.request),
                takes: hold.units as u8,
                left,
                own: old.map_or(left, |old| old.own),
                after_force: old.map_or_else(|| state.is_after_force(), |old| old.after_force),
            }
        };
        let place = |place: PlaceParts| {
            let member = member(&place.owner, place.request);
            let old = known.place_of(member);
            let late = in_ticks(clock.value.saturating_sub(place.deadline)).min(self.times.place);
            // A client that does little names no ticket, and comes back at the tail.
            let heard = place.is_heard || !self.is_whole();
            Place {
                ticket: small(place.ticket),
                member,
                takes: place.units as u8,
                lease: in_ticks(place.lease),
                left: in_ticks(place.deadline.saturating_sub(clock.value)),
                late: if heard { 0 } else { late },
                heard,
                came_back: old.map_or_else(|| state.lost.contains(&member), |old| old.came_back),
            }
        };
        state.server = Server {
            capacity: kind.capacity() as u8,
            holds: holds.into_iter().map(hold).collect(),
            queue: places.into_iter().map(place).collect(),
            last: 0,
            served: small(served),
            rests: in_ticks(rests_until.saturating_sub(clock.value)),
            silent: in_ticks(NOW - clock.pulse),
        };
        known
    }
}
