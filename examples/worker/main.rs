//! The main job: workers take turns on one lock, in the order of their requests.
//!
//! ```text
//! cargo run --example worker
//! cargo run --example worker -- --redis redis://127.0.0.1:6379 --processes 3
//! cargo run --example worker --features postgres -- --postgres postgres://postgres@127.0.0.1/postgres --processes 3    # makes its tables
//! cargo run --example worker -- --timeline out.svg
//! ```
//!
//! In each round a conductor holds the lock until all workers are in the queue, reads the queue, and releases the lock. The
//! order of the grants, by their fencing tokens, must then be the order of the queue.
//!
//! With `--timeline` there is no conductor. The workers take turns freely, first with the fair lock, then with the
//! plain one, and the picture shows their waits and holds.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking"))]

mod timeline;

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, Lock, MemoryBackend};

const LOCK: &str = "lock:example-worker";
const ROUNDS: usize = 3;

type Failure = Box<dyn Error + Send + Sync>;

/// The options of the command line.
#[derive(Default)]
struct Options {
    redis: Option<String>,
    postgres: Option<String>,
    processes: Option<usize>,
    workers: usize,
    timeline: Option<PathBuf>,
    /// This process is the worker of that name, driven by lines on its standard input.
    child: Option<String>,
}

/// One finished turn: the worker and its token.
struct Turn {
    worker: String,
    token: u64,
}

