//! A program's connection to the store that keeps its locks.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

#[cfg(doc)]
use crate::Error;
use crate::backend::Backend;
use crate::handle::{ClientBuilder, Lock, Owner};
use crate::shared::Shared;
use crate::{ClientId, HeldLock, LockKind, LockName, Lost, Result, Stats, WaitingRequest};

/// Makes locks, and keeps what they hold.
///
/// One for each process is enough: it has one subscription, one watchdog thread and few connections, however
/// many locks and threads use it. Clones are one client. Two clients are two owners even in one thread, and don't
/// re-enter each other's holds. After `fork` without `exec` neither process may use it.
///
/// When the last handle (client, lock, guard, request) is dropped its threads end; leaked holds are then not
/// renewed any more.
#[derive(Clone, Debug)]
pub struct Client(Arc<Shared>);

impl Client {
    /// A client with the default settings.
    ///
    /// # Errors
    /// As [`ClientBuilder::build`].
    pub fn new(backend: impl Backend) -> Result<Client> {
        Client::builder(backend).build()
    }

    /// A client with settings of its own.
    pub fn builder(backend: impl Backend) -> ClientBuilder {
        ClientBuilder::new(Arc::new(backend))
    }

    pub(crate) fn from_shared(shared: Arc<Shared>) -> Client {
        Client(shared)
    }

    /// The first half of all its owners' names.
    pub fn id(&self) -> ClientId {
        self.0.id
    }

    /// A lock whose waiters get it in the order in which they asked.
    ///
    /// # Errors
    /// [`Error::InvalidName`] for a name that is empty or longer than 512 bytes; [`Error::Shutdown`].
    pub fn fair_lock(&self, name: &str) -> Result<Lock> {
        self.make_lock(name, LockKind::Fair)
    }

    /// A lock that goes to whoever comes first after a release.
    ///
    /// # Errors
    /// As [`fair_lock`](Self::fair_lock).
    pub fn plain_lock(&self, name: &str) -> Result<Lock> {
        self.make_lock(name, LockKind::Plain)
    }

    fn make_lock(&self, name: &str, kind: LockKind) -> Result<Lock> {
        let name = LockName::new(name)?;
        self.0.check_running(Some(&name))?;
        Ok(Lock::new(Arc::clone(&self.0), name, kind))
    }

    /// An identity that is not a thread, for [`Lock::owned_by`].
    pub fn new_owner(&self) -> Owner {
        Owner::new(self.0.id)
    }

    /// Has `f` called with each hold that is lost from now on, on a thread of this client's own.
    ///
    /// It may be called many times; each callback stays until the client ends. It must not own a handle of this
    /// client (that would keep the client alive for ever). A panic in it is caught and logged.
    pub fn on_lost(&self, f: impl Fn(&Lost) + Send + Sync + 'static) {
        self.0.loss_callbacks.add(Arc::new(f));
    }

    /// What this client holds now, in no order: also holds that were leaked. Asks nobody.
    pub fn held(&self) -> Vec<HeldLock> {
        self.0.held()
    }

    /// What this client waits for now, in no order, and where in the line. Asks nobody.
    pub fn waiting(&self) -> Vec<WaitingRequest> {
        self.0.waiting()
    }

    /// What happened so far, and who waits now. Asks nobody.
    pub fn stats(&self) -> Stats {
        let counted = self.0.counters.read();
        let reconnects = self.0.backend.reconnects() + counted.gaps;
        Stats { reconnects, waiting: self.0.waiting(), ..counted }
    }

    /// Ends the client. Calls that wait return [`Error::Shutdown`], and so does every later one; nothing is granted any
    /// more. Every hold is marked as lost, *then* given back, every request withdrawn, and what earlier calls left to be
    /// told to the server is told. Then the callbacks of [`on_lost`](Self::on_lost) run, and the threads end.
    ///
    /// All of that takes no longer than the [outage limit](ClientBuilder::outage_limit). A callback that has not ended by
    /// then is not waited for.
    ///
    /// # Errors
    /// [`Error::Unsettled`] when the server could not be told of everything: how much, and which lock is the first. It ends
    /// by itself, with its lease or its place's time to live.
    pub fn shutdown(&self) -> Result<()> {
        self.0.shut_down()
    }
}

// A panic leaves no state of ours half changed: each mutex is held for a few assignments that can't panic.
impl UnwindSafe for Client {}
impl RefUnwindSafe for Client {}
