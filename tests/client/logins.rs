//! A thousand holds of each client, and locks that go to and fro, while passwords are changed, tokens end, and the server cuts off
//! connections. All times are the defaults, but that a busy machine gets more for the first connection and the first grants.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::owner::Owner;
use fairlock::settings::Login;
use fairlock::{Client, Error, Guard, PostgresBackend, RedisBackend};
use fairlock_tests::locks::take_soon;
use fairlock_tests::log_lines::{keep_log_lines, log_lines};
use fairlock_tests::secrets::assert_none_was_logged;
use fairlock_tests::{Alone, PostgresServer, RedisServer, assert_no_residue, by_threads, eventually};

const HOLDS: usize = 1_000;
const LEASE: Duration = Duration::from_secs(30);
/// How long the first connection may take.
const SET_UP: Duration = Duration::from_secs(60);
/// How long a token can be used.
const TOKEN: Duration = Duration::from_secs(10);

/// A server whose administrator is the test.
trait Store: Send + Sync + 'static {
    /// A user, or another password for a user.
    fn user(&self, user: &str, password: &str);
    /// Cuts off the user's connections.
    fn cut(&self, user: &str);
    /// The user is no more, nor are the user's connections.
    fn end(&self, user: &str);
    /// A client of this user, unless the login names another user.
    fn client(&self, user: &str, login: impl Fn() -> Result<Login, String> + Send + Sync + 'static)
    -> Client;
}

impl Store for RedisServer {
    fn user(&self, user: &str, password: &str) {
        let password = format!(">{password}");
        self.query::<()>(&["ACL", "SETUSER", user, "on", "resetpass", &password, "~*", "&*", "+@all"]);
    }

    fn cut(&self, user: &str) {
        self.query::<i64>(&["CLIENT", "KILL", "USER", user]);
    }

    fn end(&self, user: &str) {
        self.query::<()>(&["ACL", "DELUSER", user]);
    }

    fn client(
        &self,
        user: &str,
        login: impl Fn() -> Result<Login, String> + Send + Sync + 'static,
    ) -> Client {
        let builder = RedisBackend::builder(&format!("redis://{user}@{}", self.address()));
        Client::new(builder.login(login).connect_within(SET_UP).connect().unwrap()).unwrap()
    }
}

impl Store for PostgresServer {
    fn user(&self, user: &str, password: &str) {
        let made = self.con().batch_execute(&format!("create role \"{user}\" login in role fairlock"));
        assert!(made.is_ok() || user == "app", "{made:?}");
        self.con().batch_execute(&format!("alter role \"{user}\" password '{password}'")).unwrap();
    }

    fn cut(&self, user: &str) {
        let sql = "select pg_terminate_backend(pid) from pg_stat_activity where usename = $1";
        self.con().execute(sql, &[&user]).unwrap();
    }

    fn end(&self, user: &str) {
        self.con().batch_execute(&format!("alter role \"{user}\" nologin")).unwrap();
        self.cut(user);
    }

    fn client(
        &self,
        user: &str,
        login: impl Fn() -> Result<Login, String> + Send + Sync + 'static,
    ) -> Client {
        let builder = PostgresBackend::builder(&self.url().replace("fairlock@", &format!("{user}@")));
        Client::new(builder.login(login).connect_within(SET_UP).connect().unwrap()).unwrap()
    }
}

/// Tokens, each with a user of its own, so that the server ends exactly what has logged in by a token whose time is over.
#[derive(Default)]
struct Tokens {
    /// When each ends.
    ends: Mutex<Vec<Instant>>,
    ended: AtomicUsize,
}

impl Tokens {
    fn new_one(&self, store: &impl Store) -> Login {
        let mut ends = self.ends.lock().unwrap();
        let user = format!("token-{}", ends.len());
        store.user(&user, "canary-token");
        ends.push(Instant::now() + TOKEN);
        Login::new("canary-token").with_user(user).valid_for(TOKEN)
    }

