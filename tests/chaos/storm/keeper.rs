//! The real servers and the files that keep the locks, and the ways of the clients to them.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use fairlock::backend::{Backend, LockState};
use fairlock::{FileBackend, LockName, PostgresBackend, RedisBackend};
use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::{PostgresServer, Proxy, RedisServer, keys_without_ttl};

use crate::files::Files;
use crate::late::Mark;
use crate::rows::Rows;
use crate::weather::Fault;
use crate::world::{World, locked};

/// A day, for which the row of an unused lock stays, in microseconds.
const DAY: &str = "86400000000";
/// For how long a queue remembers, in microseconds.
const REMEMBERED: &str = "122000000";

/// What keeps the locks of a program.
pub enum Keeper {
    Redis(RedisServer),
    Postgres(Database),
    Files(Files),
}

/// A database of a server that others use too. It is dropped with this value.
pub struct Database {
    server: Arc<PostgresServer>,
    url: String,
}

impl Database {
    pub fn new(server: &Arc<PostgresServer>) -> Database {
        Database { url: server.new_database(), server: Arc::clone(server) }
    }

    fn name(&self) -> &str {
        self.url.rsplit_once('/').map_or("", |(_, name)| name)
    }

    /// The first column of the rows.
    fn query(&self, sql: &str) -> Vec<String> {
        let rows = self.server.con_to(self.name()).query(sql, &[]).expect("a running server");
        rows.iter().map(|row| row.get(0)).collect()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.server.cont();
        if let Ok(mut con) = self.server.try_con("postgres") {
            let _ = con.batch_execute(&format!("drop database {} with (force)", self.name()));
        }
    }
}

impl Keeper {
    /// A client's way to the keeper, of this length. All ways to files have the same length.
    pub fn way(&self, distance: Duration) -> Way {
        let way = match self {
            Keeper::Redis(server) => Way::Redis(Proxy::start(server.port())),
            Keeper::Postgres(database) => {
                let proxy = Proxy::start(database.server.port());
                let url = proxy.in_place_of_server(&database.url);
                Way::Postgres(proxy, url)
            }
            Keeper::Files(files) => Way::Files(files.locks()),
        };
        if let Some(proxy) = way.proxy().filter(|_| !distance.is_zero()) {
            proxy.set_all(&Traffic::ALL, Rule::Delay(distance));
        }
        way
    }

    /// On PostgreSQL.
    pub fn rows(&self) -> Option<Rows> {
        match self {
            Keeper::Redis(_) | Keeper::Files(_) => None,
            Keeper::Postgres(database) => {
                Some(Rows { server: Arc::clone(&database.server), database: database.name().to_owned() })
            }
        }
    }

    /// What others do to a lock while such a fault lasts.
    pub fn trouble(&self, lock: &str, fault: &Fault, lasts: Duration) -> Option<JoinHandle<()>> {
        match self {
            Keeper::Files(files) => Some(files.take_and_die(lock, lasts)),
            _ => Some(self.rows()?.lock(vec![lock.to_owned()], fault.harm.each(), lasts)),
        }
    }

    /// Its processes stand still.
    pub fn stop(&self) {
        match self {
            Keeper::Redis(server) => server.stop(),
            Keeper::Postgres(database) => database.server.stop(),
            Keeper::Files(files) => files.stop(),
        }
    }

    /// They go on.
    pub fn cont(&self) {
        match self {
            Keeper::Redis(server) => server.cont(),
            Keeper::Postgres(database) => database.server.cont(),
            Keeper::Files(files) => files.cont(),
        }
    }

