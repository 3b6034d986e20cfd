//! What arrives at the server: each call is carried out there and recorded, in the store's own order.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use fairlock::backend::{
    Acquire, Acquired, Backend, ForceReleased, Hold, LockId, Place, Released, Renew, Renewal, Withdrawn, only,
};
use fairlock::owner::{ClientId, OwnerId};

use crate::life::Life;
use crate::link::Answer;
use crate::server::Server;
use crate::world::{World, locked};

/// The server, as long as one call is carried out.
pub struct Arrival<'a> {
    pub world: &'a World,
    /// Whose call it is.
    pub life: &'a Arc<Life>,
    pub store: &'a dyn Backend,
    /// A real server does many things at once, and is not looked into.
    pub server: Option<MutexGuard<'a, Server>>,
}

impl Arrival<'_> {
    pub fn acquire(&mut self, ask: &Acquire<'_>) -> Answer<Acquired> {
        if self.server.is_none() {
            locked(&self.world.order).asks(self.world, self.life, ask);
        }
        let answer = only(self.store.acquire(&[*ask]));
        let Place { lock, owner, request, .. } = ask.place;
        let whose = self.world.name_of(owner.as_str());
        self.note(format_args!("asks for {} as {request} of {whose}: {answer:?}", lock.name));
        if let Some(server) = &mut self.server {
            match &answer {
                Ok(answer) => server.asked(self.world, self.life, ask, answer),
                Err(error) => server.refused(self.world, ask, error),
            }
        } else if let Ok(answer) = &answer {
            locked(&self.world.order).answered(self.world, ask, answer);
        }
        answer
    }

    pub fn release(&mut self, hold: &Hold<'_>) -> Answer<Released> {
        let answer = only(self.store.release(&[*hold]))?;
        self.note(format_args!("releases {}, token {}: {answer:?}", hold.lock.name, hold.token));
        if let Some(server) = &mut self.server {
            server.released(self.world, hold);
        }
        Ok(answer)
    }

    pub fn adopt(&mut self, hold: &Hold<'_>, owner: &OwnerId, lease: Duration) -> Answer<Renewal> {
        let answer = self.store.adopt(hold, owner, lease)?;
        let who = self.world.name_of(owner.as_str());
        self.note(format_args!("adopts {}, token {}, as {who}: {answer:?}", hold.lock.name, hold.token));
        self.observe(hold.lock);
        Ok(answer)
    }

    /// Each item has an answer of its own: others may have one row locked.
    pub fn renew(&mut self, client: ClientId, items: &[Renew<'_>]) -> Vec<Answer<Renewal>> {
        let answers = self.store.renew(client, items);
        for (item, answer) in items.iter().zip(&answers) {
            let Ok(answer) = answer else { continue };
            if let Some(server) = &mut self.server {
                server.renewed(self.world, self.life, item, answer);
            } else if let (Renew::Place { place, .. }, Renewal::Granted { token, .. }) = (item, answer) {
                let mut order = locked(&self.world.order);
                order.granted(self.world, place.lock.name.as_str(), place.request, *token);
            }
        }
        answers
    }

    pub fn withdraw(&mut self, place: &Place<'_>) -> Answer<Withdrawn> {
        let answer = only(self.store.withdraw(&[*place]))?;
        let whose = self.world.name_of(place.owner.as_str());
        self.note(format_args!("withdraws {} of {whose} for {}: {answer:?}", place.request, place.lock.name));
        if let Some(server) = &mut self.server {
            server.withdrawn(self.world, place);
        }
        Ok(answer)
    }

    pub fn force_release(&mut self, lock: &LockId) -> Answer<ForceReleased> {
        if let Some(server) = &mut self.server {
            server.will_be_forced(self.world, lock, None);
        }
        // Before it and after it: the server may do it late, or without an answer.
        self.world.force(&lock.name);
        let answer = self.store.force_release(lock);
        self.world.force(&lock.name);
        let answer = answer?;
        self.note(format_args!("forces {}: {answer:?}", lock.name));
        self.observe(lock);
        Ok(answer)
    }

    pub fn take_hold(&mut self, hold: &Hold<'_>) -> Answer<ForceReleased> {
        if let Some(server) = &mut self.server {
            server.will_be_forced(self.world, hold.lock, Some(hold.token));
        }
        self.world.force(&hold.lock.name);
        let answer = self.store.take_hold(hold);
        self.world.force(&hold.lock.name);
        let answer = answer?;
        let whose = self.world.name_of(hold.owner.as_str());
        self.note(format_args!("takes {} from {whose}, token {}: {answer:?}", hold.lock.name, hold.token));
        self.observe(hold.lock);
        Ok(answer)
    }

    fn observe(&mut self, lock: &LockId) {
        if let Some(server) = &mut self.server {
            server.observe(self.world, lock);
        }
    }

    fn note(&self, what: std::fmt::Arguments<'_>) {
        self.world.note(format_args!("  {} {what}", self.life));
    }
}
