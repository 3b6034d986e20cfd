//! The thread of a subscriber: receives messages, keeps the subscriptions in step with the wanted channels, and
//! reconnects.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlock_core::backend::{LineLimit, pause};
use redis::{Value, cmd};

use super::{Event, Hears, NUDGE, Shared};
use crate::net::connection::{Address, Connection, Failure, open};

/// The longest sleep of the thread: it bounds how late it sees its end, and a wanted channel without a nudge.
pub(super) const TICK: Duration = Duration::from_millis(500);
/// Without a message for this long the thread pings the server: two ticks, less what a timer may be early.
const QUIET: Duration = Duration::from_millis(950);
/// The pause after a link that could not take over from another.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// The most subscriptions in one batch: the server must answer all of them within one response time-out.
const BATCH: usize = 64;

/// The lines about channels that the server refuses.
static REFUSED: LineLimit = LineLimit::new();

/// Runs until the subscriber is dropped.
pub(super) fn listen(shared: &Arc<Shared>, mut link: SubscribedConnection) {
    let _end = End(shared);
    loop {
        let Err(loss) = link.receive(shared) else { return };
        *shared.hears.lock() = Hears::Nothing;
        // Not a warning: the client's watchdog logs an outage, with what it concerns; an idle client misses nothing.
        log::debug!(
            target: "fairlock::wake",
            event = "cut off", server:% = link.at, error:% = loss;
            "Redis at {}: wake-ups are cut off: {loss}", link.at
        );
        // The old link stays open until there is a new one. A server that was frozen would otherwise resume without
        // any listener and pass over live waiters; this way it finds the old link, or both.
        let Some(back) = reconnect(shared) else { return };
        link = back;
        // Before the gap is delivered: the calls that follow it tell the server that the client listens again.
        shared.is_heard();
        log::debug!(
            target: "fairlock::wake",
            event = "back", server:% = link.at;
            "Redis at {}: wake-ups are back", link.at
        );
        // Last, with all channels confirmed: a waiter that checks now misses nothing published later.
        shared.deliver(&Event::Gap);
    }
}

/// Releases the waiting callers however the thread ends.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            log::error!(
                target: "fairlock::wake",
                event = "panicked";
                "the thread for wake-ups panicked: no more will arrive"
            );
        }
        *self.0.hears.lock() = Hears::Nothing;
        self.0.channels.end();
    }
}

/// A new link with all wanted channels; none if the subscriber was dropped.
fn reconnect(shared: &Shared) -> Option<SubscribedConnection> {
    // Not at once: a server that ends cuts off all its clients at the same moment.
    for failures in 2.. {
        if !shared.channels.pause(Instant::now() + pause(failures)) {
            break;
        }
        match SubscribedConnection::open(shared) {
            Ok(link) => return Some(link),
            Err(failure) => {
                log::debug!(
                    target: "fairlock::wake",
                    event = "not back", error:% = failure;
                    "no wake-ups yet: {failure}"
                );
            }
        }
    }
    None
}

/// A connection that is subscribed to the client's own channel.
pub(super) struct SubscribedConnection {
    at: Address,
    /// In which era of the endpoints it was opened.
    era: u64,
    con: Connection,
    /// The channels that the server has confirmed.
    subscribed: HashSet<String>,
}

struct Message {
    channel: Vec<u8>,
    payload: Vec<u8>,
}

/// A reply on a subscribed connection.
enum Reply {
    Message(Message),
    Confirmed { word: Vec<u8>, channel: Vec<u8> },
    Pong,
    Refused(Failure),
}

impl SubscribedConnection {
    /// Connects, and subscribes to the client's own channel, then to all wanted ones.
    pub(super) fn open(shared: &Shared) -> Result<SubscribedConnection, Failure> {
        // Before it connects: if the era ends meanwhile, the link may lead to the former server.
        let era = shared.endpoints.era();
        let at = shared.endpoints.next()?;
        let con = open(&at, &shared.timeouts)?;
        let mut link = SubscribedConnection { at, era, con, subscribed: HashSet::new() };
        let own = (shared.own_channel.clone(), true);
        if let Some((_, refusal)) = link.subscribe(shared, &[own])?.into_iter().next() {
            return Err(refusal);
        }
        link.update(shared, &shared.channels.all())?;
        Ok(link)
    }