    /// Ends those whose time is over.
    fn end(&self, store: &impl Store) {
        let number = self.ended.load(Ordering::SeqCst);
        if self.ends.lock().unwrap().get(number).is_some_and(|end| *end <= Instant::now()) {
            store.end(&format!("token-{number}"));
            self.ended.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// A lock that two clients take in turn all the time.
#[derive(Default)]
struct Busy {
    inside: AtomicUsize,
    turns: [AtomicUsize; 2],
    is_over: AtomicBool,
}

impl Busy {
    /// Takes turns until the end. An outage is allowed, and nothing else.
    fn take_turns(&self, clients: &[Client; 2], number: usize) {
        let lock = clients[number].fair_lock("busy").unwrap();
        while !self.is_over.load(Ordering::SeqCst) {
            match lock.try_lock_for(Duration::from_secs(1)) {
                Ok(taken) => {
                    let Some(guard) = taken.granted() else { continue };
                    assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                    self.turns[number].fetch_add(1, Ordering::SeqCst);
                    self.inside.fetch_sub(1, Ordering::SeqCst);
                    if let Err(error) = guard.unlock() {
                        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
                    }
                }
                Err(error) => assert!(matches!(error, Error::Unavailable { .. }), "{error}"),
            }
        }
    }

    /// Waits until both take turns.
    fn until_both_take_turns(&self, when: &str) {
        let before = self.turns.each_ref().map(|turns| turns.load(Ordering::SeqCst));
        eventually(when, || {
            self.turns.iter().zip(before).all(|(turns, before)| turns.load(Ordering::SeqCst) > before + 10)
        });
    }
}

/// Tries for the holds of the other client, again and again.
fn try_for_others(clients: &[Client; 2], busy: &Busy) {
    for number in (0..HOLDS).cycle().take_while(|_| !busy.is_over.load(Ordering::SeqCst)) {
        for (client, of) in clients.iter().zip([1, 0]) {
            let lock = client.fair_lock(name(of, number)).unwrap();
            match lock.try_lock() {
                Ok(taken) => {
                    let name = name(of, number);
                    assert!(
                        taken.granted().is_none(),
                        "{name} was lost, or has two holders: {:?}",
                        log_lines(&name)
                    );
                }
                Err(error) => assert!(matches!(error, Error::Unavailable { .. }), "{error}"),
            }
        }
        thread::sleep(Duration::from_millis(5)); // the clients have other calls, too
    }
}

fn name(client: usize, number: usize) -> String {
    format!("held:{client}:{number}")
}

/// Waits until the server has renewed all of these since then.
fn until_renewed(client: &Client, guards: &[Guard<Owner>], since: Instant) {
    eventually("all holds were renewed since the cut", || {
        let names: Vec<&str> = guards.iter().map(|guard| guard.name()).collect();
        let ends = by_threads(names, |name| {
            // A look is one attempt, and its connection may have been cut.
            match client.fair_lock(name).unwrap().admin().inspect() {
                Ok(state) => state.holders[0].lease_left.expect("it has an end"),
                Err(error) => {
                    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
                    Duration::ZERO
                }
            }
        });
        ends.iter().all(|left| *left + since.elapsed() > LEASE)
    });
}

fn holds_survive(store: &Arc<impl Store>) {
    keep_log_lines(log::LevelFilter::Debug);
    let (password, asked) = (Arc::new(Mutex::new("canary-1")), Arc::new(AtomicUsize::new(0)));
    let tokens = Arc::new(Tokens::default());
    store.user("app", "canary-1");
    let by_password = {
        let (password, asked) = (Arc::clone(&password), Arc::clone(&asked));
        store.client("app", move || {
            asked.fetch_add(1, Ordering::SeqCst);
            Ok(Login::new(*password.lock().unwrap()))
        })
    };
    let new_token = {
        // The server ends with the test, not with this function.
        let (tokens, store) = (Arc::clone(&tokens), Arc::downgrade(store));
        move || Ok(tokens.new_one(&*store.upgrade().ok_or("the server has gone")?))
    };
    let clients = [by_password, store.client("app", new_token)];
    let guards = [0, 1].map(|client| {
        (0..HOLDS).map(|number| take_soon(&clients[client], &name(client, number))).collect::<Vec<_>>()
    });
    let busy = Busy::default();
    thread::scope(|scope| {
        let is_over = IsOver(&busy);
        for thread in 0..4 {
            let (busy, clients) = (&busy, &clients);
            scope.spawn(move || busy.take_turns(clients, thread % 2));
        }
        scope.spawn(|| try_for_others(&clients, &busy));
        scope.spawn(|| {
            while !busy.is_over.load(Ordering::SeqCst) {
                tokens.end(&**store);
                thread::sleep(Duration::from_millis(10));
            }
        });
        busy.until_both_take_turns("both take turns");
        // The next connections are refused until the function gives the new password.
        let until_refused = || {
            let before = asked.load(Ordering::SeqCst);
            eventually("it is asked again", || asked.load(Ordering::SeqCst) > before + 2);
        };
        store.user("app", "canary-2");
        store.cut("app");
        until_refused();
        *password.lock().unwrap() = "canary-2";
        busy.until_both_take_turns("the function gives the server's password");
        // The other way round.
        *password.lock().unwrap() = "canary-3";
        store.cut("app");
        until_refused();
        store.user("app", "canary-3");
        let changed = Instant::now();
        busy.until_both_take_turns("the server has the function's password");
        eventually("a token has ended", || tokens.ended.load(Ordering::SeqCst) > 0);
        let ended = Instant::now();
        busy.until_both_take_turns("a token has ended");
        until_renewed(&clients[0], &guards[0], changed);
        until_renewed(&clients[1], &guards[1], ended);
        drop(is_over);
    });
    for guard in guards.into_iter().flatten() {
        guard.check().unwrap();
        guard.unlock().unwrap();
    }
    assert_none_was_logged();
}

/// Ends the threads, also if an assertion fails.
struct IsOver<'a>(&'a Busy);

impl Drop for IsOver<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
    }
}

#[test]
fn holds_on_redis_survive_changed_passwords_and_short_tokens() {
    let _alone = Alone::here();
    let server = Arc::new(RedisServer::start());
    holds_survive(&server);
    // Each kill has cut off the one client once. The other has listened all the time.
    assert_eq!(log_lines("wake-ups are cut off").len(), 2);
    assert_no_residue(&server, &[]);
}

#[test]
fn holds_on_postgresql_survive_changed_passwords_and_tokens() {
    let _alone = Alone::here();
    let server = Arc::new(PostgresServer::start());
    // Not SCRAM, whose thousands of hashes cost a client of a debug build most of the time for a connection.
    let logins = "local all all trust\nhost all fairlock all trust\nhost all all all password\n";
    std::fs::write(server.dir().join("data/pg_hba.conf"), logins).unwrap();
    server.con().execute("select pg_reload_conf()", &[]).unwrap();
    holds_survive(&server);
}
