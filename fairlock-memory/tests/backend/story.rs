//! Stories about one lock: who asks, waits and leaves, what each is told, and what is seen then.
//!
//! A story is a list of sentences, with semicolons or line ends between them; parentheses are for the reader. Most begin with a
//! request, which is new when it is first named: `b` is of client 0, `b@1` of client 1, `b*2` takes two units, `b'` is another one
//! of b's owner, `b=a` names the token of a, and `b=a#1` the first of a. One in capitals sends its ticket. The verb tells the call,
//! and with what follows the answer; times may be left out.
//!
//! | verb | the call, and the answer |
//! | --- | --- |
//! | `gets 30s` | it asks: granted with a token greater than all before |
//! | `keeps`, `finds` | granted with its last token, with one of which it had not heard |
//! | `waits 0 20s`, `knocks 20s` | it asks: its rank, and when to look; the same of a plain lock |
//! | `tries 30s`, `busy 20s` | it asks without a wait |
//! | `beats 0 20s`, `beats gets`, `beats gone` | a heartbeat of its place |
//! | `renews 2`, `counts 2`, `releases`, `leaves`, `is-kicked`, `is-taken` | `gone` behind it if it has no hold, `holding` if it has one |
//! | `stays 10s` | its hold ends then, and is another request's |
//! | `hears`, `hears taken`, `client 1 hears recheck` | the next message to its client: at the end all were heard |
//! | `b asks fails Unavailable` | any call |
//! | `has 30s 1`, `has nothing` | no call: what is left of its lease, and its count |
//!
//! The others are about the lock, the clock or a client:
//!
//! | sentence | meaning |
//! | --- | --- |
//! | `pass 5s`, `pass 5s with b c`, `jump 5s` | the clock moves step by step, while b and c renew their places, or at once |
//! | `lease 1s`, `ttl 6s`, `as plain`, `as fair`, `as 3` | what the next requests ask for: the lease, the time of a place, the kind |
//! | `held by a b`, `line c`, `taken 2` | who holds and waits, `nobody` for none, and the units that are taken |
//! | `force`, `force nothing` | an operator takes all holds |
//! | `a+b beat 0 gets` | one call renews the places of both |
//! | `lose hold`, `lose line`, `lose message`, `lose reply acquire`, `fail renew 2` | the store forgets, or answers as in an outage |
//! | `client 1 hangs-up`, `is-cut-off`, `is-back` | its subscription or its connection |

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, ForceReleased, Hold, HoldCountSet, HoldKept, LockId, LockState,
    Place, Released, Renew, Renewal, RequestId, Subscription, Wait, Wake, WakeSink, Withdrawn,
};
use fairlock_core::{Client, ClientId, FencingToken, LockKind, LockName, ManualClock, OwnerId};
use fairlock_memory::{MemoryBackend, Operation};

pub(crate) const FAIR: LockKind = LockKind::Fair;
pub(crate) const PLAIN: LockKind = LockKind::Plain;
pub(crate) const READ_WRITE: LockKind = LockKind::ReadWrite;
pub(crate) const SEMAPHORE_OF_2: LockKind = LockKind::Semaphore { permits: 2 };
pub(crate) const SEMAPHORE_OF_3: LockKind = LockKind::Semaphore { permits: 3 };
pub(crate) const SEMAPHORE_OF_5: LockKind = LockKind::Semaphore { permits: 5 };

/// Tests that are a story or two: the kind of the lock, and what happens.
macro_rules! stories {
    ($($(#[$doc:meta])* fn $name:ident() { $($kind:ident $story:literal)+ })*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            $(crate::story::tell($kind, $story);)+
        }
    )*};
}

/// Tells a story about a lock of this kind.
#[track_caller]
pub(crate) fn tell(kind: LockKind, story: &str) {
    let mut told = Story::of(kind);
    told.tell(story);
    told.ends();
}

/// A store with one lock, its clients, and their requests.
pub(crate) struct Story {
    pub(crate) clock: ManualClock,
    pub(crate) backend: MemoryBackend,
    pub(crate) lock: LockId,
    lease: Duration,
    ttl: Duration,
    clients: Vec<TestClient>,
    requests: Vec<Request>,
    pub(crate) greatest: Option<FencingToken>,
}

