//! The thread of an ear: hears messages, keeps the subscriptions in step with what is wanted, and comes back after a
//! loss.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use redis::{RedisError, Value, cmd};

use super::backoff::Backoff;
use super::channels::Look;
use super::connection::open;
use super::ear::{Heard, NUDGE, Shared};
use super::wire::Connection;
use super::{Address, Failure};

/// How long the thread sleeps at most: how soon it sees its end, and a wish without a nudge.
pub(super) const TICK: Duration = Duration::from_millis(500);
/// After so long without a message the server is asked for a sign of life: two ticks, less what a timer may be early.
const QUIET: Duration = Duration::from_millis(950);
/// So many subscriptions in one go: all are to be answered within one response time-out.
const AT_ONCE: usize = 64;

/// The life of the thread.
pub(super) fn listen(shared: &Arc<Shared>, mut link: Link) {
    let _end = End(shared);
    loop {
        let Err(loss) = link.hear(shared) else { return };
        shared.deaf.store(true, Ordering::Relaxed);
        log::warn!(
            target: "fairlock::wake",
            event = "cut off", server:% = link.at, error:% = loss;
            "Redis at {}: wake-ups are cut off: {loss}", link.at
        );
        // The old link stays until there is a new one. A server that stood still would otherwise find, when it goes on,
        // that nobody listens, and pass live waiters over; so it finds the old link, or both.
        let Some(back) = reconnect(shared) else { return };
        link = back;
        shared.reconnects.fetch_add(1, Ordering::Relaxed);
        // Before the gap is told: the looks that it leads to say that the client hears again.
        shared.deaf.store(false, Ordering::Relaxed);
        log::info!(
            target: "fairlock::wake",
            event = "back", server:% = link.at;
            "Redis at {}: wake-ups are back", link.at
        );
        // Last, with all channels confirmed: who looks after everything now misses nothing that is said afterwards.
        shared.say(&Heard::Gap);
    }
}

/// However the thread ends, nobody waits for it any longer.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            log::error!(
                target: "fairlock::wake",
                event = "panicked";
                "the thread for wake-ups panicked: there are none any more"
            );
        }
        self.0.deaf.store(true, Ordering::Relaxed);
        self.0.channels.end();
    }
}

/// A new link with all that is wanted; none if the ear was dropped.
fn reconnect(shared: &Shared) -> Option<Link> {
    let (mut backoff, mut level) = (Backoff::new(), log::Level::Warn);
    while shared.channels.pause(Instant::now() + backoff.next()) {
        match Link::open(shared) {
            Ok(link) => return Some(link),
            Err(failure) => {
                log::log!(
                    target: "fairlock::wake", level,
                    event = "not back", error:% = failure;
                    "no wake-ups yet: {failure}"
                );
                level = log::Level::Debug; // once an outage is enough
            }
        }
    }
    None
}

/// A connection that is subscribed to the client's own channel.
pub(super) struct Link {
    at: Address,
    con: Connection,
    /// What the server has confirmed.
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

impl Link {
    /// Connects and subscribes to the client's own channel and to all that are wanted, in that order.
    pub(super) fn open(shared: &Shared) -> Result<Link, Failure> {
        let at = shared.stations.next()?;
        let con = open(&at, &shared.timeouts)?;
        let mut link = Link { at, con, subscribed: HashSet::new() };
        if let Some(refusal) =
            link.subscribe(shared, &[(shared.own_channel.clone(), true)])?.remove(&shared.own_channel)
        {
            return Err(refusal);
        }
        let wanted: Vec<_> = shared.channels.all().into_iter().map(|channel| (channel, true)).collect();
        link.keep_step(shared, wanted)?;
        Ok(link)
    }

    /// Delivers messages until the ear is dropped.
    ///
    /// # Errors
    /// The connection is lost.
    fn hear(&mut self, shared: &Shared) -> Result<(), Failure> {
        let mut heard = Instant::now();
        loop {
            // Before each sleep. A wish that is noted after this look is followed by a nudge, which ends the sleep; but
            // one that comes among the answers to a subscription has been read by then, so after these it looks again.
            match shared.channels.look() {
                Look::Ended => return Ok(()),
                Look::Changed(changed) => {
                    self.keep_step(shared, changed)?;
                    continue;
                }
                Look::Same => {}
            }
            if !shared.stations.serves(&self.at) {
                return Err(Failure::NotSent("it is not the right server any more".to_owned()));
            }
            match self.message(shared)? {
                Some(message) => {
                    heard = Instant::now();
                    deliver(shared, &message);
                }
                None if heard.elapsed() >= QUIET => {
                    self.ping(shared)?;
                    heard = Instant::now();
                }
                None => {}
            }
        }
    }

