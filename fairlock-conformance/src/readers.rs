//! Read-write locks: readers hold the lock together, a writer alone, and nobody passes an earlier waiter.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use fairlock_core::backend::{Acquire, Acquired, LockId, Place, RequestId, only};
use fairlock_core::{CancelToken, Error, LockKind, LockName, LostCause, OwnerId};

use super::shared::{assert_waits, granted, is_kept, rw_locks, rw_locks_of_one};
use super::{DEAD, Harness, LEASE, PATIENCE, SLACK, client, client_with, until};
use crate::requests::{Bench, place_of_all};

/// Owners of one client and of others; each hold is listed.
pub fn readers_hold_together(harness: &impl Harness) {
    let Some([a, b]) = rw_locks_of_one(harness, "readers") else { return };
    let [c] = rw_locks(harness, "readers").unwrap();
    let (first, second, third) =
        (a.read().unwrap(), b.read().unwrap(), c.try_read().unwrap().granted().unwrap());
    let state = a.admin().inspect().unwrap();
    assert_eq!((state.taken(), state.capacity, state.queue_length), (3, Some(u32::MAX), 0));
    let listed = state.holders.iter().map(|holder| (&holder.owner, holder.token, holder.units));
    let held =
        [(first.owner(), first.token()), (second.owner(), second.token()), (third.owner(), third.token())];
    assert!(listed.eq(held.map(|(owner, token)| (owner, Some(token), 1))), "{state:?}");
    second.unlock().unwrap();
    first.unlock().unwrap();
    assert_eq!(a.admin().inspect().unwrap().taken(), 1);
    third.unlock().unwrap();
    harness.assert_nothing_is_left("readers");
}

/// Neither a reader nor another writer has it meanwhile.
pub fn a_writer_holds_alone(harness: &impl Harness) {
    let Some([a, b]) = rw_locks(harness, "writer") else { return };
    let writing = a.write().unwrap();
    let busy = || b.try_read().unwrap().granted().is_none() && b.try_write().unwrap().granted().is_none();
    assert!(busy());
    assert_eq!(a.admin().inspect().unwrap().taken(), u32::MAX);
    writing.unlock().unwrap();
    let reading = a.read().unwrap();
    assert!(b.try_write().unwrap().granted().is_none());
    reading.unlock().unwrap();
    b.try_write().unwrap().granted().unwrap().unlock().unwrap();
    harness.assert_nothing_is_left("writer");
}

/// Eight threads in four clients: a section of a writer overlaps no other, and all of them run.
pub fn sections_of_writers_never_overlap_any_other(harness: &impl Harness) {
    const TURNS: u32 = 15;
    const WRITER: u32 = 1000;
    if !is_kept(harness, LockKind::ReadWrite) {
        return;
    }
    let (inside, done) = (AtomicU32::new(0), AtomicU32::new(0));
    let clients = [(); 4].map(|()| client(harness));
    thread::scope(|scope| {
        for (number, client) in (0..).zip(clients.iter().chain(&clients)) {
            let (inside, done) = (&inside, &done);
            scope.spawn(move || {
                let lock = client.rw_lock("sections").unwrap();
                for turn in 0..TURNS {
                    let writes = (turn + number) % 3 == 0;
                    let guard = if writes { lock.write() } else { lock.read() }.unwrap();
                    let mine = if writes { WRITER } else { 1 };
                    let others = inside.fetch_add(mine, Ordering::SeqCst);
                    assert!(if writes { others == 0 } else { others < WRITER }, "{others} beside {mine}");
                    thread::yield_now();
                    inside.fetch_sub(mine, Ordering::SeqCst);
                    done.fetch_add(1, Ordering::SeqCst);
                    guard.unlock().unwrap();
                }
            });
        }
    });
    assert_eq!(done.load(Ordering::SeqCst), 8 * TURNS);
    harness.assert_nothing_is_left("sections");
}

/// So endless readers never starve a writer.
pub fn a_reader_does_not_pass_a_waiting_writer(harness: &impl Harness) {
    let Some([a, b, c]) = rw_locks(harness, "no passing") else { return };
    let reading = a.read().unwrap();
    let writer = b.writer().request().unwrap();
    assert!(c.try_read().unwrap().granted().is_none());
    let reader = c.reader().request().unwrap();
    assert_waits(&writer, 0);
    assert_waits(&reader, 1);
    let queue: Vec<_> = a.admin().inspect().unwrap().queue.iter().map(|waiter| waiter.units).collect();
    assert_eq!(queue, [u32::MAX, 1]);
    reading.unlock().unwrap();
    let writing = granted(writer);
    assert!(reader.decided().try_recv().is_err(), "the writer is alone");
    writing.unlock().unwrap();
    granted(reader).unlock().unwrap();
    harness.assert_nothing_is_left("no passing");
}

