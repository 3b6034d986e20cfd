//! Who has the terminal: the program gets it when it asks for it, and gives it back when it stops or ends.
//!
//! The program's process group is not the one that the shell knows, so to the terminal it is in the background: it may
//! write, and is stopped (TTIN, TTOU) when it reads or changes settings. Then it gets the terminal, if it is ours to give.
//! Not before: the other end of a pipe, a pager, may want the keyboard.

use std::fs::File;

use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

pub(super) struct Terminal {
    /// None without a controlling terminal.
    tty: Option<File>,
    /// The program has it.
    given: bool,
}

impl Terminal {
    pub(super) fn open() -> Terminal {
        Terminal { tty: File::options().read(true).write(true).open("/dev/tty").ok(), given: false }
    }

    pub(super) fn is_given(&self) -> bool {
        self.given
    }

    /// The program's group has stopped by this signal: it gets the terminal if it asks for it, else we stop with it, as
    /// the shell expects. It goes on when we do.
    pub(super) fn has_stopped(&mut self, group: Pid, by: Signal) {
        let asks = matches!(by, Signal::SIGTTIN | Signal::SIGTTOU);
        if self.tty.is_none() || !(asks || by == Signal::SIGTSTP) {
            return; // whoever stopped it by hand goes on with it by hand
        }
        if asks && self.is_ours() {
            self.give(group);
        } else {
            let had_it = self.given;
            self.take_back(group);
            // Our own group, as the keyboard does it: a script that runs us stops as well. This thread gets no further.
            let _ = killpg(getpgrp(), Signal::SIGSTOP);
            if had_it && self.is_ours() {
                self.give(group);
            }
        }
        let _ = killpg(group, Signal::SIGCONT);
    }

    pub(super) fn take_back(&mut self, group: Pid) {
        let Some(tty) = &self.tty else { return };
        if self.given && tcgetpgrp(tty) == Ok(group) {
            hand_to(tty, getpgrp());
        }
        self.given = false;
    }

    fn is_ours(&self) -> bool {
        self.tty.as_ref().is_some_and(|tty| tcgetpgrp(tty) == Ok(getpgrp()))
    }

    fn give(&mut self, group: Pid) {
        if let Some(tty) = &self.tty {
            hand_to(tty, group);
            self.given = true;
        }
    }
}

/// From the background this is answered by TTOU, unless that is blocked.
fn hand_to(tty: &File, group: Pid) {
    let ttou = SigSet::from(Signal::SIGTTOU);
    let _ = ttou.thread_block();
    let _ = tcsetpgrp(tty, group);
    let _ = ttou.thread_unblock();
}
