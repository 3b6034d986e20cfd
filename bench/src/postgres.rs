//! The peers on PostgreSQL: what a program has there without fairlock.
//!
//! Each thread that holds or waits has a connection to itself, by the blocking driver `postgres`, and its statements are prepared.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use postgres::{Client, NoTls, Statement};

use crate::Outcome;
use crate::fair::Fair;
use crate::peer::{Lock, Peer};
use crate::workload::{Order, cycles_for, say_ops};

/// How long a waiter of the naive table sleeps before it asks again.
const POLLS_EVERY: Duration = Duration::from_millis(10);

const TABLE: &str = "create table if not exists naive (name text primary key, owner bigint not null, until timestamptz not null)";
/// The third value is the lease, in seconds.
const TAKE: &str = "insert into naive as n (name, owner, until) values ($1, $2, clock_timestamp() + $3 * interval '1 s') \
                    on conflict (name) do update set owner = excluded.owner, until = excluded.until \
                    where n.until <= clock_timestamp()";
const GIVE_BACK: &str = "update naive set until = '-infinity' where name = $1 and owner = $2";

/// What the lock is.
#[derive(Clone, Copy)]
pub enum What {
    /// `pg_advisory_lock` of the session: no lease, no token, and nothing is written.
    Advisory,
    /// A row for each lock, with the end of its lease.
    Naive,
}

pub struct Postgres {
    url: String,
    what: What,
    lease: f64,
    /// Those that no thread uses. A new thread takes one of them, so that no measurement connects.
    idle: Mutex<Vec<Session>>,
}

pub struct Handle<'a> {
    postgres: &'a Postgres,
    name: String,
}

/// A connection, and the statements that take a lock and give it back.
struct Session {
    client: Client,
    take: Statement,
    give_back: Statement,
    owner: i64,
}

impl Postgres {
    pub fn new(url: &str, what: What, order: &Order) -> Postgres {
        Postgres { url: url.to_owned(), what, lease: order.lease.as_secs_f64(), idle: Mutex::default() }
    }

    fn session(&self) -> Outcome<Session> {
        let idle = self.idle.lock().pop();
        if let Some(session) = idle {
            return Ok(session);
        }
        let mut client = Client::connect(&self.url, NoTls)?;
        let [take, give_back] = match self.what {
            What::Advisory => [
                "select pg_advisory_lock(hashtextextended($1, 0))",
                "select pg_advisory_unlock(hashtextextended($1, 0))",
            ],
            What::Naive => [TAKE, GIVE_BACK],
        };
        let (take, give_back) = (client.prepare(take)?, client.prepare(give_back)?);
        let owner = client.query_one("select pg_backend_pid()::bigint", &[])?.get(0);
        Ok(Session { client, take, give_back, owner })
    }
}

/// The table that the naive lock needs.
pub fn make_table(url: &str) -> Outcome {
    Ok(Client::connect(url, NoTls)?.batch_execute(TABLE)?)
}

/// One thread takes free locks with new names. The others of the client, as many as `count` says, ask for five locks whose rows another
/// session has locked.
pub fn beside_locked_rows(url: &str, order: &Order) -> Outcome {
    let fair = Fair::connect_to_postgres(url, order)?;
    let locked: Vec<_> =
        (0..5).map(|n| fair.lock(&format!("{}:locked:{n}", order.name))).collect::<Outcome<_>>()?;
    for lock in &locked {
        lock.hold(&mut || {})?; // now there is a row
    }
    let mut other = Client::connect(url, NoTls)?;
    let mut rows = other.transaction()?;
    let lock_rows = "select from fairlock.lock where starts_with(convert_from(name, 'UTF8'), $1) for update";
    rows.execute(lock_rows, &[&format!("{}:locked:", order.name)])?;
    let (is_over, new_names) = (&AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|threads| {
        for n in 0..order.count {
            let lock = &locked[n % locked.len()];
            threads.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    // Whether the time or an error ends a call is not what is measured.
                    let _ = if n % 2 == 0 {
                        lock.try_lock()
                    } else {
                        lock.try_lock_for(Duration::from_millis(500))
                    };
                }
            });
        }
        let said = say_ops(order, |seconds| {
            cycles_for(seconds, &mut || {
                let began = Instant::now();
                fair.lock(&format!("{}:{}", order.name, new_names.fetch_add(1, Ordering::Relaxed)))?
                    .hold(&mut || {})?;
                Ok(began.elapsed())
            })
        });
        is_over.store(true, Ordering::Relaxed);
        said
    })
}

impl<'a> Peer for &'a Postgres {
    type Lock = Handle<'a>;

    fn lock(&self, name: &str) -> Outcome<Handle<'a>> {
        Ok(Handle { postgres: self, name: name.to_owned() })
    }
}

impl Lock for Handle<'_> {
    fn hold(&self, held: &mut dyn FnMut()) -> Outcome {
        let mut session = self.postgres.session()?;
        let Session { client, take, give_back, owner } = &mut session;
        match self.postgres.what {
            What::Advisory => {
                client.execute(take, &[&self.name])?;
                held();
                if !client.query_one(give_back, &[&self.name])?.get::<_, bool>(0) {
                    return Err("not held".into());
                }
            }
            What::Naive => {
                while client.execute(take, &[&self.name, owner, &self.postgres.lease])? == 0 {
                    thread::sleep(POLLS_EVERY);
                }
                held();
                if client.execute(give_back, &[&self.name, owner])? == 0 {
                    return Err("not held".into());
                }
            }
        }
        self.postgres.idle.lock().push(session);
        Ok(())
    }

    fn keep(&self) -> Outcome {
        Err("a peer on PostgreSQL keeps no lock".into())
    }
}
