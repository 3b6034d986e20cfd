//! `durable`: a server that has forgotten holds grants nothing until no client can believe in one of them, and holders claim
//! theirs again.

mod claims;
mod forgets;
mod settings;
mod support;
