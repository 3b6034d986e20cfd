//! A second, more abstract model: several servers with a past, copies that come late or never, and fail-overs.
//!
//! | file | what it has |
//! | --- | --- |
//! | `rules` | the wrong rules that were tried, by name |
//! | `bounds` | the times, the faults, and the other limits of a check |
//! | `data` | what a server keeps, and a replica copies |
//! | `state` | servers with their data, clients, calls and pushes in flight |
//! | `server` | the scripts behind the life rule: `scripts/lib/life.lua`, `scripts/hand_off/` |
//! | `reclaims` | renewals and reclaims of holds, and what gives way to them |
//! | `client` | what a client believes |
//! | `steps` | all possible next steps |
//! | `numbers` | the canonical form of a state |
//! | `properties` | what must hold, and what must be possible |

pub mod bounds;
pub mod client;
pub mod data;
pub mod numbers;
pub mod properties;
pub mod reclaims;
pub mod rules;
pub mod server;
pub mod state;
pub mod steps;
