//! The example `transfer` with sqlx, in tasks: transfers between accounts, and the locks of both accounts for each transfer.
//!
//! ```text
//! cargo run --example transfer -- --new    # DATABASE_URL names the database; makes two accounts and some transfers
//! cargo run --example transfer             # in several terminals
//! ```

use std::error::Error;
use std::time::Duration;

use fairlock::{AsyncGuard, AsyncLock, Client, PostgresBackend};
use sqlx::{Connection, PgConnection, PgPool, Postgres, Row, Transaction};

/// Others get the locks of a process that stands still after this time.
const LEASE: Duration = Duration::from_secs(3);
/// What a transfer takes before its writes.
const WORK: Duration = Duration::from_millis(400);

const TABLES: &str = "
    drop table if exists account, transfer;
    create table account (id bigint primary key, balance bigint not null);
    create table transfer (id bigint primary key, origin bigint, target bigint, amount bigint, done boolean default false);
    insert into account values (1, 100), (2, 100);
    insert into transfer select n, 1 + n % 2, 2 - n % 2, n * 10 from generate_series(1, 6) n;";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL")?; // of the program and its locks
    if std::env::args().any(|argument| argument == "--new") {
        PostgresBackend::migrate(&url)?;
        sqlx::raw_sql(TABLES).execute(&mut PgConnection::connect(&url).await?).await?;
        return Ok(());
    }
    let locks = Client::builder(PostgresBackend::connect(&url)?).lease(LEASE).build()?;
    let database = PgPool::connect(&url).await?;
    let next = "select id, origin, target from transfer where not done order by id limit 1";
    while let Some(row) = sqlx::query(next).fetch_optional(&database).await? {
        let (id, origin, target) = (row.get(0), row.get(1), row.get(2));
        if let Err(error) = transfer(&locks, &database, id, origin, target).await {
            println!("transfer {id} was not written: {error}");
        }
    }
    Ok(())
}

async fn transfer(
    locks: &Client,
    database: &PgPool,
    id: i64,
    origin: i64,
    target: i64,
) -> Result<(), Box<dyn Error>> {
    // In the order of the names, as `lock_all` takes them: two transfers never wait for each other.
    let mut names = [origin, target].map(|account| format!("account:{account}"));
    names.sort();
    let [first, second] = [lock(locks, &names[0])?, lock(locks, &names[1])?];
    let guards = [first.lock().await?, second.lock().await?];
    tokio::time::sleep(WORK).await;
    let mut writes = database.begin().await?;
    // A process that stands still from here on keeps the locks until the server ends its session.
    sqlx::query("set local idle_in_transaction_session_timeout = '3s'").execute(&mut *writes).await?;
    if !still_held(&mut writes, &guards).await? {
        return Err("it lost the locks".into()); // dropped, the transaction is rolled back
    }
    let done = "update transfer set done = true where id = $1 and not done returning amount";
    if let Some(row) = sqlx::query(done).bind(id).fetch_optional(&mut *writes).await? {
        let amount: i64 = row.get(0);
        let moved = "update account set balance = balance + case id when $1 then -$3 else $3 end where id in ($1, $2)";
        sqlx::query(moved).bind(origin).bind(target).bind(amount).execute(&mut *writes).await?;
        println!("transfer {id} is written");
    }
    writes.commit().await?;
    drop(guards); // after the commit; the drop releases the locks
    Ok(())
}

fn lock(locks: &Client, name: &str) -> fairlock::Result<AsyncLock> {
    Ok(locks.fair_lock(name)?.to_async())
}

/// Whether these guards still have their locks. If so, no other owner gets any of them before the transaction ends.
async fn still_held(
    writes: &mut Transaction<'_, Postgres>,
    guards: &[AsyncGuard],
) -> Result<bool, sqlx::Error> {
    let names: Vec<&str> = guards.iter().map(|guard| guard.name()).collect();
    let tokens: Vec<i64> = guards.iter().map(|guard| guard.token().as_i64()).collect();
    let held: bool = sqlx::query_scalar("select fairlock.all_still_held($1, $2)")
        .bind(names)
        .bind(tokens)
        .fetch_one(&mut **writes)
        .await?;
    Ok(held)
}