    /// Delivers messages until the subscriber is dropped.
    ///
    /// # Errors
    /// The connection is lost.
    fn receive(&mut self, shared: &Shared) -> Result<(), Failure> {
        let mut last = Instant::now();
        loop {
            // Before each sleep. A nudge follows an interest that is recorded later, and ends the sleep. But a nudge
            // among the answers to a subscription has been read by then, so after these the thread checks again.
            let Some(changed) = shared.channels.take_changes() else { return Ok(()) };
            if !changed.is_empty() {
                self.update(shared, &changed)?;
                continue;
            }
            self.renew_login(shared);
            if !shared.endpoints.serves(&self.at) || shared.endpoints.era() != self.era {
                return Err(Failure::NotSent("the server is no longer the right one".into()));
            }
            match self.con.receive_message(Instant::now() + TICK, shared.timeouts.response)? {
                Some(reply) => {
                    last = shared.is_heard();
                    // No command is under way: the next answer would be taken for that of a later one.
                    let Reply::Message(message) = Reply::read(self.con.answered(reply))? else {
                        let what = "an answer without a command where messages come in";
                        return Err(Failure::Broken(what.into()));
                    };
                    message.deliver(shared);
                }
                None if last.elapsed() >= QUIET => {
                    self.ping(shared)?;
                    last = shared.is_heard();
                }
                None => {}
            }
        }
    }

    /// Before the login ends, another link takes over: RESP2 allows no AUTH on a connection that listens. For a moment both listen, and the
    /// former one goes when it has answered a ping: every message that was published before the new link listened has come by
    /// then. A message may come twice, as any message may. Of two servers (nodes of a cluster, sentinels, a new master) one may have
    /// passed a message on before the new link listened, and the other after the ping: that is a gap.
    fn renew_login(&mut self, shared: &Shared) {
        if !self.con.is_login_due(Instant::now()) || self.at.next_login().is_none() {
            return;
        }
        match SubscribedConnection::open(shared) {
            Ok(link) => {
                let mut former = std::mem::replace(self, link);
                let is_elsewhere = former.era != self.era || !former.at.is_same_server(&self.at);
                // If the ping fails, the server has cut the link off before it had passed on all messages.
                if former.ping(shared).is_err() || is_elsewhere {
                    shared.deliver(&Event::Gap);
                }
            }
            Err(failure) => {
                self.con.logged_in(Some(Instant::now() + TRY_AGAIN));
                log::debug!(
                    target: "fairlock::wake",
                    event = "not replaced", server:% = self.at, error:% = failure;
                    "Redis at {}: the connection for wake-ups goes on with a login that ends: {failure}", self.at
                );
            }
        }
    }

    /// Subscribes and unsubscribes until the confirmed channels are the wanted ones, and reports the results.
    fn update(&mut self, shared: &Shared, changed: &[(String, bool)]) -> Result<(), Failure> {
        let own = &shared.own_channel;
        for changes in changed.chunks(BATCH) {
            // A channel that was dropped and wanted again since the last check is still subscribed, and so live at
            // once. The client's own channel always stays.
            let news = |(channel, wanted): &&(String, bool)| self.subscribed.contains(channel) != *wanted;
            let news: Vec<_> =
                changes.iter().filter(news).filter(|(channel, _)| channel != own).cloned().collect();
            let mut refusals = self.subscribe(shared, &news)?;
            for (channel, _) in changes.iter().filter(|(_, wanted)| *wanted) {
                let refusal = refusals.remove(channel);
                if let Some(refusal) = &refusal
                    && let Some(count) = REFUSED.count(1, Instant::now())
                {
                    log::warn!(
                        target: "fairlock::wake",
                        event = "refused", server:% = self.at, count = count, error:% = refusal;
                        "Redis at {}: no wake-ups, {count} channel(s) refused: {refusal}", self.at
                    );
                }
                shared.channels.settle(channel, refusal.map_or(Ok(()), Err));
            }
        }
        Ok(())
    }

    /// Sends SUBSCRIBE (true) or UNSUBSCRIBE, one command a channel, since a refusal concerns the whole command. Reads
    /// until each is answered, delivers the messages in between, and returns the refusals.
    fn subscribe(
        &mut self,
        shared: &Shared,
        changes: &[(String, bool)],
    ) -> Result<HashMap<String, Failure>, Failure> {
        let mut refusals = HashMap::new();
        let word = |wanted: bool| if wanted { "subscribe" } else { "unsubscribe" };
        let packed: Vec<u8> = changes
            .iter()
            .flat_map(|(channel, wanted)| cmd(word(*wanted)).arg(channel).get_packed_command())
            .collect();
        if packed.is_empty() {
            return Ok(refusals);
        }
        let until = Instant::now() + shared.timeouts.response;
        self.con.send(&packed, until)?;
        for (channel, wanted) in changes {
            match self.answer(shared, until)? {
                Reply::Confirmed { word: confirmed, channel: of }
                    if confirmed == word(*wanted).as_bytes() && of == channel.as_bytes() =>
                {
                    if *wanted {
                        self.subscribed.insert(channel.clone());
                    } else {
                        self.subscribed.remove(channel);
                    }
                }
                Reply::Refused(Failure::Refused { code, message, .. }) => {
                    let message = format!("channel {channel}: {message}");
                    refusals.insert(channel.clone(), Failure::refused(&code, &message));
                }
                _ => return Err(Failure::Broken("an unintelligible answer to a subscription".into())),
            }
        }
        self.con.all_answered();
        Ok(refusals)
    }

