//! Watches the processes that a client's waiters wait for: a killed one is found out at once, and not at the next heartbeat.
//!
//! A waiter watches the holders and the nearest places ahead, as they are when it asks and at each of its heartbeats. In a queue,
//! each later holder stood ahead before. Other systems than Linux have no files for processes: heartbeats are enough there.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use fairlock_core::backend::Place;
use fairlock_core::{LockName, OwnerId};

use crate::dir::Dir;
use crate::presence;

/// How many processes a client watches at most.
const MOST: usize = 128;

/// The watched processes, by client.
#[derive(Default)]
pub(crate) struct Watches(Mutex<HashMap<String, Watch>>);

struct Watch {
    /// None once it has ended: a forked child may still have its presence, and another watch would end at once.
    process: Option<Arc<OwnedFd>>,
    /// Who waits for its end, and until when without another heartbeat.
    waiters: HashMap<(LockName, OwnerId), Instant>,
}

/// What came of a new watch.
#[derive(PartialEq, Eq)]
pub(crate) enum Added {
    /// The client's thread has to watch another process.
    New,
    /// Nothing has to be done.
    Known,
    /// The process has ended already.
    Gone,
}

impl Watches {
    /// Watches the process of this client for a waiter.
    pub(crate) fn add(&self, dir: &Dir, client: &str, place: &Place<'_>) -> Added {
        let (now, mut watched) = (Instant::now(), self.0.lock());
        let waiter = (place.lock.name.clone(), place.owner.clone());
        if let Some(watch) = watched.get_mut(client) {
            watch.waiters.insert(waiter, now + place.ttl);
            return Added::Known;
        }
        watched.retain(|_, watch| {
            watch.waiters.retain(|_, until| now < *until);
            !watch.waiters.is_empty()
        });
        let Some((number, file)) = presence::process_of(dir, client) else { return Added::Known };
        let process = open(number);
        // After the process was opened: if the presence is taken now, no other process had its number then.
        if presence::is_free(&file) {
            return Added::Gone;
        }
        let Some(process) = process.filter(|_| watched.len() < MOST) else { return Added::Known };
        let waiters = HashMap::from([(waiter, now + place.ttl)]);
        watched.insert(client.to_owned(), Watch { process: Some(Arc::new(process)), waiters });
        Added::New
    }

    /// Waits until there is a message, or until a process has ended: for whom it was watched.
    pub(crate) fn wait(&self, socket: &UnixDatagram, most: Duration) -> io::Result<Vec<(LockName, OwnerId)>> {
        let processes: Vec<_> = self
            .0
            .lock()
            .iter()
            .filter_map(|(client, watch)| Some((client.clone(), watch.process.clone()?)))
            .collect();
        let files = processes.iter().map(|(_, process)| PollFd::new(&**process, PollFlags::IN));
        let mut files: Vec<_> = files.chain([PollFd::new(socket, PollFlags::IN)]).collect();
        match poll(&mut files, Timespec::try_from(most).ok().as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut watched = self.0.lock();
        let mut waiters = Vec::new();
        for ((client, _), _) in processes.iter().zip(&files).filter(|(_, file)| !file.revents().is_empty()) {
            if let Some(watch) = watched.get_mut(client) {
                watch.process = None;
                waiters.extend(watch.waiters.drain().map(|(waiter, _)| waiter));
            }
        }
        Ok(waiters)
    }
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
