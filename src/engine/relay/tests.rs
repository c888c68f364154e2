use http_body_util::BodyExt;

use super::*;
use crate::engine::capacity::Gauge;

fn relay(length: Option<u64>, keep_up_to: u64) -> (Arc<Relay>, Gauge) {
    let memory = Gauge::default();
    (Relay::new(length, Bounds { body: keep_up_to, memory: u64::MAX }, memory.take(0)), memory)
}

/// All that a follower can read now.
async fn readable(follower: &mut Follower) -> Vec<u8> {
    let mut read = Vec::new();
    loop {
        let next = std::future::poll_fn(|cx| match Pin::new(&mut *follower).poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(Some(frame)),
            Poll::Pending => Poll::Ready(None),
        });
        match next.await {
            Some(Some(Ok(frame))) => read.extend_from_slice(&frame.into_data().unwrap_or_default()),
            Some(None) | None => return read,
            Some(Some(Err(_))) => panic!("the body broke off"),
        }
    }
}

#[tokio::test]
async fn the_last_byte_of_a_known_length_is_held_until_the_end() {
    let (relay, _memory) = relay(Some(5), 100);
    let mut follower = relay.follow().unwrap();
    relay.push("he".into()).await;
    assert_eq!(readable(&mut follower).await, b"he");
    relay.push("llo".into()).await;
    assert_eq!(readable(&mut follower).await, b"ll");
    assert_eq!(relay.collect().unwrap(), "hello");
    relay.finish(None);
    assert_eq!(readable(&mut follower).await, b"o");
    assert!(follower.frame().await.is_none());
}

#[tokio::test]
async fn without_a_length_the_end_is_held() {
    let (relay, _memory) = relay(None, 100);
    let mut follower = relay.follow().unwrap();
    relay.push("all".into()).await;
    assert_eq!(readable(&mut follower).await, b"all");
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", http::HeaderValue::from_static("1"));
    relay.finish(Some(trailers.clone()));
    let frame = follower.frame().await.unwrap().unwrap();
    assert_eq!(frame.into_trailers().ok(), Some(trailers));
    assert!(follower.frame().await.is_none());
}

#[tokio::test]
async fn whoever_joins_gets_every_byte() {
    let (relay, memory) = relay(None, 100);
    relay.push("early ".into()).await;
    let first = relay.follow().unwrap();
    relay.push("late".into()).await;
    let joined = relay.follow().unwrap();
    relay.finish(None);
    assert_eq!(first.collect().await.unwrap().to_bytes(), "early late");
    assert_eq!(joined.collect().await.unwrap().to_bytes(), "early late");
    assert_eq!(memory.taken(), 10);
    drop(relay);
    assert_eq!(memory.taken(), 0);
}

#[tokio::test]
async fn a_broken_body_breaks_for_everybody_after_what_there_was() {
    let (relay, _memory) = relay(None, 100);
    let mut follower = relay.follow().unwrap();
    relay.push("half".into()).await;
    relay.abort();
    assert_eq!(follower.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
    assert!(follower.frame().await.unwrap().is_err());
    assert!(relay.follow().unwrap().collect().await.is_err());
}

#[tokio::test]
async fn beyond_what_is_kept_memory_is_bounded_and_nobody_can_join() {
    let (relay, memory) = relay(None, 10);
    let mut follower = relay.follow().unwrap();
    let chunk = Bytes::from(vec![b'x'; 64 << 10]);
    let pushing = {
        let relay = Arc::clone(&relay);
        let chunk = chunk.clone();
        tokio::spawn(async move {
            for _ in 0..100 {
                relay.push(chunk.clone()).await;
            }
            relay.finish(None);
        })
    };
    let mut read = 0;
    while let Some(frame) = follower.frame().await {
        read += frame.unwrap().into_data().unwrap().len();
        assert!(memory.taken() <= WINDOW + 2 * chunk.len() as u64, "{} bytes are held", memory.taken());
    }
    assert_eq!(read, 100 * chunk.len());
    pushing.await.unwrap();
    assert!(relay.follow().is_none());
    assert_eq!(relay.collect(), None);
}

#[tokio::test]
async fn without_memory_a_body_goes_through_and_is_not_kept() {
    let memory = Gauge::default();
    let relay = Relay::new(None, Bounds { body: 1 << 20, memory: 8 }, memory.take(0));
    let mut follower = relay.follow().unwrap();
    relay.push("12345".into()).await;
    assert_eq!(relay.collect().unwrap(), "12345");
    relay.push("67890".into()).await;
    assert_eq!(relay.collect(), None);
    assert!(relay.follow().is_none());
    assert_eq!(readable(&mut follower).await, b"1234567890");
    assert_eq!(memory.taken(), 0);
}

#[tokio::test]
async fn an_exchange_does_not_wait_for_a_follower_that_has_left() {
    let (relay, _memory) = relay(None, 10);
    let follower = relay.follow().unwrap();
    let pushing = {
        let relay = Arc::clone(&relay);
        tokio::spawn(async move {
            for _ in 0..100 {
                relay.push(Bytes::from(vec![b'x'; 64 << 10])).await;
            }
        })
    };
    tokio::task::yield_now().await;
    drop(follower);
    pushing.await.unwrap();
}
