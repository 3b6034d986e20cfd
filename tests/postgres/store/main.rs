//! The PostgreSQL store against real servers, and the ways to reach a server.

mod encodings;
mod guide;
mod held;
mod sessions;
mod settings;
mod standby;
mod tls;
