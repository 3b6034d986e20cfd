//! The PostgreSQL store when servers, networks and processes fail, and the ways to reach a server.

mod disk;
mod distance;
mod hosts;
mod load;
mod messages;
mod network;
mod processes;
mod restarts;
mod sessions;
mod support;
mod tls;
