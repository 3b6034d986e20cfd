//! The flows, the watchdog and the wake-ups, on a clock that the tests move and on a store that answers as they tell it.

mod acquire;
mod backlog;
mod debug;
mod drain;
mod first_attempts;
mod late;
mod leaks;
mod least;
mod leave;
mod lock_all;
pub(crate) mod logger;
#[cfg(feature = "metrics")]
mod metered;
pub(crate) mod names;
mod outage;
mod panics;
mod release;
mod renew;
pub(crate) mod scene;
mod settled;
mod shutdown;
mod slow_wait;
pub(crate) mod store;
mod support;
mod tasks;
mod units;
mod unsent;
mod wake;
mod watchdog;