/// The second read is a re-entry. In the queue it would wait for the writer, and the writer for the first read.
pub fn a_read_again_passes_a_waiting_writer(harness: &impl Harness) {
    let Some([a, b]) = rw_locks(harness, "again") else { return };
    let outer = a.read().unwrap();
    let writer = b.writer().request().unwrap();
    let inner = a.try_read().unwrap().granted().expect("at once");
    assert_eq!((inner.token(), a.reader().hold_count()), (outer.token(), 2));
    assert_eq!(b.admin().inspect().unwrap().taken(), 1);
    outer.unlock().unwrap();
    assert_waits(&writer, 0);
    inner.unlock().unwrap();
    granted(writer).unlock().unwrap();
    harness.assert_nothing_is_left("again");
}

/// It keeps all others out until the last guard is gone.
pub fn a_read_under_the_own_write_is_a_re_entry(harness: &impl Harness) {
    let Some([a, b]) = rw_locks(harness, "under a write") else { return };
    let writing = a.write().unwrap();
    let reading = a.read().unwrap();
    assert_eq!(reading.token(), writing.token());
    writing.unlock().unwrap();
    assert!(b.try_read().unwrap().granted().is_none());
    let again = a.try_write().unwrap().granted().expect("the owner still has it for writing");
    reading.unlock().unwrap();
    assert!(b.try_read().unwrap().granted().is_none());
    again.unlock().unwrap();
    b.try_read().unwrap().granted().unwrap().unlock().unwrap();
    harness.assert_nothing_is_left("under a write");
}

/// It would wait for itself, even if the read still waits.
pub fn a_write_under_the_own_read_is_misuse(harness: &impl Harness) {
    let Some([a, b]) = rw_locks(harness, "under a read") else { return };
    let refused = || {
        for write in [a.write().map(drop), a.try_write().map(drop), a.try_write_for(LEASE).map(drop)] {
            match write {
                Err(Error::Misuse { lock, reason, .. }) => {
                    assert_eq!(lock.as_str(), "under a read");
                    assert!(reason.contains("would wait for its own read"), "{reason}");
                }
                other => panic!("{other:?}"),
            }
        }
    };
    let reading = a.read().unwrap();
    refused();
    reading.renew().unwrap();
    assert_eq!(a.admin().inspect().unwrap().queue_length, 0);
    reading.unlock().unwrap();
    let writing = b.write().unwrap();
    let reader = a.reader().request().unwrap();
    refused();
    assert_waits(&reader, 0);
    writing.unlock().unwrap();
    granted(reader).unlock().unwrap();
    harness.assert_nothing_is_left("under a read");
}

/// One release grants all of them, up to the next writer.
pub fn readers_behind_a_writer_enter_together(harness: &impl Harness) {
    let Some([a, b, c, d]) = rw_locks(harness, "together") else { return };
    let [e, f] = rw_locks_of_one(harness, "together").unwrap();
    let writing = a.write().unwrap();
    let (first, second) = (b.reader().request().unwrap(), e.reader().request().unwrap());
    let (third, writer) = (f.reader().request().unwrap(), c.writer().request().unwrap());
    let last = d.reader().request().unwrap();
    writing.unlock().unwrap();
    let state = a.admin().inspect().unwrap();
    assert_eq!((state.holders.len(), state.queue_length), (3, 2), "{state:?}");
    let (first, second, third) = (granted(first), granted(second), granted(third));
    assert!(first.token() < second.token() && second.token() < third.token());
    second.unlock().unwrap();
    first.unlock().unwrap();
    assert!(writer.decided().try_recv().is_err() && last.decided().try_recv().is_err());
    third.unlock().unwrap();
    granted(writer).unlock().unwrap();
    granted(last).unlock().unwrap();
    harness.assert_nothing_is_left("together");
}

/// However many there are.
pub fn many_readers_enter_by_one_release(harness: &impl Harness) {
    const MANY: u32 = 100;
    let Some([a]) = rw_locks(harness, "many") else { return };
    // Heartbeats are due meanwhile, for a store that loses messages when there are many at once.
    let client = client(harness);
    let lock = client.rw_lock("many").unwrap();
    let writing = a.write().unwrap();
    let request = |_| lock.owned_by(&client.new_owner()).unwrap().reader().request().unwrap();
    let readers: Vec<_> = (0..MANY).map(request).collect();
    writing.unlock().unwrap();
    let readings: Vec<_> = readers.into_iter().map(granted).collect();
    assert!(readings.is_sorted_by_key(|guard| guard.token()));
    assert_eq!(a.admin().inspect().unwrap().taken(), MANY);
    readings.into_iter().for_each(|guard| guard.unlock().unwrap());
    harness.assert_nothing_is_left("many");
}

