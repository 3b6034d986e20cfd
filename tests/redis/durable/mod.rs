//! `durable`: a server that has forgotten holds grants nothing until no client can believe in one of them, and holders reclaim
//! theirs again.

mod forgets;
mod reclaims;
mod settings;
mod support;