pub(crate) struct TestClient {
    pub(crate) id: ClientId,
    heard: Arc<Recorder>,
    _subscription: Option<Subscription>,
}

#[derive(Clone)]
struct Request {
    name: String,
    client: usize,
    owner: OwnerId,
    id: RequestId,
    takes: u32,
    ticket: u64,
    tokens: Vec<FencingToken>,
}

#[derive(Debug)]
enum Heard {
    Granted(OwnerId, RequestId, FencingToken),
    Taken(OwnerId, FencingToken),
    Other(&'static str),
}

#[derive(Default)]
struct Recorder(Mutex<Vec<Heard>>);

impl WakeSink for Recorder {
    fn wake(&self, wake: Wake<'_>) {
        self.0.lock().unwrap().push(match wake {
            Wake::Granted { owner, request, token, .. } => {
                Heard::Granted(OwnerId::new(owner), request, token)
            }
            Wake::Taken { owner, token, .. } => Heard::Taken(OwnerId::new(owner), token),
            Wake::Recheck { owner: None, .. } => Heard::Other("hears recheck"),
            Wake::Recheck { .. } => Heard::Other("hears recheck-of-one"),
            Wake::Gap => Heard::Other("hears gap"),
        });
    }
}

impl Story {
    pub(crate) fn of(kind: LockKind) -> Story {
        let clock = ManualClock::new();
        let backend = MemoryBackend::with_clock(clock.clone());
        let lock = LockId::new(LockName::new("orders").unwrap(), kind);
        let [lease, ttl] = [30, 5].map(Duration::from_secs);
        let (clients, requests) = Default::default();
        Story { clock, backend, lock, lease, ttl, clients, requests, greatest: None }
    }

    #[track_caller]
    pub(crate) fn tell(&mut self, story: &str) {
        for sentence in story.split([';', '\n']) {
            let sentence = sentence.split('(').next().unwrap_or_default();
            let words: Vec<&str> = sentence.split_whitespace().collect();
            let expected = words.join(" ");
            let seen = if words.is_empty() { String::new() } else { self.run(&words) };
            let rest = seen.strip_prefix(&expected).filter(|rest| rest.is_empty() || rest.starts_with(' '));
            let beyond = rest.unwrap_or("not");
            let is_time = |word: &str| word == "ever" || word.starts_with(|c: char| c.is_ascii_digit());
            assert!(beyond.split_whitespace().all(is_time), "`{expected}`, but `{seen}`, in: {story:.500}");
        }
    }

    /// Each message was heard.
    #[track_caller]
    pub(crate) fn ends(self) {
        for client in &self.clients {
            let left = client.heard.0.lock().unwrap();
            assert!(left.is_empty(), "not told: {left:?}");
        }
    }

    /// Does what the words say, and says what came of it.
    fn run(&mut self, words: &[&str]) -> String {
        match *words {
            ["pass", time] => self.clock.advance(time_of(time)),
            ["pass", time, "with", ref alive @ ..] => self.pass_with(time_of(time), alive),
            ["jump", time] => self.clock.jump(time_of(time)),
            ["lease", time] => self.lease = time_of(time),
            ["ttl", time] => self.ttl = time_of(time),
            ["as", "fair"] => self.lock.kind = FAIR,
            ["as", "plain"] => self.lock.kind = PLAIN,
            ["as", permits] => self.lock.kind = LockKind::Semaphore { permits: permits.parse().unwrap() },
            ["fail", operation, times] => {
                self.backend.faults().fail_next(operation_of(operation), times.parse().unwrap());
            }
            ["lose", "hold"] => self.backend.faults().lose_hold("orders"),
            ["lose", "line"] => self.backend.faults().lose_line("orders"),
            ["lose", "message"] => self.backend.faults().lose_wake_ups(1),
            ["lose", "reply", operation] => self.backend.faults().lose_reply(operation_of(operation), 1),
            ["client", number, "hangs-up"] => self.client(number)._subscription = None,
            ["client", number, "is-cut-off"] => self.backend.faults().cut_off(self.client(number).id),
            ["client", number, "is-back"] => self.backend.faults().bring_back(self.client(number).id),
            ["client", number, "hears", ..] => {
                return format!("client {number} {}", self.next_message(number.parse().unwrap()));
            }
            ["force", ..] => return self.force(),
            ["held", "by", ..] => {
                let holders = self.seen().holders;
                return self.names("held by", holders.iter().map(|one| (&one.owner, one.request)));
            }
            ["line", ..] => {
                let line = self.seen().line;
                return self.names("line", line.iter().map(|one| (&one.owner, one.request)));
            }
            ["taken", _] => return format!("taken {}", self.seen().taken()),
            [who, verb, ..] => return self.act(who, verb, words),
            _ => panic!("it is no sentence: {words:?}"),
        }
        words.join(" ")
    }

