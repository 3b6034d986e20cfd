//! The PostgreSQL store against real servers.

mod encodings;
mod guide;
mod held;
mod settings;
mod standby;
