//! A temp dir that goes away with its user, and takes along the processes noted in it, even after a SIGKILL.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// What the guard process does: it reads a pipe that only our process holds open. Should we end without dropping the
/// `WorkDir` (killed by a CI time-out, `process::exit` with a server in a static), it reads the end of the file, kills
/// the noted processes and removes the dir. It ignores what a terminal sends to the whole group on Ctrl-C.
const GUARD: &str = r#"trap '' INT TERM HUP
read -r _
for noted in "$1"/pids/*; do
    case "${noted##*/}" in *[!0-9]*) ;; *) kill -9 "${noted##*/}" ;; esac
done
rm -rf -- "$1""#;

/// A new empty dir in the system's temp dir, removed when this value is dropped or its process ends in any way.
#[derive(Debug)]
pub struct WorkDir {
    path: PathBuf,
    guard: Child,
}

impl WorkDir {
    /// Makes the dir, readable by nobody else.
    pub fn new() -> WorkDir {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let path = loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            // Short: a unix socket's path in it must stay below 104 bytes.
            let path = std::env::temp_dir().join(format!("fairlock-{}-{number}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => break path,
                // Left by an earlier process with our number, which its guard has yet to remove.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => panic!("can't make the temp dir {}: {e}", path.display()),
            }
        };
        fs::create_dir(path.join("pids")).expect("a dir can be made in our own dir");
        let guard = Command::new("sh")
            .args(["-c", GUARD, "fairlock-test-guard"])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh can be started");
        WorkDir { path, guard }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Notes a child that must not outlive this process.
    pub fn note(&self, child: &Child) {
        fs::write(self.pid_file(child), "").expect("a file can be written in our own dir");
    }

    /// Takes the note back. Call it *before* the child is waited for: then its number may name another process.
    pub fn forget(&self, child: &Child) {
        fs::remove_file(self.pid_file(child)).expect("the note is there");
    }

    fn pid_file(&self, child: &Child) -> PathBuf {
        self.path.join("pids").join(child.id().to_string())
    }
}

impl Default for WorkDir {
    fn default() -> WorkDir {
        WorkDir::new()
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        // Nothing here may panic: it could be a failed test that unwinds. The guard goes first, else its `rm` meets ours.
        let _ = self.guard.kill();
        let _ = self.guard.wait();
        let _ = fs::remove_dir_all(&self.path);
    }
}
