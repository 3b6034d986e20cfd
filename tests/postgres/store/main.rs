//! The PostgreSQL store against real servers.

mod encodings;
mod guide;
mod held;
mod histories;
mod settings;
mod standby;
