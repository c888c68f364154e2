//! Nodes that are killed again and again under clients that never give up.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_kills_over_three_nodes_makes_nothing_happen_twice() {
    const LASTS: Duration = Duration::from_secs(8);
    const CLIENTS: usize = 24;
    let destination = Arc::new(Destination::start().await);
    let redis = RedisServer::start();
    let config = Config::new().redis(&redis.url(), "timeout: 300ms").defaults("lease: 1s, wait: 500ms");
    let mut fleet = Fleet::of(3, config, &destination).await;
    let addresses = [fleet[0].address(), fleet[1].address(), fleet[2].address()];
    let (keys, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    // Two clients a key, so that nodes race for it.
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
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
        })
        .collect();
    let (mut dice, mut kills) = (Dice(7), 0);
    let began = Instant::now();
    while began.elapsed() < LASTS {
        sleep(Duration::from_millis(100 + dice.roll(400))).await;
        let node = &mut fleet[usize::try_from(dice.roll(3)).unwrap()];
        node.kill();
        kills += 1;
        sleep(Duration::from_millis(dice.roll(200))).await;
        node.start_again().await;
    }
    is_over.store(true, Ordering::SeqCst);
    let mut given = Vec::new();
    for client in clients {
        given.extend(within("a client gets its answer", client).await.unwrap());
    }
    let unknown = given.iter().filter(|(_, answer)| answer.status != 201).count();
    println!("{kills} kills, {} answers, {unknown} of them unknown", given.len());
    assert!(given.len() > 400, "only {} answers", given.len());
    let executed = destination.executions_by_key();
    for (key, times) in &executed {
        assert_eq!(*times, 1, "{key} was executed {times} times");
    }
    let done = || given.iter().filter(|(_, answer)| answer.status == 201);
    for (key, _) in done() {
        assert!(executed.contains_key(key), "{key} was answered without an execution");
    }
    for (n, (key, answer)) in done().step_by(10).enumerate() {
        let again = fleet[n % 3].send(&pay(key)).await;
        again.is_replayed(201);
        assert_eq!(again.body, answer.body, "{key}: an answer that was given stays");
    }
}
