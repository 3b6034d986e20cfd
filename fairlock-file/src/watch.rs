//! Watches the processes that a client's waiters wait for: a killed one is found out at once, and not at the next heartbeat.
//!
//! A waiter watches the holders and the nearest places ahead, as they are when it asks and at each of its heartbeats. In a queue,
//! each later holder stood ahead before. Other systems than Linux have no files for processes: heartbeats are enough there.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use fairlock_core::backend::Place;
use fairlock_core::{LockName, OwnerId};

use crate::machine::{self, Dir};

/// How many processes a client watches at most, and for how many waiters.
const MOST: usize = 128;
const MOST_WAITERS: usize = 10_000;

/// Waiters, and until when each waits without another heartbeat.
type Waiters = HashMap<(LockName, OwnerId), Instant>;

/// The waiters of a client, by the clients whose ends they wait for.
#[derive(Default)]
pub(crate) struct Watched(Mutex<HashMap<String, Waiters>>);

impl Watched {
    /// Notes that the waiter waits for these owners to end. Returns whether a client among theirs is new: then the
    /// thread has to watch that client's process.
    pub(crate) fn add(&self, place: &Place<'_>, ahead: &[OwnerId]) -> bool {
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
        if watched.len() > MOST {
            watched.retain(|_, waiters| waiters.values().any(|until| now < *until));
        }
        watched.keys().cloned().collect()
    }

    /// Who waits for this client, which has ended.
    pub(crate) fn take(&self, client: &str) -> impl Iterator<Item = (LockName, OwnerId)> + use<> {
        let (now, waiters) = (Instant::now(), self.0.lock().remove(client).unwrap_or_default());
        waiters.into_iter().filter(move |(_, until)| now < *until).map(|(waiter, _)| waiter)
    }
}

/// The processes that the thread of a client watches, by their clients. `None` for a process that can't be watched, or that has
/// ended: a forked child may still have its presence, and another watch would end at once.
#[derive(Default)]
pub(crate) struct Processes(HashMap<String, Option<OwnedFd>>);

impl Processes {
    /// Watches the processes of these clients, and no others. Returns the clients that are gone already.
    pub(crate) fn follow(&mut self, dir: &Dir, watched: &Watched) -> Vec<String> {
        let mut clients = watched.clients();
        self.0.retain(|client, _| clients.remove(client));
        let mut gone = Vec::new();
        for client in clients.into_iter().take(MOST.saturating_sub(self.0.len())) {
            let found = machine::process_of(dir, &client);
            let process = found.as_ref().and_then(|(number, _)| open(*number));
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
    pub(crate) fn wait(&mut self, socket: &UnixDatagram, most: Duration) -> io::Result<Vec<String>> {
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
fn open(number: i32) -> Option<OwnedFd> {
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    pidfd_open(Pid::from_raw(number)?, PidfdFlags::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
fn open(_: i32) -> Option<OwnedFd> {
    None
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
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
        let _former: Vec<_> = (0..MOST).map(|_| scene.waits(&process, Duration::ZERO)).collect();
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
        (0..MOST).for_each(|at| scene.adds(&format!("former-{at}"), Duration::ZERO));
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