    /// A server on Redis also forgets the scripts, and every second time it is killed and restarted with all that it acknowledged.
    /// On files the sockets are removed, and clients that have one hear no more.
    pub fn kill_connections(&self, times: usize) {
        match self {
            Keeper::Redis(server) if times.is_multiple_of(2) => server.restart(),
            Keeper::Redis(server) => {
                for kind in ["normal", "pubsub"] {
                    let _: i64 = server.query(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
                }
                server.query::<()>(&["SCRIPT", "FLUSH"]);
            }
            Keeper::Postgres(database) => {
                database.query(
                    "select pg_terminate_backend(pid)::text from pg_stat_activity
                     where datname = current_database() and pid <> pg_backend_pid()",
                );
            }
            Keeper::Files(files) => files.deafen(),
        }
    }

    /// What is there and should have gone, once all clients have ended.
    pub fn left(&self, world: &World) -> Vec<String> {
        match self {
            Keeper::Redis(server) => {
                let may_be_left =
                    |key: &String| key.starts_with("fairlock_record") || has_only_orphans(server, world, key);
                let mut left: Vec<String> = server.query(&["KEYS", "*"]);
                left.retain(|key| !may_be_left(key));
                let forever = keys_without_ttl(server);
                left.extend(forever.iter().map(|key| format!("{key}, without a time to live")));
                left.extend(server.clients());
                left
            }
            // The row of an unused lock stays for a day, and is deleted by any client then. Before that its queue remembers for two
            // minutes who was silent: a message that arrives after its withdrawal leaves such a one.
            Keeper::Postgres(database) => {
                let mut left = database.query(
                    "select 'session ' || pid || ': ' || query from pg_stat_activity
                     where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'",
                );
                left.extend(database.query(&format!(
                    "select 'row ' || convert_from(name, 'UTF8') || ', in use' from fairlock.lock
                     where dead_at > fairlock.micros() + {DAY} + {REMEMBERED}"
                )));
                let used = PostgresBackend::connect(&database.url).and_then(|backend| backend.locks(None));
                left.extend(in_use(used));
                left
            }
            Keeper::Files(files) => files.left(world),
        }
    }
}

/// The locks that are listed as in use, or why they can't be listed.
pub fn in_use(listed: fairlock::Result<Vec<(LockName, LockState)>>) -> Vec<String> {
    match listed {
        Ok(used) => used.iter().map(|(name, state)| format!("{name}: {state:?}")).collect(),
        Err(error) => vec![error.to_string()],
    }
}

/// Whether it is a queue of places that messages made which arrived after the end of their clients: nobody is left to withdraw them.
fn has_only_orphans(server: &RedisServer, world: &World, key: &str) -> bool {
    let is_orphan = |member: &String| {
        let owner = member.rsplit_once(':').map_or("", |(owner, _)| owner);
        world.life_of(owner).is_some_and(|life| locked(&life.fate).sends_late)
    };
    let members = || server.query::<Vec<String>>(&["ZRANGE", key, "0", "-1"]);
    key.starts_with("fairlock_queue:") && members().iter().all(is_orphan)
}

/// The way of one client, through a proxy where there is a server.
pub enum Way {
    Redis(Proxy),
    /// And the database by this way.
    Postgres(Proxy, String),
    /// The directory.
    Files(PathBuf),
}

impl Way {
    fn proxy(&self) -> Option<&Proxy> {
        match self {
            Way::Redis(proxy) | Way::Postgres(proxy, _) => Some(proxy),
            Way::Files(_) => None,
        }
    }

    /// None if the server does not answer.
    pub fn connect(&self, response: Duration) -> Option<Arc<dyn Backend>> {
        Some(match self {
            Way::Redis(proxy) => {
                let built = RedisBackend::builder(&proxy.url()).response_timeout(response);
                Arc::new(built.connect().ok()?)
            }
            Way::Postgres(_, url) => {
                let built = PostgresBackend::builder(url).response_timeout(response);
                Arc::new(built.connect().ok()?)
            }
            Way::Files(dir) => Arc::new(FileBackend::open(dir).ok()?),
        })
    }

    /// The next command with this mark gets no answer, and arrives so much later.
    pub fn hold_back(&self, mark: &Mark, by: Duration) {
        match (mark, self) {
            (Mark::Request(request), Way::Redis(proxy)) => proxy.hold_back(&request.to_string(), by),
            (Mark::Lock(name), Way::Redis(proxy)) => proxy.hold_back(name, by),
            // A number has eight bytes there.
            (Mark::Request(request), Way::Postgres(proxy, _)) => {
                proxy.hold_back_in_session(&request.get().to_be_bytes(), by)
            }
            (Mark::Lock(name), Way::Postgres(proxy, _)) => proxy.hold_back_in_session(name.as_bytes(), by),
            (_, Way::Files(_)) => unreachable!("programs on files hold nothing back"),
        }
    }

    pub fn held_back(&self) -> usize {
        self.proxy().map_or(0, Proxy::held_back)
    }
}
