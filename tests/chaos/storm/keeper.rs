//! The real servers and the files that keep the locks, and the ways of the clients to them.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use fairlock::admin::LockName;
use fairlock::admin::LockState;
use fairlock::backend::Backend;
use fairlock::{FileBackend, PostgresBackend, RedisBackend};
use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::{PostgresServer, Proxy, RedisServer, keys_without_ttl};

use crate::files::Files;
use crate::late::Mark;
use crate::life::Life;
use crate::rows::Rows;
use crate::small::Small;
use crate::weather::{Fault, Harm, Loss};
use crate::world::{World, locked};

/// A day, for which the row of an unused lock stays, in microseconds.
const DAY: &str = "86400000000";
/// For how long a queue remembers, in microseconds.
const REMEMBERED: &str = "122000000";

/// What keeps the locks of a program.
pub enum Keeper {
    Redis(RedisServer),
    /// In a world.
    Small(Small),
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
    pub fn way(&self, client: usize, distance: Duration) -> Way {
        let way = match self {
            Keeper::Redis(server) => Way::Redis(Proxy::start(server.port())),
            Keeper::Postgres(database) => {
                let proxy = Proxy::start(database.server.port());
                let url = proxy.in_place_of_server(&database.url);
                Way::Postgres(proxy, url)
            }
            Keeper::Files(files) => Way::Files(files.locks()),
            Keeper::Small(_) => Way::Small(number(client)),
        };
        if let Some(proxy) = way.proxy().filter(|_| !distance.is_zero()) {
            proxy.set_all(&Traffic::ALL, Rule::Delay(distance));
        }
        way
    }

    /// On PostgreSQL.
    pub fn rows(&self) -> Option<Rows> {
        match self {
            Keeper::Redis(_) | Keeper::Files(_) | Keeper::Small(_) => None,
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
            Keeper::Small(small) => small.suffers(&["FREEZE", "1"]),
        }
    }

    /// They go on.
    pub fn cont(&self) {
        match self {
            Keeper::Redis(server) => server.cont(),
            Keeper::Postgres(database) => database.server.cont(),
            Keeper::Files(files) => files.cont(),
            Keeper::Small(small) => small.suffers(&["FREEZE", "0"]),
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
            Keeper::Small(small) => {
                small.suffers(&["RESTART", if times.is_multiple_of(2) { "0" } else { "150" }, "same"])
            }
        }
    }

    /// In a world: what the network does to these clients, which no other store suffers.
    pub fn disturb(&self, client: u8, fault: &Fault) {
        let Keeper::Small(small) = self else { return };
        let client = client.to_string();
        let lasts = fault.lasts.as_millis().to_string();
        match fault.harm {
            Harm::Sever => small.suffers(&["CUT", &client]),
            Harm::Forget(Loss::Older) => small.suffers(&["RESTART", &lasts, "older"]),
            Harm::Forget(Loss::Empty) => small.suffers(&["RESTART", &lasts, "empty"]),
            Harm::Forget(Loss::Step) => small.suffers(&["STEP", &lasts]),
            Harm::Hush { new } => {
                small.suffers(&["SNAPSHOT"]);
                small.suffers(&["HUSH", &client, &lasts, if new { "1" } else { "0" }]);
            }
            _ => {}
        }
    }

    /// What is there and should have gone, once all clients have ended.
    pub fn left(&self, world: &World) -> Vec<String> {
        match self {
            Keeper::Small(small) => {
                let keys: Vec<String> = small.query(&["KEYS", "*"]);
                let forever = small.left(&keys);
                let members = |key: &str| small.query(&["ZRANGE", key, "0", "-1"]);
                keys.into_iter().filter(|key| !may_be_left(world, key, members)).chain(forever).collect()
            }
            Keeper::Redis(server) => {
                let mut left: Vec<String> = server.query(&["KEYS", "*"]);
                left.retain(|key| !may_be_left(world, key, |key| server.query(&["ZRANGE", key, "0", "-1"])));
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

/// Whether it is a record, or a queue of places that messages made which arrived after the end of their clients: nobody is left to
/// withdraw them.
fn may_be_left(world: &World, key: &str, members: impl Fn(&str) -> Vec<String>) -> bool {
    let is_orphan = |member: &String| {
        let owner = member.rsplit_once(':').map_or("", |(owner, _)| owner);
        let hushes =
            |fault: &Fault, life: &Life| matches!(fault.harm, Harm::Hush { .. }) && fault.hits(life.client);
        world.life_of(owner).is_some_and(|life| {
            locked(&life.fate).sends_late || world.weather.faults().iter().any(|fault| hushes(fault, &life))
        })
    };
    key.starts_with("fairlock_record")
        || key.starts_with("fairlock_queue:") && members(key).iter().all(is_orphan)
}

/// The way of one client, through a proxy where there is a server.
pub enum Way {
    Redis(Proxy),
    /// And the database by this way.
    Postgres(Proxy, String),
    /// The directory.
    Files(PathBuf),
    /// The client's number.
    Small(u8),
}

impl Way {
    fn proxy(&self) -> Option<&Proxy> {
        match self {
            Way::Redis(proxy) | Way::Postgres(proxy, _) => Some(proxy),
            Way::Files(_) | Way::Small(_) => None,
        }
    }

    /// None if the server does not answer.
    pub fn connect(&self, response: Duration) -> Option<Arc<dyn Backend>> {
        Some(match self {
            Way::Redis(_) | Way::Small(_) => {
                let url =
                    if let Way::Small(client) = self { Small::url(*client) } else { self.proxy()?.url() };
                Arc::new(RedisBackend::builder(&url).response_timeout(response).connect().ok()?)
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
            (Mark::Request(request), Way::Small(client)) => hold_back(*client, &request.to_string(), by),
            (Mark::Lock(name), Way::Small(client)) => hold_back(*client, name, by),
            (_, Way::Files(_)) => unreachable!("programs on files hold nothing back"),
        }
    }

    pub fn held_back(&self) -> usize {
        self.proxy().map_or(0, Proxy::held_back)
    }
}

/// The address of a client in a world.
pub fn number(client: usize) -> u8 {
    u8::try_from(client + 1).expect("few clients")
}

fn hold_back(client: u8, text: &str, by: Duration) {
    Small.suffers(&["LATE", &client.to_string(), text, &by.as_millis().to_string()]);
}
