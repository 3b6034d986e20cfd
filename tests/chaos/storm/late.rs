//! Messages that were given up by their senders and arrive all the same: a network may hold one back for minutes, while its
//! repeat is answered on another way.

use std::sync::Arc;
use std::time::Duration;

use fairlock::backend::{Acquire, Hold, LockId, Place, Renew, RequestId};
use fairlock::owner::{ClientId, OwnerId};

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

/// A call that borrows from nobody: see [`owned`].
#[derive(Clone, Debug)]
pub enum Message {
    Acquire(Vec<Acquire<'static>>),
    Release(Vec<Hold<'static>>),
    Adopt(Hold<'static>, OwnerId, Duration),
    Renew(ClientId, Vec<Renew<'static>>),
    Withdraw(Vec<Place<'static>>),
    ForceRelease(LockId),
    TakeHold(Hold<'static>),
    /// It changes nothing.
    Inspect,
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
            message.places().iter().for_each(|place| server.may_come_back(world.now(), place));
        }
        let server = Some(server);
        let mut arrival = Arrival { world, life: &life, store, server };
        // Nobody hears the answer. An error is that of a client which the server knows to be cut off.
        match message {
            Message::Acquire(asks) if may_begin => asks.iter().for_each(|ask| drop(arrival.acquire(ask))),
            Message::ForceRelease(lock) if may_begin => drop(arrival.force_release(&lock)),
            Message::Acquire(_) | Message::ForceRelease(_) | Message::Inspect => {}
            Message::Renew(client, mut items) => {
                items.retain(|item| may_begin || matches!(item, Renew::Hold { .. }));
                drop(arrival.renew(client, &items));
            }
            Message::Release(holds) => holds.iter().for_each(|hold| drop(arrival.release(hold))),
            Message::Adopt(hold, owner, lease) => drop(arrival.adopt(&hold, &owner, lease)),
            Message::Withdraw(places) => places.iter().for_each(|place| drop(arrival.withdraw(place))),
            Message::TakeHold(hold) => drop(arrival.take_hold(&hold)),
        }
    }
}

impl Message {
    /// None for one that changes nothing.
    pub fn mark(&self) -> Option<Mark> {
        let request = match self {
            Message::Acquire(asks) => asks.first()?.place.request,
            Message::Renew(_, items) => match items.first()? {
                Renew::Hold { hold, .. } => hold.request,
                Renew::Place { place, .. } => place.request,
            },
            Message::Withdraw(places) => places.first()?.request,
            Message::Release(holds) => holds.first()?.request,
            Message::Adopt(hold, ..) | Message::TakeHold(hold) => hold.request,
            Message::ForceRelease(lock) => return Some(Mark::Lock(lock.name.as_str().to_owned())),
            Message::Inspect => return None,
        };
        Some(Mark::Request(request))
    }

    /// The places that it may make.
    fn places(&self) -> Vec<&Place<'static>> {
        match self {
            Message::Acquire(asks) => asks.iter().map(|ask| &ask.place).collect(),
            Message::Renew(_, items) => items.iter().filter_map(place_of).collect(),
            _ => Vec::new(),
        }
    }
}

fn place_of<'a>(item: &'a Renew<'static>) -> Option<&'a Place<'static>> {
    if let Renew::Place { place, .. } = item { Some(place) } else { None }
}

/// What a message names is leaked, so that it can wait for its time: few are held back, and a storm ends soon.
fn owned<T: Clone>(it: &T) -> &'static T {
    Box::leak(Box::new(it.clone()))
}

pub fn place(place: &Place<'_>) -> Place<'static> {
    let mut owned = Place::new(owned(place.lock), owned(place.owner), place.request);
    (owned.wait, owned.ttl) = (place.wait, place.ttl);
    (owned.ticket, owned.units) = (place.ticket, place.units);
    owned
}

pub fn ask(ask: &Acquire<'_>) -> Acquire<'static> {
    Acquire::new(place(&ask.place), ask.lease)
}

pub fn hold(hold: &Hold<'_>) -> Hold<'static> {
    Hold::new(owned(hold.lock), owned(hold.owner), hold.request, hold.token)
}

pub fn item(item: &Renew<'_>) -> Renew<'static> {
    match item {
        Renew::Hold { hold: held, holds, lease } => {
            Renew::Hold { hold: hold(held), holds: *holds, lease: *lease }
        }
        Renew::Place { place: waits, lease } => Renew::Place { place: place(waits), lease: *lease },
    }
}
