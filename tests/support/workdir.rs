//! A temp dir that is removed with its owner, along with the processes noted in it, even after a SIGKILL.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The guard process reads a pipe that only our process holds open. If our process ends without dropping the
/// `WorkDir`, the pipe closes, and the guard kills the noted processes and removes the dir. It ignores Ctrl-C, which
/// a terminal sends to the whole group.
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
    /// Makes the dir, with access for this user only.
    pub fn new() -> WorkDir {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let path = loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            // Short: the path of a unix socket in it must stay below 104 bytes.
            let path = std::env::temp_dir().join(format!("fairlock-{}-{number}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => break path,
                // Left by an earlier process with our id; its guard has yet to remove it.
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

    /// The path of the dir.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Notes a child process that must not outlive this one.
    pub fn note(&self, child: &Child) {
        fs::write(self.pid_file(child), "").expect("a file can be written in our own dir");
    }

    /// Removes the note. Call it *before* waiting for the child: afterwards its id may be reused.
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
        // Nothing here may panic, since a failed test may be unwinding. The guard goes first: its `rm` and ours would
        // conflict.
        let _ = self.guard.kill();
        let _ = self.guard.wait();
        let _ = fs::remove_dir_all(&self.path);
    }
}
