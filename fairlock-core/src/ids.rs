//! The ids of locks, clients, owners and requests; the kinds of locks; and the fencing token, with a resource for tests that checks it.

use std::cell::Cell;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock, atomic};

use parking_lot::Mutex;
use uuid::Uuid;

/// The most bytes that the name of a lock may have.
pub const MAX_NAME_BYTES: usize = 512;

/// The name of a lock: 1 to 512 bytes of UTF-8, with any characters.
///
/// `Display` escapes control characters, so that a name can't break a log line.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(transparent))]
pub struct LockName(Hashed);

impl LockName {
    /// For `config.rs`, which checks the name.
    pub(crate) fn unchecked(name: &str) -> LockName {
        LockName(Hashed::new(name))
    }

    /// The name as given.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// A hash of the name, computed when the name was made: for tables of a store in this process. Equal names have equal hashes.
    /// The hash is keyed, and differs from process to process: no program can choose names that collide.
    ///
    /// ```
    /// # use fairlock_core::LockName;
    /// assert_eq!(LockName::new("orders")?.hash_code(), LockName::new("orders")?.hash_code());
    /// # Ok::<(), fairlock_core::Error>(())
    /// ```
    #[doc(hidden)] // for stores
    pub fn hash_code(&self) -> u64 {
        self.0.hash
    }
}

impl AsRef<str> for LockName {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_escaped(f, self.as_str())
    }
}

/// Writes `text` with quotes round it and its control characters escaped.
pub(crate) fn write_escaped(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    write!(f, "`{}`", text.escape_debug())
}

/// The id of one [`Client`](crate::Client): a random (v4) UUID.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientId(u128);

impl ClientId {
    /// A new random id.
    pub fn random() -> ClientId {
        ClientId(Uuid::new_v4().as_u128())
    }
}

/// As the log and the store have it.
impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Uuid::from_u128(self.0).hyphenated().fmt(f)
    }
}

/// The id of an owner as it stands at the server: `<client uuid>:<number>`.
///
/// It is text, because peers such as Redisson choose their own numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(transparent))]
pub struct OwnerId(Hashed);

impl OwnerId {
    /// Takes the text as it is.
    pub fn new(text: &str) -> OwnerId {
        OwnerId(Hashed::new(text))
    }

    pub(crate) fn of(client: ClientId, number: u64) -> OwnerId {
        OwnerId::new(&format!("{client}:{number}"))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// The client's part: what stands before the last colon, or nothing.
    pub fn client(&self) -> &str {
        self.as_str().rsplit_once(':').map_or("", |(client, _)| client)
    }

    pub(crate) fn hash_code(&self) -> u64 {
        self.0.hash
    }
}

impl AsRef<str> for OwnerId {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Names one request for a lock. Each attempt of it carries the same number, which no other process can guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(u64);

impl RequestId {
    /// Takes the number as it is.
    pub const fn new(value: u64) -> RequestId {
        RequestId(value)
    }

