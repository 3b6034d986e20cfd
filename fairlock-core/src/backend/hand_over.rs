//! Doctor's trial of hand-overs: a lock goes from one client to another, as fast as wake-ups arrive.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use super::doctor::{SLOW, Verdict, spread};
use super::{
    Acquire, Acquired, Backend, BackendError, BackendErrorKind, Hold, LockId, Place, RequestId, Subscription,
    Text, Wake, WakeSink, only,
};
use crate::ids::{ClientId, FencingToken, OwnerId};

/// How many hand-overs are timed.
const HAND_OVERS: u64 = 10;
/// No further hand-over begins after this time: without wake-ups each takes 1.7 s.
const ENOUGH: Duration = Duration::from_secs(5);
/// When a waiter looks that hears nothing: a client does at its heartbeat, after a third of the place TTL.
const HEARTBEAT: Duration = Duration::from_millis(5000 / 3);
/// No hand-over takes so long.
const LONGEST: Duration = Duration::from_secs(10);

/// A client of the trial: its backend, and the wake-ups that it hears.
struct Party<'a> {
    backend: &'a dyn Backend,
    client: ClientId,
    heard: Receiver<Option<(RequestId, FencingToken)>>,
    _subscription: Subscription,
}

/// Tells of each wake-up, and of the grant in it.
struct Ear(Sender<Option<(RequestId, FencingToken)>>);

impl WakeSink for Ear {
    fn wake(&self, wake: Wake<'_>) {
        let granted = match wake {
            Wake::Granted { request, token, .. } => Some((request, token)),
            _ => None,
        };
        let _ = self.0.send(granted); // the trial may be over
    }
}

impl<'a> Party<'a> {
    fn new(backend: &'a dyn Backend) -> Result<Party<'a>, BackendError> {
        let (client, (ear, heard)) = (ClientId::random(), channel());
        let _subscription = backend.subscribe(client, Arc::new(Ear(ear)))?;
        Ok(Party { backend, client, heard, _subscription })
    }

    fn ask(&self, place: Place<'_>) -> Result<Acquired, BackendError> {
        let lease = Duration::from_secs(5).min(self.backend.longest_lease().unwrap_or(Duration::MAX));
        only(self.backend.acquire(&[Acquire::new(place, lease)]))
    }

    /// Waits for the lock as a client does: by wake-ups, and else by looking. Returns whether a wake-up came.
    fn wait(&self, place: Place<'_>, mut look_in: Duration) -> Result<(FencingToken, bool), BackendError> {
        let (until, mut is_told) = (Instant::now() + LONGEST, false);
        while Instant::now() < until {
            match self.heard.recv_timeout(look_in.min(HEARTBEAT)) {
                Ok(Some((request, token))) if request == place.request => return Ok((token, true)),
                Ok(_) => is_told = true,
                Err(_) => {}
            }
            match self.ask(place)? {
                Acquired::Granted { token, .. } => return Ok((token, is_told)),
                Acquired::Queued { recheck_in, .. } | Acquired::Busy { recheck_in } => look_in = recheck_in,
            }
        }
        Err(BackendError::new(BackendErrorKind::Unavailable, "a lock was not handed over within 10 s"))
    }
}

/// Times hand-overs of a free lock between a client of one backend and a client of the other: ten, or fewer where they take seconds.
/// A wake-up has to go through the store, so the backends must not share their clients.
/// `without` says what to do where wake-ups don't arrive.
///
/// # Errors
/// Those of the backends.
pub fn hand_over(
    backends: [&dyn Backend; 2],
    lock: &LockId,
    without: impl Into<Text>,
) -> Result<(Verdict, Text), BackendError> {
    let [one, other] = backends;
    let parties = [Party::new(one)?, Party::new(other)?];
    let owners = [0, 1].map(|at: usize| OwnerId::new(&format!("{}:1", parties[at].client)));
    let refused = |what| BackendError::new(BackendErrorKind::Unavailable, what);
    let (begin, mut times, mut n_told) = (Instant::now(), Vec::new(), 0);
    let (mut holder, mut request) = (0, RequestId::new(1));
    let Acquired::Granted { mut token, .. } = parties[0].ask(Place::new(lock, &owners[0], request))? else {
        return Err(refused("a lock that nobody has was not granted"));
    };
    for number in 2..2 + HAND_OVERS {
        let (next, place) = (1 - holder, Place::new(lock, &owners[1 - holder], RequestId::new(number)));
        let Acquired::Queued { recheck_in, ticket, .. } = parties[next].ask(place)? else {
            return Err(refused("a lock that is held did not make a waiter wait"));
        };
        let place = Place { ticket, ..place };
        while parties[next].heard.try_recv().is_ok() {} // of an earlier turn
        let released = Instant::now();
        only(parties[holder].backend.release(&[Hold::new(lock, &owners[holder], request, token)]))?;
        let (granted, is_told) = parties[next].wait(place, recheck_in)?;
        times.push(released.elapsed());
        n_told += usize::from(is_told);
        (holder, request, token) = (next, place.request, granted);
        if begin.elapsed() > ENOUGH {
            break;
        }
    }
    only(parties[holder].backend.release(&[Hold::new(lock, &owners[holder], request, token)]))?;
    Ok(judged(times, n_told, without.into()))
}

/// What these times tell, of which so many ended by a wake-up.
fn judged(times: Vec<Duration>, n_told: usize, without: Text) -> (Verdict, Text) {
    let n = times.len();
    let (middle, _, text) = spread(times);
    match n - n_told {
        0 if middle <= SLOW => (Verdict::Good, text.into()),
        0 => (Verdict::Note, (text + "; a server that is nearer is quicker").into()),
        n_polled => (
            Verdict::Note,
            without.reworded(|without| {
                format!("{text}; {n_polled} of {n} by polling, since no wake-up arrived: {without}")
            }),
        ),
    }
}
