//! `fairlock run` against real servers, and killed at every stage.

mod as_flock;
mod codes;
mod conditions;
#[cfg(feature = "night")]
mod durable;
mod first_process;
#[cfg(feature = "night")]
mod killed;
#[cfg(feature = "night")]
mod lost;
mod nested;
#[cfg(feature = "night")]
mod outages;
#[cfg(feature = "night")]
mod screen;
mod several;
mod signals;
#[cfg(feature = "night")]
mod terminal;
