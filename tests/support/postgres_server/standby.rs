//! Commits that wait for a standby.

use std::thread;

use super::PostgresServer;
use crate::eventually::eventually;

impl PostgresServer {
    /// From now on commits wait for a standby of this name, and for none if it is empty.
    ///
    /// Sessions have the new name before the checkpointer tells them whether to wait: so a commit is tried.
    pub fn set_standby(&self, name: &str) {
        let mut con = self.con();
        con.batch_execute(&format!("alter system set synchronous_standby_names = '{name}'")).unwrap();
        con.batch_execute("select pg_reload_conf()").unwrap();
        eventually("commits wait, or wait no more", || self.commits_wait() != name.is_empty());
    }

    fn commits_wait(&self) -> bool {
        const WRITE: &str =
            "begin; set local synchronous_commit = on; select pg_logical_emit_message(true, '', ''); commit";
        const CANCEL: &str =
            "select pg_cancel_backend(pid) from pg_stat_activity where pid = $1 and wait_event = 'SyncRep'";
        let (mut writer, mut con) = (self.con(), self.con());
        let pid: i32 = writer.query_one("select pg_backend_pid()", &[]).unwrap().get(0);
        thread::scope(|scope| {
            let write = scope.spawn(move || writer.batch_execute(WRITE).unwrap());
            let mut waits = false;
            eventually("the write ends, or waits", || {
                waits = con.execute(CANCEL, &[&pid]).unwrap() > 0;
                waits || write.is_finished()
            });
            waits
        })
    }
}
