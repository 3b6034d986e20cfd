//! Databases of other encodings than UTF-8: labels, the names of locks, and the guide's SQL for holders.

use std::time::Duration;

use fairlock::admin::{LockKind, LockName};
use fairlock::backend::{
    Acquire, Acquired, Backend, Hold, LockId, Place, Released, Renew, Renewal, RequestId, only,
};
use fairlock::owner::{ClientId, OwnerId};
use fairlock::{Client, PostgresBackend};
use fairlock_tests::PostgresServer;
use fairlock_tests::locks::{granted, request, take};

use super::held::{patient, server};

const LEASE: Duration = Duration::from_secs(30);
const LABEL: &str = "Bäcker ключ 錠";
/// With the label as a holder's row has it.
const ENCODINGS: [(&str, &str); 5] = [
    ("UTF8", LABEL),
    ("SQL_ASCII", LABEL),
    ("LATIN1", "Bäcker ???? ?"),
    ("LATIN9", "B?cker ???? ?"),
    ("EUC_JP", "B?cker ???? ?"),
];

fn database_of(server: &PostgresServer, encoding: &str) -> (String, postgres::Client) {
    let database = format!("in_{}", encoding.to_lowercase());
    let make = format!(
        "create database {database} encoding '{encoding}' template template0 lc_collate 'C' lc_ctype 'C'"
    );
    server.con().batch_execute(&make).unwrap();
    let url = server.url_of(&database);
    PostgresBackend::migrate(&url).unwrap();
    (url, server.con_to(&database))
}

fn connect(url: &str) -> Client {
    Client::builder(patient(url).connect().unwrap()).label(LABEL).build().unwrap()
}

/// The fast and the general part, and a hand-over between processes, by NOTIFY.
#[test]
fn a_label_that_the_database_can_not_hold_is_replaced() {
    let server = server();
    for (encoding, label) in ENCODINGS {
        let (url, mut con) = database_of(server, encoding);
        let (ours, theirs) = (connect(&url), connect(&url));
        for name in ["orders", "orders", "ключ"] {
            let held = |con: &mut postgres::Client, token: i64| {
                // That of the guide.
                let holder = "
                    select encode(name, 'escape') as lock, h_owner, h_label, h_token, to_timestamp(h_ends / 1e6) as lease_ends
                    from fairlock.lock where h_owner is not null";
                let rows = con.query(holder, &[]).unwrap();
                assert_eq!(rows.len(), 1, "{encoding}");
                let (stands, of) = (rows[0].get::<_, &str>("h_label"), rows[0].get::<_, i64>("h_token"));
                assert!(
                    stands.starts_with(&format!("{label} (")) && of == token,
                    "{encoding}: {stands}, {of}"
                );
                if name == "orders" {
                    assert_eq!(rows[0].get::<_, &str>("lock"), name, "{encoding}");
                    let still_held = "select fairlock.still_held($1, $2) and fairlock.all_still_held(array[$1], array[$2])";
                    assert!(con.query_one(still_held, &[&name, &token]).unwrap().get::<_, bool>(0));
                }
            };
            let guard = take(&ours.fair_lock(name).unwrap());
            held(&mut con, guard.token().as_i64());
            let waiting = request(&theirs, name);
            guard.renew().unwrap();
            let state = ours.fair_lock(name).unwrap().admin().inspect().unwrap();
            let waits = state.queue[0].label.as_deref().unwrap();
            assert!(waits.starts_with(&format!("{LABEL} (")), "{encoding}: {waits}");
            guard.unlock().unwrap();
            let next = granted(waiting, LEASE);
            held(&mut con, next.token().as_i64());
            next.unlock().unwrap();
        }
    }
}

/// It has to be found again, so nothing of it is replaced.
#[test]
fn an_owner_that_the_database_can_not_hold_has_its_lock_alone() {
    let (url, _) = database_of(server(), "LATIN2");
    let backend = patient(&url).connect().unwrap();
    let lock = LockId::new(LockName::new("x").unwrap(), LockKind::Fair);
    let [ours, theirs] = ["錠:1", "鍵:1"].map(OwnerId::new);
    let ask = |owner, request| {
        let place = Place::new(&lock, owner, RequestId::new(request));
        only(backend.acquire(&[Acquire::new(place, LEASE)])).unwrap()
    };
    for request in [1, 2] {
        let Acquired::Granted { token, .. } = ask(&ours, request) else { panic!("it is free") };
        assert!(!matches!(ask(&theirs, request), Acquired::Granted { .. }));
        let hold = |owner| Hold::new(&lock, owner, RequestId::new(request), token);
        let renew = |owner| {
            let items = [Renew::Hold { hold: hold(owner), holds: 1, lease: LEASE }];
            backend.renew(ClientId::random(), &items).remove(0).unwrap()
        };
        assert!(renew(&theirs) != Renewal::Renewed && renew(&ours) == Renewal::Renewed);
        assert_ne!(only(backend.release(&[hold(&theirs)])).unwrap(), Released::Released);
        assert_eq!(only(backend.release(&[hold(&ours)])).unwrap(), Released::Released);
    }
}