/// It is dropped, or cancelled: those behind it fit, and enter without a release.
pub fn a_blocked_head_that_leaves_lets_the_others_in(harness: &impl Harness) {
    let Some([a, b, c, d]) = rw_locks(harness, "leaves") else { return };
    let reading = a.read().unwrap();
    let writer = b.writer().request().unwrap();
    let (first, second) = (c.reader().request().unwrap(), d.reader().request().unwrap());
    assert_waits(&first, 1);
    drop(writer);
    let (first, second) = (granted(first), granted(second));
    assert_eq!(a.admin().inspect().unwrap().taken(), 3);
    second.unlock().unwrap();
    let cancel = CancelToken::new();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| b.cancelled_by(&cancel).write().map(drop));
        until("the writer waits", || a.admin().inspect().unwrap().queue_length == 1);
        let second = d.reader().request().unwrap();
        assert_waits(&second, 1);
        cancel.cancel();
        granted(second).unlock().unwrap();
        assert!(matches!(waiter.join().unwrap(), Err(Error::Cancelled { .. })));
    });
    reading.unlock().unwrap();
    first.unlock().unwrap();
    harness.assert_nothing_is_left("leaves");
}

/// Two dead heads: a waiter whose process is gone, and a silent waiter that is still subscribed.
pub fn a_dead_head_lets_the_others_in(harness: &impl Harness) {
    if !is_kept(harness, LockKind::ReadWrite) {
        return;
    }
    let silent = Bench::of_kind(harness, LockKind::ReadWrite, "silent");
    let gone = OwnerId::new("00000000-0000-4000-8000-000000000000:1");
    let gone = (LockId::new(LockName::new("gone").unwrap(), LockKind::ReadWrite), gone);
    let silent_owner = silent.owner();
    let mut readers = Vec::new();
    for (lock, owner) in [(&silent.lock, &silent_owner), (&gone.0, &gone.1)] {
        let client = || client_with(harness, DEAD);
        let [a, b] = [(); 2].map(|()| client().rw_lock(lock.name.as_str()).unwrap());
        let reading = a.read().unwrap();
        let mut place = place_of_all(lock, owner, 1);
        place.ttl = DEAD;
        let asked = only(silent.backend.acquire(&[Acquire::new(place, LEASE)])).unwrap();
        assert!(matches!(asked, Acquired::Queued { rank: 0, .. }), "{asked:?}");
        readers.push((reading, b.reader().request().unwrap()));
    }
    harness.pass(DEAD + SLACK);
    for (reading, reader) in readers {
        reader.decided().recv_timeout(PATIENCE).expect("a dead writer costs its place's time");
        reader.wait().unwrap().unlock().unwrap();
        reading.unlock().unwrap();
    }
}

/// And by no more, though a live reader left before that.
pub fn a_dead_reader_delays_a_writer_by_its_lease(harness: &impl Harness) {
    let Some([a, b]) = rw_locks(harness, "dead reader") else { return };
    dies_while_it_reads(harness, "dead reader");
    let reading = a.read().unwrap();
    let writer = b.writer().request().unwrap();
    harness.pass(DEAD / 2);
    reading.renew().unwrap(); // prolongs this one alone
    reading.unlock().unwrap();
    assert!(writer.decided().try_recv().is_err(), "the lease of the dead reader counts");
    harness.pass(DEAD / 2 + SLACK);
    writer.decided().recv_timeout(PATIENCE).expect("at the end of the lease");
    writer.wait().unwrap().unlock().unwrap();
    harness.assert_nothing_is_left("dead reader");
}

/// Neither does the end of a fixed lease.
pub fn a_dead_reader_ends_nobody_elses_hold(harness: &impl Harness) {
    let Some([a, b, c]) = rw_locks(harness, "own leases") else { return };
    let before = a.read().unwrap();
    dies_while_it_reads(harness, "own leases");
    let fixed = b.fixed_lease(DEAD).read().unwrap();
    let after = c.read().unwrap();
    harness.pass(DEAD + SLACK);
    assert!(fixed.is_lost());
    assert!(matches!(fixed.unlock(), Err(Error::Lost(lost)) if lost.cause == LostCause::LeaseOver));
    for guard in [&before, &after] {
        assert!(!guard.is_lost());
        guard.renew().unwrap();
    }
    assert!(b.try_write().unwrap().granted().is_none());
    let tokens: Vec<_> =
        a.admin().inspect().unwrap().holders.iter().filter_map(|holder| holder.token).collect();
    assert_eq!(tokens, [before.token(), after.token()]);
    before.unlock().unwrap();
    after.unlock().unwrap();
    b.try_write().unwrap().granted().unwrap().unlock().unwrap();
    harness.assert_nothing_is_left("own leases");
}

/// A reader that nothing renews.
fn dies_while_it_reads(harness: &impl Harness, name: &str) {
    let id = LockId::new(LockName::new(name).unwrap(), LockKind::ReadWrite);
    let owner = OwnerId::new("00000000-0000-4000-8000-000000000000:1");
    let place = Place::new(&id, &owner, RequestId::new(1));
    let asked = only(harness.backend().acquire(&[Acquire::new(place, DEAD)])).unwrap();
    assert!(matches!(asked, Acquired::Granted { .. }), "{asked:?}");
}
