//! Transfers between accounts: several processes, and the locks of both accounts for each transfer. The transaction that writes
//! asks the database whether the locks are still held: if a process has lost a lock, its writes are rolled back.
//!
//! ```text
//! cargo run -p transfer -- --postgres postgres://user@host/database --new    # makes two accounts and some transfers
//! cargo run -p transfer -- --postgres postgres://user@host/database --label one    # in several terminals: two, three
//! ```
//!
//! `kill -STOP` one of them in the middle of a transfer: another one does that transfer, once. `kill -CONT` it: it notices.

use std::error::Error;
use std::process::{self, ExitCode};
use std::thread;
use std::time::Duration;

use fairlock::{AllGuard, PostgresBackend};
use postgres::{Client, NoTls, Transaction};

/// Others get the locks of a process that stands still after this time.
const LEASE: Duration = Duration::from_secs(3);
/// What a transfer takes, before its writes and within their transaction.
const WORK: Duration = Duration::from_millis(400);

const TABLES: &str = "
    drop table if exists account, transfer;
    create table account (id bigint primary key, balance bigint not null);
    create table transfer (id bigint primary key, origin bigint, target bigint, amount bigint, done boolean default false);
    insert into account values (1, 100), (2, 100);
    insert into transfer select n, 1 + n % 2, 2 - n % 2, n * 10 from generate_series(1, 6) n;";

struct Job {
    id: i64,
    origin: i64,
    target: i64,
    amount: i64,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("transfer: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let url = option("--postgres").ok_or("which server? --postgres URL")?;
    let connect = || Client::connect(&url, NoTls);
    let mut database = connect()?;
    if option("--new").is_some() {
        PostgresBackend::migrate(&url)?;
        return Ok(database.batch_execute(TABLES)?);
    }
    let label = option("--label").unwrap_or_else(|| format!("process {}", process::id()));
    // The tables of the locks are in the database of the accounts.
    let locks =
        fairlock::Client::builder(PostgresBackend::connect(&url)?).lease(LEASE).label(&label).build()?;
    while let Some(job) = next_job(&mut database)? {
        if let Err(error) = transfer(&locks, &mut database, &job, &label) {
            println!("{label} did not write transfer {}: {error}", job.id);
            if database.is_closed() {
                database = connect()?;
            }
        }
    }
    println!("{label} ends");
    Ok(())
}

fn transfer(
    locks: &fairlock::Client,
    database: &mut Client,
    job: &Job,
    label: &str,
) -> Result<(), Box<dyn Error>> {
    let guard = locks.lock_all(&[format!("account:{}", job.origin), format!("account:{}", job.target)])?;
    if is_done(database, job)? {
        return Ok(()); // by the process that had the locks before
    }
    println!("{label} works on transfer {}", job.id);
    let left = balance(database, job.origin)? - job.amount;
    let gained = balance(database, job.target)? + job.amount;
    thread::sleep(WORK);

    let mut writes = database.transaction()?;
    // A process that stands still from here on keeps the locks until the server ends its session.
    writes.execute("set local idle_in_transaction_session_timeout = '3s'", &[])?;
    if !still_held(&mut writes, &guard)? {
        return Err("it lost the locks".into()); // dropped, the transaction is rolled back
    }
    println!("{label} writes transfer {}", job.id);
    writes.execute("update account set balance = $2 where id = $1", &[&job.origin, &left])?;
    writes.execute("update account set balance = $2 where id = $1", &[&job.target, &gained])?;
    writes.execute("update transfer set done = true where id = $1", &[&job.id])?;
    thread::sleep(WORK);
    writes.commit()?;
    println!("{label} wrote transfer {}", job.id);
    drop(guard); // after the commit; its drop releases the locks
    Ok(())
}

/// Whether this guard still has all its locks. If so, no other owner gets any lock of the guard before the transaction ends.
fn still_held(writes: &mut Transaction<'_>, guard: &AllGuard) -> Result<bool, Box<dyn Error>> {
    for name in guard.names() {
        let token = guard.token(name).ok_or("a lock of this guard")?.as_i64();
        let held: bool = writes.query_one("select fairlock.still_held($1, $2)", &[&name, &token])?.get(0);
        if !held {
            return Ok(false);
        }
    }
    Ok(true)
}

fn next_job(database: &mut Client) -> Result<Option<Job>, postgres::Error> {
    let sql = "select id, origin, target, amount from transfer where not done order by id limit 1";
    let row = database.query_opt(sql, &[])?;
    Ok(row.map(|row| Job { id: row.get(0), origin: row.get(1), target: row.get(2), amount: row.get(3) }))
}

fn is_done(database: &mut Client, job: &Job) -> Result<bool, postgres::Error> {
    Ok(database.query_one("select done from transfer where id = $1", &[&job.id])?.get(0))
}

fn balance(database: &mut Client, account: i64) -> Result<i64, postgres::Error> {
    Ok(database.query_one("select balance from account where id = $1", &[&account])?.get(0))
}

/// The value of an option on the command line; empty if nothing follows it.
fn option(name: &str) -> Option<String> {
    let mut arguments = std::env::args();
    arguments.find(|argument| argument == name)?;
    Some(arguments.next().unwrap_or_default())
}
