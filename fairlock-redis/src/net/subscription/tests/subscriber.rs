//! A subscriber on real servers: what it receives, what it is refused, and how it comes back.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Weak, mpsc};
use std::time::Duration;

use fairlock_core::backend::{Login, Logins};
use parking_lot::Condvar;

use crate::net::commands::Pool;
use crate::net::connection::Address;
use crate::net::settings::Settings;
use crate::net::subscription::{Event, *};
use crate::net::test_server::{Act, FakeServer, SECOND, TIMEOUTS, TestServer, confirmed, polite};

/// Records events, as `channel payload` or `gap`.
#[derive(Default)]
struct Diary {
    heard: Mutex<Vec<String>>,
    gaps: AtomicUsize,
    more: Condvar,
}

impl Diary {
    fn gaps(&self) -> usize {
        self.gaps.load(Ordering::SeqCst)
    }

    fn keep(self: &Arc<Self>) -> OnEvent {
        let diary = Arc::clone(self);
        Arc::new(move |heard: &Event<'_>| {
            diary.heard.lock().push(match heard {
                Event::Message { channel, payload } => {
                    format!("{} {}", String::from_utf8_lossy(channel), String::from_utf8_lossy(payload))
                }
                Event::Gap => {
                    diary.gaps.fetch_add(1, Ordering::SeqCst);
                    "gap".to_owned()
                }
            });
            diary.more.notify_all();
        })
    }

    /// Waits for this entry, and drops it and those before it.
    fn await_entry(&self, entry: &str) {
        let end = Instant::now() + 10 * SECOND;
        let mut heard = self.heard.lock();
        while !heard.iter().any(|said| said == entry) {
            assert!(!self.more.wait_until(&mut heard, end).timed_out(), "{entry} is not in {heard:?}");
        }
        let index = heard.iter().position(|said| said == entry).expect("just seen");
        heard.drain(..=index);
    }
}

fn start(address: Address, diary: &Arc<Diary>) -> Result<Subscriber, Failure> {
    Subscriber::start(Arc::new(address), TIMEOUTS, "own".to_owned(), diary.keep())
}

fn pool(server: &TestServer) -> Pool {
    Pool::new(server.address(), &Settings::new(TIMEOUTS, 2))
}

fn want(subscriber: &Subscriber, channel: &str, pool: &Pool) -> Result<(), Failure> {
    subscriber.want(channel, |nudge| pool.call(nudge))
}

