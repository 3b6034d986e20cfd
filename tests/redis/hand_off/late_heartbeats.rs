//! A heartbeat that the network held back, for a request whose place the server has removed meanwhile.

use fairlock::{Client, ClientId, Discipline, LockKind, LockName, RedisBackend};
use fairlock_core::OwnerId;
use fairlock_core::backend::{
    Acquire, Acquired, Backend, LockId, Place, Renew, Renewal, RequestId, Withdrawn, only,
};

use crate::support::*;

const NAME: &str = "late";
const QUEUE: &str = "fairlock_queue:{late}";
const RECORD: &str = "fairlock_record:{late}";

/// A waiter whose messages the test sends one by one.
struct ByHand {
    backend: RedisBackend,
    client: ClientId,
    lock: LockId,
    owner: OwnerId,
    ticket: u64,
}

impl ByHand {
    fn new(server: &RedisServer) -> ByHand {
        let backend = RedisBackend::builder(&server.url()).discipline(Discipline::HandOff).connect().unwrap();
        let client = ClientId::random();
        let owner = OwnerId::new(&format!("{client}:1"));
        let lock = LockId::new(LockName::new(NAME).unwrap(), LockKind::Fair);
        ByHand { backend, client, lock, owner, ticket: 0 }
    }

    fn place(&self) -> Place<'_> {
        let mut place = Place::new(&self.lock, &self.owner, RequestId::new(7));
        (place.ticket, place.ttl) = (self.ticket, LONG);
        place
    }

    fn member(&self) -> String {
        format!("{}:{:016x}", self.owner, 7)
    }

    fn ask(&mut self) -> Acquired {
        let answer = only(self.backend.acquire(&[Acquire::new(self.place(), LONG)])).unwrap();
        if let Acquired::Queued { ticket, .. } = answer {
            self.ticket = ticket;
        }
        answer
    }

    fn withdraw(&self) {
        assert!(matches!(only(self.backend.withdraw(&[self.place()])).unwrap(), Withdrawn::Left));
    }

    /// The late heartbeat begins nothing.
    fn speaks_in_vain(&self, server: &RedisServer) {
        let before = queue(server, NAME);
        let item = Renew::Place { place: self.place(), lease: LONG };
        let answer = self.backend.renew(self.client, &[item]).remove(0).unwrap();
        assert!(matches!(answer, Renewal::Lost), "{answer:?}");
        assert_eq!(queue(server, NAME), before);
        assert!(!is_resting(server, NAME));
    }
}

fn world() -> (CleanServer, Client, ByHand) {
    let server = CleanServer::start().allow(&[QUEUE, RECORD]);
    let (client, late) = (client(&server.url()), ByHand::new(&server));
    (server, client, late)
}

#[test]
fn a_late_heartbeat_of_a_withdrawn_request_begins_nothing() {
    for kicked in [false, true] {
        let (server, client, mut late) = world();
        let guard = take(&client, NAME);
        late.ask();
        let live = request(&client, NAME);
        until_in_queue(&server, NAME, 2);
        if kicked {
            let lock = client.fair_lock(NAME).unwrap();
            let place = lock.inspect().unwrap().queue.remove(0);
            assert!(lock.kick(&place).unwrap());
        } else {
            late.withdraw();
        }
        late.speaks_in_vain(&server);
        guard.unlock().unwrap();
        granted(live, SOON).unlock().unwrap(); // a rest would last for a minute
    }
}

/// The queue alone was evicted, and the places have stayed in the record.
#[test]
fn a_withdrawal_ends_a_place_that_the_server_has_forgotten() {
    let (server, client, mut late) = world();
    let guard = take(&client, NAME);
    late.ask();
    server.query::<()>(&["DEL", QUEUE]);
    late.withdraw();
    late.speaks_in_vain(&server);
    guard.unlock().unwrap();
}

#[test]
fn a_late_heartbeat_of_a_granted_request_begins_nothing() {
    let (server, client, mut late) = world();
    let guard = take(&client, NAME);
    late.ask();
    guard.unlock().unwrap();
    let Acquired::Granted { token, .. } = late.ask() else { panic!("it was the only one") };
    let hold = fairlock_core::backend::Hold::new(&late.lock, &late.owner, RequestId::new(7), token);
    only(late.backend.release(&[hold])).unwrap();
    late.speaks_in_vain(&server);
}

/// A waiter that was absent at its turn is back by its ask, no queue rests, and the other waiters need not wait for it.
#[test]
fn a_waiter_absent_at_its_turn_is_back() {
    let (server, client, mut late) = world();
    let guard = take(&client, NAME);
    late.ask();
    late.ask(); // It knows its ticket.
    let ticket = late.ticket;
    guard.unlock().unwrap(); // It has no subscription.
    assert!(queue(&server, NAME).is_empty());
    let guard = take(&client, NAME);
    let mut other = ByHand::new(&server);
    other.ask();
    late.speaks_in_vain(&server);
    assert!(matches!(late.ask(), Acquired::Queued { rank: 0, .. }));
    assert_eq!(late.ticket, ticket);
    assert_eq!(queue(&server, NAME), [late.member(), other.member()]);
    assert!(!is_resting(&server, NAME));
    other.withdraw();
    late.withdraw();
    guard.unlock().unwrap();
}

/// A newcomer's grant draws a number past every ticket that the server has forgotten.
#[test]
fn a_forgotten_queue_rests_though_a_newcomer_came_first() {
    let (server, client, mut late) = world();
    let guard = take(&client, NAME);
    late.ask();
    server.query::<()>(&["FLUSHALL"]);
    let newcomer = take(&client, "late");
    late.speaks_in_vain(&server);
    assert!(matches!(late.ask(), Acquired::Queued { rank: 0, .. }));
    assert!(is_resting(&server, NAME));
    // The rest ends with the place that began it.
    late.withdraw();
    assert!(!is_resting(&server, NAME));
    newcomer.unlock().unwrap();
    let _ = guard.unlock();
}
