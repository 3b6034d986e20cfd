//! A server that lies (G6). Only the exact expected answer counts as "granted" or "free". No lie costs more than an
//! answer's time-out, or memory.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, Error, TryLock};

use fairlock_tests::Alone;

use crate::looks::memory;

use crate::scene::try_once;
use crate::support::{ANSWER, SLACK, assert_within, builder};

/// A server of our own, which answers every script with the given bytes.
struct Liar {
    port: u16,
    lie: Arc<Mutex<Vec<u8>>>,
}

impl Liar {
    fn start() -> Liar {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let lie = Arc::new(Mutex::new(Vec::new()));
        let said = Arc::clone(&lie);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let said = Arc::clone(&said);
                thread::spawn(move || serve(&stream, &said));
            }
        });
        Liar { port, lie }
    }

    fn says(&self, lie: &[u8]) {
        *self.lie.lock().unwrap() = lie.to_vec();
    }

    fn client(&self) -> Client {
        let builder = builder(&format!("redis://127.0.0.1:{}", self.port));
        builder.outage_limit(Duration::from_millis(300)).build().unwrap()
    }
}

/// Serves until the client closes.
fn serve(stream: &TcpStream, lie: &Mutex<Vec<u8>>) {
    let (mut out, mut commands) = (stream, redis::Parser::new());
    while let Ok(command) = commands.parse_value(stream) {
        let Ok(words) = redis::from_redis_value::<Vec<String>>(command) else { return };
        let said = match words[0].to_ascii_uppercase().as_str() {
            "EVALSHA" => out.write_all(&lie.lock().unwrap().clone()),
            "PING" => out.write_all(b"+PONG\r\n"),
            "SUBSCRIBE" => {
                let channel = &words[1];
                write!(out, "*3\r\n$9\r\nsubscribe\r\n${}\r\n{channel}\r\n:1\r\n", channel.len())
            }
            _ => out.write_all(b"+OK\r\n"),
        };
        if said.is_err() {
            return;
        }
    }
}

/// Answers to `acquire` that no server should give. `~` ends a line.
fn lies() -> Vec<Vec<u8>> {
    let lies = [
        // Impossible lengths, and ones beyond any memory.
        "$-5~ | *-5~ | $999999999999~ | $2147483647~x | *2147483647~ | *9223372036854775807~ | %4294967296~ | \
         $x~",
        // No replies, partial ones, and replies of other types.
        "~ | HTTP/1.1 200 OK~~ | *3~$7~granted~:5~ | $-1~ | *-1~ | _~ | #t~ | +granted~ | +OK~ | :-1~ | \
         *5~:-1~:5~:5~:5~:0~ | *4~:0~:5~:5~:5~ | *0~ | *1~*0~ | *3~$7~message~$1~c~$1~p~",
        // Almost right: a missing, absent or invalid number; another word; another spelling.
        "*1~$7~granted~ | *2~$7~granted~:5~ | *3~$7~granted~:-5~:1000~ | *3~$7~granted~:5~:-1~ | \
         *3~$7~granted~$3~5.5~:1000~ | *3~$7~granted~$-1~:1000~ | *3~$7~granted~:5~$4~soon~ | \
         *3~$7~GRANTED~:5~:1000~ | *3~$8~released~:5~:1000~ | *3~$7~\u{0}\u{0}ranted~:5~:1000~ | \
         *1~*3~$7~granted~:5~:1000~ | *1~$4~busy~ | *4~$6~queued~:-1~:5~:5~",
        // Empty refusals, and one that never ends.
        "-~ | - ~ | -\u{7f}\u{1b}[2J~ | -NOSCRIPT no~",
    ];
    let bytes = |lie: &str| lie.replace('~', "\r\n").into_bytes();
    let mut lies: Vec<Vec<u8>> = lies.iter().flat_map(|lies| lies.split(" | ")).map(bytes).collect();
    lies.push("*1\r\n".repeat(200_000).into_bytes());
    lies.push(b"*3\r\n$7\r\n\xff\xfe\xfdnted\r\n:5\r\n:1000\r\n".to_vec());
    lies.push([b"-ERR ".to_vec(), vec![b'x'; 300_000], b"\r\n".to_vec()].concat());
    lies.push(vec![b'+'; 300_000]);
    lies
}

#[test]
fn no_lie_is_taken_for_a_lock_or_takes_longer_than_an_answer() {
    let _alone = Alone::here();
    let liar = Liar::start();
    let before = memory();
    for lie in lies() {
        let shown = String::from_utf8_lossy(&lie[..lie.len().min(60)]).into_owned();
        let client = liar.client();
        liar.says(&lie);
        let since = Instant::now();
        let answer = try_once(&client, "lied");
        // An attempt asks twice.
        assert_within(since, 4 * ANSWER + SLACK, &shown);
        let Err(error) = answer else { panic!("{shown:?} was taken for {answer:?}") };
        assert!(matches!(error, Error::Unavailable { .. }), "{shown:?}: {error:?}");
        let said = error.to_string();
        assert!(said.len() < 1000 && !said.contains(char::is_control), "{shown:?}: {said}");
        // The next answer is read correctly.
        liar.says(b"*2\r\n$4\r\nbusy\r\n:-1\r\n");
        let next = try_once(&client, "lied");
        assert!(matches!(next, Ok(TryLock::Busy(_))), "after {shown:?}: {next:?}");
        // The messages that the client must send before it may end.
        liar.says(b"*1\r\n$4\r\nleft\r\n");
    }
    assert!(memory() < before + 100_000, "{} kB more", memory() - before);
}

/// Shows that the lies above are refused for their content, and not for their sender.
#[test]
fn a_correct_answer_is_believed() {
    let _alone = Alone::here();
    let liar = Liar::start();
    let client = liar.client();
    liar.says(b":5\r\n");
    let guard = try_once(&client, "told").unwrap().guard().unwrap();
    assert_eq!(guard.token().get(), 5);
    liar.says(b":0\r\n");
    guard.unlock().unwrap();
}
