//! The connections to the servers: commands go out over shared connections, wake-ups come in over one a client.
//!
//! ```text
//! topology      which server keeps a lock: one server, the master that sentinels name, a node of a cluster
//! subscription  one connection and one thread that listen on channels
//! commands      a pool of connections to one server
//! connection    one connection: address, look-up, socket, TLS, and how it fails
//! ```
//!
//! Each room imports only those below it. Only this folder knows sockets and broken links; outside it there are
//! replies and [`Failure`](connection::Failure)s.

pub(crate) mod advice;
pub(crate) mod commands;
pub(crate) mod connection;
pub(crate) mod subscription;
pub(crate) mod target;
#[cfg(test)]
pub(crate) mod test_server;
pub(crate) mod topology;
