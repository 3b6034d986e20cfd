//! Wake-ups: a socket and a thread for each client.

use std::fs::{self, File};
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlock_core::backend::{LineLimit, Place, Subscription, Wake, WakeSink, log_safely};
use fairlock_core::{ClientId, OwnerId};
use fairlock_rules::{WakeUp, WakeUpKind};

use crate::lock_files::LockFiles;
use crate::machine::{self, Dir};
use crate::sweep;
use crate::watch::{Processes, Watched};

/// How long a message waits for a client whose socket is full.
const PATIENCE: Duration = Duration::from_millis(5);
/// How many wake-ups go together, and the bytes of the longest message: names have 512, and each is two digits.
const TOGETHER: usize = 20;
const LONGEST: usize = TOGETHER * 2 * 1024;
/// How often a client looks for files that nobody uses.
const SWEEPS_EVERY: Duration = Duration::from_secs(60 * 60);
/// How often a client looks whether its directory is still there.
const LOOKS_EVERY: Duration = Duration::from_secs(1);
/// How long a thread that can't wait for messages rests.
const REST: Duration = Duration::from_secs(1);

/// Sends the wake-ups of one step. Those of one client go together: a socket takes few messages until its client reads them. Nothing
/// depends on them: a client that is not told finds out at its next heartbeat.
pub(crate) fn send(dir: &Dir, wake_ups: &[WakeUp]) {
    let of_clients = wake_ups.chunk_by(|one, other| one.owner.client() == other.owner.client());
    let of_clients = of_clients.filter(|wake_ups| machine::is_client(wake_ups[0].owner.client()));
    for together in of_clients.flat_map(|of_client| of_client.chunks(TOGETHER)) {
        let text: String = together.iter().map(|wake_up| format!("{wake_up}\n")).collect();
        // A client with a full socket has been told to look. Only who has to hear this very message is waited for.
        let patience = if together[0].kind == WakeUpKind::RecheckAny { None } else { Some(PATIENCE) };
        _ = tell(dir, together[0].owner.client(), &text, patience);
    }
}

/// By a new socket: what a client does not read fills the buffer of the socket that has sent it.
fn tell(dir: &Dir, client: &str, text: &str, patience: Option<Duration>) -> io::Result<usize> {
    let (_, to, _open) = machine::itself(&dir.wake(client))?; // and no socket to which a link leads
    let socket = UnixDatagram::unbound()?;
    match patience {
        Some(_) => socket.set_write_timeout(patience)?,
        None => socket.set_nonblocking(true)?,
    }
    socket.send_to(text.as_bytes(), to)
}

/// What a client hears: messages, and the end of processes.
pub(crate) struct Listener {
    dir: Arc<Dir>,
    client: String,
    /// The client's presence file, with its lock.
    pub(crate) presence: File,
    socket: UnixDatagram,
    has_ended: AtomicBool,
    watched: Watched,
    sink: Arc<dyn WakeSink>,
}

/// Listens until the subscription is dropped. No message is lost after this returns.
pub(crate) fn subscribe(
    files: &Arc<LockFiles>,
    client: ClientId,
    sink: Arc<dyn WakeSink>,
) -> io::Result<(Subscription, Arc<Listener>)> {
    let (dir, client) = (Arc::clone(&files.dir), client.to_string());
    let (path, presence) = (dir.wake(&client), machine::take_presence(&dir, &client)?);
    let socket = UnixDatagram::bind(&path).inspect_err(|_| _ = fs::remove_file(dir.here(&client)))?;
    let (has_ended, watched) = (AtomicBool::new(false), Watched::default());
    let listener = Arc::new(Listener { dir, client, presence, socket, has_ended, watched, sink });
    let listening = Listening { listener: Arc::clone(&listener), process: std::process::id() };
    machine::share(&path)?;
    listener.socket.set_nonblocking(true)?;
    let (files, thread) = (Arc::clone(files), Arc::clone(&listener));
    thread::Builder::new().name("fairlock-file".to_owned()).spawn(move || thread.listen(&files))?;
    Ok((Subscription::new(listening), listener))
}

impl Listener {
    /// Lets the waiter look again when one of the owners ends that it waits for.
    pub(crate) fn watch(&self, place: &Place<'_>, ahead: &[OwnerId]) {
        if self.watched.add(place, ahead) {
            // The thread begins its wait again. If its socket is full, the thread will do so anyway.
            _ = tell(&self.dir, &self.client, "\n", None);
        }
    }

