//! One server for all tests of a run that change nothing of the server: each test takes a database of its own.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::parent_id;
use std::process;
use std::sync::atomic::AtomicU32;
use std::sync::{LazyLock, Mutex};

use super::{PostgresServer, PostgresServerBuilder};
use crate::port::Port;
use crate::workdir::WorkDir;

impl PostgresServer {
    /// The server that the tests of a run share. Where each test has a process (nextest), the first that needs the server starts it, and the
    /// server ends with nextest. Else it ends with this process.
    pub fn shared() -> &'static PostgresServer {
        static SHARED: LazyLock<PostgresServer> = LazyLock::new(|| {
            let builder = PostgresServer::builder().set("max_connections", "700");
            match std::env::var("NEXTEST_RUN_ID") {
                Ok(run) => of_run(builder, &run),
                Err(_) => builder.start(),
            }
        });
        &SHARED
    }
}

/// The file of the run says where the server is. Whichever process starts the server has the file locked meanwhile; if that process ends
/// before the server answers, the file stays empty, and the next process starts another server.
fn of_run(builder: PostgresServerBuilder, run: &str) -> PostgresServer {
    let path = std::env::temp_dir().join(format!("fairlock-postgres-{run}"));
    let mut file =
        File::options().create(true).read(true).append(true).open(&path).expect("a file can be made");
    file.lock().expect("it can be locked");
    let mut known = String::new();
    file.read_to_string(&mut known).expect("it can be read");
    let Some((port, dir)) = known.split_once(' ') else {
        // A wrapper stands between nextest and the test.
        let nextest = std::env::var("FAIRLOCK_RUN_PID").ok().and_then(|pid| pid.parse().ok());
        let server = builder.start_in(WorkDir::until_the_end_of(nextest.unwrap_or_else(parent_id), &path));
        let known = format!("{} {}", server.port(), server.dir().display());
        file.write_all(known.as_bytes()).expect("it can be written");
        return server;
    };
    PostgresServer {
        set_up: builder,
        dir: WorkDir::of_another(dir.into()),
        port: Port::of_another(port.parse().expect("a port")),
        child: Mutex::new(None),
        databases: AtomicU32::new(process::id() * 1000), // no other process makes databases of these names
    }
}
