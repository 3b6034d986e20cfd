//! Children that fairlock did not start. As the first process of a container fairlock becomes the parent of each process whose
//! own parent has ended: left behind by the program, by `docker exec` or by a probe. Nobody else can collect these processes, and
//! until then each keeps its process id.

use std::process::Child;

use nix::unistd::Pid;
use rustix::process::{Pid as Process, WaitId, WaitIdOptions, WaitOptions, WaitStatus, wait, waitid};

/// Collects the children that have ended, up to the program: returns its status. Once the minder has ended, it collects none: the
/// minder's id is that of the program's group, and has to stay that.
///
/// The system is asked for any child. A minder that is killed at that moment is collected too, and is none from then on: its id may be
/// another process's.
pub(super) fn collect(minder: &mut Option<Child>, program: Option<Pid>) -> Option<WaitStatus> {
    let look =
        WaitIdOptions::from_iter([WaitIdOptions::EXITED, WaitIdOptions::NOHANG, WaitIdOptions::NOWAIT]);
    let has_ended = |minder| matches!(waitid(WaitId::Pid(minder), look), Ok(Some(_)));
    while !minder.as_ref().map(Process::from_child).is_some_and(has_ended) {
        let (process, status) = wait(WaitOptions::NOHANG).ok()??;
        minder.take_if(|minder| Process::from_child(minder) == process);
        if program.and_then(|program| Process::from_raw(program.as_raw())) == Some(process) {
            return Some(status);
        }
    }
    None
}
