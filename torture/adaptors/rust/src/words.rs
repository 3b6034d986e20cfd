//! The six words: read from the standard input, answered on the standard output.

use std::error::Error;
use std::future::Future;
use std::io::{BufRead, stdin};
use std::process::abort;
use std::str::FromStr;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::time::timeout;

/// The answer to a word.
pub type Said = Result<&'static str, Failure>;
pub type Connected<W> = Result<W, Failure>;
pub type Failure = Box<dyn Error + Send + Sync>;

/// What a library does for the words. It holds one lock at most.
pub trait Words: Send + 'static {
    fn lock(&mut self, name: &str) -> impl Future<Output = Said> + Send;
    fn try_lock(&mut self, name: &str) -> impl Future<Output = Said> + Send;
    fn is_held(&mut self) -> impl Future<Output = Said> + Send;
    fn unlock(&mut self) -> impl Future<Output = Said> + Send;
}

/// A setting of the judge's, from the environment.
pub fn setting<T: FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

/// Hands on the judge's setting in milliseconds, if there is one.
pub fn set<B>(builder: B, name: &str, setter: impl FnOnce(B, Duration) -> B) -> B {
    match milliseconds(name) {
        Some(value) => setter(builder, value),
        None => builder,
    }
}

pub fn milliseconds(name: &str) -> Option<Duration> {
    setting(name).map(Duration::from_millis)
}

pub fn address() -> String {
    setting("TORTURE_ADDRESS").expect("the judge sets TORTURE_ADDRESS")
}

pub fn run<W: Words>(runtime: &Runtime, connect: impl Future<Output = Connected<W>> + Send + 'static) {
    // In a task: what a library spawns shares the executor with it.
    let mut words = runtime.block_on(runtime.spawn(connect)).unwrap().unwrap();
    println!("ready");
    for line in stdin().lock().lines().map_while(Result::ok) {
        let mut parts = line.split(' ').map(str::to_owned);
        let (word, name, limit) =
            (parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), parts.next());
        let said;
        (words, said) = runtime.block_on(runtime.spawn(speak(words, word, name, limit))).unwrap();
        match said {
            Ok(answer) => println!("{answer}"),
            Err(error) => println!("error {}", error.to_string().replace('\n', " ")),
        }
    }
}

async fn speak<W: Words>(mut words: W, word: String, name: String, limit: Option<String>) -> (W, Said) {
    let said = match (word.as_str(), limit) {
        ("lock", None) => words.lock(&name).await,
        ("lock", Some(limit)) => {
            let limit = Duration::from_millis(limit.parse().unwrap());
            timeout(limit, words.lock(&name)).await.unwrap_or(Ok("timeout"))
        }
        ("try", _) => words.try_lock(&name).await,
        ("held?", _) => words.is_held().await,
        ("unlock", _) => words.unlock().await,
        ("stall", _) => {
            std::thread::sleep(Duration::from_millis(name.parse().unwrap())); // the worker is not free meanwhile
            Ok("ok")
        }
        _ => abort(), // die
    };
    (words, said)
}
