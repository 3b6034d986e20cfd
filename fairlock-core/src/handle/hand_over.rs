//! A hold that travels from one process to another, as a text.
//!
//! | the hold | here | at the store | moved by |
//! | --- | --- | --- | --- |
//! | held once, and certain | `Held` | the first owner's | `hand_over`: the claim is over here, and nobody renews |
//! | handed over | | the first owner's, until its lease ends | `adopt`, by another client: the same request and token, by another owner |
//! | being adopted | `Waiting`, whose asks are attempts to adopt | one of the two | an attempt; each repeats the former |
//! | adopted | `Held` there | the adopter's | as any hold |
//!
//! A renewal of the first owner that is under way prolongs the hold before it is adopted, and finds nothing afterwards. A late attempt of an
//! adopter that gave up finds the hold with another owner, or gone. If the hold was adopted by nobody, such an attempt moves the hold, which then
//! ends with its lease. Of two adopters one gets the hold. A hold whose guard goes on can't be adopted: guard and adopter would both believe in
//! the hold. An adopter without an answer until its outage limit withdraws its request: an adopted hold is released then, and not left to its lease.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::tasks::{asked, on_its_own_thread};
use super::{AsyncClient, AsyncGuard, Client, Guard, Owner, Ownership};
use crate::backend::{Hold, LockId, RequestId};
use crate::claim::Claim;
use crate::error::{Error, Result};
use crate::flow::Taken;
use crate::ids::{FencingToken, LockKind, LockName, OwnerId};

/// Names a hold, for the process that goes on with it: its text travels in a job, a file or a variable. Made by [`Guard::hand_over`].
///
/// Who has the text can release the lock. It has the lock's name, the hold's numbers and the id of the client that was granted the lock, but
/// nothing with which somebody could reach the store. It has about 120 bytes and the name, and needs no quotes in a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandOver {
    pub(crate) lock: LockId,
    pub(crate) owner: OwnerId,
    pub(crate) request: RequestId,
    pub(crate) token: FencingToken,
    pub(crate) units: u32,
    /// Its guard goes on holding.
    pub(crate) is_kept: bool,
}

impl HandOver {
    /// The full name of the lock, with the prefix of the client that was granted the lock.
    pub fn name(&self) -> &str {
        self.lock.name.as_str()
    }

    /// Which kind of lock it is.
    pub fn kind(&self) -> LockKind {
        self.lock.kind
    }

    /// The owner that was granted the lock.
    pub fn owner(&self) -> &OwnerId {
        &self.owner
    }

    /// The request that was granted.
    pub fn request_id(&self) -> RequestId {
        self.request
    }

    /// The fencing token, which stays the same.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// The hold, for a [`Backend`](crate::backend::Backend).
    pub fn hold(&self) -> Hold<'_> {
        let HandOver { lock, owner, request, token, units, .. } = self;
        Hold { lock, owner, request: *request, token: *token, units: *units }
    }
}

/// Names the hold of a guard that goes on holding: another process can release the hold, or look for it, but can't adopt it.
impl<O: Ownership> From<&Guard<O>> for HandOver {
    fn from(guard: &Guard<O>) -> HandOver {
        let (claim, token) = (&guard.claim, guard.token());
        let Claim { lock, owner, request, units, .. } = &**claim;
        let (lock, owner) = (lock.clone(), owner.clone());
        HandOver { lock, owner, request: *request, token, units: *units, is_kept: true }
    }
}

/// What begins the text; the number is that of its form.
const FORM: &str = "fairlock1";
const FORM_KEPT: &str = "fairlock1-kept";
/// These need no quotes in a shell.
const SAFE: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b':').remove(b'/');

impl fmt::Display for HandOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HandOver { lock, owner, request, token, units, is_kept } = self;
        let form = if *is_kept { FORM_KEPT } else { FORM };
        let kind = match lock.kind {
            LockKind::Fair => "fair".to_owned(),
            LockKind::Plain => "plain".to_owned(),
            LockKind::ReadWrite => "rw".to_owned(),
            LockKind::Semaphore { permits } => permits.to_string(),
        };
        let safe = |text| utf8_percent_encode(text, &SAFE);
        let (owner, name, request) = (safe(owner.as_str()), safe(lock.name.as_str()), request.get());
        write!(f, "{form}.{kind}.{units}.{request:016x}.{token}.{owner}.{name}")
    }
}

