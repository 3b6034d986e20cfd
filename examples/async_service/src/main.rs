//! A web service before a foreign API that refuses a sixth call at the same time: five permits, which all processes share.
//!
//! ```text
//! cargo run -p async-service -- --redis redis://127.0.0.1:6379
//! cargo run -p async-service -- --redis redis://127.0.0.1:6379 --listen 127.0.0.1:8081 --api ADDRESS    # as the first one says
//! curl http://127.0.0.1:8080/report
//! ```
//!
//! Ctrl-C or SIGTERM ends it in order: requests that wait are refused, those that call the API are answered. Without `--api` the
//! process itself simulates the foreign API, on its own address.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use fairlock::{AsyncLock, Error, TryLock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::sleep;

/// How many calls the API accepts at once.
const AT_ONCE: u8 = 5;
/// How long the API takes.
const CALL: Duration = Duration::from_millis(50);
/// How long a request waits for a permit.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the end may take: less than the time after which SIGKILL follows SIGTERM.
const END: Duration = Duration::from_secs(20);

type Failure = Box<dyn StdError + Send + Sync>;

#[derive(Clone)]
struct Service {
    permit: AsyncLock,
    api: Arc<str>,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let client = fairlock::connect_async(option("--redis").as_deref().unwrap_or("memory:")).await?;
    let permit = client.semaphore("lock:example-service", AT_ONCE.into())?.many(1)?;
    let api = match option("--api") {
        Some(api) => api,
        None => simulate_api().await?,
    };
    let app = Router::new().route("/report", get(report)).with_state(Service { permit, api: api.into() });
    let listener = TcpListener::bind(option("--listen").as_deref().unwrap_or("127.0.0.1:8080")).await?;
    println!("listens on {}", listener.local_addr()?);

    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (tell, drain) = oneshot::channel();
    let end = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        // From here on no request gets a permit. Those that have one go on.
        let _ = tell.send(tokio::spawn(async move { client.drain(END).await }));
    };
    axum::serve(listener, app).with_graceful_shutdown(end).await?; // returns when all requests are answered
    let cut_off = drain.await?.await??;
    println!("ends, {} calls were cut off", cut_off.len());
    Ok(())
}

/// May block: it runs on a thread apart.
/// Answers with what the API says. If the request is dropped, its place in the queue, or its permit, is
/// given up; a call whose permit is lost is dropped.
async fn report(State(service): State<Service>) -> Result<String, (StatusCode, String)> {
    let refused = |status: StatusCode, reason: &dyn ToString| (status, reason.to_string());
    match service.permit.try_with_for(PATIENCE, async |_| call(&service.api).await).await {
        Ok(TryLock::Granted(answer)) => answer.map_err(|error| refused(StatusCode::BAD_GATEWAY, &error)),
        Ok(TryLock::Busy(_)) => Err(refused(StatusCode::TOO_MANY_REQUESTS, &"all permits are in use")),
        Err(error @ (Error::Shutdown { .. } | Error::Unavailable { .. } | Error::Lost(_))) => {
            Err(refused(StatusCode::SERVICE_UNAVAILABLE, &error))
        }
        Err(error) => Err(refused(StatusCode::INTERNAL_SERVER_ERROR, &error)),
    }
}

/// The body of what the API answers.
async fn call(api: &str) -> Result<String, Failure> {
    let mut stream = TcpStream::connect(api).await?;
    stream.write_all(format!("GET /api HTTP/1.0\r\nHost: {api}\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("the API's answer has no end of its head")?;
    if head.starts_with("HTTP/1.0 200") { Ok(body.to_owned()) } else { Err(answer.into()) }
}

/// Starts it, and returns its address.
async fn simulate_api() -> Result<String, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    println!("the API is at {address}");
    let slots = Arc::new(Semaphore::new(AT_ONCE.into()));
    let api = Router::new().route("/api", get(foreign_api)).with_state(slots);
    tokio::spawn(async { axum::serve(listener, api).await });
    Ok(address)
}

/// Refuses a sixth call at the same time.
async fn foreign_api(State(slots): State<Arc<Semaphore>>) -> Result<&'static str, StatusCode> {
    let _slot = slots.try_acquire().map_err(|_| StatusCode::TOO_MANY_REQUESTS)?;
    sleep(CALL).await;
    Ok("the API's answer")
}

/// The value of an option on the command line.
fn option(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}
