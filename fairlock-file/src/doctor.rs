//! Whether locks work in this directory, and how quickly.

use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use fairlock_core::backend::{BackendError, Finding, Verdict, probe, try_out};

use crate::backend::FileBackend;
use crate::failure::failure;
use crate::lock_files::BOUND;

/// How many steps are measured.
const STEPS: usize = 20;

impl FileBackend {
    /// Checks the directory. The topics are, in this order: `directory`, who shares it; `boot`; `trial`: a lock of a random name
    /// (`fairlock-doctor:…`) is acquired and released; `step`: how long that takes.
    ///
    /// # Errors
    /// `Refused` if the directory was removed, `Denied` or `Unavailable` if it can't be read. Any later failure is a finding.
    pub fn doctor(&self) -> fairlock_core::Result<Vec<Finding>> {
        let dir = &self.0.files.dir;
        dir.check()?;
        let found = std::fs::metadata(dir.path());
        let found = found.map_err(|error| failure("can't read the directory", error))?;
        let (mode, user, group) = (found.mode() & 0o7777, found.uid(), found.gid());
        let shared = format!("of user {user} and group {group}, mode {mode:o}");
        let directory = match mode & 0o002 {
            0 => (Verdict::Good, shared),
            _ => (
                Verdict::Note,
                format!("{shared}: every user of this machine may take its locks, or remove them"),
            ),
        };
        let boot = match self.0.files.boot {
            0 => (
                Verdict::Note,
                "this system does not tell one boot from the next: a kept lock may outlast a restart"
                    .to_owned(),
            ),
            id => (Verdict::Good, format!("{id:032x}")),
        };
        let mut findings = vec![("directory", directory), ("boot", boot)];
        let lock = probe();
        let mut times = Vec::new();
        let tried: Result<(), BackendError> = (0..STEPS).try_for_each(|_| {
            let started = Instant::now();
            try_out(self, &lock)?;
            times.push(started.elapsed() / 2);
            Ok(())
        });
        _ = std::fs::remove_file(dir.lock(&lock.name));
        match tried {
            Ok(()) => {
                findings.push(("trial", (Verdict::Good, "a lock was acquired and released".to_owned())));
                findings.push((
                    "step",
                    Finding::of_times(times, BOUND, "a directory in memory, such as /run, is quicker"),
                ));
            }
            Err(error) => findings.push(("trial", (Verdict::Unsafe, error.message().to_owned()))),
        }
        let finding =
            |(topic, (verdict, text))| Finding::new(dir.path().display().to_string(), topic, verdict, text);
        Ok(findings.into_iter().map(finding).collect())
    }
}