impl FromStr for HandOver {
    type Err = Error;

    /// # Errors
    /// [`Error::InvalidConfig`] for a text that is no hand-over's, or one of a later version.
    fn from_str(text: &str) -> Result<HandOver> {
        parse(text).ok_or_else(|| {
            let reason = format!("the text names no hold: expected what `Guard::hand_over` gave, `{FORM}.…`");
            Error::InvalidConfig { reason, setting: None }
        })
    }
}

fn parse(text: &str) -> Option<HandOver> {
    let parts: Vec<&str> = text.trim().split('.').collect();
    let [form @ (FORM | FORM_KEPT), kind, units, request, token, owner, name] = parts[..] else {
        return None;
    };
    let is_kept = form == FORM_KEPT;
    let kind = match kind {
        "fair" => LockKind::Fair,
        "plain" => LockKind::Plain,
        "rw" => LockKind::ReadWrite,
        permits => LockKind::Semaphore { permits: permits.parse().ok()? },
    };
    let decoded = |text| percent_decode_str(text).decode_utf8().ok();
    let lock = LockId::new(LockName::new(&decoded(name)?).ok()?, kind);
    let request = RequestId::new(u64::from_str_radix(request, 16).ok()?);
    let (units, token) = (units.parse().ok()?, FencingToken::new(token.parse().ok()?));
    let fits = (1..=kind.capacity()).contains(&units);
    fits.then_some(HandOver { lock, owner: OwnerId::new(&decoded(owner)?), request, token, units, is_kept })
}

impl<O: Ownership> Guard<O> {
    /// Leaves the hold to another process, which adopts the hold and goes on where this process ends. From now on this client neither renews nor
    /// releases it: the lock is free when the lease ends, unless [`Client::adopt`] takes the hold over before. The store is not told.
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let store = MemoryBackend::new();
    /// # let (api, worker) = (Client::new(store.clone())?, Client::new(store)?);
    /// let guard = api.fair_lock("report:7")?.lock()?;
    /// let token = guard.token();
    /// let job = guard.hand_over()?.to_string(); // with the job, into a queue
    ///
    /// let guard = worker.adopt(&job.parse()?)?; // elsewhere, before the lease ends
    /// assert_eq!(guard.token(), token);
    /// guard.unlock()?;
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// On files this process has to live until then: its holds end with it.
    ///
    /// # Errors
    /// [`Error::Lost`] when the hold had ended before. [`Error::Misuse`] when the owner holds the lock by another guard as well: this guard
    /// is then unlocked, and the last one can be handed over.
    pub fn hand_over(mut self) -> Result<HandOver> {
        self.spend();
        let named = HandOver { is_kept: false, ..HandOver::from(&self) };
        self.shared().parts().hand_over(&self.claim).map(|()| named)
    }
}

impl AsyncGuard {
    /// As [`Guard::hand_over`]. Once it was polled it goes on, even if this future is dropped: then nobody has the text, and the lock is
    /// free when its lease ends.
    ///
    /// # Errors
    /// As [`Guard::hand_over`].
    pub async fn hand_over(self) -> Result<HandOver> {
        let _ends = self.ends(); // dropped last
        let guard = self.into_blocking();
        let (shared, name) = (Arc::clone(guard.shared()), guard.claim.lock.name.clone());
        asked(&shared, &name, move || guard.hand_over()).await
    }
}

impl Client {
    /// Goes on with a hold that another process has [handed over](Guard::hand_over): renews it from now on, and says if it is lost. It has the
    /// same token, so the resource sees one holder. One round trip.
    ///
    /// While the store does not answer it tries again, up to the [outage limit](crate::ClientBuilder::outage_limit). So it does after a crash
    /// in which the store may have forgotten holds: until an earlier adopter's hold must have ended, nobody adopts that hold.
    ///
    /// # Errors
    /// [`Error::Misuse`] for a hold whose guard goes on. [`Error::Lost`] if the hold is over: its lease has ended, somebody released it, or another process has adopted it.
    /// [`Error::Unavailable`] after the outage limit: the hold is given back then, if it was adopted. [`Error::Unsupported`],
    /// [`Error::Shutdown`], as for a lock of that kind; [`Error::InvalidConfig`] if the backend can't give a hold to another owner.
    pub fn adopt(&self, hold: &HandOver) -> Result<Guard<Owner>> {
        let (claim, token) = self.adopted(hold, false)?;
        Ok(Guard::new(Arc::clone(&self.0), Taken { claim, token }))
    }

