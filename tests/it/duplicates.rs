//! Duplicates that come while the first request is still running.

use std::collections::HashSet;

use crate::support::*;

#[tokio::test]
async fn fifty_at_once_are_one_execution() {
    // One goes to the destination, the others wait and get its answer.
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).header("Location", "/made/1").body("made").after(&gate)).await;
    let proxy = Proxy::before(&destination).await;
    let pending: Vec<_> = (0..50).map(|_| proxy.begin(&pay("k"))).collect();
    proxy.has_waiters(49).await;
    gate.open();
    let mut replayed = 0;
    for pending in pending {
        let answer = pending.answer().await;
        assert_eq!((answer.status, answer.text().as_str()), (201, "made"));
        assert_eq!(answer.header("location"), Some("/made/1"));
        replayed += usize::from(answer.is_replay());
    }
    assert_eq!(replayed, 49);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn fifty_at_once_are_one_execution_however_fast_it_is() {
    // Nobody is told about the race: no 409, no 5xx.
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    for round in 1..=5 {
        let answers = proxy.send_at_once(50, &pay(&format!("k-{round}"))).await;
        let bodies: HashSet<_> = answers.iter().map(|answer| (answer.status, answer.text())).collect();
        assert_eq!(bodies.len(), 1, "{bodies:?}");
        assert_eq!(answers[0].status, 201);
        assert_eq!(answers.iter().filter(|answer| answer.is_replay()).count(), 49);
        assert_eq!(destination.executions(), round);
    }
}

#[tokio::test]
async fn another_request_under_a_running_key_is_refused_at_once() {
    // Mismatch comes before in-flight: waiting would not help.
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).after(&gate)).await;
    let proxy = Proxy::before(&destination).await;
    let first = proxy.begin(&pay("k"));
    destination.has_received(1).await;
    let refused = proxy.send(&pay("k").json(r#"{"amount":999}"#)).await;
    refused.is_problem(422, "key-reused");
    assert_eq!(refused.json()["state"], "in_flight");
    assert!(!first.is_over());
    gate.open();
    first.answer().await.is_executed(201);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn a_duplicate_waits_only_so_long() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).after(&gate)).await;
    let proxy = Proxy::with(Config::new().defaults("wait: 200ms"), &destination).await;
    let first = proxy.begin(&pay("k"));
    destination.has_received(1).await;
    proxy.send(&pay("k")).await.is_problem(409, "in-flight");
    gate.open();
    first.answer().await.is_executed(201);
    proxy.send(&pay("k")).await.is_replayed(201);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn who_does_not_want_to_wait_is_told_at_once() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).after(&gate)).await;
    let proxy = Proxy::with(Config::new().defaults("wait: 0s"), &destination).await;
    let first = proxy.begin(&pay("k"));
    destination.has_received(1).await;
    for answer in proxy.send_at_once(10, &pay("k")).await {
        answer.is_problem(409, "in-flight");
    }
    gate.open();
    first.answer().await.is_executed(201);
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn only_so_many_wait_for_one_record() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).after(&gate)).await;
    let proxy = Proxy::with(Config::new().limits("waiters_per_record: 2"), &destination).await;
    let mut pending = vec![proxy.begin(&pay("k"))];
    destination.has_received(1).await;
    pending.extend([proxy.begin(&pay("k")), proxy.begin(&pay("k"))]);
    proxy.has_waiters(2).await;
    proxy.send(&pay("k")).await.is_problem(503, "overloaded");
    // Other records have waiters of their own.
    proxy.send(&pay("other")).await.is_executed(201);
    gate.open();
    for pending in pending {
        assert_eq!(pending.answer().await.status, 201);
    }
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn only_so_many_wait_at_all() {
    let gate = Gate::shut();
    let held = gate.clone();
    let destination = Destination::that(move |_| reply(201).after(&held)).await;
    let proxy = Proxy::with(Config::new().limits("waiters: 1"), &destination).await;
    let mut pending = vec![proxy.begin(&pay("a")), proxy.begin(&pay("b"))];
    destination.has_received(2).await;
    pending.push(proxy.begin(&pay("a")));
    proxy.has_waiters(1).await;
    proxy.send(&pay("b")).await.is_problem(503, "overloaded");
    gate.open();
    for pending in pending {
        assert_eq!(pending.answer().await.status, 201);
    }
    assert_eq!(destination.executions(), 2);
}

/// The answers of one request and of `waiters` duplicates that wait for it
/// while the destination does `first`.
async fn with_waiters(
    config: Config,
    waiters: usize,
    first: Script,
    then: Script,
) -> (Answer, Vec<Answer>, Destination) {
    let gate = Gate::shut();
    let destination = Destination::that_does([first.after(&gate), then]).await;
    let proxy = Proxy::with(config, &destination).await;
    let opener = proxy.begin(&pay("k"));
    destination.has_received(1).await;
    let pending: Vec<_> = (0..waiters).map(|_| proxy.begin(&pay("k"))).collect();
    proxy.has_waiters(waiters.try_into().unwrap()).await;
    gate.open();
    let mut answers = Vec::new();
    for pending in pending {
        answers.push(pending.answer().await);
    }
    (opener.answer().await, answers, destination)
}

fn count(answers: &[Answer], outcome: &str) -> usize {
    answers.iter().filter(|answer| answer.outcome() == outcome).count()
}

