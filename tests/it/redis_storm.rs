//! Nodes that are killed again and again under clients that never give up.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::redis::RedisServer;
use crate::support::*;

/// Numbers that look random and come out the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        // Knuth's linear congruence; the upper bits are the good ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// Retries one payment on any node until its matter is ended: it was executed,
/// or nobody knows.
async fn persist(addresses: [SocketAddr; 3], key: String, start: usize) -> (String, Answer) {
    for address in addresses.into_iter().cycle().skip(start) {
        if let Ok(stream) = TcpStream::connect(address).await {
            let mut client = Client::over(stream);
            client.send_what_goes(&pay(&key).bytes()).await;
            if let Some(answer) = client.hear().await.filter(|answer| answer.end == End::Whole) {
                if answer.status == 201 || answer.code() == "outcome-unknown" {
                    return (key, answer);
                }
                let may_be_said = ["in-flight", "store-unavailable", "shutting-down"];
                assert!(may_be_said.contains(&answer.code().as_str()), "{key}: {answer:#?}");
            }
        }
        // As a client does that backs off.
        sleep(Duration::from_millis(25)).await;
    }
    unreachable!("there is always another node")
}

/// Clients that never give up, two a key so that nodes race for it.
struct Storm {
    destination: Destination,
    fleet: Fleet,
    is_over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<(String, Answer)>>>,
    began: Instant,
}

impl Storm {
    const CLIENTS: usize = 24;

    async fn over(redis: &RedisServer) -> Self {
        let destination = Destination::start().await;
        let config = Config::new().redis(&redis.url(), "timeout: 300ms").defaults("lease: 1s, wait: 500ms");
        let fleet = Fleet::of(3, config, &destination).await;
        let addresses = [fleet[0].address(), fleet[1].address(), fleet[2].address()];
        let (keys, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let client = |client: usize| {
            let (keys, is_over) = (Arc::clone(&keys), Arc::clone(&is_over));
            tokio::spawn(async move {
                let mut given = Vec::new();
                while !is_over.load(Ordering::SeqCst) {
                    let key = format!("k-{}", keys.fetch_add(1, Ordering::SeqCst) / 2);
                    given.push(persist(addresses, key, client).await);
                    sleep(Duration::from_millis(30)).await;
                }
                given
            })
        };
        let clients = (0..Self::CLIENTS).map(client).collect();
        Self { destination, fleet, is_over, clients, began: Instant::now() }
    }

    fn rages(&self, lasts: Duration) -> bool {
        self.began.elapsed() < lasts
    }

    /// Kills one node and starts it again a moment later.
    async fn strike(&mut self, dice: &mut Dice) {
        let node = &mut self.fleet[usize::try_from(dice.roll(3)).unwrap()];
        node.kill();
        sleep(Duration::from_millis(dice.roll(200))).await;
        node.start_again().await;
    }

    /// Waits until every client has its answers, and checks that nothing
    /// happened twice, and that what was answered did happen.
    async fn settles(self) {
        self.is_over.store(true, Ordering::SeqCst);
        let mut given = Vec::new();
        for client in self.clients {
            given.extend(within("a client gets its answer", client).await.unwrap());
        }
        let unknown = given.iter().filter(|(_, answer)| answer.status != 201).count();
        println!("{} answers, {unknown} of them unknown", given.len());
        assert!(given.len() > 400, "only {} answers", given.len());
        let executed = self.destination.executions_by_key();
        for (key, times) in &executed {
            assert_eq!(*times, 1, "{key} was executed {times} times");
        }
        let done = || given.iter().filter(|(_, answer)| answer.status == 201);
        for (key, _) in done() {
            assert!(executed.contains_key(key), "{key} was answered without an execution");
        }
        for (n, (key, answer)) in done().step_by(10).enumerate() {
            let again = self.fleet[n % 3].send(&pay(key)).await;
            again.is_replayed(201);
            assert_eq!(again.body, answer.body, "{key}: an answer that was given stays");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_kills_over_three_nodes_makes_nothing_happen_twice() {
    let redis = RedisServer::start();
    let (mut storm, mut dice) = (Storm::over(&redis).await, Dice(7));
    while storm.rages(Duration::from_secs(8)) {
        sleep(Duration::from_millis(100 + dice.roll(400))).await;
        storm.strike(&mut dice).await;
    }
    storm.settles().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_over_nodes_and_their_redis_makes_nothing_happen_twice() {
    // It keeps its data, and takes new claims again when leases are over.
    let mut redis = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let (mut storm, mut dice) = (Storm::over(&redis).await, Dice(11));
    while storm.rages(Duration::from_secs(8)) {
        sleep(Duration::from_millis(300 + dice.roll(700))).await;
        match dice.roll(4) {
            0 | 1 => storm.strike(&mut dice).await,
            2 => {
                redis.pause();
                sleep(Duration::from_millis(dice.roll(1_500))).await;
                redis.resume();
            }
            _ => {
                redis.kill();
                sleep(Duration::from_millis(dice.roll(600))).await;
                redis.start_again();
                sleep(Duration::from_millis(1_500)).await;
            }
        }
    }
    storm.settles().await;
}
