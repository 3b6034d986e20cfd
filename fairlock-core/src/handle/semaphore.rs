//! A handle of a number of permits, which their holders share.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::handle::as_lock::{as_lock, terms};
use crate::handle::caller::Caller;
use crate::handle::guard::{OwnedGuard, TryLock};
use crate::handle::lock::{Lock, OwnedLock};
use crate::handle::owner::Owner;
use crate::handle::request::OwnedRequest;
use crate::handle::tasks::{AsyncGuard, AsyncLock};

/// What threads and tasks call alike; a task's handle has `async` calls, which `await` those of a lock.
macro_rules! acquires {
    ($handle:ident, $guard:ident $(, $async:tt $await:tt)?) => {
        impl $handle {
            /// How many permits there are.
            pub fn permits(&self) -> u32 {
                self.all.kind().capacity()
            }

            /// Waits for a permit, without a time limit.
            ///
            /// # Errors
            /// See [`Semaphore`].
            pub $($async)? fn acquire(&self) -> Result<$guard> {
                self.acquire_many(1)$(.$await)?
            }

            /// Waits for `n` permits, which are granted and released together, without a time limit.
            ///
            /// # Errors
            /// See [`Semaphore`].
            pub $($async)? fn acquire_many(&self, n: u32) -> Result<$guard> {
                self.lock_of(n)?.lock()$(.$await)?
            }

            /// Makes one attempt to get a permit. It never passes a waiter.
            ///
            /// # Errors
            /// See [`Semaphore`].
            pub $($async)? fn try_acquire(&self) -> Result<TryLock<$guard>> {
                self.try_acquire_many(1)$(.$await)?
            }

            /// Makes one attempt to get `n` permits. It never passes a waiter.
            ///
            /// # Errors
            /// See [`Semaphore`].
            pub $($async)? fn try_acquire_many(&self, n: u32) -> Result<TryLock<$guard>> {
                self.lock_of(n)?.try_lock()$(.$await)?
            }

            /// As [`acquire`](Self::acquire), but waits at most `timeout`; zero is [`try_acquire`](Self::try_acquire).
            ///
            /// # Errors
            /// See [`Semaphore`].
            pub $($async)? fn try_acquire_for(&self, timeout: Duration) -> Result<TryLock<$guard>> {
                self.try_acquire_many_for(1, timeout)$(.$await)?
            }

            /// As [`acquire_many`](Self::acquire_many), but waits at most `timeout`.
            ///
            /// # Errors
            /// See [`Semaphore`].
            pub $($async)? fn try_acquire_many_for(&self, n: u32, timeout: Duration) -> Result<TryLock<$guard>> {
                self.lock_of(n)?.try_lock_for(timeout)$(.$await)?
            }
        }
    };
}

/// A handle of a named semaphore: at most this many permits are held at once. Made by
/// [`Client::semaphore`](crate::Client::semaphore). Cheap to clone.
///
/// # Order
/// Requests stand in one queue and are served in the order in which they asked, by the number of their permits: a request for five
/// is not passed by requests for one that came later. A release grants all requests at the head that fit. Each hold has its own
/// lease: a holder that dies keeps its permits for its lease at most.
///
/// # Owners
/// Each call is a new owner, so permits are not re-entrant: a caller that holds all permits and asks for one more waits for
/// itself. Guards and requests may move between threads. With [`owned_by`](Self::owned_by) the owner's calls are re-entries, as
/// with locks. A [leaked](OwnedGuard::leak) guard's permits are gone until its client ends, or an operator takes them.
///
/// # Tokens
/// Each grant has a greater token than all before it. The token names a hold, but it is no fence: other holders are at work with
/// smaller and with greater ones. Only where all permits are taken at once does it fence, as a writer's does.
///
/// ```
/// # use fairlock::{Client, Error, MemoryBackend, TryLock};
/// # let client = Client::new(MemoryBackend::new())?;
/// let mails = client.semaphore("mails", 5)?; // five at once, in all processes
/// let permit = mails.acquire()?;
/// let two_more = mails.acquire_many(2)?; // granted and released together
/// assert_eq!(mails.inspect()?.taken(), 3);
/// assert!(matches!(mails.try_acquire_many(3)?, TryLock::Busy(_)));
/// assert!(matches!(mails.acquire_many(6), Err(Error::InvalidConfig { .. })));
/// # Ok::<(), fairlock::Error>(())
/// ```
///
/// The errors of all calls are those of [`Lock`]; [`Error::InvalidConfig`] for no permit or more than there are; and
/// [`Error::Mismatch`] where the name is in use with another number of permits, or for a lock of another kind. To change the number
/// in a running fleet, use a new name.
#[derive(Clone, Debug)]
pub struct Semaphore {
    all: Lock,
    owner: Option<Owner>,
}

