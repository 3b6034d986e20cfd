//! What an operator does with a lock, in a task. Each call begins with its first poll, and goes on if its future is dropped.

use std::ops::Range;

use super::{AsyncLock, asked};
use crate::backend::{LockState, Waiter};
use crate::error::Result;
use crate::handle::lock::Lock;
use crate::ids::OwnerId;

impl AsyncLock {
    async fn ask<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Lock) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let lock = Lock(self.0.clone());
        asked(&self.0.shared, &self.0.lock.name, move || call(&lock)).await
    }

    /// As [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Errors
    /// As [`Lock::inspect`](crate::Lock::inspect).
    pub async fn is_locked(&self) -> Result<bool> {
        self.ask(|lock| lock.is_locked()).await
    }

    /// As [`Lock::inspect`](crate::Lock::inspect).
    ///
    /// # Errors
    /// As [`Lock::inspect`](crate::Lock::inspect).
    pub async fn inspect(&self) -> Result<LockState> {
        self.ask(|lock| lock.inspect()).await
    }

    /// As [`Lock::inspect_queue`](crate::Lock::inspect_queue).
    ///
    /// # Errors
    /// As [`Lock::inspect`](crate::Lock::inspect).
    pub async fn inspect_queue(&self, part: Range<u64>) -> Result<LockState> {
        self.ask(|lock| lock.inspect_queue(part)).await
    }

    /// As [`Lock::find_waiter`](crate::Lock::find_waiter).
    ///
    /// # Errors
    /// As [`Lock::inspect`](crate::Lock::inspect).
    pub async fn find_waiter(&self, owner: &OwnerId) -> Result<Option<(u64, Waiter)>> {
        let owner = owner.clone();
        self.ask(move |lock| lock.find_waiter(&owner)).await
    }

    /// As [`Lock::force_unlock`](crate::Lock::force_unlock).
    ///
    /// # Errors
    /// As [`Lock::force_unlock`](crate::Lock::force_unlock).
    pub async fn force_unlock(&self) -> Result<bool> {
        self.ask(|lock| lock.force_unlock()).await
    }

    /// As [`Lock::force_unlock_of`](crate::Lock::force_unlock_of).
    ///
    /// # Errors
    /// As [`Lock::inspect`](crate::Lock::inspect).
    pub async fn force_unlock_of(&self, owner: &OwnerId) -> Result<bool> {
        let owner = owner.clone();
        self.ask(move |lock| lock.force_unlock_of(&owner)).await
    }

    /// As [`Lock::kick`](crate::Lock::kick).
    ///
    /// # Errors
    /// As [`Lock::inspect`](crate::Lock::inspect).
    pub async fn kick(&self, waiter: &Waiter) -> Result<bool> {
        let waiter = waiter.clone();
        self.ask(move |lock| lock.kick(&waiter)).await
    }
}
