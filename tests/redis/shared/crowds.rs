//! Dead waiters behind a reader, through the handles that users have.

use std::time::{Duration, Instant};

use fairlock::{Client, RedisBackend};
use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::{Alone, Proxy, RedisServer, eventually, wait_until_no_residue};

fn client(url: &str) -> Client {
    let backend = RedisBackend::builder(url).response_timeout(Duration::from_secs(1)).connect().unwrap();
    // Leases and places are renewed several times during the test.
    let builder = Client::builder(backend).lease(Duration::from_secs(2)).place_ttl(Duration::from_secs(1));
    builder.build().unwrap()
}

/// P3. Dead writers behind a reader delay the next waiter by half a place and a heartbeat in total. The server sees that their
/// connections are gone. They count for half a place's time all the same, and then a heartbeat of the reader finds out.
#[test]
fn dead_writers_behind_a_reader_delay_once_in_total() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let (live, dying) = (client(&server.url()), client(&proxy.url()));
    let place = Duration::from_secs(1);
    let (table, theirs) = (live.rw_lock("table").unwrap(), dying.rw_lock("table").unwrap());
    let reader = table.read().unwrap();
    let writers: Vec<_> =
        (0..20).map(|_| theirs.owned_by(&dying.new_owner()).unwrap().writer().request().unwrap()).collect();
    eventually("they wait", || table.inspect().unwrap().queue_length == 20);
    proxy.set_all(&Traffic::ALL, Rule::Hold); // also of new connections
    proxy.cut();
    let died = Instant::now();
    let owner = live.new_owner();
    let next =
        table.owned_by(&owner).unwrap().try_read_for(4 * place).unwrap().guard().expect("it is let in");
    let delay = died.elapsed();
    assert!(delay < place / 2 + place / 3 + Duration::from_millis(250), "{delay:?}");
    next.unlock().unwrap();
    reader.unlock().unwrap();
    proxy.set_all(&Traffic::ALL, Rule::Pass);
    drop(writers);
    drop((table, theirs, live, dying));
    wait_until_no_residue(&server);
}
