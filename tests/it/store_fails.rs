//! A store that fails: what cannot be remembered is not done.

use std::path::Path;

use crate::support::*;

/// A proxy whose disk becomes full soon, and a destination with long answers.
async fn before_a_full_disk(config: Config) -> (Proxy, Destination) {
    let destination = Destination::that(|request| {
        reply(201).body(vec![b'x'; 20_000]).header("X-N", &request.number.to_string()).into()
    })
    .await;
    let mut proxy = Proxy::with(config, &destination).await;
    proxy.term();
    assert!(proxy.ends().await.success());
    let room = u32::try_from(proxy.stored_bytes() / 512).unwrap() + 1024;
    proxy.file_limit(Some(room));
    proxy.start_again().await;
    (proxy, destination)
}

/// Sends payments until one is not answered by the destination.
async fn until_it_fails(proxy: &Proxy) -> (usize, Answer) {
    for n in 0..2_000 {
        let answer = proxy.send(&pay(&format!("k-{n}"))).await;
        if answer.outcome() != "executed" {
            return (n, answer);
        }
    }
    panic!("the disk never became full");
}

#[tokio::test]
async fn what_cannot_be_claimed_is_not_sent() {
    let (mut proxy, destination) = before_a_full_disk(Config::new()).await;
    let (executed, refused) = until_it_fails(&proxy).await;
    refused.is_problem(503, "store-unavailable");
    assert_eq!(destination.executions(), executed);
    for n in 0..3 {
        proxy.send(&pay(&format!("new-{n}"))).await.is_problem(503, "store-unavailable");
    }
    assert_eq!(destination.executions(), executed, "nothing is sent without a claim");
    // What needs no claim passes.
    assert_eq!(proxy.send(&get("/elsewhere")).await.status, 201);

    proxy.kill();
    proxy.file_limit(None);
    proxy.start_again().await;
    for n in 0..executed {
        let again = proxy.send(&pay(&format!("k-{n}"))).await;
        // The last ones may not have been stored whole, or at all; then nobody
        // knows.
        let known = again.is_replay() || again.code() == "response-not-stored";
        assert!(known || again.code() == "outcome-unknown", "k-{n}: {again:#?}");
    }
    assert_eq!(destination.executions(), executed + 1);
    proxy.send(&pay("new-0")).await.is_executed(201);
}

#[tokio::test]
async fn a_route_can_choose_to_go_unguarded() {
    let (proxy, destination) = before_a_full_disk(Config::new().defaults("on_store_error: bypass")).await;
    let (executed, bypassed) = until_it_fails(&proxy).await;
    assert_eq!((bypassed.status, bypassed.outcome()), (201, "bypassed"));
    assert!(!bypassed.has("onceward-expires"));
    assert_eq!(destination.executions(), executed + 1);
    // … but not with a key that has a record, whatever comes with it.
    for retry in [pay("k-0"), pay("k-0").json(r#"{"amount":999}"#)] {
        proxy.send(&retry).await.is_problem(503, "store-unavailable");
    }
    assert_eq!(destination.executions(), executed + 1);
}

#[tokio::test]
async fn a_full_disk_heals_when_records_are_over() {
    let (proxy, destination) = before_a_full_disk(Config::new().defaults("retention: 1s")).await;
    let (executed, _) = until_it_fails(&proxy).await;
    eventually("the store works again", async || {
        proxy.send(&pay("new")).await.status == 201 && destination.executions() == executed + 1
    })
    .await;
}

#[tokio::test]
async fn a_damaged_store_is_not_an_empty_one() {
    // Taken for empty, every retry would be executed again.
    let marker = "this answer is going to be damaged";
    let destination = Destination::that_first(reply(201).body(marker)).await;
    let mut proxy = Proxy::before(&destination).await;
    assert_eq!(proxy.send(&pay("k")).await.text(), marker);
    proxy.term();
    assert!(proxy.ends().await.success());
    damage(&proxy, marker.as_bytes());
    proxy.spawn();
    assert_eq!(proxy.ends().await.code(), Some(1), "{}", proxy.log());
    assert!(proxy.log().contains("damaged"), "{}", proxy.log());
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_store_that_lost_its_file_is_not_an_empty_one() {
    let destination = Destination::start().await;
    for lose in [|file| std::fs::write(file, ""), |file| std::fs::remove_file(file)] as [fn(&Path) -> _; 2] {
        let mut proxy = Proxy::before(&destination).await;
        let key = format!("k-{}", destination.executions());
        let first = proxy.send(&pay(&key)).await;
        first.is_executed(201);
        let executed = destination.executions();
        proxy.term();
        assert!(proxy.ends().await.success());
        let records = proxy.data().join("records.redb");
        let kept = std::fs::read(&records).unwrap();
        lose(&records).unwrap();
        proxy.spawn();
        assert_eq!(proxy.ends().await.code(), Some(1), "{}", proxy.log());
        proxy.logs("held records").await;
        std::fs::write(&records, kept).unwrap();
        proxy.start_again().await;
        proxy.send(&pay(&key)).await.replays(&first);
        assert_eq!(destination.executions(), executed);
    }
}

#[tokio::test]
async fn a_folder_that_cannot_be_used_is_told_once() {
    let destination = Destination::start().await;
    let mut proxy = Proxy::prepared(Config::new().store("embedded: { path: /proc/onceward }"), &destination);
    proxy.spawn();
    assert_eq!(proxy.ends().await.code(), Some(1), "{}", proxy.log());
    let log = proxy.log();
    assert_eq!(log.matches("(os error").count(), 1, "{log}");
    assert!(log.contains("the folder /proc/onceward cannot be used"), "{log}");
}

/// Flips a bit wherever these bytes are stored.
fn damage(proxy: &Proxy, bytes: &[u8]) {
    let mut damaged = 0;
    for file in proxy.stored_files() {
        let mut content = std::fs::read(&file).unwrap();
        while let Some(at) = content.windows(bytes.len()).position(|window| window == bytes) {
            content[at] ^= 1;
            damaged += 1;
        }
        std::fs::write(&file, content).unwrap();
    }
    assert!(damaged > 0, "the answer is on the disk");
}
