//! The thread of a client: it hears wake-ups at a socket, watches the processes that the client's waiters wait for, and removes files that nobody
//! uses.
//!
//! A killed process is found out at once, and not at the next heartbeat. A waiter watches the holders and the nearest places ahead, as they are
//! when it asks and at each of its heartbeats. In a queue, each later holder stood ahead before. Other systems than Linux have no files for
//! processes: heartbeats are enough there.
//!
//! The files of locks that nobody uses, and of killed clients, go after a day. The directory may have other files with such names. Ours are known
//! by the whole name, the type, the owner and the content, and a client removes those of its own user.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlock_core::backend::{LineLimit, Place, Subscription, Wake, WakeSink, log_safely};
use fairlock_core::{ClientId, LockName, OwnerId};
use fairlock_rules::{WakeUp, WakeUpKind};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::geteuid;

use crate::lock_files::LockFiles;
use crate::machine::{self, Dir, is_older};
use crate::slots::{Content, State};

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
        sweep_if_due(files, SWEEPS_EVERY);
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
                Err(_) => sweep_if_due(files, SWEEPS_EVERY),
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

/// How many processes a client watches at most, and for how many waiters.
const MOST_PROCESSES: usize = 128;
const MOST_WAITERS: usize = 10_000;

/// Waiters, and until when each waits without another heartbeat.
type Waiters = HashMap<(LockName, OwnerId), Instant>;

/// The waiters of a client, by the clients whose ends they wait for.
#[derive(Default)]
struct Watched(Mutex<HashMap<String, Waiters>>);

impl Watched {
    /// Notes that the waiter waits for these owners to end. Returns whether a client among theirs is new: then the
    /// thread has to watch that client's process.
    fn add(&self, place: &Place<'_>, ahead: &[OwnerId]) -> bool {
        let (until, mut watched, mut is_new) = (Instant::now() + place.ttl, self.0.lock(), false);
        if watched.values().map(HashMap::len).sum::<usize>() > MOST_WAITERS {
            watched.clear(); // who still waits comes again with the next heartbeat
        }
        for owner in ahead {
            let waiters = watched.entry(owner.client().to_owned()).or_default();
            is_new |= waiters.is_empty();
            waiters.insert((place.lock.name.clone(), place.owner.clone()), until);
        }
        is_new
    }

    /// All these clients; where they are too many, only those for which somebody still waits.
    fn clients(&self) -> HashSet<String> {
        let (now, mut watched) = (Instant::now(), self.0.lock());
        if watched.len() > MOST_PROCESSES {
            watched.retain(|_, waiters| waiters.values().any(|until| now < *until));
        }
        watched.keys().cloned().collect()
    }

    /// Who waits for this client, which has ended.
    fn take(&self, client: &str) -> impl Iterator<Item = (LockName, OwnerId)> + use<> {
        let (now, waiters) = (Instant::now(), self.0.lock().remove(client).unwrap_or_default());
        waiters.into_iter().filter(move |(_, until)| now < *until).map(|(waiter, _)| waiter)
    }
}

/// The processes that the thread of a client watches, by their clients. `None` for a process that can't be watched, or that has
/// ended: a forked child may still have its presence, and another watch would end at once.
#[derive(Default)]
struct Processes(HashMap<String, Option<OwnedFd>>);

impl Processes {
    /// Watches the processes of these clients, and no others. Returns the clients that are gone already.
    fn follow(&mut self, dir: &Dir, watched: &Watched) -> Vec<String> {
        let mut clients = watched.clients();
        self.0.retain(|client, _| clients.remove(client));
        let mut gone = Vec::new();
        for client in clients.into_iter().take(MOST_PROCESSES.saturating_sub(self.0.len())) {
            let found = machine::process_of(dir, &client);
            let process = found.as_ref().and_then(|(number, _)| pidfd(*number));
            // An ended process is there until its parent asks for it, and each wait for it would end at once.
            let process = process.filter(|process| !has_ended(process));
            // After the process was opened: if the presence is taken now, no other process had its number then.
            let is_gone = found.is_some_and(|(_, file)| machine::is_free(&file));
            if is_gone {
                gone.push(client.clone());
            }
            self.0.insert(client, process.filter(|_| !is_gone));
        }
        gone
    }

