//! The terminal: a program that asks for the terminal gets it, until the program stops or ends.
//!
//! The shell does not know the program's process group, so for the terminal it is in the background: it may write, and is
//! stopped (TTIN, TTOU) when it reads or changes settings. Then it gets the terminal, if fairlock has it. Not before: the
//! other end of a pipe, for instance a pager, may want the keyboard.

use std::fs::File;

use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};
use signal_hook::consts::{SIGTSTP, SIGTTIN, SIGTTOU};

pub(super) struct Terminal {
    /// None without a controlling terminal.
    tty: Option<File>,
    /// Whether the program has it.
    pub(super) given: bool,
}

impl Terminal {
    pub(super) fn open() -> Terminal {
        Terminal { tty: File::options().read(true).write(true).open("/dev/tty").ok(), given: false }
    }

    /// This signal has stopped the program's group. A group that asked for the terminal gets the terminal. Otherwise fairlock
    /// stops as well, as the shell expects, and both continue together.
    pub(super) fn has_stopped(&mut self, group: Pid, by: i32) {
        let asks = matches!(by, SIGTTIN | SIGTTOU);
        if self.tty.is_none() || !(asks || by == SIGTSTP) {
            return; // stopped by hand, to be continued by hand
        }
        if asks && self.is_ours() {
            self.give(group);
        } else {
            let had_it = self.given;
            self.take_back(group);
            // The whole group of this process, as by the keyboard: a script that runs fairlock stops as well. This thread
            // continues after that.
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

/// In the background this causes TTOU, unless that is blocked.
fn hand_to(tty: &File, group: Pid) {
    let ttou = SigSet::from(Signal::SIGTTOU);
    let _ = ttou.thread_block();
    let _ = tcsetpgrp(tty, group);
    let _ = ttou.thread_unblock();
}