/// A worker, as the conductor sees it.
enum Worker {
    Thread(Sender<()>),
    Process(Child, ChildStdin),
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("worker: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode, Failure> {
    let options = parse(std::env::args().skip(1))?;
    if let Some(name) = &options.child {
        return work_as_child(&options, name);
    }
    #[cfg(feature = "postgres")]
    if let Some(url) = &options.postgres {
        fairlock::PostgresBackend::migrate(url)?; // the tables, if they are not there
    }
    if let Some(file) = &options.timeline {
        timeline::draw(&options, file)?;
        return Ok(ExitCode::SUCCESS);
    }
    let memory = MemoryBackend::new();
    let conductor = connect(&options, &memory, "conductor")?;
    let (turns, finished) = channel();
    let mut workers = start(&options, &memory, turns)?;
    let in_order = conduct(&conductor.fair_lock(LOCK)?, &mut workers, &finished)?;
    for worker in workers {
        worker.end()?;
    }
    conductor.drain(Duration::from_secs(20))?;
    Ok(if in_order { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn conduct(lock: &Lock, workers: &mut [Worker], finished: &Receiver<Turn>) -> Result<bool, Failure> {
    let mut in_order = true;
    for round in 1..=ROUNDS {
        let guard = lock.lock()?;
        for (number, worker) in workers.iter_mut().enumerate() {
            worker.go()?;
            // In turn: only the lock could change the order.
            wait_for_queue(lock, number + 1)?;
        }
        let queue = lock.admin().inspect()?.queue;
        // The queue shows each worker's label before its host and process.
        let worker = |label: String| label.split(" (").next().unwrap_or_default().to_owned();
        let asked: Vec<String> = queue.into_iter().filter_map(|waiter| waiter.label).map(worker).collect();
        println!("round {round}: {} workers are in the queue", asked.len());
        guard.unlock()?;

        let mut turns = Vec::new();
        for _ in 0..workers.len() {
            turns.push(finished.recv_timeout(Duration::from_secs(60))?);
        }
        turns.sort_by_key(|turn| turn.token);
        in_order &= asked.len() == turns.len();
        for (place, (asked, turn)) in asked.iter().zip(&turns).enumerate() {
            let same = *asked == turn.worker;
            in_order &= same;
            let verdict = if same { "in order" } else { "OUT OF ORDER" };
            println!(
                "  {:>2}. {asked} asked, {} was granted the lock (token {}): {verdict}",
                place + 1,
                turn.worker,
                turn.token
            );
        }
    }
    println!("request order = grant order: {}", if in_order { "yes" } else { "NO" });
    Ok(in_order)
}

fn wait_for_queue(lock: &Lock, length: usize) -> Result<(), Failure> {
    let give_up_at = Instant::now() + Duration::from_secs(30);
    while lock.admin().inspect()?.queue_length < length as u64 {
        if Instant::now() > give_up_at {
            return Err("a worker did not take its place within 30 s".into());
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// The job: wait for the turn, work, release the lock. Returns the token.
fn take_a_turn(lock: &Lock) -> fairlock::Result<u64> {
    let guard = lock.lock()?;
    thread::sleep(Duration::from_millis(5)); // the work
    let token = guard.token().get();
    guard.unlock()?;
    Ok(token)
}

fn start(options: &Options, memory: &MemoryBackend, turns: Sender<Turn>) -> Result<Vec<Worker>, Failure> {
    let count = options.processes.unwrap_or(options.workers);
    (1..=count)
        .map(|number| (format!("worker {number}"), turns.clone()))
        .map(|(name, turns)| match options.processes {
            Some(_) => start_process(options, name, turns),
            None => start_thread(connect(options, memory, &name)?, name, turns),
        })
        .collect()
}

fn start_thread(client: Client, name: String, turns: Sender<Turn>) -> Result<Worker, Failure> {
    let (go, rounds) = channel();
    thread::spawn(move || {
        for () in rounds {
            match client.fair_lock(LOCK).and_then(|lock| take_a_turn(&lock)) {
                Ok(token) => drop(turns.send(Turn { worker: name.clone(), token })),
                Err(error) => eprintln!("{name}: {error}"),
            }
        }
    });
    Ok(Worker::Thread(go))
}

fn start_process(options: &Options, name: String, turns: Sender<Turn>) -> Result<Worker, Failure> {
    let redis = options.redis.iter().flat_map(|url| ["--redis", url]);
    let postgres = options.postgres.iter().flat_map(|url| ["--postgres", url]);
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--child", &name])
        .args(redis.chain(postgres))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("a worker process has no pipes".into());
    };
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let Ok(token) = line.parse() else { continue };
            drop(turns.send(Turn { worker: name.clone(), token }));
        }
    });
    Ok(Worker::Process(child, stdin))
}

/// Takes one turn per line of standard input, and reports its token on standard output.
fn work_as_child(options: &Options, name: &str) -> Result<ExitCode, Failure> {
    let client = connect(options, &MemoryBackend::new(), name)?;
    let lock = client.fair_lock(LOCK)?;
    for line in std::io::stdin().lines() {
        line?;
        println!("{}", take_a_turn(&lock)?);
        std::io::stdout().flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Worker {
    fn go(&mut self) -> Result<(), Failure> {
        match self {
            Worker::Thread(go) => Ok(go.send(())?),
            Worker::Process(_, stdin) => Ok(writeln!(stdin, "go")?),
        }
    }

    fn end(self) -> Result<(), Failure> {
        if let Worker::Process(mut child, stdin) = self {
            drop(stdin);
            child.wait()?;
        }
        Ok(())
    }
}

/// Each worker has its own client, as in another process. `label` is the name under which the queue shows it.
fn connect(options: &Options, memory: &MemoryBackend, label: &str) -> fairlock::Result<Client> {
    let builder = match (&options.redis, &options.postgres) {
        #[cfg(feature = "redis")]
        (Some(url), _) => Client::builder(fairlock::RedisBackend::connect(url)?),
        #[cfg(feature = "postgres")]
        (_, Some(url)) => Client::builder(fairlock::PostgresBackend::connect(url)?),
        _ => Client::builder(memory.clone()),
    };
    builder.label(label).build()
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, Failure> {
    let mut options = Options { workers: 5, ..Options::default() };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--redis" => options.redis = Some(value()?),
            "--postgres" => options.postgres = Some(value()?),
            "--processes" => {
                options.processes = Some(value()?.parse().map_err(|_| "--processes takes a number")?)
            }
            "--workers" => options.workers = value()?.parse().map_err(|_| "--workers takes a number")?,
            "--timeline" => options.timeline = Some(value()?.into()),
            "--child" => options.child = Some(value()?),
            "--help" | "-h" => {
                println!(
                    "usage: worker [--workers N] [--redis URL | --postgres URL] [--processes N] [--timeline FILE.svg]"
                );
                std::process::exit(0);
            }
            other => return Err(format!("unknown argument {other}; see --help").into()),
        }
    }
    if options.redis.is_some() && cfg!(not(feature = "redis")) {
        return Err(
            "--redis needs the feature `redis`: cargo run --example worker --features redis -- …".into()
        );
    }
    if options.postgres.is_some() && cfg!(not(feature = "postgres")) {
        let how = "cargo run --example worker --features postgres -- …";
        return Err(format!("--postgres needs the feature `postgres`: {how}").into());
    }
    if options.redis.is_some() && options.postgres.is_some() {
        return Err("--redis and --postgres name two servers: give one of them".into());
    }
    if options.processes.is_some() && options.redis.is_none() && options.postgres.is_none() {
        let why = "processes can't share the in-memory backend";
        return Err(format!("--processes needs --redis URL or --postgres URL: {why}").into());
    }
    if options.timeline.is_some() && (options.processes.is_some() || options.workers == 0) {
        return Err("--timeline draws threads of this process, at least one: leave --processes out".into());
    }
    Ok(options)
}
