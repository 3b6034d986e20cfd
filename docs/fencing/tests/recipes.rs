//! Each resource refuses the write of a holder that stood still past its lease, and keeps the newer write.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use fairlock::testing::ManualClock;
use fairlock::{Client, FencingToken, MemoryBackend};
use fairlock_fencing::{Fence, http, objects, redis as fenced_redis, sqlite};
use fairlock_tests::RedisServer;
use futures_executor::block_on;
use object_store::memory::InMemory;
use object_store::{ObjectStore, path::Path};
use rusqlite::{Connection, Transaction, TransactionBehavior};

/// A holder writes twice, and stands still; the next one writes; the first goes on as if nothing had happened.
fn refuses_late_writes(mut write: impl FnMut(FencingToken, &str) -> Fence) {
    let clock = ManualClock::new();
    let store = MemoryBackend::with_clock(clock.clone());
    let connect = || Client::builder(store.clone()).clock(clock.clone()).build().unwrap();
    let (one, other) = (connect(), connect());
    let slow = one.fair_lock("lock:data").unwrap().lock().unwrap();
    assert_eq!(write(slow.token(), "the slow one"), Fence::Passed);
    assert_eq!(write(slow.token(), "the slow one"), Fence::Passed, "one hold may write often");
    clock.jump(Duration::from_secs(60));
    let quick = other.fair_lock("lock:data").unwrap().lock().unwrap();
    assert_eq!(write(quick.token(), "the quick one"), Fence::Passed);
    assert_eq!(write(slow.token(), "the slow one again"), Fence::Stale);
}

#[test]
fn an_object_in_a_bucket() {
    let (bucket, path) = (InMemory::new(), Path::from("data"));
    refuses_late_writes(|token, text| block_on(objects::put(&bucket, &path, token, text)).unwrap());
    let object = block_on(async { bucket.get(&path).await.unwrap().bytes().await.unwrap() });
    assert!(object.ends_with(b"\nthe quick one"));
    block_on(bucket.put(&path, "no token".into())).unwrap();
    assert!(block_on(objects::put(&bucket, &path, FencingToken::new(1), "x")).is_err());
}

#[test]
fn a_row_in_sqlite() {
    let database = Connection::open_in_memory().unwrap();
    database.execute_batch(sqlite::TABLE).unwrap();
    database.execute_batch("CREATE TABLE data (text text); INSERT INTO data VALUES ('')").unwrap();
    refuses_late_writes(|token, text| {
        let work = Transaction::new_unchecked(&database, TransactionBehavior::Immediate).unwrap();
        let fence = sqlite::pass_fence(&work, "data", token).unwrap();
        if fence == Fence::Passed {
            work.execute("UPDATE data SET text = ?1", [text]).unwrap();
            work.commit().unwrap();
        }
        fence
    });
    let text: String = database.query_row("SELECT text FROM data", [], |row| row.get(0)).unwrap();
    assert_eq!(text, "the quick one");
}

#[test]
fn a_hash_in_another_redis() {
    let server = RedisServer::start();
    let mut con = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    refuses_late_writes(|token, text| fenced_redis::set(&mut con, "data", token, text).unwrap());
    let value: String = redis::cmd("HGET").arg(&["data", "value"]).query(&mut con).unwrap();
    assert_eq!(value, "the quick one");
}

#[test]
fn a_service_over_http() {
    let service = tiny_http::Server::http("127.0.0.1:0").unwrap();
    let address = service.server_addr().to_ip().unwrap();
    let requests = thread::spawn(move || {
        let (mut newest, mut data) = (FencingToken::new(0), String::new());
        for mut request in service.incoming_requests() {
            if request.url() == "/end" {
                request.respond(tiny_http::Response::empty(204)).unwrap();
                break;
            }
            let named = |header: &&tiny_http::Header| header.field.as_str() == http::HEADER;
            let token = request.headers().iter().find(named).map(|header| header.value.as_str());
            let code = http::check(token, &mut newest);
            if code == 204 {
                data.clear();
                request.as_reader().read_to_string(&mut data).unwrap();
            }
            request.respond(tiny_http::Response::empty(code)).unwrap();
        }
        data
    });
    let put = |path: &str, header: &str, text: &str| -> u16 {
        let mut stream = TcpStream::connect(address).unwrap();
        let length = text.len();
        write!(stream, "PUT {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n{header}\r\n{text}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    };
    refuses_late_writes(|token, text| match put("/data", &format!("{}: {token}\r\n", http::HEADER), text) {
        204 => Fence::Passed,
        412 => Fence::Stale,
        code => panic!("{code}"),
    });
    assert_eq!(put("/data", "", "x"), 428);
    assert_eq!(put("/data", "Fencing-Token: x\r\n", "x"), 400);
    assert_eq!(put("/end", "", ""), 204);
    assert_eq!(requests.join().unwrap(), "the quick one");
}
