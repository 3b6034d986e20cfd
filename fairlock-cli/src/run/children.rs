//! Children that fairlock did not start. As the first process of a container fairlock becomes the parent of each process whose
//! own parent has ended: left behind by the program, by `docker exec` or by a probe. Nobody else can collect these processes, and
//! until then each keeps its process id.

use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, WaitStatus, wait, waitid};

/// Collects the children that have ended, but not the minder and the program: an id that was waited for can be used again, and the new
/// process must not get their signals. Once one of these two has ended, it collects none: fairlock is about to end as well.
///
/// The system is asked for any child. If one of `ours` ends at that moment, it is collected too, and returned.
pub(super) fn collect(ours: &[Option<Pid>]) -> Option<(Pid, WaitStatus)> {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let has_ended = |process: &Pid| matches!(waitid(WaitId::Pid(*process), look), Ok(Some(_)));
    while !ours.iter().flatten().any(has_ended) {
        let (process, status) = wait(WaitOptions::NOHANG).ok()??;
        if ours.contains(&Some(process)) {
            return Some((process, status));
        }
    }
    None
}
