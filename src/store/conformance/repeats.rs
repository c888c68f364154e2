//! How often records were asked for again.

use super::amended::decide;
use super::*;
use crate::model::decision::Ruling;
use crate::store::list::Repeats;

fn replays(count: u64, at: Timestamp) -> Repeats {
    Repeats { replays: count, replayed_at: Some(at), ..Repeats::default() }
}

fn mismatches(count: u64, at: Timestamp) -> Repeats {
    Repeats { mismatches: count, mismatched_at: Some(at), ..Repeats::default() }
}

impl Subject {
    async fn add(&self, offer: &Offer, repeats: Repeats) {
        self.store.add_repeats(vec![(offer.id(), repeats)]).await.unwrap();
    }

    async fn repeats(&self, offer: &Offer) -> Repeats {
        self.store.repeats(offer.id()).await.unwrap()
    }
}

pub(super) async fn repeats_add_up_and_are_kept(mut subject: Subject) {
    let [one, other] = [subject.completed("one").await, subject.completed("other").await];
    assert_eq!(subject.repeats(&one).await, Repeats::default());
    let later = START.after(MINUTE);
    subject.add(&one, replays(3, START)).await;
    subject.add(&one, mismatches(1, START)).await;
    subject.restart().await;
    subject.store.add_repeats(vec![(one.id(), replays(4, later)), (other.id(), mismatches(2, later))]).await.unwrap();
    subject.store.add_repeats(Vec::new()).await.unwrap();
    let expected = Repeats { replays: 7, mismatches: 1, replayed_at: Some(later), mismatched_at: Some(START) };
    for _ in 0..2 {
        assert_eq!(subject.repeats(&one).await, expected);
        assert_eq!(subject.repeats(&other).await, mismatches(2, later));
        subject.restart().await;
    }
    // However often the record changes, they are its own.
    subject.amend(&one, decide(one.attempt_id, Ruling::Erase)).await.unwrap();
    assert_eq!(subject.repeats(&one).await, expected);
    assert_eq!(subject.repeats(&subject.offer("nobody's", 9)).await, Repeats::default());
}

pub(super) async fn repeats_begin_anew_when_a_record_is_forgotten(subject: Subject) {
    let offer = subject.completed("k").await;
    subject.add(&offer, replays(3, START)).await;
    let refused = subject.amend(&offer, decide(77, Ruling::Forget)).await;
    assert_eq!(refused, Err(Refusal::Superseded));
    assert_eq!(subject.repeats(&offer).await, replays(3, START), "it was not forgotten");
    subject.amend(&offer, decide(offer.attempt_id, Ruling::Forget)).await.unwrap();
    assert_eq!(subject.repeats(&offer).await, Repeats::default());
    let again = subject.offer("k", 2);
    subject.grant(again.clone()).await;
    let refused = subject.amend(&again, decide(again.attempt_id, Ruling::Forget)).await;
    assert_eq!(refused, Err(Refusal::StillOpen));
    subject.add(&again, mismatches(1, START)).await;
    assert_eq!(subject.repeats(&again).await, mismatches(1, START));
}