    /// Waits until there is a message, or until a process has ended: those of these clients.
    fn wait(&mut self, socket: &UnixDatagram, most: Duration) -> io::Result<Vec<String>> {
        let watched: Vec<_> =
            self.0.iter().filter_map(|(client, process)| process.as_ref().map(|it| (client, it))).collect();
        let files = watched.iter().map(|(_, process)| PollFd::new(*process, PollFlags::IN));
        let mut files: Vec<_> = files.chain([PollFd::new(socket, PollFlags::IN)]).collect();
        match poll(&mut files, Timespec::try_from(most).ok().as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ended = watched.iter().zip(&files).filter(|(_, file)| !file.revents().is_empty());
        let ended: Vec<_> = ended.map(|((client, _), _)| (*client).clone()).collect();
        for client in &ended {
            self.0.insert(client.clone(), None);
        }
        Ok(ended)
    }
}

fn has_ended(process: &OwnedFd) -> bool {
    let mut files = [PollFd::new(process, PollFlags::IN)];
    poll(&mut files, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ended| ended > 0)
}

#[cfg(target_os = "linux")]
fn pidfd(number: i32) -> Option<OwnedFd> {
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    pidfd_open(Pid::from_raw(number)?, PidfdFlags::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
fn pidfd(_: i32) -> Option<OwnedFd> {
    None
}

/// How long the file of an unused lock stays, so that tokens grow even if the clock is set back; and the file of a killed client, which says
/// that the client is gone. Longer leases of that client end by the clock.
const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// What a stamp says once a sweep has ended. Before, the stamp is empty.
const SWEPT: &[u8] = b"fairlock has removed the unused files of this user\n";

/// Sweeps if no client of this user has for so long, and none does now. After a sweep that was cut off, the next client goes on.
pub(crate) fn sweep_if_due(files: &LockFiles, every: Duration) {
    let path = files.dir.path.join(format!("fairlock-{}.swept", geteuid().as_raw()));
    _ = File::create_new(&path);
    // None where another file has the name: then it is a sweep more.
    let stamp = ours(&path).ok().filter(|(.., text)| SWEPT.starts_with(text));
    let is_due = stamp.as_ref().is_none_or(|(file, found, text)| {
        (text != SWEPT || is_older(found, every)) && file.try_lock().is_ok() // until the end of the sweep
    });
    if is_due && sweep(files).is_ok() {
        _ = stamp.map(|(file, ..)| file.write_all_at(SWEPT, 0));
    }
}

/// Removes what is old and unused.
pub(crate) fn sweep(files: &LockFiles) -> io::Result<()> {
    for found in fs::read_dir(&files.dir.path)? {
        _ = remove_if_old(files, &found?.path());
    }
    Ok(())
}

fn remove_if_old(files: &LockFiles, path: &Path) -> io::Result<()> {
    let [client, extension] =
        [path.file_stem(), path.extension()].map(|part| part.and_then(OsStr::to_str).unwrap_or_default());
    let may_be_ours = extension == "lock" || machine::is_client(client);
    if !may_be_ours || !is_older(&fs::symlink_metadata(path)?, A_DAY) {
        return Ok(());
    }
    let (file, _, bytes) = ours(path)?;
    let is_presence = bytes.iter().all(u8::is_ascii_digit);
    match extension {
        "lock" => remove_unused(files, path, &file),
        // Its process was killed before the file got a name.
        "new" if is_presence || bytes.iter().all(|byte| *byte == 0) || Content::read(&file).is_ok() => {
            fs::remove_file(path)
        }
        "here" if is_presence && machine::is_free(&file) => {
            let socket = files.dir.wake(client);
            if fs::symlink_metadata(&socket).is_ok_and(|found| found.file_type().is_socket()) {
                fs::remove_file(socket)?;
            }
            fs::remove_file(path) // last: without it the socket is not found
        }
        _ => Ok(()),
    }
}

/// A file of this user, and how it begins.
fn ours(path: &Path) -> io::Result<(File, Metadata, Vec<u8>)> {
    let file = machine::open(path, true)?;
    let (found, mut bytes) = (file.metadata()?, Vec::new());
    if !found.is_file() || found.uid() != geteuid().as_raw() {
        return Err(ErrorKind::PermissionDenied.into());
    }
    Read::take(&file, 5000).read_to_end(&mut bytes)?;
    Ok((file, found, bytes))
}

/// A newcomer that has opened the file meanwhile waits for our lock, finds that the file has no name any more, and makes a new one.
fn remove_unused(files: &LockFiles, path: &Path, file: &File) -> io::Result<()> {
    file.try_lock()?;
    let (_, state) = State::read(file, files.machine.boot)?;
    let machine = &files.machine;
    let is_unused = state.entry.over_at() <= machine.now() && state.entry.note_ends() <= machine.since_1970();
    // Looked at once more, now that nobody else can use the file.
    let found = file.metadata()?;
    let has_name = machine::is_at(path, machine::identity(&found))?;
    if is_unused && has_name && is_older(&found, A_DAY) { fs::remove_file(path) } else { Ok(()) }
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

#[cfg(target_os = "linux")]
#[cfg(test)]
mod watch_tests {
    use std::fs::{self, File};
    use std::process::{Child, Command, Stdio};

    use fairlock_core::backend::{LockId, RequestId};
    use fairlock_core::{ClientId, LockKind};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    struct Scene {
        dir: Dir,
        watched: Watched,
        processes: Processes,
        socket: UnixDatagram,
    }

    impl Scene {
        fn new() -> Scene {
            let dir = Dir::open(std::env::temp_dir().join(ClientId::random().to_string())).unwrap();
            let (watched, processes) = (Watched::default(), Processes::default());
            Scene { dir, watched, processes, socket: UnixDatagram::unbound().unwrap() }
        }

        /// Somebody waits for a client of this process, for so long.
        fn waits(&self, process: &Child, lasts: Duration) -> (String, File) {
            let client = ClientId::random().to_string();
            fs::write(self.dir.here(&client), process.id().to_string()).unwrap();
            let presence = File::open(self.dir.here(&client)).unwrap();
            presence.lock().unwrap();
            self.adds(&client, lasts);
            (client, presence)
        }

        fn adds(&self, client: &str, lasts: Duration) {
            self.adds_all(&[OwnerId::new(&format!("{client}:1"))], lasts);
        }

        fn adds_all(&self, ahead: &[OwnerId], lasts: Duration) {
            let lock = LockId::new(LockName::new("x").unwrap(), LockKind::Fair);
            let owner = OwnerId::new("a:1");
            let mut place = Place::new(&lock, &owner, RequestId::new(1));
            place.ttl = lasts;
            self.watched.add(&place, ahead);
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            _ = fs::remove_dir_all(&self.dir.path);
        }
    }

    /// Its parent does not ask for it, and another process has its presence.
    #[test]
    fn the_end_of_a_zombie_is_told_once() {
        let mut scene = Scene::new();
        let mut process = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let (client, _presence) = scene.waits(&process, 9 * SECOND);
        assert!(scene.processes.follow(&scene.dir, &scene.watched).is_empty());
        process.kill().unwrap();
        assert_eq!(scene.processes.wait(&scene.socket, 9 * SECOND).unwrap(), [&*client]);
        for _ in 0..3 {
            scene.watched.take(&client).for_each(drop);
            assert!(scene.processes.follow(&scene.dir, &scene.watched).is_empty());
            scene.adds(&client, 9 * SECOND);
            assert!(scene.processes.follow(&scene.dir, &scene.watched).is_empty());
            assert!(scene.processes.wait(&scene.socket, Duration::ZERO).unwrap().is_empty());
        }
        process.wait().unwrap();
    }

    #[test]
    fn clients_that_nobody_waits_for_make_room() {
        let mut scene = Scene::new();
        let mut process = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let _former: Vec<_> = (0..MOST_PROCESSES).map(|_| scene.waits(&process, Duration::ZERO)).collect();
        scene.processes.follow(&scene.dir, &scene.watched);
        let (client, _presence) = scene.waits(&process, 9 * SECOND);
        scene.processes.follow(&scene.dir, &scene.watched);
        process.kill().unwrap();
        assert_eq!(scene.processes.wait(&scene.socket, 9 * SECOND).unwrap(), [client]);
        process.wait().unwrap();
    }

    #[test]
    fn who_waits_is_remembered_and_the_others_go_when_they_are_many() {
        let scene = Scene::new();
        (0..MOST_PROCESSES).for_each(|at| scene.adds(&format!("former-{at}"), Duration::ZERO));
        scene.adds("one", 9 * SECOND);
        scene.adds("other", 9 * SECOND);
        assert_eq!(scene.watched.clients(), ["one", "other"].map(str::to_owned).into());
        assert_eq!(scene.watched.take("one").count(), 1);
    }

    #[test]
    fn the_waiters_of_a_client_are_not_kept_without_limit() {
        let scene = Scene::new();
        let ahead: Vec<_> = (0..MOST_WAITERS + 2).map(|at| OwnerId::new(&format!("c{at}:1"))).collect();
        scene.adds_all(&ahead, 9 * SECOND);
        scene.adds("one", 9 * SECOND);
        assert_eq!(scene.watched.clients(), ["one".to_owned()].into());
    }
}
