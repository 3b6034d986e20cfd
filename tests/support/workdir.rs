//! A temp dir that is removed with its owner, along with the processes noted in it, even after a SIGKILL.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The guard process reads a pipe that only our process holds open. When our process drops the `WorkDir` or ends, the pipe closes, and
/// [`CLEAN_UP`] begins.
const READ: &str = "read -r _";

/// The guard ends the noted processes and removes the dir. What a process has started may write for a moment after the process has
/// ended: so the guard removes the dir again and again. Neither Ctrl-C nor a kill of the test's process group ends the guard, which has
/// a group of its own.
const CLEAN_UP: &str = r#"for noted in "$1"/pids/*; do
    kill -CONT "${noted##*/}"
    kill -"$(cat "$noted")" "${noted##*/}"
done
for noted in "$1"/pids/*; do
    for _ in $(seq 100); do
        kill -0 "${noted##*/}" || break
        sleep 0.1
    done
    kill -KILL "${noted##*/}"
done
for _ in $(seq 100); do
    ! rm -rf -- "$@" || break
    sleep 0.1
done"#;

/// A new empty dir, removed when this value is dropped or its process ends in any way.
#[derive(Debug)]
pub struct WorkDir {
    path: PathBuf,
    /// None: the guard belongs to another process.
    guard: Option<Child>,
}

impl WorkDir {
    /// Makes the dir in the system's temp dir, with access for this user only.
    pub fn new() -> WorkDir {
        WorkDir::guarded(READ, None)
    }

    /// A dir that outlives this value and its process: the dir is removed, along with this file, when another process has ended.
    pub(crate) fn until_the_end_of(process: u32, file: &Path) -> WorkDir {
        WorkDir::guarded(&format!("while kill -0 {process}; do sleep 1; done"), Some(file))
    }

    /// The dir that another process made with [`until_the_end_of`](WorkDir::until_the_end_of).
    pub(crate) fn of_another(path: PathBuf) -> WorkDir {
        WorkDir { path, guard: None }
    }

    fn guarded(wait: &str, file: Option<&Path>) -> WorkDir {
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
            .args(["-c", &format!("{wait}\n{CLEAN_UP}"), "fairlock-test-guard"])
            .arg(&path)
            .args(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("sh can be started");
        WorkDir { path, guard: Some(guard) }
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
        self.note_with(child, "KILL");
    }

    /// Notes a child process that has processes and shared memory of its own, which it ends when it gets this signal.
    pub fn note_with(&self, child: &Child, signal: &str) {
        fs::write(self.pid_file(child), signal).expect("a file can be written in our own dir");
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
        // Nothing here may panic, since a failed test may be unwinding.
        if let Some(mut guard) = self.guard.take() {
            drop(guard.stdin.take());
            let _ = guard.wait();
        }
    }
}
