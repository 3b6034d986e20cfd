//! The snippets on a real server, and one address for the program and its locks.

use fairlock::{Client, PostgresBackend};
use fairlock_postgres_drivers::{with_sqlx, with_tokio_postgres};
use fairlock_tests::PostgresServer;
use sqlx::{Connection, PgConnection};
use tokio::task::block_in_place;

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_of_each_driver_asks_whether_the_lock_is_held() {
    let server = block_in_place(PostgresServer::start);
    let lock = Client::new(PostgresBackend::connect(&server.url()).unwrap()).unwrap();
    let lock = lock.fair_lock("orders").unwrap().to_async();
    let guard = lock.lock().await.unwrap();
    let token = guard.token();
    let mut by_sqlx = PgConnection::connect(&server.url()).await.unwrap();
    let (mut other, driven) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.unwrap();
    let driven = tokio::spawn(driven);
    let mut held = async || {
        let mut one = by_sqlx.begin().await.unwrap();
        let said = with_sqlx(&mut one, "orders", token).await.unwrap();
        one.rollback().await.unwrap();
        let two = other.transaction().await.unwrap();
        let same = with_tokio_postgres(&two, "orders", token).await.unwrap();
        two.rollback().await.unwrap();
        [said, same]
    };
    assert_eq!(held().await, [true; 2]);
    guard.unlock().await.unwrap();
    assert_eq!(held().await, [false; 2]);
    drop(other);
    driven.await.unwrap().unwrap();
}

/// What sqlx reads in an address, the locks read as well, and it means the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_url_of_sqlx_serves_its_locks() {
    let server = block_in_place(PostgresServer::start);
    let directory = server.dir().display().to_string();
    let port = server.port();
    let settings = "select current_setting('application_name') || ' ' || current_setting('work_mem') || ' ' \
                    || current_setting('search_path')";
    for address in [
        format!("fairlock@127.0.0.1:{port}/fairlock?sslmode=prefer"),
        format!("fairlock@localhost:{port}/fairlock?ssl-mode=disable&statement-cache-capacity=10"),
        format!("fairlock@{}:{port}/fairlock?sslmode=disable", directory.replace('/', "%2F")),
        format!("/fairlock?host={directory}&port={port}&user=fairlock"),
        format!("fairlock@nowhere/other?hostaddr=127.0.0.1&port={port}&dbname=fairlock"),
    ] {
        let options = "&application_name=orders&options=-c%20work_mem%3D1MB&options[search_path]=shop";
        let url = format!("postgres://{address}{options}");
        let mut con = PgConnection::connect(&url).await.expect(&url);
        let said: String = sqlx::query_scalar(settings).fetch_one(&mut con).await.unwrap();
        assert_eq!(said, "orders 1MB shop", "{url}");
        con.close().await.unwrap();
        let locks = Client::new(PostgresBackend::connect(&url).expect(&url)).unwrap();
        locks.fair_lock("x").unwrap().lock().unwrap().unlock().unwrap();
        let ours = "select count(*) from pg_stat_activity where application_name = 'orders'";
        let seen = block_in_place(|| server.con().query_one(ours, &[]).unwrap().get::<_, i64>(0));
        assert!(seen > 0, "{url}");
    }
}