    /// The id of a new request.
    pub(crate) fn fresh() -> RequestId {
        RequestId(random())
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for RequestId {
    /// Sixteen lower-case hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A number that no other process can guess: a counter through a keyed hash. Each thread takes a block of the counter, so that
/// threads seldom meet at it.
pub(crate) fn random() -> u64 {
    const BLOCK: u64 = 1024;
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    static BLOCKS: AtomicU64 = AtomicU64::new(0);
    thread_local!(static NEXT: Cell<u64> = const { Cell::new(0) });
    let number = match NEXT.get() {
        at_the_end if at_the_end % BLOCK == 0 => BLOCKS.fetch_add(BLOCK, atomic::Ordering::Relaxed),
        next => next,
    };
    NEXT.set(number + 1);
    KEY.hash_one(number)
}

/// A text and its hash, which is computed once: names and owners are looked up far more often than they are made.
#[derive(Clone, PartialEq, Eq)]
struct Hashed {
    /// Compared first: unequal texts as a rule differ in it.
    hash: u64,
    text: Arc<str>,
}

/// The hash of a text in this process. Keyed, since names may come from users of the program: with hashes that they could
/// foresee they could make a table slow.
pub(crate) fn hash_of(text: &str) -> u64 {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    KEY.hash_one(text)
}

impl Hashed {
    fn new(text: &str) -> Hashed {
        Hashed { hash: hash_of(text), text: text.into() }
    }
}

/// As its text: most readers of JSON have no numbers of 64 bits.
#[cfg(feature = "serde")]
impl serde::Serialize for RequestId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Hashed {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl Hash for Hashed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl PartialOrd for Hashed {
    fn partial_cmp(&self, other: &Hashed) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The order of the texts.
impl Ord for Hashed {
    fn cmp(&self, other: &Hashed) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl fmt::Debug for Hashed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

/// A fencing token: a number for each outermost acquisition of a lock, greater than all earlier ones of that lock.
///
/// Send the token with each write to the resource that the lock guards, and let the resource refuse a token below the greatest so
/// far. A token is below 2^53, and fits a SQL `bigint` and a JSON number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(transparent))]
pub struct FencingToken(u64);

impl FencingToken {
    /// Takes the number as it is.
    pub const fn new(value: u64) -> FencingToken {
        FencingToken(value)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number for a signed column of a database, such as SQL's `bigint`. The number is the same, since a token is below 2^53.
    /// Only a faulty backend could give a token beyond `i64`. Such a token becomes negative, and a resource that has seen any
    /// token refuses it. (The greatest `i64` would let older holders write.)
    ///
    /// ```
    /// # use fairlock::FencingToken;
    /// assert_eq!(FencingToken::new(34).as_i64(), 34);
    /// ```
    pub const fn as_i64(self) -> i64 {
        self.0.cast_signed()
    }
}

impl From<u64> for FencingToken {
    fn from(value: u64) -> FencingToken {
        FencingToken(value)
    }
}

/// As [`as_i64`](FencingToken::as_i64).
impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> i64 {
        token.as_i64()
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> u64 {
        token.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Stands in a test for the resource that a program writes to: a file, a table, a service. It keeps the newest
/// [token](crate::Hold::token), refuses a write with a smaller one, and counts both: so a test shows that the program sends its token with
/// each write, and what it does when the write is refused. Not for production: a resource keeps its token together with its data.
///
/// ```
/// # use std::time::Duration;
/// # use fairlock::{Client, MemoryBackend, testing::{ManualClock, Sink}};
/// let clock = ManualClock::new();
/// let store = MemoryBackend::with_clock(clock.clone());
/// let connect = || Client::builder(store.clone()).clock(clock.clone()).build();
/// let (one, other, sink) = (connect()?, connect()?, Sink::new());
///
/// let slow = one.fair_lock("orders")?.lock()?;
/// assert!(sink.write(slow.token()));
/// clock.jump(Duration::from_secs(60)); // its process stands still: the lease ends
/// let quick = other.fair_lock("orders")?.lock()?;
/// assert!(sink.write(quick.token()));
/// assert!(!sink.write(slow.token()));
/// assert_eq!((sink.written(), sink.refused()), (2, 1));
/// # Ok::<(), fairlock::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Sink(Mutex<Writes>);

#[derive(Debug, Default)]
struct Writes {
    newest: Option<FencingToken>,
    written: u64,
    refused: u64,
}

impl Sink {
    /// No token was seen.
    pub fn new() -> Sink {
        Sink::default()
    }

    /// Whether the write is done: no write with a greater token was. An equal token passes, as one hold may write many times.
    pub fn write(&self, token: FencingToken) -> bool {
        let mut writes = self.0.lock();
        let is_late = writes.newest > Some(token);
        if is_late {
            writes.refused += 1;
        } else {
            (writes.newest, writes.written) = (Some(token), writes.written + 1);
        }
        !is_late
    }

    /// How many writes were done.
    pub fn written(&self) -> u64 {
        self.0.lock().written
    }

    /// How many writes came late, and were refused.
    pub fn refused(&self) -> u64 {
        self.0.lock().refused
    }
}

/// How many units a lock has, and whether waiters get it in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum LockKind {
    /// One holder at a time, in the order in which they asked.
    Fair,
    /// One holder at a time, without an order: the first to ask after a release.
    Plain,
    /// Readers together, a writer alone, in the order in which they asked. A reader takes one unit, a writer all of them.
    ReadWrite,
    /// Holders of this many permits together, in the order in which they asked.
    Semaphore {
        /// How many permits there are.
        permits: u32,
    },
}

/// The names of the kinds, in metrics and spans.
pub(crate) const KINDS: [&str; 4] = ["fair", "plain", "read_write", "semaphore"];

impl LockKind {
    /// Its place among [`KINDS`].
    pub(crate) const fn place(self) -> usize {
        match self {
            LockKind::Fair => 0,
            LockKind::Plain => 1,
            LockKind::ReadWrite => 2,
            LockKind::Semaphore { .. } => 3,
        }
    }

    /// How many units there are. No holders together take more.
    pub const fn capacity(self) -> u32 {
        match self {
            LockKind::Fair | LockKind::Plain => 1,
            LockKind::ReadWrite => u32::MAX,
            LockKind::Semaphore { permits } => permits,
        }
    }

    /// Whether locks of both kinds may have one name. Fair and plain handles and semaphores of one permit are one lock; so are
    /// semaphores of two permits or more: each request is granted by the number that it names.
    pub const fn agrees_with(self, other: LockKind) -> bool {
        const fn has_parts(capacity: u32) -> bool {
            1 < capacity && capacity < u32::MAX
        }
        let (own, other) = (self.capacity(), other.capacity());
        own == other || has_parts(own) && has_parts(other)
    }

    /// Whether several holders may hold it together.
    pub const fn is_shared(self) -> bool {
        matches!(self, LockKind::ReadWrite | LockKind::Semaphore { .. })
    }
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockKind::Fair => f.write_str("fair lock"),
            LockKind::Plain => f.write_str("plain lock"),
            LockKind::ReadWrite => f.write_str("read-write lock"),
            LockKind::Semaphore { permits: 1 } => f.write_str("semaphore of 1 permit"),
            LockKind::Semaphore { permits } => write!(f, "semaphore of {permits} permits"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_and_shown_without_control_characters() {
        assert!(LockName::new("a{b}\n\0é").is_ok());
        assert_eq!(LockName::new("a\nb").unwrap().to_string(), "`a\\nb`");
        let empty = LockName::new("").unwrap_err();
        assert_eq!(empty.to_string(), "invalid lock name ``: it is empty");
        let long = LockName::new(&"x".repeat(513)).unwrap_err().to_string();
        assert_eq!(
            long,
            format!("invalid lock name `{}…`: it has 513 bytes, 512 are allowed", "x".repeat(40))
        );
        assert!(LockName::new(&"x".repeat(512)).is_ok());
    }

    #[test]
    fn random_numbers_differ_in_all_threads() {
        let draw = || (0..5_000).map(|_| random()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(draw)).collect();
        let drawn = threads.into_iter().flat_map(|thread| thread.join().unwrap());
        assert_eq!(drawn.collect::<std::collections::HashSet<u64>>().len(), 20_000);
    }

    #[test]
    fn names_and_owners_are_their_texts_by_which_names_are_ordered() {
        let name = |text: &str| LockName::new(text).unwrap();
        let mut names = ["c", "a", "d", "b"].map(name);
        names.sort();
        assert_eq!(names.each_ref().map(LockName::as_ref), ["a", "b", "c", "d"]);
        assert!(name("b") < name("c") && name("b") > name("a") && name("b") == name("b"));
        assert_eq!(format!("{:?} {:?}", name("b"), OwnerId::new("c:1")), r#"LockName("b") OwnerId("c:1")"#);
        let owner = OwnerId::new("worker:3:57");
        assert_eq!(
            (owner.as_ref(), &*owner.to_string(), owner.client()),
            ("worker:3:57", "worker:3:57", "worker:3")
        );
        assert_eq!(OwnerId::new("57").client(), "");
    }

    #[test]
    fn names_and_owners_that_differ_differ_in_their_hashes() {
        let names: Vec<_> = (0..100).map(|n| LockName::new(&format!("n:{n}")).unwrap()).collect();
        let owners: Vec<_> = (0..100).map(|n| OwnerId::new(&format!("o:{n}"))).collect();
        let state = RandomState::new();
        let codes = names.iter().map(LockName::hash_code).chain(owners.iter().map(OwnerId::hash_code));
        let hashes = names.iter().map(|name| state.hash_one(name));
        let hashes = hashes.chain(owners.iter().map(|owner| state.hash_one(owner)));
        assert_eq!(codes.collect::<std::collections::HashSet<_>>().len(), 200);
        assert_eq!(hashes.collect::<std::collections::HashSet<_>>().len(), 200);
        assert_eq!(names[7].hash_code(), LockName::new("n:7").unwrap().hash_code());
        assert_eq!(owners[7].hash_code(), OwnerId::new("o:7").hash_code());
    }

    #[test]
    fn a_token_fits_any_database_and_a_request_has_sixteen_digits() {
        let token = FencingToken::new(7);
        assert_eq!((token.get(), u64::from(token), token.as_i64(), &*token.to_string()), (7, 7, 7, "7"));
        let greatest = (1 << 53) - 1;
        assert_eq!(FencingToken::new(greatest).as_i64(), greatest.cast_signed());
        // From a faulty backend: no resource takes it for the latest one.
        assert!([1 << 63, u64::MAX].into_iter().all(|broken| FencingToken::new(broken).as_i64() < 0));
        assert_eq!(RequestId::new(0xab).to_string(), "00000000000000ab");
        assert_ne!(RequestId::fresh(), RequestId::fresh());
    }

    #[test]
    fn an_owner_is_spelled_as_redisson_spells_it() {
        let client = ClientId(0x6e3814a1_e847_452b_a982_45baf93a1df2);
        assert_eq!(OwnerId::of(client, 57).as_str(), "6e3814a1-e847-452b-a982-45baf93a1df2:57");
    }

    #[cfg(feature = "serde")]
    #[test]
    fn ids_are_serialized_as_their_texts() {
        struct Written<T>(T);
        impl<T: serde::Serialize> fmt::Display for Written<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.serialize(f)
            }
        }
        assert_eq!(Written(LockName::new("a\nb").unwrap()).to_string(), "a\nb");
        assert_eq!(Written(OwnerId::new("c:1")).to_string(), "c:1");
    }

    #[test]
    fn exclusive_locks_or_semaphores_may_have_one_name() {
        let semaphore = |permits| LockKind::Semaphore { permits };
        let kinds = [
            (LockKind::Fair, 1, false, "fair lock"),
            (LockKind::Plain, 1, false, "plain lock"),
            (LockKind::ReadWrite, u32::MAX, true, "read-write lock"),
            (semaphore(1), 1, true, "semaphore of 1 permit"),
            (semaphore(5), 5, true, "semaphore of 5 permits"),
            (semaphore(8), 8, true, "semaphore of 8 permits"),
        ];
        let class = |capacity| if matches!(capacity, 1 | u32::MAX) { capacity } else { 2 };
        for (kind, capacity, is_shared, text) in kinds {
            assert_eq!((kind.capacity(), kind.is_shared(), &*kind.to_string()), (capacity, is_shared, text));
            for (other, of_other, ..) in kinds {
                assert_eq!(kind.agrees_with(other), class(capacity) == class(of_other), "{kind}, {other}");
            }
        }
    }
}
