//! A batch job as it runs in production: workers share a file of jobs, and SIGTERM ends them in order.
//!
//! ```text
//! cargo run --example batch
//! cargo run --example batch -- --redis redis://127.0.0.1:6379 --dir /tmp/batch --jobs 5000    # in several terminals
//! ```
//!
//! Each job adds an amount to an account. The ledger is the resource: it has the token of its last writer, and refuses a smaller
//! one. So a worker that stood still beyond its lease can't undo the work of the next holder.
//!
//! The lock takes 12 lines: those with the mark `[lock]`, or below it. Not marked are the imports, and the comparison of the
//! tokens in `Batch::write`.

mod common;

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use fairlock::{Error, FencingToken, Lock};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

const WORKERS: usize = 4;
/// How long the work of a job takes here.
const WORK: Duration = Duration::from_millis(2);
/// For how long SIGTERM lets jobs go on.
const LONGEST_JOB: Duration = Duration::from_secs(20);
/// How long a worker waits before it goes on after a failure.
const PAUSE: Duration = Duration::from_millis(200);

type Failure = Box<dyn StdError + Send + Sync>;

/// What became of a worker's turn.
enum Turn {
    Done,
    /// The ledger has seen a newer token: this worker's hold was lost, and it did not know.
    Refused,
    NoneLeft,
}

/// What a worker did.
#[derive(Default)]
struct Tally {
    done: usize,
    refused: usize,
    paused: usize,
}

impl Tally {
    fn pause(&mut self, reason: &dyn StdError) {
        eprintln!("batch: {reason}; going on");
        self.paused += 1;
        thread::sleep(PAUSE);
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("batch: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let batch = Batch::open()?;
    let client = common::connect()?; // [lock]
    let lock = client.fair_lock("lock:batch")?; // [lock]

    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let ending = client.clone(); // [lock]
    thread::spawn(move || {
        signals.forever().next();
        let _ = ending.drain(LONGEST_JOB); // [lock] ends the waits; a job under way is finished
    });

    let tallies = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(|| work(&lock, &batch))).collect();
        workers.into_iter().map(|worker| worker.join().map_err(|_| "a worker panicked")?).collect()
    });
    report(&batch, tallies)?;
    println!("{}", client.stats()); // [lock]
    client.drain(LONGEST_JOB)?; // [lock] until the server has heard of all that
    Ok(())
}

/// One worker: a job for each turn.
fn work(lock: &Lock, batch: &Batch) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    loop {
        // [lock] waits for its turn; the lock is given back when the closure returns or panics
        let turn = lock.with(|guard| -> Result<Turn, Failure> {
            let Some(mut ledger) = batch.next()? else { return Ok(Turn::NoneLeft) };
            let (account, amount) = &batch.jobs[ledger.done];
            thread::sleep(WORK);
            guard.check()?; // [lock] no need to go on if it is lost
            *ledger.sums.entry(account.clone()).or_default() += amount;
            ledger.done += 1;
            batch.write(guard.token(), &ledger) // [lock]
        });
        match turn {
            Ok(Ok(Turn::Done)) => tally.done += 1,
            Ok(Ok(Turn::Refused)) => tally.refused += 1,
            Ok(Ok(Turn::NoneLeft)) => return Ok(tally),
            Ok(Err(error)) => return Err(error),
            Err(Error::Shutdown { .. }) => return Ok(tally), // [lock]
            // [lock] the server is away, or the hold was lost: the ledger knows which job is next
            Err(error) if error.is_transient() || matches!(error, Error::Lost(_)) => tally.pause(&error),
            Err(error) => return Err(error.into()), // [lock]
        }
    }
}

/// The jobs, and the ledger in which their results are kept.
struct Batch {
    dir: PathBuf,
    jobs: Vec<(String, i64)>,
    /// The directory was made for this run, and is removed with it.
    is_temporary: bool,
}

#[derive(Debug, Default, PartialEq)]
struct Ledger {
    token: u64,
    /// How many jobs are done.
    done: usize,
    sums: BTreeMap<String, i64>,
}

