//! `fairlock migrate`: makes the tables in a PostgreSQL database, or prints the SQL that does, also as a migration for a tool.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use fairlock::PostgresBackend;

use crate::args::{Migrate, Server, Tool};
use crate::exit::{Exit, Failure};
use crate::report::print;
use crate::server;

pub(crate) fn migrate(server: &Server, options: &Migrate) -> Result<Exit, Failure> {
    match (options.print, &options.folder) {
        (None, _) => {
            let builder = server::postgres(server, None)
                .ok_or_else(|| Failure::ours("migrate needs a database: --postgres, or FAIRLOCK_POSTGRES"))?;
            builder.migrate().map_err(|error| server::explained(server, error))?;
        }
        (Some(None), None) => _ = print(&PostgresBackend::migration())?,
        (Some(None), Some(_)) => {
            return Err(Failure::ours(
                "a directory needs the tool that reads it: --print=sqlx, refinery or flyway",
            ));
        }
        (Some(Some(tool)), None) => {
            let (name, sql) = (tool.file_name(&[]), PostgresBackend::migration_in_transaction());
            print(&format!("-- {name}, with a number after that of your last migration\n{sql}"))?;
        }
        (Some(Some(tool)), Some(dir)) => {
            let written = write(tool, dir);
            let refused =
                |error| Failure::ours(format!("no migration can be written to {}: {error}", dir.display()));
            let name = written.map_err(refused)?;
            print(&format!("{}\n", dir.join(name).display()))?;
        }
    }
    Ok(Exit::Done)
}

/// Writes the migration to the directory, unless it is there. The name of its file.
fn write(tool: Tool, dir: &Path) -> io::Result<String> {
    let there = fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let there = there.collect::<io::Result<Vec<_>>>()?;
    if let Some(name) = there.iter().find(|name| name.ends_with(&tool.ending())) {
        return Ok(name.clone());
    }
    let name = tool.file_name(&there);
    let mut file = File::create_new(dir.join(&name))?;
    file.write_all(PostgresBackend::migration_in_transaction().as_bytes())?;
    Ok(name)
}

impl Tool {
    /// What follows the number.
    fn ending(self) -> String {
        let between = match self {
            Tool::Sqlx => "_",
            Tool::Refinery | Tool::Flyway => "__",
        };
        format!("{between}fairlock_{}.sql", PostgresBackend::LAYOUT)
    }

    /// A name whose number follows those of the files that are there, and has as many digits: the tools run migrations in the order of
    /// their numbers, which may be times.
    fn file_name(self, there: &[String]) -> String {
        let (before, digits) = match self {
            Tool::Sqlx => ("", 4),
            Tool::Refinery | Tool::Flyway => ("V", 1),
        };
        let digits_of = |name: &String| {
            let name = name.strip_prefix(before)?;
            let digits = name.find(|c: char| !c.is_ascii_digit()).unwrap_or(name.len());
            Some((name[..digits].parse::<u64>().ok()?, digits))
        };
        let last = there.iter().filter(|name| name.ends_with(".sql") || name.ends_with(".rs"));
        let (last, digits) = last.filter_map(digits_of).max().unwrap_or((0, digits));
        format!("{before}{:0digits$}{}", last.saturating_add(1), self.ending())
    }
}
