//! Connections to a server: addresses, the protocol, and which connection a call gets.
//!
//! ```text
//!  pool         connections that are lent for one call   open   connects and logs in   schema   the tables and their layout
//!     └► connection   a session: flights of statements, and their answers
//!          ├► statement   a statement with its values   address   also of TLS
//!          └► failure     what went wrong, and which error that is
//! ```

pub(crate) mod address;
mod connection;
mod failure;
mod open;
pub(crate) mod pool;
pub(crate) mod schema;
pub(crate) mod statement;

pub(crate) use connection::Connection;
pub(crate) use failure::Failure;
pub(crate) use open::{log_in_at, open};
pub(crate) use statement::{Row, Statement};
