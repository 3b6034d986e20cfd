//! Calls that block, for tasks: each runs on a thread of the crate `blocking`.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use blocking::{Task, unblock};

use super::Ends;

/// A call that has begun. It goes on when this is dropped: nothing is left half done, and a manual clock meets each thread that was
/// announced to it.
struct Call<T>(Option<Task<T>>);

impl<T> Future for Call<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match &mut self.0 {
            Some(task) => Pin::new(task).poll(context),
            None => Poll::Pending, // only once it was dropped
        }
    }
}

impl<T> Drop for Call<T> {
    fn drop(&mut self) {
        self.0.take().map_or((), Task::detach)
    }
}

/// Runs what blocks on another thread, from the first poll on. A panic there is one here.
pub(crate) async fn unblocked<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    Call(Some(unblock(call))).await
}

/// The same for a call about this client, which lives until the call's end.
pub(crate) async fn aside<T: Send + 'static>(client: &Ends, call: impl FnOnce() -> T + Send + 'static) -> T {
    let client = client.clone();
    let clock = client.clock();
    clock.announce_background();
    unblocked(move || {
        let _here = clock.attend_in_background();
        let result = call();
        drop(client);
        result
    })
    .await
}

/// Asks the server. A backend that does not block is asked here: under a paused clock of a runtime no other thread may be needed.
pub(crate) async fn asked<T: Send + 'static>(client: &Ends, ask: impl FnOnce() -> T + Send + 'static) -> T {
    if client.is_non_blocking() { ask() } else { aside(client, ask).await }
}
