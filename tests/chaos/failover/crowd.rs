//! Many waiters in one process, each its own owner, for the test of the order.
//!
//! ```text
//! failover crowd SETTING URL HISTORY LOCK THREADS
//! ```
//!
//! The process says `ready`. At the line `wait` each of its threads asks for a place, and the process says `in the queue` when
//! all have one. Each thread records its grant under its owner's id and releases the lock. When all are served the process
//! says `served <granted> <failed>`, and waits for the next line.

use std::io::BufRead;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;

use fairlock_tests::history::Recorder;
use fairlock_tests::look_until;
use fairlock_tests::worker::say;

use crate::setting::{BOUND, OF_ORDER, Setting};
use crate::worker::Failure;

/// Runs until its input ends.
pub(crate) fn wait(words: &[&str]) -> Result<(), Failure> {
    let [setting, url, history, name, threads] = words[..] else {
        return Err("see the top of crowd.rs".into());
    };
    let setting = Setting::parse(setting).ok_or("no such setting")?;
    let threads: usize = threads.parse()?;
    // On a busy machine an answer may take longer than the time-out.
    let client =
        look_until(BOUND, || setting.client(url, OF_ORDER).ok()).ok_or("the servers do not answer")?;
    let recorder = Recorder::open(Path::new(history))?;
    let lock = client.fair_lock(name)?;
    say("ready")?;
    for line in std::io::stdin().lock().lines() {
        line?;
        let granted = thread::scope(|scope| -> Result<usize, Failure> {
            let (tell, in_queue) = channel();
            let waiting: Vec<_> = (0..threads)
                .map(|_| {
                    let (tell, owner) = (tell.clone(), client.new_owner());
                    let (lock, recorder) = (&lock, &recorder);
                    scope.spawn(move || -> fairlock::Result<()> {
                        let request = lock.owned_by(&owner).and_then(|lock| lock.request());
                        let _ = tell.send(request.is_ok());
                        let guard = request?.wait()?;
                        recorder.granted(owner.id().as_str(), name, guard.token().get());
                        // The grant counts, whatever becomes of the release.
                        if let Err(error) = guard.unlock() {
                            eprintln!("{}: {error}", owner.id().as_str());
                        }
                        Ok(())
                    })
                })
                .collect();
            let standing = in_queue.iter().take(threads).filter(|stands| *stands).count();
            say(if standing == threads { "in the queue" } else { "not in the queue" })?;
            let mut granted = 0;
            for thread in waiting {
                match thread.join().map_err(|_| "a thread panicked")? {
                    Ok(()) => granted += 1,
                    Err(error) => eprintln!("{}: {error}", std::process::id()),
                }
            }
            Ok(granted)
        })?;
        say(&format!("served {granted} {}", threads - granted))?;
    }
    Ok(())
}
