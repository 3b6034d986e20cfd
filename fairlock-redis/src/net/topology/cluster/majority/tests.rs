//! Majorities and minorities of nodes, and nodes that lie, lag, and change their minds.

use std::time::Duration;

use super::*;
use crate::net::topology::cluster::round::{Ballot, Report};
use redis::Value;

use crate::net::settings::{MajorityTerms, Settings};
use crate::net::test_server::{Act, FakeServer, TIMEOUTS, bulk, polite, up_for};
use crate::net::topology::Servers;

/// Long enough for a busy machine, where the nodes answer or hang up at once.
const AGE: Duration = Duration::from_secs(1);
const SLOT_OF_K: u16 = 7629;
/// Since when a node has to be up.
const LEAST_UPTIME: Duration = Duration::from_secs(10);

/// What a node says: who keeps all slots, and its epoch. A node that says nothing hangs up.
type Says = Option<(usize, u64)>;

/// Nodes that know of each other, what each says, for how many seconds each has been up, and how long its answer takes.
struct Fakes {
    nodes: Vec<FakeServer>,
    says: Arc<Mutex<Vec<(Says, u64)>>>,
    far: Arc<Mutex<Vec<Duration>>>,
}

impl Fakes {
    fn start(says: &[Says]) -> Fakes {
        let all = says.len();
        let says = Arc::new(Mutex::new(says.iter().map(|says| (*says, 60)).collect::<Vec<_>>()));
        let far = Arc::new(Mutex::new(vec![Duration::ZERO; all]));
        let ports = Arc::new(Mutex::new(Vec::new()));
        let node = |own: usize| {
            let (says, far, ports) = (Arc::clone(&says), Arc::clone(&far), Arc::clone(&ports));
            FakeServer::start(move |_, words| {
                let (Some((keeper, epoch)), up) = says.lock()[own] else { return Act::HangUp };
                let ports: Vec<u16> = ports.lock().clone();
                match words.get(1).map(String::as_str) {
                    Some("server") => Act::Say(up_for(up)),
                    Some("SLOTS") => {
                        let far = far.lock()[own];
                        std::thread::sleep(far);
                        let node = |at: usize| format!("*2\r\n$9\r\n127.0.0.1\r\n:{}\r\n", ports[at]);
                        let others: String = (0..all).filter(|at| *at != keeper).map(node).collect();
                        let count = 2 + all;
                        Act::Say(format!("*1\r\n*{count}\r\n:0\r\n:16383\r\n{}{others}", node(keeper)))
                    }
                    Some("NODES") => {
                        let line = |at: usize| {
                            let me = if at == own { "myself," } else { "" };
                            let slots = if at == keeper { " 0-16383 [5->-x]" } else { "" };
                            let role = if at < 3 || at == keeper { "master" } else { "slave" };
                            let port = ports[at];
                            format!("id{at} 127.0.0.1:{port}@1 {me}{role} - 0 0 {epoch} connected{slots}\n")
                        };
                        Act::Say(bulk(&(0..all).map(line).collect::<String>()))
                    }
                    _ => polite(words),
                }
            })
        };
        let nodes: Vec<FakeServer> = (0..all).map(node).collect();
        *ports.lock() = nodes.iter().map(FakeServer::port).collect();
        Fakes { nodes, says, far }
    }

    fn cluster(&self) -> Servers {
        connect(self.nodes.iter().map(FakeServer::address).collect(), AGE)
    }

    fn now_say(&self, says: &[Says]) {
        *self.says.lock() = says.iter().map(|says| (*says, 60)).collect();
    }

    /// The number of the node to which a request for the lock `k` goes, and the epoch.
    fn asks(&self, cluster: &Servers) -> Result<(usize, u64), Failure> {
        let asked = cluster.call("k", |route| Ok((self.number(route), route.epoch)));
        asked.map_err(|trouble| trouble.failure)
    }

    fn number(&self, route: &Route) -> usize {
        let asked = route.pool.address().to_string();
        let at = self.nodes.iter().position(|node| asked.ends_with(&node.port().to_string()));
        at.expect("a node")
    }
}

fn connect(seeds: Vec<Address>, age: Duration) -> Servers {
    connected(seeds, age)
}

fn connected(seeds: Vec<Address>, age: Duration) -> Arc<Cluster> {
    let terms = MajorityTerms { proof_age: age, least_uptime: LEAST_UPTIME };
    let settings = Settings { majority: Some(terms), ..Settings::new(TIMEOUTS, 1) };
    Cluster::connect(seeds, &settings).expect("a cluster")
}

