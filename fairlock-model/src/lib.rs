//! A model of fairlock's hand-off: one lock, two or three clients, and a faulty network.
//!
//! | file | what it has |
//! | --- | --- |
//! | `rules` | the wrong rules that were tried, by name |
//! | `bounds` | the faults of a check, and its kind of time |
//! | `messages` | commands, answers, pushes |
//! | `server` | the scripts: `fairlock-redis/scripts/line/` in Rust |
//! | `by_owner` | the scripts of plain locks and of Redisson's line, in short |
//! | `client` | what a client believes and sends next: `fairlock-core/src/claim/` in Rust |
//! | `settle` | what a client does about attempts that were never answered |
//! | `state` | one state of the whole system, with all messages in flight |
//! | `steps` | all possible next steps |
//! | `outcomes` | what follows from a step |
//! | `properties` | what must hold, and what must be possible |
//! | `fail_over` | a second model, of several servers |
//! | `weighted` | a third model, of a line whose requests take several units |

pub mod bounds;
mod by_owner;
pub mod client;
pub mod fail_over;
pub mod messages;
mod outcomes;
pub mod properties;
pub mod rules;
pub mod server;
pub mod settle;
pub mod state;
pub mod steps;
pub mod weighted;
