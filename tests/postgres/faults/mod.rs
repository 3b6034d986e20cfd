//! The PostgreSQL store when servers, networks and processes fail.

mod disk;
mod distance;
mod held;
mod hosts;
mod load;
mod messages;
mod network;
mod processes;
mod restarts;
mod support;
