//! For a backend that does what another one does, but for a few methods: [`forward_to_inner`](crate::forward_to_inner), and the
//! types that it names.

pub use std::ops::Range;
pub use std::sync::Arc;
pub use std::time::Duration;

pub use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, ForceReleased, Hold, LockId, LockState, Place, Released, Renew,
    Renewal, RequestId, Subscription, WakeSink, Withdrawn,
};
pub use fairlock_core::{ClientId, Clock, LockKind, OwnerId};

/// What came of a question.
pub type Answer<A> = Result<A, BackendError>;

/// Inside an `impl Backend`: these methods are those of the backend in the field `inner`.
///
/// ```
/// use fairlock_conformance::forward::*;
///
/// /// Says what it releases.
/// struct Loud {
///     inner: Arc<dyn Backend>,
/// }
///
/// impl Backend for Loud {
///     fn release(&self, holds: &[Hold<'_>]) -> Vec<Answer<Released>> {
///         println!("{holds:?}");
///         self.inner.release(holds)
///     }
///
///     fairlock_conformance::forward_to_inner! { acquire adopt renew withdraw force_release inspect subscribe }
/// }
/// ```
#[macro_export]
macro_rules! forward_to_inner {
    ($($method:ident)*) => { $($crate::forward_to_inner!(@$method);)* };
    (@acquire) => { $crate::forward_to_inner!(= acquire(asks: &[Acquire<'_>]) -> Vec<Answer<Acquired>>); };
    (@release) => { $crate::forward_to_inner!(= release(holds: &[Hold<'_>]) -> Vec<Answer<Released>>); };
    (@adopt) => { $crate::forward_to_inner!(= adopt(hold: &Hold<'_>, owner: &OwnerId, lease: Duration) -> Answer<Renewal>); };
    (@renew) => { $crate::forward_to_inner!(= renew(client: ClientId, items: &[Renew<'_>]) -> Vec<Answer<Renewal>>); };
    (@withdraw) => { $crate::forward_to_inner!(= withdraw(places: &[Place<'_>]) -> Vec<Answer<Withdrawn>>); };
    (@force_release) => { $crate::forward_to_inner!(= force_release(lock: &LockId) -> Answer<ForceReleased>); };
    (@inspect) => { $crate::forward_to_inner!(= inspect(lock: &LockId, part: Range<u64>) -> Answer<LockState>); };
    (@subscribe) => { $crate::forward_to_inner!(= subscribe(client: ClientId, sink: Arc<dyn WakeSink>) -> Answer<Subscription>); };
    (@reconnects) => { $crate::forward_to_inner!(= reconnects() -> u64); };
    (@supports) => { $crate::forward_to_inner!(= supports(kind: LockKind) -> bool); };
    (@store_clock) => { $crate::forward_to_inner!(= store_clock() -> Option<Clock>); };
    (@response_timeout) => { $crate::forward_to_inner!(= response_timeout() -> Option<Duration>); };
    (@attempt_ttl) => { $crate::forward_to_inner!(= attempt_ttl() -> Option<Duration>); };
    (@keeps_place_by_owner) => { $crate::forward_to_inner!(= keeps_place_by_owner(lock: &LockId) -> bool); };
    (@longest_lease) => { $crate::forward_to_inner!(= longest_lease() -> Option<Duration>); };
    (= $method:ident($($name:ident: $of:ty),*) -> $answer:ty) => {
        fn $method(&self, $($name: $of),*) -> $answer {
            self.inner.$method($($name),*)
        }
    };
}
