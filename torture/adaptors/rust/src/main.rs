//! The adaptors of the libraries in Rust: `fairlock-torture LIBRARY`. torture/README.md has the words.

mod async_redis_lock;
mod distkit;
mod fairlock;
mod redisson;
mod rslock;
mod sqlx;
mod words;

use words::run;

fn main() {
    // One worker, as `#[tokio::main]` has on one core: `stall` blocks all of the executor.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let library = std::env::args().nth(1).unwrap_or_default();
    match library.as_str() {
        "fairlock" => run(&runtime, fairlock::connect()),
        "async-redis-lock" => run(&runtime, async_redis_lock::connect()),
        "distkit" => run(&runtime, distkit::connect()),
        "redisson" => run(&runtime, redisson::connect()),
        "rslock" => run(&runtime, rslock::connect()),
        "sqlx" => run(&runtime, sqlx::connect()),
        _ => panic!("no library `{library}`"),
    }
}