    fn adopted(&self, hold: &HandOver, by_task: bool) -> Result<(Arc<Claim>, FencingToken)> {
        if hold.is_kept {
            let reason = "its guard goes on holding: only a hold of `hand_over` can be adopted".to_owned();
            return Err(Error::Misuse { lock: hold.lock.name.clone(), reason });
        }
        let lock = self.lock_named(hold.lock.name.clone(), hold.lock.kind)?;
        let owner = self.new_owner();
        let (config, now) = (&self.0.config, self.0.now());
        let claim = Claim::adopting(&hold.hold(), owner.id().clone(), lock.terms(), config, now);
        let claim = Arc::new(if by_task { claim.of_task(None) } else { claim });
        let token = self.0.parts().adopt(&claim)?;
        Ok((claim, token))
    }
}

impl AsyncClient {
    /// As [`Client::adopt`]. Once it was polled it goes on, even if this future is dropped: then the hold is given back.
    ///
    /// # Errors
    /// As [`Client::adopt`].
    pub async fn adopt(&self, hold: &HandOver) -> Result<AsyncGuard> {
        let (client, hold) = (self.blocking().clone(), hold.clone());
        let (shared, name) = (Arc::clone(&client.0), hold.lock.name.clone());
        shared.timers.start_tasks().map_err(|error| Error::about(&name, error))?;
        let adopts = move || {
            let (claim, token) = client.adopted(&hold, true)?;
            Ok(AsyncGuard::of(&client.0, claim, token))
        };
        if shared.backend.is_non_blocking() {
            return adopts();
        }
        on_its_own_thread("fairlock-adopt", shared.config.clock.clone(), adopts).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(name: &str, kind: LockKind, units: u32) -> HandOver {
        let lock = LockId::new(LockName::new(name).unwrap(), kind);
        let owner = OwnerId::new("3b9c5a52-6f1c-4d0e-9c57-2f1a3c3e7d10:12");
        let (request, token) = (RequestId::new(u64::MAX - 1), FencingToken::new(1_795_946_403_000_000));
        HandOver { lock, owner, request, token, units, is_kept: false }
    }

    #[test]
    fn a_hold_is_the_same_after_its_travel_and_needs_no_quotes() {
        let all = [
            hold("orders", LockKind::Fair, 1),
            hold("a.b c'$(x)\n\u{e9}%41", LockKind::Plain, 1),
            hold("r", LockKind::ReadWrite, u32::MAX),
            hold("p", LockKind::Semaphore { permits: 8 }, 3),
            HandOver { is_kept: true, ..hold("orders", LockKind::Fair, 1) },
        ];
        for hold in all {
            let text = hold.to_string();
            assert_eq!(text.parse::<HandOver>().unwrap(), hold);
            let safe = |c: char| c.is_ascii_alphanumeric() || ".:-_/%".contains(c);
            assert!(text.chars().all(safe) && text.len() < 200, "{text}");
        }
        let known = "fairlock1.fair.1.fffffffffffffffe.1795946403000000.3b9c5a52-6f1c-4d0e-9c57-2f1a3c3e7d10:12.orders";
        assert_eq!(hold("orders", LockKind::Fair, 1).to_string(), known);
    }

    #[test]
    fn another_text_is_an_error_that_does_not_repeat_it() {
        let good = hold("orders", LockKind::Semaphore { permits: 2 }, 2).to_string();
        let wrong = [
            ("fairlock1", "fairlock2"),
            (".2.2.", ".2.3."),
            (".2.2.", ".2.0."),
            ("orders", ""),
            (".1795", ".x"),
        ];
        let wrong = wrong.map(|(from, to)| good.replace(from, to));
        for text in wrong.iter().map(String::as_str).chain(["", "orders", "fairlock1.fair"]) {
            let error = text.parse::<HandOver>().unwrap_err().to_string();
            assert!(error.contains("names no hold") && !error.contains("3b9c5a52"), "{text}: {error}");
        }
    }
}