    fn ping(&mut self, shared: &Shared) -> Result<(), Failure> {
        let until = Instant::now() + shared.timeouts.response;
        self.con.send(&cmd("PING").get_packed_command(), until)?;
        let answer = self.answer(shared, until)?;
        self.con.all_answered();
        match answer {
            // A refusal (the right was revoked) shows that the server is there.
            Reply::Pong | Reply::Refused(_) => Ok(()),
            _ => Err(Failure::Broken("an unintelligible answer to a ping".into())),
        }
    }

    /// The next reply that is not a message; messages that come before it are delivered.
    fn answer(&mut self, shared: &Shared, until: Instant) -> Result<Reply, Failure> {
        loop {
            let reply = self.con.receive(until);
            let reply = reply.map_err(|failure| failure.within_response(shared.timeouts.response))?;
            match Reply::read(self.con.answered(reply))? {
                Reply::Message(message) => message.deliver(shared),
                reply => return Ok(reply),
            }
        }
    }
}

impl Reply {
    fn read(answer: Result<Value, Failure>) -> Result<Reply, Failure> {
        let unknown = || Failure::Broken("an unintelligible answer where messages come in".into());
        let value = match answer {
            Ok(value) => value,
            Err(refusal) => return Ok(Reply::Refused(refusal)),
        };
        let parts = match value {
            Value::SimpleString(word) if word == "PONG" => return Ok(Reply::Pong),
            Value::Array(parts) => parts,
            _ => return Err(unknown()),
        };
        let mut parts = parts.into_iter();
        let (Some(Value::BulkString(word)), Some(Value::BulkString(second)), third) =
            (parts.next(), parts.next(), parts.next())
        else {
            return Err(unknown());
        };
        match (word.as_slice(), third) {
            (b"message", Some(Value::BulkString(payload))) => {
                Ok(Reply::Message(Message { channel: second, payload }))
            }
            (b"subscribe" | b"unsubscribe", Some(Value::Int(_))) => {
                Ok(Reply::Confirmed { word, channel: second })
            }
            (b"pong", None) => Ok(Reply::Pong),
            _ => Err(unknown()),
        }
    }
}

impl Message {
    fn deliver(&self, shared: &Shared) {
        // A nudge has done its work by arriving.
        if self.payload != NUDGE || self.channel != shared.own_channel.as_bytes() {
            shared.deliver(&Event::Message { channel: &self.channel, payload: &self.payload });
        }
    }
}