    /// A call of a request, or of several in one.
    fn act(&mut self, who: &str, verb: &str, words: &[&str]) -> String {
        if verb == "beat" {
            let all: Vec<usize> = who.split('+').map(|one| self.request(one).0).collect();
            return format!("{who} beat {}", self.beat(&all).join(" "));
        }
        let (at, token) = self.request(who);
        let request = self.requests[at].clone();
        let hold = Hold::new(&self.lock, &request.owner, request.id, token.unwrap_or(FencingToken::new(1)));
        let count = words.get(2).and_then(|word| word.parse().ok()).unwrap_or(1);
        let of_count = |set: bool| if set { format!("{verb} {count}") } else { format!("{verb} gone") };
        let done = |is_done: bool| if is_done { verb.to_owned() } else { format!("{verb} gone") };
        let kicked = |answer| match answer {
            Withdrawn::Left => verb.to_owned(),
            Withdrawn::WasGranted { token: same, lease } if Some(same) == token => {
                format!("{verb} holding {}", text_of(lease))
            }
            other => format!("{other:?}"),
        };
        let backend = &self.backend;
        let said = match verb {
            "gets" | "keeps" | "finds" | "waits" | "knocks" | "asks" => self.ask(at, Wait::Forever),
            "tries" | "busy" => self.ask(at, Wait::No),
            "beats" => Ok(format!("beats {}", self.beat(&[at])[0])),
            "renews" => {
                let item = Renew::Hold { hold, holds: count, lease: self.lease };
                let renewed = backend.renew(self.clients[request.client].id, &[item]).remove(0);
                renewed.map(|answer| of_count(answer == Renewal::Renewed))
            }
            "counts" => backend.set_hold_count(&hold, count).map(|set| of_count(set == HoldCountSet::Set)),
            "releases" => backend.release(&hold).map(|answer| done(answer == Released::Released)),
            "stays" => {
                let kept = backend.keep(&hold, RequestId::new(999), time_of(words[2]));
                kept.map(
                    |answer| if answer == HoldKept::Kept { words[1..].join(" ") } else { "gone".to_owned() },
                )
            }
            "is-taken" => backend.take_hold(&hold).map(|answer| done(answer == ForceReleased::Taken)),
            "leaves" => backend.withdraw(&self.place(&request)).map(kicked),
            "is-kicked" => backend.kick(&self.place(&request)).map(kicked),
            "hears" => return self.next_message(request.client),
            "has" => Ok(self.has(&request)),
            _ => panic!("no verb: {words:?}"),
        };
        let fails = |error: BackendError| {
            format!("{} fails {:?}", if verb == "busy" { "tries" } else { verb }, error.kind())
        };
        format!("{who} {}", said.unwrap_or_else(fails))
    }

    fn ask(&mut self, at: usize, wait: Wait) -> Result<String, BackendError> {
        let request = self.requests[at].clone();
        let mut ask = Acquire::new(self.place(&request), self.lease);
        (ask.place.wait, ask.label) = (wait, "a test");
        Ok(match self.backend.acquire(&ask)? {
            Acquired::Granted { token, lease } => {
                let verb = self.learns(at, token);
                let verb = if wait == Wait::No && verb == "gets" { "tries" } else { verb };
                format!("{verb} {}", text_of(lease))
            }
            Acquired::Queued { rank, recheck_in, ticket, latest } => {
                assert!(ticket <= latest && self.greatest.is_none_or(|token| token.get() <= latest));
                let sends_it = request.name.starts_with(char::is_uppercase);
                let is_moved = sends_it && ![0, ticket].contains(&request.ticket);
                if sends_it {
                    self.requests[at].ticket = ticket;
                }
                format!("waits {rank} {}{}", if is_moved { "anew " } else { "" }, text_of(recheck_in))
            }
            Acquired::Busy { recheck_in } if wait == Wait::No => format!("busy {}", text_of(recheck_in)),
            Acquired::Busy { recheck_in } => format!("knocks {}", text_of(recheck_in)),
        })
    }

