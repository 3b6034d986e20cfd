//! `fairlock migrate`: makes the tables in a PostgreSQL database, or prints the SQL that does.

use fairlock::PostgresBackend;

use crate::args::{Migrate, Server};
use crate::exit::{Exit, Failure};
use crate::report::print;
use crate::server;

pub(crate) fn migrate(server: &Server, options: &Migrate) -> Result<Exit, Failure> {
    if options.print {
        let _ = print(&PostgresBackend::migration())?;
    } else {
        let builder = server::postgres(server, None)
            .ok_or_else(|| Failure::ours("migrate needs a database: --postgres, or FAIRLOCK_POSTGRES"))?;
        builder.migrate().map_err(|error| server::explained(server, error))?;
    }
    Ok(Exit::Done)
}
