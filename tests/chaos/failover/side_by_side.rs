//! Rounds at the same time: a round mostly waits.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::Wanted;

/// How long the watch sleeps.
const NAP: Duration = Duration::from_millis(10);
/// A nap that is longer by less than this is none of a machine that stands still.
const STALL: Duration = Duration::from_millis(100);

/// Does this with each, in their order, and with so many at the same time. None begins after the time is over.
pub(crate) fn each<T: Sync>(all: &[T], wanted: &Wanted, work: impl Fn(usize, &T) + Sync) {
    let started = Instant::now();
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..wanted.at_once {
            scope.spawn(|| {
                while wanted.time.is_none_or(|time| started.elapsed() < time) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = all.get(number) else { return };
                    work(number, item);
                }
            });
        }
    });
}

/// Does this; a panic is an error with its message. The other rounds go on.
pub(crate) fn caught<R>(work: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| message(&*panic))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}

/// Watches for how long the machine stands still: a thread measures by how much its naps are too long.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch(Arc<Mutex<Vec<(Instant, Duration)>>>);

impl Watch {
    /// Watches until the process ends.
    pub(crate) fn start() -> Watch {
        let watch = Watch::default();
        let seen = watch.clone();
        thread::spawn(move || {
            loop {
                let before = Instant::now();
                thread::sleep(NAP);
                let stood = before.elapsed().saturating_sub(NAP);
                if stood >= STALL {
                    seen.0.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), stood));
                }
            }
        });
        watch
    }

    /// For how long it stood still since then, in all.
    pub(crate) fn stood_still_since(&self, time: Instant) -> Duration {
        let stalls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stalls.iter().rev().take_while(|(ended, _)| *ended >= time).map(|(_, stood)| *stood).sum()
    }
}