    fn beat(&mut self, all: &[usize]) -> Vec<String> {
        let requests: Vec<Request> = all.iter().map(|&at| self.requests[at].clone()).collect();
        let items = requests.iter().map(|one| Renew::Place { place: self.place(one), lease: self.lease });
        let client = self.clients[requests[0].client].id;
        let answers = self.backend.renew(client, &items.collect::<Vec<_>>());
        let said = all.iter().zip(answers).map(|(&at, answer)| match answer {
            Ok(Renewal::Granted { token, lease }) => format!("{} {}", self.learns(at, token), text_of(lease)),
            Ok(Renewal::Waiting { rank, recheck_in, .. }) if all.len() == 1 => {
                format!("{rank} {}", text_of(recheck_in))
            }
            Ok(Renewal::Waiting { rank, .. }) => rank.to_string(),
            Ok(_) => "gone".to_owned(),
            Err(error) => format!("fails {:?}", error.kind()),
        });
        said.collect()
    }

    /// Moves the clock in short steps, and renews the places of all these in between.
    fn pass_with(&mut self, time: Duration, alive: &[&str]) {
        let end = self.clock.now() + time;
        let alive: Vec<usize> = alive.iter().map(|who| self.request(who).0).collect();
        while self.clock.now() < end {
            self.clock.advance((end - self.clock.now()).min(self.ttl / 3));
            for request in alive.iter().map(|&at| self.requests[at].clone()) {
                let item = Renew::Place { place: self.place(&request), lease: self.lease };
                self.backend.renew(self.clients[request.client].id, &[item]).remove(0).unwrap();
            }
        }
    }

    /// The verb of a grant with this token.
    fn learns(&mut self, at: usize, token: FencingToken) -> &'static str {
        if self.requests[at].tokens.last() == Some(&token) {
            return "keeps";
        }
        let is_known = self.requests.iter().any(|request| request.tokens.contains(&token));
        assert!(!is_known, "each grant has its own token");
        self.requests[at].tokens.push(token);
        let is_new = Some(token) > self.greatest;
        self.greatest = self.greatest.max(Some(token));
        if is_new { "gets" } else { "finds" }
    }

    fn next_message(&mut self, client: usize) -> String {
        let mut heard = self.clients[client].heard.0.lock().unwrap();
        if heard.is_empty() {
            return "hears nothing".to_owned();
        }
        let message = heard.remove(0);
        drop(heard);
        match message {
            Heard::Granted(owner, id, token) => {
                let at = self.requests.iter().position(|one| one.owner == owner && one.id == id).unwrap();
                let new = if self.learns(at, token) == "gets" { "" } else { " late" };
                format!("{} hears{new}", self.requests[at].name)
            }
            Heard::Taken(owner, token) => {
                let mut of_token = self.requests.iter().filter(|one| one.owner == owner);
                let one = of_token.find(|one| one.tokens.last() == Some(&token)).unwrap();
                format!("{} hears taken", one.name)
            }
            Heard::Other(what) => what.to_owned(),
        }
    }

    /// The ticket that it sends.
    pub(crate) fn ticket(&mut self, who: &str) -> &mut u64 {
        let (at, _) = self.request(who);
        &mut self.requests[at].ticket
    }

    /// Why it is refused.
    pub(crate) fn refused(&mut self, who: &str, wait: Wait) -> BackendError {
        let (at, _) = self.request(who);
        self.ask(at, wait).unwrap_err()
    }

    fn force(&self) -> String {
        match self.backend.force_release(&self.lock) {
            Ok(ForceReleased::Taken) => "force".to_owned(),
            Ok(_) => "force nothing".to_owned(),
            Err(error) => format!("force fails {:?}", error.kind()),
        }
    }

    pub(crate) fn seen(&self) -> LockState {
        self.backend.inspect(&self.lock, 0..u64::MAX).unwrap()
    }

