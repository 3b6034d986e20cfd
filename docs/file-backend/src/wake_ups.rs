//! Wake-ups: one socket and one thread per client.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fairlock_core::ClientId;
use fairlock_core::backend::{Subscription, WakeSink};
use fairlock_rules::WakeUp;

/// Where the client listens, if it does.
pub(crate) fn socket_of(dir: &Path, client: &str) -> PathBuf {
    dir.join(format!("{client}.wake"))
}

/// Sends a wake-up to its client, if that is subscribed.
pub(crate) fn send(dir: &Path, wake_up: &WakeUp) {
    let to = socket_of(dir, wake_up.owner.client());
    let sent = UnixDatagram::unbound().and_then(|from| {
        from.set_nonblocking(true)?;
        from.send_to(wake_up.to_string().as_bytes(), &to)
    });
    // No process listens there: the client was killed before it could remove its socket.
    if sent.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
        let _ = fs::remove_file(&to);
    }
}

/// Receives wake-ups until the subscription is dropped. None is lost after this returns.
pub(crate) fn subscribe(dir: &Path, client: ClientId, sink: Arc<dyn WakeSink>) -> io::Result<Subscription> {
    remove_deserted(dir)?;
    let path = socket_of(dir, &client.to_string());
    let socket = UnixDatagram::bind(&path)?;
    let socket_file = SocketFile { path, ended: Arc::new(AtomicBool::new(false)) };
    let ended = Arc::clone(&socket_file.ended);
    thread::Builder::new().name("file-wake-ups".to_owned()).spawn(move || {
        let mut text = [0; 8192];
        while let Ok(length) = socket.recv(&mut text) {
            if ended.load(Ordering::SeqCst) {
                return;
            }
            let text = str::from_utf8(&text[..length]).unwrap_or_default();
            if let Ok(wake_up) = text.parse::<WakeUp>() {
                sink.wake(wake_up.as_wake());
            }
        }
    })?;
    Ok(Subscription::new(socket_file))
}

/// Removes sockets of killed clients, so that they don't pile up.
fn remove_deserted(dir: &Path) -> io::Result<()> {
    for file in fs::read_dir(dir)? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "wake")
            && let Err(error) = UnixDatagram::unbound()?.connect(&path)
            && error.kind() == ErrorKind::ConnectionRefused
        {
            let _ = fs::remove_file(path);
        }
    }
    Ok(())
}

struct SocketFile {
    path: PathBuf,
    ended: Arc<AtomicBool>,
}

impl Drop for SocketFile {
    /// Ends the thread by an empty message, without waiting for it.
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        let _ = UnixDatagram::unbound().and_then(|from| from.send_to(b"", &self.path));
        let _ = fs::remove_file(&self.path);
    }
}
