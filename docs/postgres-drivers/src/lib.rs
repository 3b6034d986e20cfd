//! `fairlock.still_held` with three drivers: the guide's snippets.

use diesel::connection::LoadConnection;
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::sql_query;
use diesel::sql_types::{BigInt, Bool, Text};
use fairlock::FencingToken;

/// With sqlx.
///
/// # Errors
/// Those of the driver.
pub async fn with_sqlx(
    transaction: &mut sqlx::Transaction<'_, sqlx::Postgres>,
    name: &str,
    token: FencingToken,
) -> Result<bool, sqlx::Error> {
    let held: bool = sqlx::query_scalar("select fairlock.still_held($1, $2)")
        .bind(name)
        .bind(token.as_i64())
        .fetch_one(&mut **transaction)
        .await?;
    Ok(held)
}

/// With tokio-postgres.
///
/// # Errors
/// Those of the driver.
pub async fn with_tokio_postgres(
    transaction: &tokio_postgres::Transaction<'_>,
    name: &str,
    token: FencingToken,
) -> Result<bool, tokio_postgres::Error> {
    let still_held = "select fairlock.still_held($1, $2)";
    let held: bool = transaction.query_one(still_held, &[&name, &token.as_i64()]).await?.get(0);
    Ok(held)
}

#[derive(QueryableByName)]
struct Answer {
    #[diesel(sql_type = Bool)]
    held: bool,
}

/// With diesel, inside `connection.transaction(…)`.
///
/// # Errors
/// Those of the driver.
pub fn with_diesel(
    connection: &mut impl LoadConnection<Backend = Pg>,
    name: &str,
    token: FencingToken,
) -> QueryResult<bool> {
    let Answer { held } = sql_query("select fairlock.still_held($1, $2) as held")
        .bind::<Text, _>(name)
        .bind::<BigInt, _>(token.as_i64())
        .get_result(connection)?;
    Ok(held)
}