    /// The next message; none after a tick.
    fn message(&mut self, shared: &Shared) -> Result<Option<Message>, Failure> {
        let Some(heard) = self.con.hear(Instant::now() + TICK, shared.timeouts.response)? else {
            return Ok(None);
        };
        match Reply::read(heard)? {
            Reply::Message(message) => Ok(Some(message)),
            // Nothing was asked: what comes later would be taken for the answer to something else.
            _ => Err(Failure::Broken("an answer to nothing where messages come in".to_owned())),
        }
    }

    /// Subscribes and unsubscribes so that what the server has confirmed is what is wanted, and tells the result.
    fn keep_step(&mut self, shared: &Shared, changed: Vec<(String, bool)>) -> Result<(), Failure> {
        let own = &shared.own_channel;
        for changes in changed.chunks(AT_ONCE) {
            // Wanted, dropped and wanted again since the last look: the server knows the channel, nothing is to be
            // done, and it is live. The client's own channel is never given up.
            let news = |(channel, wanted): &&(String, bool)| self.subscribed.contains(channel) != *wanted;
            let news: Vec<_> =
                changes.iter().filter(news).filter(|(channel, _)| channel != own).cloned().collect();
            let mut refusals = self.subscribe(shared, &news)?;
            for (channel, _) in changes.iter().filter(|(_, wanted)| *wanted) {
                let refusal = refusals.remove(channel);
                if let Some(refusal) = &refusal {
                    log::warn!(
                        target: "fairlock::wake",
                        event = "refused", server:% = self.at, error:% = refusal;
                        "Redis at {}: no wake-ups: {refusal}", self.at
                    );
                }
                shared.channels.settle(channel, refusal);
            }
        }
        Ok(())
    }

    /// Sends SUBSCRIBE (true) or UNSUBSCRIBE, one command a channel, since a refusal is for a whole command; reads
    /// until each is answered, delivering the messages in between; gives back the refusals.
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
                Reply::Confirmed { word: said, channel: of }
                    if said == word(*wanted).as_bytes() && of == channel.as_bytes() =>
                {
                    if *wanted {
                        self.subscribed.insert(channel.clone());
                    } else {
                        self.subscribed.remove(channel);
                    }
                }
                Reply::Refused(Failure::Refused { code, message }) => {
                    let message = format!("channel {channel}: {message}");
                    refusals.insert(channel.clone(), Failure::refused(&code, &message));
                }
                _ => return Err(Failure::Broken("an unintelligible answer to a subscription".to_owned())),
            }
        }
        Ok(refusals)
    }

    fn ping(&mut self, shared: &Shared) -> Result<(), Failure> {
        let until = Instant::now() + shared.timeouts.response;
        self.con.send(&cmd("PING").get_packed_command(), until)?;
        match self.answer(shared, until)? {
            // A refusal (the right was taken away) is a sign of life as well.
            Reply::Pong | Reply::Refused(_) => Ok(()),
            _ => Err(Failure::Broken("an unintelligible answer to a ping".to_owned())),
        }
    }

    /// The next reply that is not a message; messages that come before it are delivered.
    fn answer(&mut self, shared: &Shared, until: Instant) -> Result<Reply, Failure> {
        loop {
            match Reply::read(self.con.receive(until)?)? {
                Reply::Message(message) => deliver(shared, &message),
                reply => return Ok(reply),
            }
        }
    }
}

impl Reply {
    fn read(value: Value) -> Result<Reply, Failure> {
        let unknown = || Failure::Broken("an unintelligible answer where messages come in".to_owned());
        let parts = match value {
            Value::ServerError(error) => return Ok(Reply::Refused(RedisError::from(error).into())),
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

fn deliver(shared: &Shared, Message { channel, payload }: &Message) {
    // A nudge has done its work by being heard.
    if payload == NUDGE && channel == shared.own_channel.as_bytes() {
        return;
    }
    shared.say(&Heard::Message { channel, payload });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_told_apart_and_others_are_not_taken_for_them() {
        let read = |wire: &str| Reply::read(redis::parse_redis_value(wire.as_bytes()).expect("a value"));
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
        for wire in ["+OK\r\n", ":1\r\n", "*0\r\n", "*3\r\n$8\r\npmessage\r\n$1\r\nc\r\n$1\r\np\r\n"] {
            assert!(matches!(read(wire), Err(Failure::Broken(_))), "{wire}");
        }
    }
}
