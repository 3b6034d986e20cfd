//! Wake-ups: a socket and a thread for each client.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use fairlock_core::ClientId;
use fairlock_core::backend::{Place, Subscription, Wake, WakeSink};
use fairlock_core::{LockName, OwnerId};
use fairlock_rules::{WakeUp, WakeUpKind};

use crate::dir::{self, Dir};
use crate::lock_files::LockFiles;
use crate::presence::Here;
use crate::sweep;
use crate::watch::{Added, Watches};

/// How long a message waits for a client whose socket is full.
const PATIENCE: Duration = Duration::from_millis(5);
/// How many wake-ups go together, and the bytes of the longest message: names have 512, and each is two digits.
const TOGETHER: usize = 20;
const LONGEST: usize = TOGETHER * 2 * 1024;
/// How often a client looks for files that nobody uses.
const SWEEPS_EVERY: Duration = Duration::from_secs(60 * 60);

/// Sends the wake-ups of one step. Those of one client go together: a socket takes few messages until its client reads them.
pub(crate) fn send(dir: &Dir, wake_ups: &[WakeUp]) {
    let of_clients = wake_ups.chunk_by(|one, other| one.owner.client() == other.owner.client());
    of_clients.flat_map(|of_client| of_client.chunks(TOGETHER)).for_each(|part| _ = tell(dir, part));
}

/// Nothing depends on it: a client that is not told finds out at its next heartbeat.
fn tell(dir: &Dir, wake_ups: &[WakeUp]) -> io::Result<()> {
    let (first, text) =
        (&wake_ups[0], wake_ups.iter().map(|wake_up| format!("{wake_up}\n")).collect::<String>());
    let (socket, to) = (UnixDatagram::unbound()?, dir.wake(first.owner.client()));
    socket.set_nonblocking(true)?;
    match socket.send_to(text.as_bytes(), &to) {
        // A client with a full socket has been told to look. Only who has to hear this very message is waited for.
        Err(error) if error.kind() == ErrorKind::WouldBlock && first.kind != WakeUpKind::RecheckAny => {
            socket.set_nonblocking(false)?;
            socket.set_write_timeout(Some(PATIENCE))?;
            socket.send_to(text.as_bytes(), &to).map(drop)
        }
        sent => sent.map(drop),
    }
}

/// What a client hears: messages, and the end of processes.
pub(crate) struct Listener {
    socket: UnixDatagram,
    has_ended: AtomicBool,
    here: Weak<Here>,
    watches: Watches,
    sink: Arc<dyn WakeSink>,
}

/// Listens until the subscription is dropped. No message is lost after this returns.
pub(crate) fn subscribe(
    files: &Arc<LockFiles>,
    client: ClientId,
    sink: Arc<dyn WakeSink>,
) -> io::Result<(Subscription, Arc<Listener>)> {
    let (dir, name) = (Arc::clone(&files.dir), client.to_string());
    let here = Arc::new(Here::take(&dir, &name)?);
    let path = dir.wake(&name);
    let socket = UnixDatagram::bind(&path)?;
    socket.set_nonblocking(true)?;
    let (has_ended, watches) = (AtomicBool::new(false), Watches::default());
    let listener = Arc::new(Listener { socket, has_ended, here: Arc::downgrade(&here), watches, sink });
    let listening = Listening { dir, name, listener: Arc::clone(&listener), _here: here };
    dir::share(&path)?;
    let (files, thread) = (Arc::clone(files), Arc::clone(&listener));
    thread::Builder::new().name("fairlock-file".to_owned()).spawn(move || thread.listen(&files))?;
    Ok((Subscription::new(listening), listener))
}

impl Listener {
    /// The client's presence file, with its lock. None if the client has ended.
    pub(crate) fn presence(&self) -> Option<File> {
        self.here.upgrade()?.share().ok()
    }

    /// Watches the owners that the waiter waits for, and lets it look again if one has ended already.
    pub(crate) fn watch(&self, dir: &Dir, place: &Place<'_>, ahead: &[OwnerId]) {
        let added: Vec<_> = ahead.iter().map(|owner| self.watches.add(dir, owner.client(), place)).collect();
        if added.contains(&Added::New) {
            // The thread begins its wait again. If its socket is full, the thread will do so anyway.
            _ = UnixDatagram::unbound().and_then(|socket| {
                socket.set_nonblocking(true)?;
                socket.send_to(b"\n", dir.wake(place.owner.client()))
            });
        }
        if added.contains(&Added::Gone) {
            self.sink.wake(look(&place.lock.name, place.owner));
        }
    }

    fn listen(&self, files: &LockFiles) {
        let mut text = vec![0; LONGEST];
        sweep::sweep_if_due(files, SWEEPS_EVERY);
        while let Ok(waiters) = self.watches.wait(&self.socket, SWEEPS_EVERY) {
            waiters.iter().for_each(|(lock, owner)| self.sink.wake(look(lock, owner)));
            match self.socket.recv(&mut text) {
                _ if self.has_ended.load(Ordering::SeqCst) => return,
                Ok(length) => self.hear(&text[..length]),
                Err(_) => sweep::sweep_if_due(files, SWEEPS_EVERY),
            }
        }
    }

    fn hear(&self, text: &[u8]) {
        let wake_ups = str::from_utf8(text).unwrap_or_default().lines().map(str::parse::<WakeUp>);
        wake_ups.flatten().for_each(|wake_up| self.sink.wake(wake_up.as_wake()));
    }
}

fn look<'a>(lock: &'a LockName, owner: &'a OwnerId) -> Wake<'a> {
    Wake::Recheck { lock: lock.as_str(), owner: Some(owner.as_str()) }
}

/// Ends the thread when dropped, without waiting, and then the presence.
struct Listening {
    dir: Arc<Dir>,
    name: String,
    listener: Arc<Listener>,
    _here: Arc<Here>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.listener.has_ended.store(true, Ordering::SeqCst);
        _ = self.listener.socket.shutdown(Shutdown::Both); // which wakes the thread, even if the directory was removed
        _ = fs::remove_file(self.dir.wake(&self.name));
    }
}