    fn names<'a>(&self, what: &str, list: impl Iterator<Item = (&'a OwnerId, Option<RequestId>)>) -> String {
        let name = |(owner, id): (&OwnerId, _)| {
            let mut all = self.requests.iter();
            all.find(|one| one.owner == *owner && Some(one.id) == id).map_or("?", |one| &one.name)
        };
        let names: Vec<&str> = list.map(name).collect();
        format!("{what} {}", if names.is_empty() { "nobody".to_owned() } else { names.join(" ") })
    }

    /// What is left of its lease, and its count.
    fn has(&self, request: &Request) -> String {
        let mut holders = self.seen().holders.into_iter();
        let Some(hold) = holders.find(|hold| hold.request == Some(request.id)) else {
            return "has nothing".to_owned();
        };
        assert_eq!((&hold.owner, hold.token), (&request.owner, request.tokens.last().copied()));
        assert_eq!(hold.takes, request.takes);
        format!("has {} {}", hold.lease_left.map_or_else(String::new, text_of), hold.hold_count)
    }

    fn place<'a>(&'a self, request: &'a Request) -> Place<'a> {
        let mut place = Place::new(&self.lock, &request.owner, request.id);
        (place.ttl, place.ticket, place.takes) = (self.ttl, request.ticket, request.takes);
        place
    }

    /// A subscribed client.
    pub(crate) fn client(&mut self, number: &str) -> &mut TestClient {
        let number: usize = number.parse().unwrap();
        while self.clients.len() <= number {
            // Only core's clients have ids: this one's client used another store, and is gone at once.
            let id = Client::new(MemoryBackend::new()).unwrap().id();
            let heard = Arc::new(Recorder::default());
            let _subscription = Some(self.backend.subscribe(id, heard.clone()).unwrap());
            self.clients.push(TestClient { id, heard, _subscription });
        }
        &mut self.clients[number]
    }

    /// The request of this name, and the token that it names.
    fn request(&mut self, who: &str) -> (usize, Option<FencingToken>) {
        let (who, token_of) = who.split_once('=').map_or((who, None), |(who, of)| (who, Some(of)));
        let name = who.split(['@', '*']).next().unwrap();
        let find = |requests: &[Request], name| requests.iter().position(|one| one.name == name);
        let at = find(&self.requests, name).unwrap_or_else(|| {
            let field = |mark| {
                who.split_once(mark).map(|(_, rest): (_, &str)| rest.split(['@', '*']).next().unwrap())
            };
            let client = field('@').unwrap_or("0");
            let owner = OwnerId::new(&format!("{}:{}", self.client(client).id, name.trim_end_matches('\'')));
            let takes = field('*').map_or(1, |takes| takes.parse().unwrap_or(u32::MAX));
            let id = RequestId::new(self.requests.len() as u64 + 1);
            let (ticket, tokens, client) = (0, Vec::new(), client.parse().unwrap());
            self.requests.push(Request { name: name.to_owned(), client, owner, id, takes, ticket, tokens });
            self.requests.len() - 1
        });
        let (of, number) = token_of.unwrap_or(name).split_once('#').unwrap_or((token_of.unwrap_or(name), ""));
        let tokens = &self.requests[find(&self.requests, of).unwrap()].tokens;
        (at, number.parse().map_or(tokens.last(), |number: usize| tokens.get(number - 1)).copied())
    }
}

fn time_of(word: &str) -> Duration {
    match word.strip_suffix("ms") {
        Some(millis) => Duration::from_millis(millis.parse().unwrap()),
        None if word == "ever" => Duration::MAX,
        None => Duration::from_secs(word.trim_end_matches('s').parse().unwrap()),
    }
}

fn text_of(time: Duration) -> String {
    match time {
        Duration::MAX => "ever".to_owned(),
        _ if time.subsec_nanos() == 0 => format!("{}s", time.as_secs()),
        _ => format!("{}ms", time.as_millis()),
    }
}

fn operation_of(word: &str) -> Operation {
    match word {
        "acquire" => Operation::Acquire,
        "count" => Operation::SetHoldCount,
        "release" => Operation::Release,
        "renew" => Operation::Renew,
        "withdraw" => Operation::Withdraw,
        "force" => Operation::ForceRelease,
        _ => panic!("{word}"),
    }
}
