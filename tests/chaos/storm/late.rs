//! Messages that were given up by their senders and arrive all the same: a network may hold one back for minutes, while its
//! repeat is answered on another way.

use std::sync::Arc;
use std::time::Duration;

use fairlock::backend::{Acquire, Hold, LockId, Place, Renew, RequestId, Wait};
use fairlock::{ClientId, FencingToken, OwnerId};

use crate::arrival::Arrival;
use crate::life::Life;
use crate::world::{World, locked};

/// A message on its way.
pub struct Late {
    pub at: Duration,
    pub sent: Duration,
    pub life: Arc<Life>,
    pub message: Message,
}

/// A call that owns what it names.
#[derive(Clone, Debug)]
pub enum Message {
    Acquire(Vec<Ask>),
    SetHoldCount(HoldOf, u32),
    Release(Vec<HoldOf>),
    Keep(HoldOf, RequestId, Duration),
    Renew(ClientId, Vec<Item>),
    Withdraw(Vec<PlaceOf>),
    Kick(PlaceOf),
    ForceRelease(LockId),
    TakeHold(HoldOf),
    /// It changes nothing.
    Inspect,
}

#[derive(Clone, Debug)]
pub struct PlaceOf {
    lock: LockId,
    owner: OwnerId,
    request: RequestId,
    wait: Wait,
    ttl: Duration,
    ticket: u64,
    takes: u32,
}

#[derive(Clone, Debug)]
pub struct Ask {
    place: PlaceOf,
    lease: Duration,
}

#[derive(Clone, Debug)]
pub struct HoldOf {
    lock: LockId,
    owner: OwnerId,
    request: RequestId,
    token: FencingToken,
}

#[derive(Clone, Debug)]
pub enum Item {
    Hold { hold: HoldOf, holds: u32, lease: Duration },
    Place { place: PlaceOf, lease: Duration },
}

/// What the bytes of a command contain.
#[derive(Clone, Debug)]
pub enum Mark {
    Request(RequestId),
    Lock(String),
}

impl Late {
    /// It reaches a server in memory. That knows no network, so its rule for what is late is kept here: nothing is begun by a
    /// message that is older than an attempt may become.
    pub fn arrive(self, world: &World) {
        let Some(store) = world.store() else { return };
        let Late { sent, life, message, .. } = self;
        let may_begin = world.now() <= sent + world.weather.attempt_ttl();
        world.count(if may_begin { "late: in time" } else { "late: too late" });
        world.note(format_args!("  what {life} sent at {sent:?} arrives: {message:?}"));
        let mut server = locked(&world.server);
        if life.is_shut_down() {
            server.orphans.extend(message.places().iter().map(|place| place.request));
        }
        if may_begin {
            message.places().iter().for_each(|place| server.may_come_back(world.now(), &place.borrow()));
        }
        let server = Some(server);
        let mut arrival = Arrival { world, life: &life, store, server };
        // Nobody hears the answer. An error is that of a client which the server knows to be cut off.
        match message {
            Message::Acquire(asks) if may_begin => {
                asks.iter().for_each(|ask| drop(arrival.acquire(&ask.borrow())));
            }
            Message::ForceRelease(lock) if may_begin => drop(arrival.force_release(&lock)),
            Message::Keep(hold, keeper, lease) if may_begin => {
                drop(arrival.keep(&hold.borrow(), keeper, lease));
            }
            Message::Acquire(_) | Message::ForceRelease(_) | Message::Keep(..) | Message::Inspect => {}
            Message::Renew(client, items) => {
                let items = items.iter().filter(|item| may_begin || matches!(item, Item::Hold { .. }));
                drop(arrival.renew(client, &items.map(Item::borrow).collect::<Vec<_>>()));
            }
            Message::SetHoldCount(hold, holds) => drop(arrival.set_hold_count(&hold.borrow(), holds)),
            Message::Release(holds) => holds.iter().for_each(|hold| drop(arrival.release(&hold.borrow()))),
            Message::Withdraw(places) => {
                places.iter().for_each(|place| drop(arrival.withdraw(&place.borrow())));
            }
            Message::Kick(place) => drop(arrival.kick(&place.borrow())),
            Message::TakeHold(hold) => drop(arrival.take_hold(&hold.borrow())),
        }
    }
}

impl Message {
    /// None for one that changes nothing.
    pub fn mark(&self) -> Option<Mark> {
        let request = match self {
            Message::Acquire(asks) => asks.first()?.place.request,
            Message::Renew(_, items) => match items.first()? {
                Item::Hold { hold, .. } => hold.request,
                Item::Place { place, .. } => place.request,
            },
            Message::Withdraw(places) => places.first()?.request,
            Message::Kick(place) => place.request,
            Message::Release(holds) => holds.first()?.request,
            Message::SetHoldCount(hold, _) | Message::Keep(hold, ..) | Message::TakeHold(hold) => {
                hold.request
            }
            Message::ForceRelease(lock) => return Some(Mark::Lock(lock.name.as_str().to_owned())),
            Message::Inspect => return None,
        };
        Some(Mark::Request(request))
    }

    /// The places that it may make.
    fn places(&self) -> Vec<&PlaceOf> {
        match self {
            Message::Acquire(asks) => asks.iter().map(|ask| &ask.place).collect(),
            Message::Renew(_, items) => items.iter().filter_map(Item::place).collect(),
            _ => Vec::new(),
        }
    }
}

impl PlaceOf {
    pub fn of(place: &Place<'_>) -> PlaceOf {
        let Place { lock, owner, request, wait, ttl, ticket, takes, .. } = *place;
        PlaceOf { lock: lock.clone(), owner: owner.clone(), request, wait, ttl, ticket, takes }
    }

    fn borrow(&self) -> Place<'_> {
        let mut place = Place::new(&self.lock, &self.owner, self.request);
        place.wait = self.wait;
        place.ttl = self.ttl;
        place.ticket = self.ticket;
        place.takes = self.takes;
        place
    }
}

impl Ask {
    pub fn of(ask: &Acquire<'_>) -> Ask {
        Ask { place: PlaceOf::of(&ask.place), lease: ask.lease }
    }

    fn borrow(&self) -> Acquire<'_> {
        Acquire::new(self.place.borrow(), self.lease)
    }
}

impl HoldOf {
    pub fn of(hold: &Hold<'_>) -> HoldOf {
        let Hold { lock, owner, request, token, .. } = *hold;
        HoldOf { lock: lock.clone(), owner: owner.clone(), request, token }
    }

    fn borrow(&self) -> Hold<'_> {
        Hold::new(&self.lock, &self.owner, self.request, self.token)
    }
}

impl Item {
    fn place(&self) -> Option<&PlaceOf> {
        match self {
            Item::Hold { .. } => None,
            Item::Place { place, .. } => Some(place),
        }
    }

    pub fn of(item: &Renew<'_>) -> Item {
        match *item {
            Renew::Hold { ref hold, holds, lease } => Item::Hold { hold: HoldOf::of(hold), holds, lease },
            Renew::Place { ref place, lease } => Item::Place { place: PlaceOf::of(place), lease },
        }
    }

    fn borrow(&self) -> Renew<'_> {
        match self {
            Item::Hold { hold, holds, lease } => {
                Renew::Hold { hold: hold.borrow(), holds: *holds, lease: *lease }
            }
            Item::Place { place, lease } => Renew::Place { place: place.borrow(), lease: *lease },
        }
    }
}
