//! Other processes: what Linux shows of them in `/proc`, and what the one at standard input says.

use std::fmt::Display;
use std::fs;
use std::io::stdin;
use std::thread;

use fairlock::waits::crossbeam_channel_0_5::{Receiver, unbounded};

use crate::exit::Failure;

/// What `/proc/PID/stat` says of a process.
pub(crate) struct Stat {
    pub(crate) group: i32,
    /// When the process began, in the kernel's ticks.
    pub(crate) start: u64,
    /// The process is a zombie, and so are all its threads: other threads may outlive the first.
    pub(crate) is_over: bool,
}

impl Stat {
    /// None if there is no such process, or the system hides it.
    pub(crate) fn of(process: impl Display) -> Option<Stat> {
        Stat::read(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
    }

    /// `pid (name) state parent group …`; the 20th word is the number of threads, the 22nd the start.
    fn read(stat: &str) -> Option<Stat> {
        let words: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
        let is_over = matches!(*words.first()?, "Z" | "X") && matches!(*words.get(17)?, "0" | "1");
        Some(Stat { group: words.get(2)?.parse().ok()?, start: words.get(19)?.parse().ok()?, is_over })
    }
}

/// Starts a thread of the command, which nobody waits for.
///
/// # Errors
/// If the system gives none.
pub(crate) fn start_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<(), Failure> {
    let no_thread = |error| Failure::ours(format!("no thread `{name}`: {error}"));
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop).map_err(no_thread)
}

/// Each line of standard input; closed at its end.
pub(crate) fn lines_of_input() -> Result<Receiver<String>, Failure> {
    let (say, said) = unbounded();
    let read = move || stdin().lines().map_while(Result::ok).try_for_each(|line| say.send(line));
    start_thread("fairlock-input", read).map(|()| said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_whose_threads_outlive_the_first_one_is_not_over() {
        for (state, group, threads, is_over) in
            [("S", 7, 1, false), ("Z", 7, 1, true), ("Z", 7, 2, false), ("X", 7, 0, true), ("S", 8, 1, false)]
        {
            let text = format!("9 (a) b) {state} 1 {group} 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 5");
            let stat = Stat::read(&text).unwrap();
            assert_eq!((stat.group, stat.start, stat.is_over), (group, 5, is_over), "{text}");
        }
    }
}
