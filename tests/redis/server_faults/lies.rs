//! A server that lies (G6). Only the exact expected answer counts as "granted" or "free". No lie costs more than an
//! answer's time-out, or memory.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, Discipline, Error, RedisBackend, TryLock};
use fairlock_tests::Alone;

use crate::looks::memory;
use crate::support::{ANSWER, SLACK, assert_within};

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
        let backend = RedisBackend::builder(&format!("redis://127.0.0.1:{}", self.port));
        let backend =
            backend.discipline(Discipline::HandOff).response_timeout(ANSWER).connect_timeout(ANSWER);
        let builder = Client::builder(backend.connect().unwrap());
        builder.outage_limit(Duration::from_millis(300)).build().unwrap()
    }
}

/// Serves until the client closes.
fn serve(stream: &TcpStream, lie: &Mutex<Vec<u8>>) {
    let (mut out, mut input) = (stream, BufReader::new(stream));
    while let Some(words) = command(&mut input) {
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

fn command(input: &mut impl BufRead) -> Option<Vec<String>> {
    let number = |input: &mut dyn BufRead| {
        let mut line = String::new();
        input.read_line(&mut line).ok()?;
        line.get(1..)?.trim().parse::<usize>().ok()
    };
    let count = number(input)?;
    let word = |_| {
        let mut bytes = vec![0; number(input)? + 2];
        input.read_exact(&mut bytes).ok()?;
        bytes.truncate(bytes.len() - 2);
        String::from_utf8(bytes).ok()
    };
    (0..count).map(word).collect()
}

/// Answers to `acquire` that no server should give.
fn lies() -> Vec<Vec<u8>> {
    let mut lies: Vec<Vec<u8>> = [
        // Impossible lengths, and ones beyond any memory.
        "$-5\r\n",
        "*-5\r\n",
        "$999999999999\r\n",
        "$2147483647\r\nx",
        "*2147483647\r\n",
        "*9223372036854775807\r\n",
        "%4294967296\r\n",
        "$x\r\n",
        // No replies, partial ones, and replies of other types.
        "\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
        "*3\r\n$7\r\ngranted\r\n:5\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "_\r\n",
        "#t\r\n",
        "+granted\r\n",
        "+OK\r\n",
        ":-1\r\n",
        "*5\r\n:-1\r\n:5\r\n:5\r\n:5\r\n:0\r\n",
        "*4\r\n:0\r\n:5\r\n:5\r\n:5\r\n",
        "*0\r\n",
        "*1\r\n*0\r\n",
        "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\np\r\n",
        // Almost right: a missing, absent or invalid number; another word; another spelling.
        "*1\r\n$7\r\ngranted\r\n",
        "*2\r\n$7\r\ngranted\r\n:5\r\n",
        "*3\r\n$7\r\ngranted\r\n:-5\r\n:1000\r\n",
        "*3\r\n$7\r\ngranted\r\n:5\r\n:-1\r\n",
        "*3\r\n$7\r\ngranted\r\n$3\r\n5.5\r\n:1000\r\n",
        "*3\r\n$7\r\ngranted\r\n$-1\r\n:1000\r\n",
        "*3\r\n$7\r\ngranted\r\n:5\r\n$4\r\nsoon\r\n",
        "*3\r\n$7\r\nGRANTED\r\n:5\r\n:1000\r\n",
        "*3\r\n$8\r\nreleased\r\n:5\r\n:1000\r\n",
        "*3\r\n$7\r\n\u{0}\u{0}ranted\r\n:5\r\n:1000\r\n",
        "*1\r\n*3\r\n$7\r\ngranted\r\n:5\r\n:1000\r\n",
        "*1\r\n$4\r\nbusy\r\n",
        "*4\r\n$6\r\nqueued\r\n:-1\r\n:5\r\n:5\r\n",
        // Empty refusals, and one that never ends.
        "-\r\n",
        "- \r\n",
        "-\u{7f}\u{1b}[2J\r\n",
        "-NOSCRIPT no\r\n",
    ]
    .map(|lie| lie.as_bytes().to_vec())
    .to_vec();
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
        let lock = client.fair_lock("lied").unwrap();
        liar.says(&lie);
        let since = Instant::now();
        let answer = lock.owned_by(&client.new_owner()).unwrap().try_lock();
        // An attempt asks twice.
        assert_within(since, 4 * ANSWER + SLACK, &shown);
        let Err(error) = answer else { panic!("{shown:?} was taken for {answer:?}") };
        assert!(matches!(error, Error::Unavailable { .. }), "{shown:?}: {error:?}");
        let said = error.to_string();
        assert!(said.len() < 1000 && !said.contains(char::is_control), "{shown:?}: {said}");
        // The next answer is read correctly.
        liar.says(b"*2\r\n$4\r\nbusy\r\n:-1\r\n");
        let next = lock.owned_by(&client.new_owner()).unwrap().try_lock();
        assert!(matches!(next, Ok(TryLock::Busy)), "after {shown:?}: {next:?}");
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
    let lock = client.fair_lock("told").unwrap();
    let guard = lock.owned_by(&client.new_owner()).unwrap().try_lock().unwrap().guard().unwrap();
    assert_eq!(guard.token().get(), 5);
    liar.says(b":0\r\n");
    guard.unlock().unwrap();
}