fn cause(answer: Result<(usize, u64), Failure>) -> String {
    match answer {
        Err(Failure::NotSent(cause)) => cause.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_goes_to_the_node_that_more_than_half_of_all_name() {
    let says = |keeper, epoch| Some((keeper, epoch));
    let silent = "the node that keeps hash slot 7629 does not say so itself";
    for (said, expected) in [
        (&[says(0, 1), says(0, 1), says(0, 1)][..], Ok((0, 1))),
        (&[says(1, 3), says(1, 3), None], Ok((1, 3))),
        (&[says(0, 1), None, None], Err("no majority: 1 of 3 nodes named it")),
        (&[says(0, 1), says(0, 1), None, None], Err("no majority: 2 of 4 nodes named it")),
        (&[says(0, 1), says(1, 2), says(2, 3)], Err("no majority: 1 of 3 nodes named it")),
        // A node that lags, or lies.
        (&[says(0, 2), says(0, 2), says(1, 1)], Ok((0, 2))),
        (&[says(0, 2), says(0, 2), says(0, 1)], Ok((0, 2))),
        (&[says(0, 2), says(0, 1), says(1, 1)], Err("no majority: 1 of 3 nodes named it")),
        // The keeper was told of a move, and they were not; or it is dead, and they don't know.
        (&[says(0, 2), says(0, 1), says(0, 1)], Err(silent)),
        (&[None, says(0, 1), says(0, 1)], Err(silent)),
    ] {
        let fakes = Fakes::start(said);
        let answer = fakes.asks(&fakes.cluster()).map_err(|failure| cause(Err(failure)));
        assert_eq!(answer, expected.map_err(str::to_owned), "{said:?}");
    }
}

/// Of three primaries, the first was replaced by its replica (number 3). One that has not heard of it, and the old one, are two of
/// three, and so are the new one and the third.
#[test]
fn two_halves_of_a_cluster_do_not_both_have_a_majority() {
    let (old, new) = (Some((0, 1)), Some((3, 7)));
    for said in [[old, old, None, None, None, None], [None, None, new, new, None, None]] {
        let fakes = Fakes::start(&said);
        assert_eq!(cause(fakes.asks(&fakes.cluster())), "no majority: 2 of 6 nodes named it");
    }
    // Replicas vote as well.
    let fakes = Fakes::start(&[old, old, new, new, new, new]);
    assert_eq!(fakes.asks(&fakes.cluster()), Ok((3, 7)));
}

/// A node that has not been up for long does not vote, but names its own slots. It may have an old file, and have named another
/// keeper since that was written.
#[test]
fn a_node_that_is_not_up_for_long_does_not_vote() {
    let fakes = Fakes::start(&[Some((0, 1)), Some((0, 1)), None]);
    fakes.says.lock()[1].1 = 10;
    let says = cause(fakes.asks(&fakes.cluster()));
    assert_eq!(says, "no majority: 1 of 3 nodes named it, and 1 may have forgotten: up for less than 10.0s");
    fakes.says.lock()[1].1 = 11;
    assert_eq!(fakes.asks(&fakes.cluster()), Ok((0, 1)));
    let fakes = Fakes::start(&[Some((0, 1)); 3]);
    fakes.says.lock()[0].1 = 0;
    assert_eq!(fakes.asks(&fakes.cluster()), Ok((0, 1)));
}

/// More than others once had after a majority of answers, which may decide nothing.
const FAR: Duration = Duration::from_millis(300);

#[test]
fn a_far_node_is_waited_for_if_the_near_ones_do_not_decide() {
    // It keeps the slots; or its vote is needed.
    for (far, young) in [(0, 1), (1, 2)] {
        let fakes = Fakes::start(&[Some((0, 1)); 3]);
        fakes.far.lock()[far] = FAR;
        fakes.says.lock()[young].1 = 3;
        assert_eq!(fakes.asks(&fakes.cluster()), Ok((0, 1)), "{far}");
    }
}

/// Callers that come while the nodes answer wait for the same round. The answers that came before are counted, and nobody is
/// asked twice for them.
#[test]
fn callers_join_the_round_that_is_under_way() {
    let fakes = Fakes::start(&[Some((0, 1)); 3]);
    fakes.far.lock()[0] = FAR;
    let cluster = fakes.cluster();
    std::thread::scope(|scope| {
        let asks = || assert_eq!(fakes.asks(&cluster), Ok((0, 1)));
        (0..8).for_each(|_| drop(scope.spawn(asks)));
    });
    // Twice at connect, and once more after half a second on a busy machine.
    let asked = fakes.nodes[1].asked("CLUSTER NODES").len();
    assert!((2..=4).contains(&asked), "{asked}");
}

fn silent() -> FakeServer {
    FakeServer::start(|_, _| Act::Nothing)
}

/// An address that is not asked stalls no call.
#[test]
fn vanished_addresses_are_not_asked_while_the_nodes_are_well() {
    let (fakes, vanished) = (Fakes::start(&[Some((0, 1)); 3]), [silent(), silent(), silent()]);
    let seeds = [&fakes.nodes[0]].into_iter().chain(&vanished).map(FakeServer::address);
    let cluster = connect(seeds.collect(), AGE);
    let end = Instant::now() + 30 * AGE;
    // Twice at connect.
    while fakes.nodes[0].asked("CLUSTER NODES").len() < 6 {
        assert!(Instant::now() < end, "the nodes are not asked again");
        assert_eq!(fakes.asks(&cluster), Ok((0, 1)));
    }
    // At connect.
    assert!(vanished.iter().all(|seed| seed.connections() == 1));
}

#[test]
fn a_silent_node_delays_no_call_about_another_ones_slots() {
    const AGE: Duration = Duration::from_millis(200);
    let fakes = Fakes::start(&[Some((0, 1)); 4]);
    fakes.far.lock()[3] = 2 * TIMEOUTS.response;
    let cluster = connect(vec![fakes.nodes[0].address()], AGE);
    // Each of them has to ask. The machine may be busy during most.
    let is_quick = |_| {
        std::thread::sleep(AGE);
        let asked = Instant::now();
        fakes.asks(&cluster).is_ok() && asked.elapsed() < FAR / 4
    };
    assert!((0..100).any(is_quick));
}

/// The given addresses are asked when the known nodes do not decide, as after all nodes were replaced: a name leads to the new
/// nodes.
#[test]
fn given_addresses_are_asked_if_known_nodes_do_not_decide() {
    let [before, after] = [Some((0, 1)), None].map(|says| Fakes::start(&[says; 3]));
    let cluster = connect(vec![before.nodes[0].address(), after.nodes[0].address()], AGE);
    assert_eq!(before.asks(&cluster), Ok((0, 1)));
    before.now_say(&[None; 3]);
    after.now_say(&[Some((1, 2)); 3]);
    let end = Instant::now() + 5 * AGE;
    let is_after =
        |route: &Route| after.nodes.iter().any(|node| route.pool.address().is_same_server(&node.address()));
    while !cluster.call("k", |route| Ok(is_after(route))).is_ok_and(|is_after| is_after) {
        assert!(Instant::now() < end, "they are not asked");
    }
}

#[test]
fn a_node_that_is_configured_twice_votes_once() {
    let fakes = Fakes::start(&[Some((0, 1)), None, None]);
    let twice = Address::parse(&format!("redis://localhost:{}", fakes.nodes[0].port())).expect("an address");
    let cluster = connect(vec![fakes.nodes[0].address(), twice], AGE);
    assert_eq!(cause(fakes.asks(&cluster)), "no majority: 1 of 3 nodes named it");
}

#[test]
fn nodes_are_asked_again_in_time_and_a_proof_ends() {
    let (fakes, began) = (Fakes::start(&[Some((0, 1)); 3]), Instant::now());
    let found = connected(fakes.nodes.iter().map(FakeServer::address).collect(), AGE);
    let cluster: Servers = Arc::clone(&found) as _;
    let asked = || fakes.nodes.iter().map(|node| node.asked("CLUSTER NODES").len()).sum::<usize>();
    while asked() < 3 * 7 {
        assert!(began.elapsed() < 30 * AGE, "{} questions", asked());
        assert_eq!(fakes.asks(&cluster), Ok((0, 1)));
    }
    // Once in half of the time, and twice at connect.
    let rounds = 3 + began.elapsed().as_millis() / (AGE / 2).as_millis();
    assert!(asked() as u128 <= 3 * rounds, "{} questions in {:?}", asked(), began.elapsed());
    // Without answers, the last proof still counts, but not for longer than its time.
    fakes.now_say(&[None; 3]);
    let ends = || {
        let state = majority(&found).state.lock();
        state.proofs[usize::from(SLOT_OF_K)].as_ref().expect("a proof").asked + AGE
    };
    let mut asks = Instant::now();
    while fakes.asks(&cluster) == Ok((0, 1)) {
        assert!(asks <= ends(), "{:?} after its end", asks - ends());
        asks = Instant::now();
    }
    assert!(Instant::now() > ends(), "{:?} before its end", ends() - Instant::now());
    assert_eq!(cause(fakes.asks(&cluster)), "no majority: 0 of 3 nodes named it");
    fakes.now_say(&[Some((1, 2)); 3]);
    let end = Instant::now() + 30 * AGE;
    while fakes.asks(&cluster) != Ok((1, 2)) {
        assert!(Instant::now() < end, "{:?}", fakes.asks(&cluster));
    }
}

/// Each node may name another keeper right after its answer, which then takes its time.
#[test]
fn a_proof_that_took_its_time_to_come_has_ended() {
    let terms = MajorityTerms { proof_age: FAR, least_uptime: LEAST_UPTIME };
    for (late, is_known) in [(Duration::ZERO, true), (FAR, false)] {
        let (majority, at) = (Majority::new(terms), silent().address());
        let round = majority.begin(1);
        std::thread::sleep(late);
        let pool = |at: &Address| Arc::new(Pool::new(at.clone(), &Settings::new(TIMEOUTS, 1)));
        majority.count(&round, vec![(at, 1, vec![SLOT_OF_K])], pool);
        assert_eq!(majority.known(&majority.state.lock(), SLOT_OF_K).is_some(), is_known, "{late:?}");
    }
}

/// A refusal for its epoch or its slot makes the client ask the nodes again, and no redirection is followed.
#[test]
fn a_refusal_by_epoch_or_slot_makes_the_client_ask_again() {
    let to_one = |fakes: &Fakes| format!("{SLOT_OF_K} 127.0.0.1:{}", fakes.nodes[1].port());
    for code in ["OLDEPOCH", "MOVED", "ASK", "TRYAGAIN"] {
        let fakes = Fakes::start(&[Some((0, 1)); 3]);
        // Only a doubt makes it ask in this time.
        let (cluster, mut seen) = (connect(vec![fakes.nodes[0].address()], 60 * AGE), Vec::new());
        let answer = cluster.call("k", |route| {
            seen.push((fakes.number(route), route.epoch));
            if seen.len() > 3 {
                fakes.now_say(&[Some((1, 2)); 3]);
            }
            if route.epoch == 2 { Ok(()) } else { Err(Failure::refused(code, &to_one(&fakes))) }
        });
        match (code, answer) {
            // ASK and TRYAGAIN are no reason to doubt: the slot still belongs to this node.
            ("ASK" | "TRYAGAIN", answer) => {
                assert_eq!(answer.expect_err(code).failure.code(), Some("TRYAGAIN"));
            }
            (_, answer) => answer.expect(code),
        }
        let (last, before) = seen.split_last().expect("a request");
        assert!(before.iter().all(|seen| *seen == (0, 1)), "{code}: {before:?}");
        assert_eq!(*last, if matches!(code, "OLDEPOCH" | "MOVED") { (1, 2) } else { (0, 1) }, "{code}");
    }
}

#[test]
fn garbage_is_no_vote() {
    let line = |words: &str| Value::BulkString(words.as_bytes().to_vec());
    let at = Address::parse("redis://asked:1").expect("an address");
    let good = "a h:1@2 myself,master - 0 0 1 connected 5 7-8 [9->-b]\n\
                b :2@3,name slave a 0 0 1 connected\nc :0@0 master,noaddr - 0 0 2 disconnected\n\
                d h:4@5 handshake - 0 0 0 disconnected\n";
    let up = line("run_id:0123456789abcdef\r\nuptime_in_seconds:60\r\n");
    let mut ballot = Ballot::new(LEAST_UPTIME, 0);
    ballot.hear(Report::read(&at, &line(good), &up).expect("a report"), &mut Runs::default());
    assert_eq!(ballot.nodes, 3);
    assert!(ballot.failure(6).to_string().contains("no majority: 0 of 3 nodes"), "{}", ballot.failure(6));
    let mut voters: Vec<_> = ballot.voters().iter().map(Address::to_string).collect();
    voters.sort();
    // Where it answered; and the host of the one that does not know its own.
    assert_eq!(voters, ["asked:1", "asked:2"]);
    for words in [
        "",
        "+OK",
        "a h:1@2 master - 0 0 1 connected 5",
        "a h:1@2 myself - 0 0 x connected 5",
        "a h:1@2 myself - 0 0 1 connected 5-4",
        "a h:1@2 myself - 0 0 1 connected 16384",
        "a h:1@2 myself - 0 0 1",
    ] {
        assert!(Report::read(&at, &line(words), &up).is_err(), "{words}");
    }
    assert!(Report::read(&at, &Value::Int(1), &up).is_err());
    let run = "run_id:0123456789abcdef";
    for words in ["", run, "run_id:0\r\nuptime_in_seconds:60", &format!("{run}\r\nuptime_in_seconds:x")] {
        assert!(Report::read(&at, &line(good), &line(words)).is_err(), "{words}");
    }
}

/// A cluster whose rounds are all over.
fn at_rest(seeds: Vec<Address>) -> Arc<Cluster> {
    let cluster = connected(seeds, 60 * AGE);
    let end = Instant::now() + 10 * TIMEOUTS.response;
    while !majority(&cluster).state.lock().round.is_over() {
        assert!(Instant::now() < end, "the round does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    cluster
}

fn majority(cluster: &Cluster) -> &Majority {
    cluster.majority.as_ref().expect("with a majority")
}

#[test]
fn a_majority_names_the_servers_and_their_slots() {
    let fakes = Fakes::start(&[Some((0, 1)); 3]);
    let cluster: Servers = at_rest(vec![fakes.nodes[0].address()]);
    let [route] = &cluster.servers().expect("a majority")[..] else { panic!("not one") };
    assert_eq!(cluster.slots_of(&route.pool).len(), usize::from(SLOTS));
}

/// Without a proof a call asks the nodes at once, unless they have just answered.
#[test]
fn nodes_that_have_just_answered_are_not_asked_again() {
    let (fakes, gone) = (Fakes::start(&[Some((0, 1)); 3]), FakeServer::start(|_, _| Act::HangUp));
    let cluster = at_rest(vec![fakes.nodes[0].address(), gone.address()]);
    let majority = majority(&cluster);
    let asked = || fakes.nodes[1].asked("CLUSTER NODES").len();
    let before = asked();
    let later = Instant::now() + 60 * AGE;
    {
        let mut state = majority.state.lock();
        state.proofs.fill(None);
        state.answered = Some(later);
    }
    assert!(cluster.proven(majority, SLOT_OF_K).is_err());
    assert_eq!(asked(), before);
    {
        let mut state = majority.state.lock();
        let mut over = Round::new(Some(&majority.terms), 0, 0);
        over.asked = later;
        (state.round, state.answered, state.is_vain) = (Arc::new(over), None, false);
    }
    assert_eq!(cluster.proven(majority, SLOT_OF_K).map(|route| route.epoch).ok(), Some(1));
    assert_eq!((asked(), gone.connections()), (before + 1, 1), "the known nodes decide");
}

#[test]
fn the_nodes_are_asked_once_half_of_the_time_is_over() {
    let fakes = Fakes::start(&[Some((0, 1)); 3]);
    let cluster = at_rest(fakes.nodes.iter().map(FakeServer::address).collect());
    let majority = majority(&cluster);
    for (quarters, is_over) in [(1, false), (3, true)] {
        let mut before = Round::new(Some(&majority.terms), 0, 0);
        before.asked = Instant::now() - majority.terms.proof_age * quarters / 4;
        let before = Arc::new(before);
        majority.state.lock().round = Arc::clone(&before);
        assert!(cluster.proven(majority, SLOT_OF_K).is_ok());
        assert_eq!(Arc::ptr_eq(&majority.state.lock().round, &before), !is_over, "{quarters} quarters");
    }
}

#[test]
fn a_doubt_makes_the_next_round_come_sooner() {
    let terms = MajorityTerms { proof_age: 60 * AGE, least_uptime: LEAST_UPTIME };
    let majority = Majority::new(terms);
    let mut state = majority.state.lock();
    let asked = state.round.asked;
    for (doubted, pause) in [(None, AGAIN), (Some(asked - AGE), AGAIN), (Some(asked + AGE), 2 * PAUSE)] {
        state.doubted = doubted;
        assert_eq!(state.ask_again_at(&terms), asked + pause);
    }
}

/// Another answer to the same question, which was asked before the doubt, settles nothing.
#[test]
fn a_doubt_lasts_longer_than_the_round_before_it() {
    let terms = MajorityTerms { proof_age: 60 * AGE, least_uptime: LEAST_UPTIME };
    let (majority, at) = (Majority::new(terms), silent().address());
    let (round, node) = (majority.begin(3), Arc::new(Pool::new(at.clone(), &Settings::new(TIMEOUTS, 1))));
    let count = || majority.count(&round, vec![(at.clone(), 1, vec![SLOT_OF_K])], |_| Arc::clone(&node));
    let is_known = || majority.known(&majority.state.lock(), SLOT_OF_K).is_some();
    count();
    assert!(is_known());
    majority.doubt(&node);
    count();
    assert!(!is_known());
}
