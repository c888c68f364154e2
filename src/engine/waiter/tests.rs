use super::*;
use crate::model::key::RecordId;
use crate::model::response::{Fields, StoredBody};
use crate::model::time::Timestamp;

const ID: RecordId = RecordId::from_bytes([7; 16]);
const RUNNING: Running = Running { since: Timestamp::from_millis(1), attempt: 1 };

fn asked(byte: u8) -> Asked {
    let recipe = crate::model::fingerprint::RecipeId::of("test");
    Arc::new(Fingerprint { recipe, digest: [byte; 32], raw: [byte; 32], listed: Arc::from([]) })
}

#[test]
fn a_key_without_a_store_is_held_by_one_request_at_a_time() {
    let flights = Flights::default();
    let busy = flights.sit(ID, asked(1)).begin_alone(RUNNING).expect("nobody has it");
    // Whoever is refused must not take it from the one who has it.
    for _ in 0..3 {
        assert!(flights.sit(ID, asked(1)).begin_alone(RUNNING).is_none());
    }
    drop(busy);
    assert!(flights.sit(ID, asked(1)).begin_alone(RUNNING).is_some());
}

#[tokio::test]
async fn a_refused_request_does_not_end_a_running_attempt() {
    let flights = Flights::default();
    let mut owner = flights.sit(ID, asked(1));
    assert!(owner.begin(RUNNING));
    let mut waiter = flights.sit(ID, asked(1));
    waiter.look();
    assert!(flights.sit(ID, asked(1)).begin_alone(RUNNING).is_none());
    let woken = tokio::time::timeout(std::time::Duration::from_millis(20), waiter.wait()).await;
    assert!(woken.is_err(), "the attempt still runs: {woken:?}");
    owner.settle();
    assert!(matches!(waiter.wait().await, Seen::Settled));
}

#[tokio::test]
async fn who_follows_an_attempt_of_another_node_is_not_followed() {
    let flights = Flights::default();
    let refused = Refused { reason: crate::engine::answer::Reason::DestinationUnreachable, record: None };
    let mut waiters = [flights.sit(ID, asked(1)), flights.sit(ID, asked(1))];
    let [successor, waiter] = &mut waiters;
    assert!(successor.begin(RUNNING));
    successor.follow();
    waiter.look();
    successor.release(ReleasedAnswer::Refused(refused), false);
    let Seen::Released(succession) = waiter.wait().await else { panic!("it was released") };
    assert!(matches!(succession.decide(), AfterRelease::Take(Some(_))));
}

#[tokio::test]
async fn one_of_those_who_wait_succeeds_and_after_two_releases_all_take_the_answer() {
    let flights = Flights::default();
    let refused = Refused { reason: crate::engine::answer::Reason::DestinationUnreachable, record: None };
    let mut owner = flights.sit(ID, asked(1));
    let mut waiters = [flights.sit(ID, asked(1)), flights.sit(ID, asked(1))];
    let mut other = flights.sit(ID, asked(2));
    assert!(owner.begin(RUNNING));
    owner.release(ReleasedAnswer::Refused(refused), false);
    let mut told = Vec::new();
    for waiter in &mut waiters {
        let Seen::Released(succession) = waiter.wait().await else { panic!("it was released") };
        told.push(succession.decide());
    }
    assert!(matches!(told.as_slice(), [AfterRelease::Succeed, AfterRelease::WaitOn]), "{told:?}");
    assert!(matches!(other.wait().await, Seen::Settled), "another request's release is not its own");
    assert!(owner.begin(RUNNING));
    owner.release(ReleasedAnswer::Refused(refused), false);
    for waiter in &mut waiters {
        let Seen::Released(succession) = waiter.wait().await else { panic!("it was released") };
        assert!(matches!(succession.decide(), AfterRelease::Take(Some(_))));
    }
}

#[tokio::test]
async fn an_answer_that_was_stored_is_for_those_who_asked_for_it() {
    let flights = Flights::default();
    let mut owner = flights.sit(ID, asked(1));
    let (mut waiter, mut other) = (flights.sit(ID, asked(1)), flights.sit(ID, asked(2)));
    assert!(owner.begin(RUNNING));
    let response = StoredResponse {
        status: 201,
        headers: Fields::default(),
        body: StoredBody::Whole("made".into()),
        trailers: Fields::default(),
    };
    owner.complete(response.clone(), Timestamp::from_millis(9));
    let Seen::Completed(completed) = waiter.wait().await else { panic!("it is stored") };
    assert_eq!((&completed.response, completed.expires_at.as_millis()), (&response, 9));
    assert!(matches!(other.wait().await, Seen::Settled), "another request's answer is not its own");
    // Who comes later asks the store.
    let mut later = flights.sit(ID, asked(1));
    assert!(owner.begin(RUNNING));
    owner.settle();
    assert!(matches!(later.wait().await, Seen::Settled));
}
