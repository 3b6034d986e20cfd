//! A third model: the weighted line of read-write locks and semaphores. A lock has a capacity, a request takes some units
//! of it, and each hold has its own end.
//!
//! | file | what it has |
//! | --- | --- |
//! | `rules` | the wrong rules that were tried, by name |
//! | `bounds` | the units, the times, the faults, and the kind of time |
//! | `store` | what the server keeps |
//! | `server` | the scripts |
//! | `client` | what a client believes and sends next |
//! | `state` | one state, with all messages in flight |
//! | `numbers` | the canonical form of a state |
//! | `steps` | all possible next steps |
//! | `properties` | what must hold, and what must be possible |
//! | `witnesses` | the events behind what must be possible |

pub mod bounds;
pub mod client;
pub mod numbers;
pub mod properties;
pub mod rules;
pub mod server;
pub mod state;
pub mod steps;
pub mod store;
pub mod witnesses;
