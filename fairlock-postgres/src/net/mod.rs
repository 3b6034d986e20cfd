//! Connections to a server: addresses, the protocol, and which connection a call gets.
//!
//! ```text
//!  pool         connections that are lent for one call   open   connects and logs in   layout   the number of the tables' layout
//!     └► connection   a session: flights of statements, and their answers   login
//!          ├► wire        its bytes and messages
//!          ├► statement   a statement with its values   rows   what comes back
//!          └► failure     what went wrong, and which error that is   address   tls   encoding
//! ```

pub(crate) mod address;
mod connection;
mod encoding;
mod failure;
mod layout;
mod login;
mod open;
pub(crate) mod pool;
mod rows;
mod statement;
mod tls;
mod wire;

pub(crate) use connection::Connection;
pub(crate) use encoding::Encoding;
pub(crate) use failure::{Failure, identifier};
pub(crate) use layout::{LAYOUT, check, newer};
pub(crate) use open::{log_in_at, open};
pub(crate) use rows::Row;
pub(crate) use statement::{BYTEA, INT8, Statement, Value};
pub(crate) use tls::TlsConfig;