#[cfg(feature = "night")]
#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use parking_lot::Mutex;

    use super::*;
    use crate::net::subscription::{Channels, Endpoints, OnEvent};
    use crate::net::test_server::{Act, FakeServer, TIMEOUTS, confirmed, polite};

    /// One server, and how often it was asked whether it serves.
    struct Only {
        at: Address,
        serves: bool,
        era: AtomicU64,
        asked: AtomicU64,
    }

    impl Endpoints for Only {
        fn next(&self) -> Result<Address, Failure> {
            Ok(self.at.clone())
        }

        fn serves(&self, _: &Address) -> bool {
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.serves
        }

        fn era(&self) -> u64 {
            self.era.load(Ordering::Relaxed)
        }
    }

    fn only(at: Address, serves: bool) -> Arc<Only> {
        Arc::new(Only { at, serves, era: AtomicU64::new(0), asked: AtomicU64::new(0) })
    }

    fn shared(endpoints: Arc<dyn Endpoints>, on_event: Option<OnEvent>) -> Shared {
        Shared {
            endpoints,
            timeouts: TIMEOUTS,
            own_channel: "own".to_owned(),
            channels: Channels::default(),
            hears: Mutex::new(Hears::Nothing),
            on_event: Mutex::new(on_event),
        }
    }

    /// A server that confirms all channels but `secret`, and after that hangs up at a ping.
    fn server() -> FakeServer {
        let listens = AtomicBool::new(false);
        FakeServer::start(move |_, words| match words {
            [word, channel] if word == "subscribe" && channel == "secret" => {
                Act::Say("-NOPERM no\r\n".to_owned())
            }
            [word, channel] if word == "subscribe" => {
                listens.store(true, Ordering::SeqCst);
                Act::Say(confirmed(channel))
            }
            [word] if word == "PING" && listens.load(Ordering::SeqCst) => Act::HangUp,
            _ => polite(words),
        })
    }

    #[test]
    fn a_quiet_link_is_pinged_after_some_ticks() {
        let server = server();
        let endpoints = only(server.address(), true);
        let shared = shared(Arc::clone(&endpoints) as _, None);
        let mut link = SubscribedConnection::open(&shared).expect("a link");
        let asked = Instant::now();
        assert!(matches!(link.receive(&shared), Err(Failure::Broken(_))), "the ping is not answered");
        assert!(asked.elapsed() >= QUIET, "{:?}", asked.elapsed());
        assert!(endpoints.asked.load(Ordering::Relaxed) <= 3, "it spins");
    }

    #[test]
    fn a_link_to_a_former_server_is_left() {
        for (serves, era) in [(false, 0), (true, 1)] {
            let server = server();
            let endpoints = only(server.address(), serves);
            let shared = shared(Arc::clone(&endpoints) as _, None);
            let mut link = SubscribedConnection::open(&shared).expect("a link");
            endpoints.era.store(era, Ordering::Relaxed);
            assert!(matches!(link.receive(&shared), Err(Failure::NotSent(_))), "{era}");
        }
    }

    #[test]
    fn the_next_link_comes_after_a_pause() {
        let server = server();
        let shared = shared(Arc::new(server.address()), None);
        let asked = Instant::now();
        assert!(reconnect(&shared).is_some());
        // Half of the first pause at least.
        assert!(asked.elapsed() >= Duration::from_millis(25), "{:?}", asked.elapsed());
    }

    #[test]
    fn a_refused_channel_costs_no_other_one() {
        let server = server();
        let shared = shared(Arc::new(server.address()), None);
        assert!(!shared.channels.want("secret") && !shared.channels.want("open"));
        let _link = SubscribedConnection::open(&shared).expect("a link");
        let verdict = |channel| shared.channels.verdict(channel, Instant::now());
        assert_eq!(verdict("secret"), Err(Failure::refused("NOPERM", "channel secret: no")));
        assert_eq!(verdict("open"), Ok(()));
    }

    #[test]
    fn the_end_of_the_thread_releases_its_callers() {
        let address = Address::parse("redis://h:1").expect("an address");
        let shared = shared(Arc::new(address), None);
        shared.is_heard();
        drop(End(&shared));
        assert!(*shared.hears.lock() == Hears::Nothing && shared.channels.take_changes().is_none());
    }

    #[test]
    fn only_a_nudge_on_the_own_channel_is_not_passed_on() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        let on_event: OnEvent = Arc::new(move |event: &Event<'_>| {
            if let Event::Message { channel, payload } = event {
                hears.lock().push([*channel, *payload].concat());
            }
        });
        let address = Address::parse("redis://h:1").expect("an address");
        let shared = shared(Arc::new(address), Some(on_event));
        for (channel, payload) in [("own", NUDGE), ("own", b"x"), ("c", NUDGE)] {
            Message { channel: channel.into(), payload: payload.to_vec() }.deliver(&shared);
        }
        assert_eq!(*heard.lock(), [b"ownx".to_vec(), b"cnudge".to_vec()]);
    }

    #[test]
    fn replies_are_recognised_and_others_are_errors() {
        let read = |wire: &str| {
            let value = redis::parse_redis_value(wire.as_bytes()).expect("a value");
            Reply::read(value.extract_error().map_err(|_| Failure::refused("NOPERM", "x")))
        };
        let message = read("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\np\r\n");
        assert!(
            matches!(message, Ok(Reply::Message(message)) if message.channel == b"c" && message.payload == b"p")
        );
        assert!(matches!(read("*2\r\n$4\r\npong\r\n$0\r\n\r\n"), Ok(Reply::Pong)));
        assert!(matches!(read("+PONG\r\n"), Ok(Reply::Pong)));
        let confirmed = read("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
        assert!(matches!(confirmed, Ok(Reply::Confirmed { channel, .. }) if channel == b"c"));
        assert!(
            matches!(read("-NOPERM x\r\n"), Ok(Reply::Refused(failure)) if failure.code() == Some("NOPERM"))
        );
        for wire in
            ["+OK\r\n", "+PANG\r\n", ":1\r\n", "*0\r\n", "*3\r\n$8\r\npmessage\r\n$1\r\nc\r\n$1\r\np\r\n"]
        {
            assert!(matches!(read(wire), Err(Failure::Broken(_))), "{wire}");
        }
    }
}