#[tokio::test]
async fn after_a_release_one_of_those_who_wait_goes_next() {
    let then = reply(201).body("made").into();
    let (first, others, destination) = with_waiters(Config::new(), 5, reply(429).body("busy").into(), then).await;
    first.is_executed(429);
    for answer in &others {
        assert_eq!((answer.status, answer.text().as_str()), (201, "made"));
    }
    assert_eq!((count(&others, "executed"), count(&others, "replayed")), (1, 4));
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn after_two_releases_the_rest_get_that_answer() {
    // The destination is not asked over and over by everybody who waits.
    let then = reply(429).body("still busy").into();
    let (first, others, destination) = with_waiters(Config::new(), 5, reply(429).body("busy").into(), then).await;
    assert_eq!(first.text(), "busy");
    for answer in &others {
        answer.is_executed(429);
        assert_eq!(answer.text(), "still busy");
        assert!(!answer.has("onceward-expires"), "it is not stored");
    }
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn nobody_follows_when_the_destination_asks_for_patience() {
    for status in [429, 503] {
        let busy = reply(status).header("Retry-After", "7").body("busy");
        let (first, others, destination) = with_waiters(Config::new(), 3, busy.into(), reply(201).into()).await;
        for answer in others.iter().chain([&first]) {
            assert_eq!((answer.status, answer.text().as_str()), (status, "busy"));
            assert_eq!(answer.header("retry-after"), Some("7"));
        }
        assert_eq!(destination.executions(), 1);
    }
}

#[tokio::test]
async fn a_successor_is_somebody_who_is_still_there() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(429).after(&gate)).await;
    let proxy = Proxy::with(Config::new().defaults("wait: 60s"), &destination).await;
    let first = proxy.begin(&pay("k"));
    destination.has_received(1).await;
    let mut impatient = proxy.client().await;
    impatient.send(&pay("k")).await;
    proxy.has_waiters(1).await;
    let patient = proxy.begin(&pay("k"));
    proxy.has_waiters(2).await;
    impatient.reset();
    proxy.has_waiters(1).await;
    gate.open();
    first.answer().await.is_executed(429);
    patient.answer().await.is_executed(201);
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn who_waits_is_told_when_the_outcome_is_unknown() {
    let (first, others, destination) = with_waiters(Config::new(), 3, Script::close(), reply(201).into()).await;
    first.is_unknown(502);
    for answer in &others {
        answer.is_unknown(409);
    }
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn where_unknown_is_forwarded_one_of_those_who_wait_goes_on() {
    let config = Config::new().defaults("on_unknown: forward");
    let (first, others, destination) = with_waiters(config, 3, Script::close(), reply(201).into()).await;
    first.is_unknown_but_goes_on(502);
    assert!(others.iter().all(|answer| answer.status == 201), "{others:#?}");
    assert_eq!((count(&others, "executed"), count(&others, "replayed")), (1, 2));
    assert_eq!(destination.executions(), 2);
}

#[tokio::test]
async fn retries_of_a_client_that_times_out_join_the_first() {
    // Each attempt gives up, the next one comes; the last one hears the answer.
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).body("made").after(&gate)).await;
    let proxy = Proxy::before(&destination).await;
    for _ in 0..3 {
        let mut client = proxy.client().await;
        client.send(&pay("k")).await;
        destination.has_received(1).await;
        assert!(client.hears_nothing_for_a_while().await);
    }
    let last = proxy.begin(&pay("k"));
    gate.open();
    let answer = last.answer().await;
    answer.is_replayed(201);
    assert_eq!(answer.text(), "made");
    assert_eq!(destination.executions(), 1);
}

#[tokio::test]
async fn who_waited_gets_what_a_replay_has_and_no_cookies() {
    let personal = |reply: script::Reply| {
        reply.header("Set-Cookie", "sid=A").header("WWW-Authenticate", "Bearer").header("X-End", "2").body("told")
    };
    let patient = personal(reply(429).header("Retry-After", "7"));
    for (answer, outcome) in [(personal(reply(201)), "replayed"), (patient, "executed")] {
        let (first, others, destination) = with_waiters(Config::new(), 3, answer.into(), reply(599).into()).await;
        assert_eq!((first.header("set-cookie"), first.text().as_str()), (Some("sid=A"), "told"));
        for other in &others {
            assert_eq!((other.status, other.outcome(), other.text().as_str()), (first.status, outcome, "told"));
            assert_eq!(other.header("x-end"), Some("2"));
            assert!(!other.has("set-cookie") && !other.has("www-authenticate"), "{other:#?}");
        }
        assert_eq!(destination.executions(), 1);
    }
    let config = Config::new().defaults("store_set_cookie: true");
    let (_, others, _) = with_waiters(config, 1, personal(reply(201)).into(), reply(599).into()).await;
    assert_eq!(others[0].header("set-cookie"), Some("sid=A"));
}

#[tokio::test]
async fn who_waited_for_an_answer_does_not_ask_the_store_for_it() {
    let gate = Gate::shut();
    let destination = Destination::that_first(reply(201).body("made").after(&gate)).await;
    let proxy = Proxy::before(&destination).await;
    let first = proxy.begin(&pay("k"));
    destination.has_received(1).await;
    let pending: Vec<_> = (0..20).map(|_| proxy.begin(&pay("k"))).collect();
    proxy.has_waiters(20).await;
    gate.open();
    let first = first.answer().await;
    for pending in pending {
        pending.answer().await.replays(&first);
    }
    let claims = "onceward_store_operation_seconds_count{operation=\"claim\"}";
    assert_eq!(proxy.metric(claims).await, 1, "one claim");
    proxy.send(&pay("k")).await.replays(&first);
}
