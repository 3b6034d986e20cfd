//! The model of one server's queue: a lock of one unit or several, two to four clients, and a faulty network.
//!
//! | file | what it has |
//! | --- | --- |
//! | `rules` | the wrong rules that were tried, by name |
//! | `bounds` | units, times, faults, and the kind of time |
//! | `messages` | commands, answers, pushes |
//! | `store` | what the server keeps |
//! | `entry` | the same as a `fairlock_rules::LockEntry`, whose rule it is |
//! | `server` | the operations on it |
//! | `by_owner` | Redisson's queue, in short |
//! | `client` | what a client believes and sends next: `fairlock-core/src/claim/` in Rust |
//! | `settle` | what a client does about attempts that were never answered |
//! | `state` | one state of the whole system, with all messages in flight |
//! | `numbers` | the canonical form of a state |
//! | `steps` | all possible next steps |
//! | `outcomes` | what follows from a step |
//! | `properties` | what must hold, and what must be possible |

pub mod bounds;
mod by_owner;
mod client;
mod entry;
mod messages;
mod numbers;
mod outcomes;
pub mod properties;
pub mod rules;
mod server;
mod settle;
mod state;
mod steps;
mod store;
