//! What the guide's page on PostgreSQL says, on a real server.

use fairlock::{Client, PostgresBackend};
use fairlock_tests::locks::take;
use postgres::NoTls;

use super::held::{patient, server};

#[test]
fn connecting_as_the_page_shows_it() -> fairlock::Result<()> {
    let server = server();
    let url = &server.new_empty_database();
    PostgresBackend::migrate(url)?; // once: makes the tables, or brings them up to date
    let client = Client::new(PostgresBackend::connect(url)?)?;
    let guard = client.fair_lock("orders")?.lock()?;
    let holder = "
        select encode(name, 'escape') as lock, h_owner, h_label, h_token, to_timestamp(h_ends / 1e6) as lease_ends
        from fairlock.lock where h_owner is not null";
    let rows = postgres::Client::connect(url, NoTls).unwrap().query(holder, &[]).unwrap();
    assert_eq!((rows[0].get("lock"), rows[0].get("h_token")), ("orders", guard.token().as_i64()));
    guard.unlock()
}

#[test]
fn the_rights_on_the_page_are_enough_and_needed() {
    const RIGHTS: &str = "
        grant usage on schema fairlock to locks;
        grant select, insert, update, delete on fairlock.lock to locks;
        grant select on fairlock.meta to locks;";
    let server = server();
    let mut admin = server.con();
    admin.batch_execute("create role locks login; create role writer login").unwrap();
    let url = server.url().replace("fairlock@", "locks@");
    for right in RIGHTS.split_inclusive(';') {
        assert!(patient(&url).connect().is_err(), "without {right}");
        admin.batch_execute(right).unwrap();
    }
    let connect = || Client::new(patient(&url).connect().unwrap()).unwrap();
    let (ours, theirs) = (connect(), connect());
    let guard = take(&ours.fair_lock("x").unwrap());
    let waiting = theirs.fair_lock("x").unwrap().request().unwrap();
    assert!(theirs.fair_lock("x").unwrap().admin().inspect().unwrap().holder().is_some());
    let (writer, token) = (server.url().replace("fairlock@", "writer@"), guard.token().as_i64());
    admin.batch_execute("grant usage on schema fairlock to writer").unwrap();
    admin.batch_execute("grant select, update on fairlock.lock to writer").unwrap();
    let mut writer = postgres::Client::connect(&writer, NoTls).unwrap();
    assert!(writer.query_one("select fairlock.still_held('x', $1)", &[&token]).unwrap().get::<_, bool>(0));
    guard.unlock().unwrap();
    waiting.wait().unwrap().unlock().unwrap();
}

/// A user without rights does what each error says.
#[test]
fn each_error_for_a_missing_right_names_the_grant_that_helps() {
    let server = server();
    let admins = server.new_empty_database();
    let (mut admin, new) =
        (postgres::Client::connect(&admins, NoTls).unwrap(), "create role \"new User\" login");
    admin.batch_execute(new).unwrap();
    let url = admins.replace("fairlock@", "new%20User@");
    let mut granted = Vec::new();
    let mut grants = |error: fairlock::Error| {
        let text = error.to_string();
        let is_denied = matches!(error, fairlock::Error::Denied { .. });
        assert!(is_denied && text.contains("user new User "), "{text}");
        let grant =
            text.split('`').find(|part| part.starts_with("grant ")).unwrap_or_else(|| panic!("{text}"));
        assert!(!granted.contains(&grant.to_owned()), "{text}");
        admin.batch_execute(grant).unwrap();
        granted.push(grant.to_owned());
        text
    };
    let denied = grants(PostgresBackend::migrate(&url).unwrap_err());
    assert!(denied.contains("`fairlock migrate --print`"), "{denied}");
    PostgresBackend::migrate(&admins).unwrap();
    let mut other = postgres::Client::connect(&admins, NoTls).unwrap();
    other.batch_execute("revoke execute on all functions in schema fairlock from public").unwrap();
    let client = loop {
        match patient(&url).connect() {
            Ok(backend) => break Client::new(backend).unwrap(),
            Err(error) => _ = grants(error),
        }
    };
    let guard = loop {
        match client.fair_lock("x").unwrap().try_lock() {
            Ok(took) => break took.granted().unwrap(),
            Err(error) => {
                let denied = grants(error);
                assert!(denied.contains("`fairlock doctor --postgres URL`"), "{denied}");
            }
        }
    };
    guard.unlock().unwrap();
    assert_eq!(granted.len(), 5, "{granted:?}");
}
