//! Faults of the server, of its administrators, of other users of its keys, and servers that lie. Each test checks
//! the promised bound for holders and waiters. `tests/chaos/faults/servers.md` has the table of all faults.
//!
//! | file | what it has |
//! | --- | --- |
//! | `server_faults/servers.rs` | pauses, restarts, refusals: the server itself |
//! | `server_faults/admins.rs` | keys and rights that change under a lock |
//! | `server_faults/hostile.rs` | floods, poison, guessing |
//! | `server_faults/lies.rs` | a server that lies |
//! | `server_faults/looks.rs` | queries about a server |
//! | `server_faults/scene.rs` | a lock that is held and wanted, and what becomes of both |
//! | `server_faults/support.rs` | clients with short times, and the bounds that follow from them |

mod admins;
mod hostile;
mod lies;
mod looks;
mod scene;
mod servers;
mod support;
