//! A model of fairlock's hand-off: one lock, two or three clients, and a network that does its worst.
//!
//! | file | what it has |
//! | --- | --- |
//! | `rules` | the rules that were tried and are wrong, one name each |
//! | `bounds` | how much of each evil a check allows, and what time means in it |
//! | `server` | the scripts: `fairlock-redis/scripts/hand_off/` in Rust |
//! | `client` | what a client believes and what it sends next: `fairlock-core/src/claim/` in Rust |
//! | `state` | one moment of the whole, with all that is under way |
//! | `steps` | all that can happen next |
//! | `properties` | what has to hold, and what has to be possible |

pub mod bounds;
pub mod client;
pub mod properties;
pub mod rules;
pub mod server;
pub mod state;
pub mod steps;
