//! Children that fairlock did not start. As the first process of a container it becomes the parent of each process whose own parent has
//! ended: of those that the program leaves behind, and of those that `docker exec` or a probe does. Nobody else can collect them, and
//! until then each keeps its process id.

use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, WaitStatus, wait, waitid};

/// Collects the children that have ended, but not the minder and the program: an id that was waited for can be used again, and the new
/// process must not get their signals. Once one of these two has ended, it collects none: fairlock is about to end as well.
///
/// The system is asked for any child, so one of the two that ends just then is collected too. It is returned.
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