impl Semaphore {
    /// `all` takes all permits.
    pub(super) fn new(all: Lock) -> Semaphore {
        Semaphore { all, owner: None }
    }

    /// Takes a place in the queue for a permit and returns at once. See [`Lock::request`].
    ///
    /// ```
    /// # use fairlock::{Client, MemoryBackend};
    /// # let client = Client::new(MemoryBackend::new())?;
    /// let request = client.semaphore("mails", 5)?.request()?;
    /// request.decided().recv().expect("the request is open"); // or in a `select!`
    /// let permit = request.wait()?;
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`Semaphore`].
    pub fn request(&self) -> Result<OwnedRequest> {
        self.request_many(1)
    }

    /// As [`request`](Self::request), for `n` permits.
    ///
    /// # Errors
    /// See [`Semaphore`].
    pub fn request_many(&self, n: u32) -> Result<OwnedRequest> {
        self.lock_of(n)?.request()
    }

    /// This semaphore for tasks. Each wait is its own owner, even if [`owned_by`](Self::owned_by) has named one.
    pub fn to_async(&self) -> AsyncSemaphore {
        AsyncSemaphore { all: self.all.to_async() }
    }

    fn lock_of(&self, n: u32) -> Result<OwnedLock> {
        let Caller { shared, lock, terms, cancel, .. } = self.all.0.clone();
        if !(1..=self.permits()).contains(&n) {
            let most = match self.permits() {
                1 => "1".to_owned(),
                all => format!("1 to {all}"),
            };
            let reason = format!("{n} permits of {}, which is a {}: ask for {most}", lock.name, lock.kind);
            return Err(Error::InvalidConfig { reason, setting: None });
        }
        // An owner that was given is this client's: `owned_by` has checked it.
        let owner = self.owner.clone().unwrap_or_else(|| Owner::new(shared.id));
        Ok(Lock(Caller { shared, lock, owner, terms, units: n, cancel }))
    }

    /// A handle whose permits belong to `owner`. An owner that holds some gets as many or fewer again at once, as a re-entry that
    /// takes no more; asking for more than it holds is [`Error::Misuse`].
    ///
    /// # Errors
    /// [`Error::Misuse`] for the owner of another client.
    pub fn owned_by(&self, owner: &Owner) -> Result<Semaphore> {
        self.all.owned_by(owner)?;
        Ok(Semaphore { all: self.all.clone(), owner: Some(owner.clone()) })
    }

    fn with_lock(&self, change: impl Fn(&Lock) -> Lock) -> Semaphore {
        Semaphore { all: change(&self.all), owner: self.owner.clone() }
    }
}

acquires!(Semaphore, OwnedGuard);
terms!(Semaphore);
as_lock!(Semaphore, all all);

/// A [`Semaphore`] for tasks, made by [`AsyncClient::semaphore`](crate::AsyncClient::semaphore).
#[derive(Clone, Debug)]
pub struct AsyncSemaphore {
    all: AsyncLock,
}

impl AsyncSemaphore {
    /// A handle whose `lock` is [`acquire_many`](Self::acquire_many), for work in closures and for the rank of a wait.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] for no permit or more than there are.
    pub fn lock_of(&self, n: u32) -> Result<AsyncLock> {
        let all = Lock(self.all.0.clone());
        Ok(Semaphore::new(all).lock_of(n)?.to_async())
    }

    fn with_lock(&self, change: impl Fn(&Lock) -> Lock) -> AsyncSemaphore {
        AsyncSemaphore { all: self.all.with_lock(change) }
    }
}

acquires!(AsyncSemaphore, AsyncGuard, async await);
terms!(AsyncSemaphore);
as_lock!(AsyncSemaphore, all all, async await);
