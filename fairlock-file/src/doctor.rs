//! Whether locks work in this directory, and how quickly.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use fairlock_core::backend::{BackendError, Finding, Verdict, probe, try_out};

use crate::backend::FileBackend;
use crate::dir::whose;
use crate::failure::failure;
use crate::machine::BOUND;

/// How many steps are measured.
const STEPS: usize = 20;

impl FileBackend {
    /// Checks the directory. The topics are, in this order: `directory`, who shares it; `trial`: a lock of a random name
    /// (`fairlock-doctor:…`) is acquired and released, and how long each takes; `locks`, for each lock that can't be read: why.
    ///
    /// # Errors
    /// `Refused` if the directory was removed, `Denied` or `Unavailable` if it can't be read. Any later failure is a finding.
    pub fn doctor(&self) -> fairlock_core::Result<Vec<Finding>> {
        let dir = &self.0.files.dir;
        dir.check()?;
        let found = fs::metadata(&dir.path).map_err(|error| failure("can't read the directory", error))?;
        let whose = whose(&found);
        let directory = match found.mode() & 0o2022 {
            0 | 0o2000 => (Verdict::Good, format!("{whose}: its user's own").into()),
            0o2020 => (Verdict::Good, format!("{whose}: users of its group share the locks").into()),
            // The file of a lock gets the own group of who uses it first.
            _ => {
                let cure = format!("`chmod 3770 {}` lets those of its group", dir.path.display());
                (Verdict::Note, format!("{whose}: not all of its users may take each lock; {cure}").into())
            }
        };
        let (lock, mut times) = (probe(), Vec::new());
        let tried: Result<(), BackendError> = (0..STEPS).try_for_each(|_| {
            let started = Instant::now();
            try_out(self, &lock)?;
            times.push(started.elapsed() / 2);
            Ok(())
        });
        _ = fs::remove_file(dir.lock(&lock.name));
        let trial = match tried {
            Ok(()) => Finding::of_times(times, BOUND, "a directory in memory, such as /run, is quicker"),
            Err(error) => (Verdict::Unsafe, (&error).into()),
        };
        let finding =
            |(topic, (verdict, text))| Finding::new(dir.path.display().to_string(), topic, verdict, text);
        let unread = self.locks_and_unread(None)?.1;
        let unread = unread.iter().map(|error| ("locks", (Verdict::Unsafe, error.to_string().into())));
        Ok([("directory", directory), ("trial", trial)].into_iter().chain(unread).map(finding).collect())
    }
}
