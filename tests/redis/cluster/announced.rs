//! Nodes that announce addresses of their own network, as containers do, which lead nowhere from here.

use std::collections::HashMap;

use fairlock::Client;
use fairlock::settings::RedisBuilder;
use fairlock_tests::cluster::{Cluster, Replicas};
use fairlock_tests::port::Port;
use fairlock_tests::{Alone, eventually};

/// Nodes whose announced ports lead nowhere; and the ports that do, by these.
fn behind_nat() -> (Cluster, Vec<Port>, HashMap<u16, u16>) {
    let cluster = Cluster::start(Replicas::None);
    let announced: Vec<Port> = cluster.nodes.iter().map(|_| Port::reserve()).collect();
    for (node, port) in cluster.nodes.iter().zip(&announced) {
        node.query::<()>(&["CONFIG", "SET", "cluster-announce-port", &port.number().to_string()]);
    }
    for node in &cluster.nodes {
        eventually("each node has heard of the others' addresses", || {
            let slots: String = node.query(&["CLUSTER", "NODES"]);
            announced.iter().all(|port| slots.contains(&format!("127.0.0.1:{}@", port.number())))
        });
    }
    let ports =
        announced.iter().map(Port::number).zip(cluster.nodes.iter().map(|node| node.port())).collect();
    (cluster, announced, ports)
}

#[test]
fn announced_addresses_are_mapped_to_those_that_can_be_reached() {
    let _alone = Alone::here();
    let (cluster, announced, ports) = behind_nat();
    let seed = cluster.nodes[0].url();
    // Without a map the error says who has announced the address.
    let backend = RedisBuilder::cluster(&[&seed]).connect().unwrap();
    let error = backend.locks(None).unwrap_err();
    let shown = error.to_string();
    let [announced, by] = [announced[0].number(), cluster.nodes[0].port()];
    assert!(shown.contains(&format!("127.0.0.1:{announced}")), "{shown}");
    assert!(shown.contains(&format!("(127.0.0.1:{by} announces this address")), "{shown}");
    assert!(shown.contains("set `map_address`"), "{shown}");

    let builder = RedisBuilder::cluster(&[&seed]);
    let backend = builder.map_address(move |host, port| (host.to_owned(), ports[&port])).connect().unwrap();
    let client = Client::new(backend).unwrap();
    for name in ["a", "b", "c", "d", "e", "f"] {
        client.fair_lock(name).unwrap().lock().unwrap().unlock().unwrap();
    }
    drop(client);

    let backend = RedisBuilder::cluster(&[&seed]).map_address(|_, _| panic!("planned")).connect().unwrap();
    let error = backend.locks(None).unwrap_err();
    assert!(error.to_string().contains("the function of `map_address` has panicked"), "{error}");
}
