//! Messages arrive, and silence is told.

use std::time::Duration;

use super::support::{connect, eventually};
use crate::store::redis::servers::News;
use crate::store::redis::servers::launcher::RedisServer;

async fn next(news: &mut tokio::sync::mpsc::Receiver<News>) -> News {
    tokio::time::timeout(Duration::from_secs(10), news.recv()).await.expect("news").expect("an ear")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_arrive_and_a_gap_is_told() {
    let mut server = RedisServer::start();
    let (servers, _) = connect(&server).await;
    let mut news = servers.news("chan");
    assert_eq!(next(&mut news).await, News::Lost, "it listens from now on");
    server.command(&["PUBLISH", "chan", "one"]).done();
    server.command(&["PUBLISH", "other", "no"]).done();
    server.command(&["PUBLISH", "chan", "two"]).done();
    assert_eq!(next(&mut news).await, News::Message(b"one".into()));
    assert_eq!(next(&mut news).await, News::Message(b"two".into()));

    server.kill();
    server.start_again();
    assert_eq!(next(&mut news).await, News::Lost);
    server.command(&["PUBLISH", "chan", "three"]).done();
    assert_eq!(next(&mut news).await, News::Message(b"three".into()));

    server.pause();
    eventually("the silence noticed", async || servers.link_for(b"k").is_err()).await;
    server.resume();
    assert_eq!(next(&mut news).await, News::Lost);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_that_nobody_reads_is_bounded_and_told() {
    let server = RedisServer::start();
    let (servers, _) = connect(&server).await;
    let mut news = servers.news("chan");
    assert_eq!(next(&mut news).await, News::Lost);
    let publish = "for n = 1, 3000 do redis.call('PUBLISH', 'chan', n) end";
    server.command(&["EVAL", publish, "0"]).done();
    // The ear has heard all that was said before a PING of its was answered.
    let pings = || server.info("cmdstat_ping").and_then(|line| line.split(['=', ',']).nth(1)?.parse::<u32>().ok());
    let before = pings();
    eventually("pings", async || pings() >= before.map(|count| count + 5)).await;
    let mut read = 0;
    while next(&mut news).await != News::Lost {
        read += 1;
        assert!(read < 3_000, "some must have been dropped");
    }
    server.command(&["PUBLISH", "chan", "after"]).done();
    eventually("the message after the gap", async || next(&mut news).await == News::Message(b"after".into())).await;
}