impl Batch {
    /// Opens the directory of the command line, and writes jobs into it if it has none.
    fn open() -> Result<Batch, Failure> {
        let dir = common::option("--dir").map(PathBuf::from);
        let count: usize = common::option("--jobs").map_or(Ok(200), |count| count.parse())?;
        let is_temporary = dir.is_none();
        let dir = dir
            .unwrap_or_else(|| std::env::temp_dir().join(format!("fairlock-batch-{}", std::process::id())));
        fs::create_dir_all(&dir)?;
        let file = dir.join("jobs.txt");
        // Several processes may start at once: the first to come writes the jobs.
        let mutex = File::create(dir.join("jobs.lock"))?;
        mutex.lock()?;
        if !file.exists() {
            let jobs: String = (1..=count).map(|n| format!("account-{} {}\n", n % 7, n * 31 % 100)).collect();
            fs::write(&file, jobs)?;
        }
        let parse = |line: &str| -> Result<(String, i64), Failure> {
            let (account, amount) = line.split_once(' ').ok_or("a job is an account and an amount")?;
            Ok((account.to_owned(), amount.parse()?))
        };
        let jobs = fs::read_to_string(&file)?.lines().map(parse).collect::<Result<_, _>>()?;
        Ok(Batch { dir, jobs, is_temporary })
    }

    fn ledger(&self) -> Result<Ledger, Failure> {
        let text = match fs::read_to_string(self.dir.join("ledger.txt")) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Ledger::default()),
            read => read?,
        };
        let mut ledger = Ledger::default();
        for line in text.lines() {
            let (word, number) = line.split_once(' ').ok_or("a line of the ledger is a word and a number")?;
            match word {
                "token" => ledger.token = number.parse()?,
                "done" => ledger.done = number.parse()?,
                account => _ = ledger.sums.insert(account.to_owned(), number.parse()?),
            }
        }
        Ok(ledger)
    }

    /// The ledger, if a job is left.
    fn next(&self) -> Result<Option<Ledger>, Failure> {
        let ledger = self.ledger()?;
        Ok((ledger.done < self.jobs.len()).then_some(ledger))
    }

    /// Writes the ledger, unless a newer token has. The file lock makes compare and write one step; it is held for a moment.
    fn write(&self, token: FencingToken, ledger: &Ledger) -> Result<Turn, Failure> {
        let mutex = File::create(self.dir.join("ledger.lock"))?;
        mutex.lock()?;
        if token.get() < self.ledger()?.token {
            return Ok(Turn::Refused);
        }
        let mut text = format!("token {token}\ndone {}\n", ledger.done);
        text.extend(ledger.sums.iter().map(|(account, sum)| format!("{account} {sum}\n")));
        let new = self.dir.join("ledger.new");
        fs::write(&new, text)?;
        fs::rename(&new, self.dir.join("ledger.txt"))?; // in one step
        Ok(Turn::Done)
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if self.is_temporary {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// What this process did, and whether the ledger is right.
fn report(batch: &Batch, tallies: Result<Vec<Tally>, Failure>) -> Result<(), Failure> {
    let tallies = tallies?;
    let sum = |of: fn(&Tally) -> usize| tallies.iter().map(of).sum::<usize>();
    let (done, refused) = (sum(|tally| tally.done), sum(|tally| tally.refused));
    let paused = sum(|tally| tally.paused);
    println!("this process: {done} jobs done, {refused} refused by the ledger, {paused} turns failed");
    let ledger = batch.ledger()?;
    let mut right = BTreeMap::<String, i64>::new();
    for (account, amount) in &batch.jobs[..ledger.done] {
        *right.entry(account.clone()).or_default() += amount;
    }
    println!("{} of {} jobs are done", ledger.done, batch.jobs.len());
    if ledger.sums != right {
        return Err(format!("the sums are {:?}, they should be {right:?}", ledger.sums).into());
    }
    println!("the sums are right");
    Ok(())
}