    fn listen(&self, files: &LockFiles) {
        let (mut text, mut processes) = (vec![0; LONGEST], Processes::default());
        sweep::sweep_if_due(files, SWEEPS_EVERY);
        loop {
            self.have_ended(&processes.follow(&self.dir, &self.watched));
            match processes.wait(&self.socket, LOOKS_EVERY) {
                Ok(clients) => self.have_ended(&clients),
                Err(error) => {
                    processes = Processes::default(); // they may be too many
                    self.cannot_wait(&error);
                }
            }
            match self.socket.recv(&mut text) {
                _ if self.has_ended.load(Ordering::SeqCst) => return,
                Ok(length) => self.hear(&text[..length]),
                // The client then renews, and learns which holds are lost. At each look anew, since a grant may be under way.
                Err(_) if self.dir.was_removed() => self.sink.wake(Wake::Gap),
                Err(_) => sweep::sweep_if_due(files, SWEEPS_EVERY),
            }
        }
    }

    /// Lets those look again who have waited for these clients.
    fn have_ended(&self, clients: &[String]) {
        for (lock, owner) in clients.iter().flat_map(|client| self.watched.take(client)) {
            self.sink.wake(Wake::Recheck { lock: lock.as_str(), owner: Some(owner.as_str()) });
        }
    }

    /// The thread goes on: all waiters look, and it tries again after a rest.
    fn cannot_wait(&self, error: &io::Error) {
        static CANNOT_WAIT: LineLimit = LineLimit::new();
        if CANNOT_WAIT.count(1, Instant::now()).is_some() {
            log_safely(|| {
                log::warn!(target: "fairlock::net", "can't wait for wake-ups, looking once a second: {error}");
            });
        }
        self.sink.wake(Wake::Gap);
        thread::sleep(REST);
    }

    fn hear(&self, text: &[u8]) {
        let wake_ups = str::from_utf8(text).unwrap_or_default().lines().map(str::parse::<WakeUp>);
        wake_ups.flatten().for_each(|wake_up| self.sink.wake(wake_up.as_wake()));
    }
}

/// Ends the thread when dropped, without waiting. The drop of the copy that a forked child has ends nothing.
struct Listening {
    listener: Arc<Listener>,
    process: u32,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let Listener { dir, client, socket, has_ended, .. } = &*self.listener;
        if self.process == std::process::id() {
            has_ended.store(true, Ordering::SeqCst);
            _ = socket.shutdown(Shutdown::Both); // which wakes the thread, even if the directory was removed
            // While the presence is locked: nobody finds it free under its name, so the client has ended well.
            _ = fs::remove_file(dir.wake(client));
            _ = fs::remove_file(dir.here(client));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc::{Sender, channel};

    use fairlock_core::LockName;

    use super::*;
    use crate::machine::Machine;

    struct Ear(Sender<String>);

    impl WakeSink for Ear {
        fn wake(&self, wake: Wake<'_>) {
            self.0.send(format!("{wake:?}")).unwrap();
        }
    }

    /// Ends the listener's thread, which may be sweeping, and removes the directory.
    fn end(path: &Path, files: &Arc<LockFiles>, subscription: Subscription) {
        drop(subscription);
        while Arc::strong_count(files) > 1 {
            thread::yield_now();
        }
        fs::remove_dir_all(path).unwrap();
    }

    /// No test can fork: that is unsafe.
    #[test]
    fn the_copy_of_a_forked_child_ends_nothing() {
        let path = std::env::temp_dir().join(ClientId::random().to_string());
        let files = Arc::new(LockFiles::new(Arc::new(Dir::open(path.clone()).unwrap()), Machine::of_boot(1)));
        let (client, (ear, heard)) = (ClientId::random(), channel());
        let (subscription, listener) = subscribe(&files, client, Arc::new(Ear(ear))).unwrap();
        drop(Listening { listener, process: 0 });
        let (lock, owner) = (LockName::new("x").unwrap(), OwnerId::new(&format!("{client}:1")));
        send(&files.dir, &[WakeUp { lock, owner, kind: WakeUpKind::Recheck }]);
        assert!(heard.recv_timeout(Duration::from_secs(60)).unwrap().starts_with("Recheck"));
        assert!(files.dir.here(&client.to_string()).exists());
        end(&path, &files, subscription);
    }

    #[cfg(feature = "servers")] // takes seconds of real time
    #[test]
    fn a_thread_that_cannot_wait_lets_all_waiters_look_and_rests() {
        let path = std::env::temp_dir().join(ClientId::random().to_string());
        let files = Arc::new(LockFiles::new(Arc::new(Dir::open(path.clone()).unwrap()), Machine::of_boot(1)));
        let (ear, heard) = channel();
        let (subscription, listener) = subscribe(&files, ClientId::random(), Arc::new(Ear(ear))).unwrap();
        let started = Instant::now();
        listener.cannot_wait(&io::Error::other("too many"));
        assert!(started.elapsed() >= REST);
        assert_eq!(heard.try_recv().unwrap(), "Gap");
        end(&path, &files, subscription);
    }
}