/// How many subscribers the server counts on this channel.
fn listeners(server: &TestServer, channel: &str) -> i64 {
    match server.command(&["PUBSUB", "NUMSUB", channel]) {
        redis::Value::Array(parts) => match parts[..] {
            [_, redis::Value::Int(count)] => count,
            _ => panic!("{parts:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn timed(want: impl FnOnce() -> Result<(), Failure>) -> Duration {
    let asked = Instant::now();
    want().expect("listens");
    asked.elapsed()
}

fn await_end(thread: &Weak<Shared>) {
    let end = Instant::now() + 10 * SECOND;
    while thread.upgrade().is_some() {
        assert!(Instant::now() < end, "the thread goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_channel_is_subscribed_as_long_as_a_caller_wants_it() {
    let server = TestServer::start();
    let (diary, pool) = (Arc::new(Diary::default()), pool(&server));
    let subscriber = start(server.address(), &diary).expect("a subscriber");
    want(&subscriber, "c", &pool).expect("listens");
    want(&subscriber, "c", &pool).expect("listens");
    subscriber.unwant("c");
    // Each message makes the thread check the changes; the second one arrives after that check.
    for word in ["one", "two"] {
        server.command(&["PUBLISH", "own", word]);
        diary.await_entry(&format!("own {word}"));
    }
    assert_eq!(listeners(&server, "c"), 1);
    subscriber.unwant("c");
    for word in ["three", "four"] {
        server.command(&["PUBLISH", "own", word]);
        diary.await_entry(&format!("own {word}"));
    }
    assert_eq!(listeners(&server, "c"), 0);
    // Wanted, dropped and wanted again by many threads: each that is told yes is subscribed.
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (subscriber, server, pool) = (&subscriber, &server, &pool);
            scope.spawn(move || {
                for round in 0..50 {
                    let channel = format!("c{}", (thread + round) % 3);
                    want(subscriber, &channel, pool).expect("listens");
                    assert_eq!(server.command(&["PUBLISH", &channel, "x"]), redis::Value::Int(1));
                    subscriber.unwant(&channel);
                }
            });
        }
    });
}

#[test]
fn a_server_that_falls_silent_is_a_gap() {
    let listens = AtomicBool::new(false);
    let server = FakeServer::start(move |connection, words| match words {
        [word, channel] if word == "subscribe" => {
            listens.store(true, Ordering::SeqCst);
            Act::Say(confirmed(channel))
        }
        _ if connection == 0 && listens.load(Ordering::SeqCst) => Act::Nothing,
        _ => polite(words),
    });
    let diary = Arc::new(Diary::default());
    let _subscriber = start(server.address(), &diary).expect("a subscriber");
    diary.await_entry("gap");
}

/// A dropped subscriber delivers nothing more, and its thread ends.
#[test]
fn a_dropped_subscriber_is_silent_and_its_thread_ends() {
    let server = TestServer::start();
    let diary = Arc::new(Diary::default());
    let subscriber = start(server.address(), &diary).expect("a subscriber");
    // A thread sets its own name: once it has delivered a message it has one.
    server.command(&["PUBLISH", "own", "early"]);
    diary.await_entry("own early");
    let names = std::fs::read_dir("/proc/self/task")
        .expect("threads")
        .filter_map(|task| std::fs::read_to_string(task.expect("a thread").path().join("comm")).ok());
    assert!(names.into_iter().any(|name| name.trim() == "fairlock-listen"));
    let thread = Arc::downgrade(&subscriber.shared);
    let asked = Instant::now();
    drop(subscriber);
    // The callback is released once the delivery has ended; the thread sleeps on.
    while Arc::strong_count(&diary) > 1 {
        assert!(asked.elapsed() < SECOND, "the callback is kept");
        std::thread::sleep(Duration::from_millis(1));
    }
    server.command(&["PUBLISH", "own", "late"]);
    await_end(&thread);
    assert!(asked.elapsed() < 3 * TICK, "{:?}", asked.elapsed());
    assert!(diary.heard.lock().is_empty());
    assert_eq!(listeners(&server, "own"), 0);
}

/// A server that is down, or confirms another channel, gives no subscriber.
#[test]
fn a_server_that_confirms_wrongly_gives_no_subscriber() {
    let closed = Address::parse("redis://127.0.0.1:1").expect("an address");
    assert!(matches!(start(closed, &Arc::default()), Err(Failure::NotSent(_))));
    let mute =
        FakeServer::start(|_, words| if words[0] == "subscribe" { Act::Nothing } else { polite(words) });
    let asked = Instant::now();
    assert!(matches!(start(mute.address(), &Arc::default()), Err(Failure::NotSent(_))));
    assert!(asked.elapsed() < 3 * SECOND, "{:?}", asked.elapsed());
    let liar = FakeServer::answering("subscribe", confirmed("other"));
    assert!(matches!(start(liar.address(), &Arc::default()), Err(Failure::NotSent(_))));
}

#[test]
fn messages_that_come_with_a_confirmation_are_delivered() {
    let message = "*3\r\n$7\r\nmessage\r\n$3\r\nown\r\n$5\r\nearly\r\n";
    let server = FakeServer::answering("subscribe", format!("{message}{}{message}", confirmed("own")));
    let diary = Arc::new(Diary::default());
    let _subscriber = start(server.address(), &diary).expect("a subscriber");
    diary.await_entry("own early");
    diary.await_entry("own early");
}

/// A channel that is wanted while another channel is subscribed takes no tick. The thread reads until it has its answer, so the
/// nudge does not end a sleep.
#[test]
fn a_channel_wanted_during_a_subscription_takes_no_tick() {
    let message = "*3\r\n$7\r\nmessage\r\n$3\r\nown\r\n$5\r\nnudge\r\n";
    let ((asked, is_asked), (go, goes)) = (mpsc::channel(), mpsc::channel());
    let goes = Mutex::new(goes);
    let server = FakeServer::start(move |_, words| match words {
        [word, channel] if word == "subscribe" => {
            if channel != "first" {
                return Act::Say(confirmed(channel));
            }
            asked.send(()).expect("the test");
            goes.lock().recv_timeout(SECOND).expect("the second wish");
            Act::Say(message.to_owned() + &confirmed(channel))
        }
        _ => polite(words),
    });
    let subscriber = start(server.address(), &Arc::default()).expect("a subscriber");
    let sent = redis::Value::Int(1);
    std::thread::scope(|scope| {
        scope.spawn(|| subscriber.want("first", |_| Ok(sent.clone())).expect("listens"));
        is_asked.recv_timeout(10 * SECOND).expect("it is asked for");
        let took = timed(|| {
            subscriber.want("second", |_| {
                go.send(()).expect("the server");
                Ok(sent.clone())
            })
        });
        assert!(took < TICK, "{took:?}");
    });
}

/// A server that ends each login after a while and cuts off its connections does not cut off a subscriber: another connection takes over
/// before, without a gap, and no message is lost.
#[test]
fn a_login_that_ends_costs_no_message_and_no_gap() {
    let server = Arc::new(TestServer::start());
    // The server ends with this test, not with a thread that has this function.
    let (users, with_users) = (Arc::new(AtomicUsize::new(0)), Arc::downgrade(&server));
    let count = Arc::clone(&users);
    let mut address = server.address();
    address.set_logins(&Logins::new(move || {
        let user = format!("user-{}", count.fetch_add(1, Ordering::SeqCst));
        with_users
            .upgrade()
            .ok_or("no server")?
            .command(&["ACL", "SETUSER", &user, "on", ">canary", "&*", "+@all"]);
        // A quarter of it is left when another connection takes over.
        Ok::<_, &str>(Login::new("canary").with_user(user).valid_for(4 * TICK))
    }));
    let diary = Arc::new(Diary::default());
    let subscriber = start(address, &diary).expect("a subscriber");
    let (mut sent, mut ended, end) = (0, 0, Instant::now() + 60 * SECOND);
    while ended < 3 {
        assert!(Instant::now() < end, "no other connection has taken over");
        sent += 1;
        server.command(&["PUBLISH", "own", &sent.to_string()]);
        // It has listened by a later login for long enough: the server ends the earlier one, with its connections.
        if users.load(Ordering::SeqCst) > ended + 1 && listeners(&server, "own") == 1 && sent % 50 == 0 {
            let user = format!("user-{ended}");
            let listed = server.command(&["CLIENT", "LIST", "TYPE", "pubsub"]);
            let listed: String = redis::from_redis_value(listed).expect("a text");
            if !listed.contains(&format!(" user={user} ")) {
                server.command(&["ACL", "DELUSER", &user]);
                ended += 1;
            }
        }
    }
    diary.await_entry("own 1");
    let mut next = 2;
    while next <= sent {
        let end = Instant::now() + 10 * SECOND;
        let mut heard = diary.heard.lock();
        while heard.is_empty() {
            assert!(!diary.more.wait_until(&mut heard, end).timed_out(), "{next} of {sent} is lost");
        }
        for entry in heard.drain(..) {
            // A message that came twice is the same again.
            let number: i32 =
                entry.strip_prefix("own ").and_then(|number| number.parse().ok()).expect(&entry);
            assert!(number <= next, "{next} is lost, {number} came");
            next = next.max(number + 1);
        }
    }
    assert_eq!(diary.gaps(), 0);
    assert!(subscriber.hears() != Hears::Nothing);
}

/// Two servers in turn, as the nodes of a cluster.
struct InTurn([Address; 2], AtomicUsize);

impl Endpoints for InTurn {
    fn next(&self) -> Result<Address, Failure> {
        Ok(self.0[self.1.fetch_add(1, Ordering::SeqCst) % 2].clone())
    }
}

/// A message that one server had passed on before, and the other had not yet, would be lost.
#[test]
fn another_server_that_takes_over_before_a_login_ends_is_a_gap() {
    let (servers, asked) = ([(); 2].map(|()| TestServer::start()), AtomicUsize::new(0));
    let logins = Logins::new(move || {
        let is_first = asked.fetch_add(1, Ordering::SeqCst) == 0;
        let time = if is_first { Duration::ZERO } else { 3600 * SECOND };
        Ok::<_, &str>(Login::new("any").with_user("default").valid_for(time))
    });
    let addresses = servers.each_ref().map(|server| {
        let mut address = server.address();
        address.set_logins(&logins);
        address
    });
    let (diary, in_turn) = (Arc::new(Diary::default()), Arc::new(InTurn(addresses, AtomicUsize::new(0))));
    let _subscriber =
        Subscriber::start(in_turn, TIMEOUTS, "own".to_owned(), diary.keep()).expect("a subscriber");
    diary.await_entry("gap");
    assert_eq!(listeners(&servers[1], "own"), 1);
}

/// Servers in turn, as a starting subscriber tries them.
struct Several(Vec<Address>, AtomicUsize);

impl Endpoints for Several {
    fn next(&self) -> Result<Address, Failure> {
        Ok(self.0[self.1.fetch_add(1, Ordering::SeqCst) % self.0.len()].clone())
    }

    fn count(&self) -> usize {
        self.0.len()
    }
}

#[test]
fn a_starting_subscriber_tries_further_servers_for_its_time() {
    let closed = Address::parse("redis://127.0.0.1:1").expect("an address");
    let good = FakeServer::answering("subscribe", confirmed("own"));
    let none = Timeouts { connect: Duration::ZERO, response: Duration::ZERO };
    for (second, timeouts, tried) in [(good.address(), TIMEOUTS, 2), (closed.clone(), none, 1)] {
        let several = Arc::new(Several(vec![closed.clone(), second, closed.clone()], AtomicUsize::new(0)));
        let endpoints = Arc::clone(&several) as Arc<dyn Endpoints>;
        let started =
            Subscriber::start(endpoints, timeouts, "own".to_owned(), Arc::<Diary>::default().keep());
        assert_eq!((started.is_ok(), several.1.load(Ordering::SeqCst)), (tried == 2, tried));
    }
}

#[test]
fn a_subscriber_whose_server_has_gone_is_cut_off() {
    let server = FakeServer::start(|connection, words| match words {
        _ if connection > 0 => Act::HangUp,
        [word, channel] if word == "subscribe" => Act::SayAndHangUp(confirmed(channel)),
        _ => polite(words),
    });
    let subscriber = start(server.address(), &Arc::default()).expect("a subscriber");
    let end = Instant::now() + 10 * SECOND;
    while subscriber.hears() != Hears::Nothing {
        assert!(Instant::now() < end, "it is not cut off");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// It is tried once a second, not at each message.
#[test]
fn a_link_that_cannot_take_over_is_tried_again_after_a_pause() {
    let (server, asked) = (TestServer::start(), AtomicUsize::new(0));
    let mut address = server.address();
    address.set_logins(&Logins::new(move || {
        let is_first = asked.fetch_add(1, Ordering::SeqCst) == 0;
        let time = if is_first { Duration::ZERO } else { 3600 * SECOND };
        Ok::<_, &str>(Login::new("any").with_user("default").valid_for(time))
    }));
    let closed = Address::parse("redis://127.0.0.1:1").expect("an address");
    let servers = [address].into_iter().chain(std::iter::repeat_n(closed, 100)).collect();
    let (several, diary) = (Arc::new(Several(servers, AtomicUsize::new(0))), Arc::new(Diary::default()));
    let endpoints = Arc::clone(&several) as Arc<dyn Endpoints>;
    let _subscriber =
        Subscriber::start(endpoints, TIMEOUTS, "own".to_owned(), diary.keep()).expect("a subscriber");
    let tried = || several.1.load(Ordering::SeqCst) - 1;
    let send = |number: usize| {
        server.command(&["PUBLISH", "own", &number.to_string()]);
        diary.await_entry(&format!("own {number}"));
    };
    let first = (0..5000).find(|number| (send(*number), tried() > 0).1).expect("a link is tried");
    let since = Instant::now();
    (1..=10).for_each(|number| send(first + number));
    let seconds = usize::try_from(since.elapsed().as_secs()).expect("some seconds");
    assert!(tried() <= 2 + seconds, "{} times in {seconds} s", tried());
}
