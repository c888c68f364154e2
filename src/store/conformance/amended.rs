//! What somebody else than its owner has to say about a record.

use super::*;
use crate::model::decision::DecisionKind;
use crate::model::inquiry::{Errand, Inconclusive, Needs, Occasion, Proof};
use crate::model::record::{Record, Source};

pub(in crate::store) const SETTLE: Duration = Duration::from_secs(90);

/// A lookup about the attempt of `token` that began at `began`.
pub(in crate::store) fn learn(token: AttemptToken, began: Timestamp, answer: Finding) -> Amendment {
    let asked = Asked {
        started_at: began,
        node: BootId::from_bytes([7; 8]),
        occasion: Occasion::Background,
        status: Some(200),
        answer,
        settle: SETTLE,
        response_timeout: MINUTE,
        next_at: began.after(MINUTE),
    };
    Amendment::Learn(token, Box::new(asked))
}

pub(in crate::store) fn decide(attempt: u64, ruling: Ruling) -> Amendment {
    let by = Author { operator: "ada".into(), reason: "seen in the ledger, ticket 7".into() };
    Amendment::Decide(attempt, ruling, by)
}

impl Subject {
    pub(super) async fn amend(&self, offer: &Offer, amendment: Amendment) -> Result<Arc<Record>, Refusal> {
        self.store.amend(offer.id(), amendment).await.unwrap()
    }

    /// A record that became unknown just now, with what a lookup needs.
    pub(super) async fn doubted(&self, key: &str, token: u8) -> Offer {
        let offer = Offer { needs: Some(Needs::Sealed(key.as_bytes().into())), ..self.offer(key, token) };
        self.grant(offer.clone()).await;
        let settled = self.settle(&offer, Settlement::Doubt(DoubtReason::TimedOut)).await;
        assert_eq!(settled, Ok(StateName::Unknown));
        offer
    }

    pub(super) async fn record(&self, offer: &Offer) -> Arc<Record> {
        self.store.read(offer.id()).await.unwrap().unwrap()
    }

    /// Since when the oldest unknown record is.
    async fn oldest(&self) -> Option<Timestamp> {
        self.store.lineages().await.unwrap();
        self.store.counts().oldest_unknown
    }
}

pub(super) async fn what_a_lookup_proves_is_kept(mut subject: Subject) {
    let began = START.after(SETTLE + Duration::from_millis(1));
    let cases = [
        (Finding::Found(answer(201, "found")), Proof::Found, StateName::Completed),
        (Finding::NotFound { bare: false }, Proof::NotFound, StateName::Released),
        (Finding::NotFound { bare: true }, Proof::NotFoundOnce, StateName::Unknown),
        (Finding::Different, Proof::Different, StateName::Unknown),
        (Finding::Nothing(Inconclusive::TooOld), Proof::Nothing(Inconclusive::TooOld), StateName::Unknown),
    ];
    let mut asked = Vec::new();
    for ((n, (finding, proof, state)), key) in (1..).zip(cases).zip(["a", "b", "c", "d", "e"]) {
        let offer = subject.doubted(key, n).await;
        let needs = subject.record(&offer).await.needs.clone();
        assert_eq!(needs, Some(Needs::Sealed(key.as_bytes().into())));
        asked.push((offer, finding, proof, state, needs));
    }
    subject.clock.advance(SETTLE * 2);
    let mut kept = Vec::new();
    for (offer, finding, proof, state, needs) in asked {
        let amended = subject.amend(&offer, learn(offer.token, began, finding)).await.unwrap();
        assert_eq!((amended.state.name(), amended.updated_at), (state, subject.clock.now()), "{proof:?}");
        assert_eq!(amended.inquiry.as_ref().unwrap().lookups.last().unwrap().finding, proof);
        assert_eq!(amended.needs, if state == StateName::Unknown { needs } else { None });
        assert_eq!(subject.record(&offer).await, amended, "what is told is what is read");
        kept.push((offer, proof, amended));
    }
    subject.restart().await;
    for (offer, proof, amended) in kept {
        assert_eq!(subject.record(&offer).await, amended, "and after a restart");
        let again = Offer { forward_unknown: true, ..subject.offer(&offer.key, 20) };
        match (proof, subject.claim(again).await) {
            (Proof::Found, Admission::Replay(completion)) => {
                assert_eq!((&completion.response, completion.source), (&answer(201, "found"), Source::Lookup));
            }
            (Proof::NotFound, Admission::Granted(grant)) => {
                assert_eq!(grant, Grant { attempt: 2, over_doubt: false });
            }
            (Proof::Different, Admission::Unknown(held)) => assert!(held.conflict && held.identical),
            (Proof::NotFoundOnce | Proof::Nothing(_), Admission::Granted(grant)) => {
                assert_eq!(grant, Grant { attempt: 2, over_doubt: true }, "as unknown as it was, and forwarded");
            }
            (proof, admission) => panic!("{proof:?}: {admission:?}"),
        }
    }
}

pub(super) async fn an_operators_decision_is_kept(mut subject: Subject) {
    let doubted = [subject.doubted("happened", 1).await, subject.doubted("did not", 2).await];
    let completed = [subject.completed("to erase").await, subject.completed("to forget").await];
    subject.clock.advance(MINUTE);
    let [happened, did_not] = &doubted;
    let [to_erase, to_forget] = &completed;
    for (offer, ruling, kind, state) in [
        (happened, Ruling::Completed(answer(200, "theirs")), DecisionKind::Completed, StateName::Completed),
        (did_not, Ruling::NotExecuted, DecisionKind::NotExecuted, StateName::Released),
        (to_erase, Ruling::Erase, DecisionKind::Erased, StateName::Completed),
    ] {
        let decided = subject.amend(offer, decide(offer.attempt_id, ruling)).await.unwrap();
        assert_eq!(decided.state.name(), state);
        let [decision] = &decided.decisions[..] else { panic!("{decided:?}") };
        assert_eq!((decision.kind, decision.attempt, decision.at), (kind, 1, START.after(MINUTE)));
        assert_eq!((&*decision.by.operator, &*decision.by.reason), ("ada", "seen in the ledger, ticket 7"));
        assert_eq!(decided.needs, None);
        assert_eq!(subject.record(offer).await, decided);
    }
    subject.amend(to_forget, decide(to_forget.attempt_id, Ruling::Forget)).await.unwrap();
    for restarts in 0..2 {
        assert_eq!(subject.store.read(to_forget.id()).await.unwrap(), None);
        let replay = async |offer: &Offer| match subject.claim(subject.offer(&offer.key, 20)).await {
            Admission::Replay(completion) => completion,
            other => panic!("{other:?}"),
        };
        let theirs = replay(happened).await;
        assert_eq!((&theirs.response, theirs.source), (&answer(200, "theirs"), Source::Operator));
        assert_eq!(theirs.boundaries.expires_at, START.after(MINUTE + HOUR), "counted from the decision");
        let erased = replay(to_erase).await;
        assert_eq!(erased.response, answer(200, "").without_body(NotStored::Erased));
        assert_eq!((erased.source, erased.at), (Source::Exchange, START));
        let other = Offer { presented: presented("other parameters"), ..subject.offer(&to_erase.key, 21) };
        assert_eq!(subject.claim(other).await, Admission::Mismatch(StateName::Completed), "its key stays used");
        assert_eq!(subject.record(did_not).await.decisions.len(), 1, "after {restarts} restarts");
        subject.restart().await;
    }
    assert_eq!(subject.grant(subject.offer("did not", 30)).await, Grant { attempt: 2, over_doubt: false });
    let anew = Offer { presented: presented("other parameters"), ..subject.offer("to forget", 31) };
    assert_eq!(subject.grant(anew.clone()).await, Grant { attempt: 1, over_doubt: false }, "its key is new");
    assert_eq!(subject.record(&anew).await.decisions, []);
}

pub(super) async fn an_amendment_of_something_else_changes_nothing(subject: Subject) {
    let nobodys = subject.offer("nobody's", 9);
    let (doubted, completed) = (subject.doubted("doubted", 1).await, subject.completed("completed").await);
    let running = subject.offer("running", 2);
    subject.grant(running.clone()).await;
    let until = START.after(HOUR);
    let findings = || [Finding::Found(answer(200, "x")), Finding::NotFound { bare: false }, Finding::Different];
    let rulings = || [Ruling::Completed(answer(200, "x")), Ruling::NotExecuted, Ruling::Erase, Ruling::Forget];
    for offer in [&nobodys, &doubted, &completed, &running] {
        let before = subject.store.read(offer.id()).await.unwrap();
        let refused = async |amendment, why| {
            assert_eq!(subject.amend(offer, amendment).await, Err(why), "{}", offer.key);
            assert_eq!(subject.store.read(offer.id()).await.unwrap(), before, "{}", offer.key);
        };
        for finding in findings() {
            refused(learn(token(77), until, finding), Refusal::Superseded).await;
        }
        refused(Amendment::Undertake(token(77), Errand::Lookup, until), Refusal::Superseded).await;
        refused(Amendment::Told(token(77)), Refusal::Superseded).await;
        for ruling in rulings() {
            refused(decide(77, ruling), Refusal::Superseded).await;
        }
    }
    for (offer, why) in [(&running, Refusal::NotUnknown), (&completed, Refusal::NotUnknown)] {
        let before = subject.record(offer).await;
        for ruling in [Ruling::Completed(answer(200, "x")), Ruling::NotExecuted] {
            assert_eq!(subject.amend(offer, decide(offer.attempt_id, ruling)).await, Err(why));
        }
        for finding in findings() {
            assert_eq!(subject.amend(offer, learn(offer.token, until, finding)).await, Err(Refusal::Superseded));
        }
        assert_eq!(subject.record(offer).await, before);
    }
    for offer in [&running, &doubted] {
        let before = subject.record(offer).await;
        for ruling in [Ruling::Erase, Ruling::Forget] {
            assert_eq!(subject.amend(offer, decide(offer.attempt_id, ruling)).await, Err(Refusal::StillOpen));
        }
        assert_eq!(subject.record(offer).await, before);
    }
    // And the first of two attempts is nobody's business any more.
    let next = Offer { forward_unknown: true, ..subject.offer("doubted", 3) };
    subject.grant(next.clone()).await;
    subject.settle(&next, Settlement::Doubt(DoubtReason::ConnectionLost)).await.unwrap();
    let ruled = subject.amend(&doubted, decide(doubted.attempt_id, Ruling::NotExecuted)).await;
    assert_eq!(ruled, Err(Refusal::Superseded));
    let found = subject.amend(&doubted, learn(doubted.token, until, Finding::NotFound { bare: false })).await;
    assert_eq!(found, Err(Refusal::Superseded));
    subject.amend(&next, decide(next.attempt_id, Ruling::NotExecuted)).await.unwrap();
}

pub(super) async fn one_is_on_an_errand_at_a_time(mut subject: Subject) {
    let offer = subject.doubted("k", 1).await;
    let undertake = |errand, from: Timestamp| Amendment::Undertake(offer.token, errand, from.after(MINUTE));
    for errand in [Errand::Lookup, Errand::Notice] {
        subject.amend(&offer, undertake(errand, START)).await.unwrap();
    }
    subject.restart().await;
    subject.clock.advance(MINUTE - Duration::from_millis(1));
    for errand in [Errand::Lookup, Errand::Notice] {
        let taken = subject.amend(&offer, undertake(errand, subject.clock.now())).await;
        assert_eq!(taken, Err(Refusal::Undertaken));
    }
    subject.clock.advance(Duration::from_millis(1));
    for errand in [Errand::Lookup, Errand::Notice] {
        subject.amend(&offer, undertake(errand, subject.clock.now())).await.unwrap();
    }
    subject.amend(&offer, Amendment::Told(offer.token)).await.unwrap();
    subject.clock.advance(HOUR);
    subject.restart().await;
    let again = subject.amend(&offer, undertake(Errand::Notice, subject.clock.now())).await;
    assert_eq!(again, Err(Refusal::Undertaken), "it is told once");
    assert_eq!(subject.record(&offer).await.inquiry.as_ref().unwrap().told_at, Some(START.after(MINUTE)));
}

/// However many ask at once, one gets it.
pub(super) async fn of_many_that_set_out_at_once_one_does(subject: Subject) {
    let offer = subject.doubted("k", 1).await;
    let tries: Vec<_> = (0..20)
        .map(|_| {
            let (store, id) = (Arc::clone(&subject.store), offer.id());
            let undertake = Amendment::Undertake(offer.token, Errand::Lookup, START.after(MINUTE));
            tokio::spawn(async move { store.amend(id, undertake).await })
        })
        .collect();
    let mut on_it = 0;
    for tried in tries {
        match tried.await.unwrap() {
            Ok(Ok(_)) => on_it += 1,
            Ok(Err(refusal)) => assert_eq!(refusal, Refusal::Undertaken),
            // Where the row changed each time that it was looked at, it says so.
            Err(error) => assert!(matches!(error, crate::store::StoreError::Unavailable(_)), "{error}"),
        }
    }
    assert_eq!(on_it, 1);
}

pub(super) async fn counts_follow_what_lookups_and_operators_do(mut subject: Subject) {
    let mut offers = Vec::new();
    for (n, key) in (1..).zip(["a", "b", "c", "d"]) {
        offers.push(subject.doubted(key, n).await);
        subject.clock.advance(MINUTE);
    }
    let since = |n: u32| Some(START.after(MINUTE * n));
    assert_eq!((subject.open().await, subject.oldest().await), ((0, 4), since(0)));
    let [a, b, c, d] = &offers[..] else { unreachable!() };
    let now = subject.clock.now();
    subject.amend(b, learn(b.token, now, Finding::Nothing(Inconclusive::Failed))).await.unwrap();
    subject.amend(a, Amendment::Undertake(a.token, Errand::Lookup, now.after(HOUR))).await.unwrap();
    assert_eq!((subject.open().await, subject.oldest().await), ((0, 4), since(0)), "as unknown as before");
    subject.amend(a, learn(a.token, now, Finding::Found(answer(200, "a")))).await.unwrap();
    assert_eq!((subject.open().await, subject.oldest().await), ((0, 3), since(1)));
    subject.amend(c, decide(c.attempt_id, Ruling::NotExecuted)).await.unwrap();
    assert_eq!((subject.open().await, subject.oldest().await), ((0, 2), since(1)));
    subject.restart().await;
    assert_eq!((subject.open().await, subject.oldest().await), ((0, 2), since(1)));
    subject.amend(b, decide(b.attempt_id, Ruling::Completed(answer(200, "b")))).await.unwrap();
    assert_eq!((subject.open().await, subject.oldest().await), ((0, 1), since(3)));
    subject.settle(d, Settlement::Complete(answer(200, "d"))).await.unwrap();
    assert_eq!((subject.open().await, subject.oldest().await), ((0, 0), None));
}

pub(super) async fn an_unknown_record_that_was_resolved_frees_a_place(subject: Subject) {
    let caps = UnknownCaps { per_scope: 1, per_route: 1 };
    let capped = |key: &str, n| Offer { caps, ..subject.offer(key, n) };
    let now = START.after(HOUR);
    let ends: [fn(&Offer, Timestamp) -> Amendment; 4] = [
        |offer, now| learn(offer.token, now, Finding::Found(answer(200, "x"))),
        |offer, now| learn(offer.token, now, Finding::NotFound { bare: false }),
        |offer, _| decide(offer.attempt_id, Ruling::Completed(answer(200, "x"))),
        |offer, _| decide(offer.attempt_id, Ruling::NotExecuted),
    ];
    for (n, end) in (1..).zip(ends) {
        let doubted = subject.doubted(&format!("doubted {n}"), n).await;
        let new = capped(&format!("new {n}"), 10 + n);
        assert_eq!(subject.claim(new.clone()).await, Admission::Saturated);
        subject.amend(&doubted, end(&doubted, now)).await.unwrap();
        subject.grant(new.clone()).await;
        subject.settle(&new, Settlement::Complete(answer(200, "new"))).await.unwrap();
    }
}

pub(super) async fn the_owners_late_answer_outdoes_a_mistake_and_no_decision_else(mut subject: Subject) {
    let [opened, absent, ended] =
        [subject.doubted("opened", 1).await, subject.doubted("absent", 2).await, subject.doubted("ended", 3).await];
    subject.amend(&opened, decide(opened.attempt_id, Ruling::NotExecuted)).await.unwrap();
    let nothing = Finding::NotFound { bare: false };
    subject.amend(&absent, learn(absent.token, START.after(HOUR), nothing)).await.unwrap();
    subject.amend(&ended, decide(ended.attempt_id, Ruling::Completed(answer(200, "theirs")))).await.unwrap();
    subject.reopen(subject.boot).await;
    let late = Settlement::Complete(answer(500, "late truth"));
    for offer in [&opened, &absent] {
        assert_eq!(subject.settle(offer, late.clone()).await, Ok(StateName::Completed));
        match subject.claim(subject.offer(&offer.key, 20)).await {
            Admission::Replay(completion) => assert_eq!(completion.response, answer(500, "late truth")),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(subject.settle(&ended, late).await, Err(Refusal::Superseded));
    match subject.claim(subject.offer("ended", 21)).await {
        Admission::Replay(completion) => assert_eq!(completion.response, answer(200, "theirs")),
        other => panic!("{other:?}"),
    }
}

pub(super) async fn a_lapsed_claim_is_asked_about_and_decided(subject: Subject) {
    let [asked, decided] = [subject.offer("asked", 1), subject.offer("decided", 2)];
    subject.grant(asked.clone()).await;
    subject.grant(decided.clone()).await;
    subject.clock.advance(HOUR);
    let found = subject.amend(&asked, learn(asked.token, START, Finding::Found(answer(200, "x")))).await;
    let ruled = subject.amend(&decided, decide(decided.attempt_id, Ruling::NotExecuted)).await;
    if subject.kind.leases {
        assert_eq!(found.unwrap().state.name(), StateName::Completed);
        assert_eq!(ruled.unwrap().state.name(), StateName::Released);
        let confirmed = subject.store.confirm(decided.id(), decided.token, HOUR).await.unwrap();
        assert_eq!(confirmed, Err(Refusal::Superseded), "its owner comes too late");
    } else {
        assert_eq!((found, ruled), (Err(Refusal::Superseded), Err(Refusal::NotUnknown)));
    }
}

pub(super) async fn lineages_know_how_long_an_amended_record_lives(mut subject: Subject) {
    let [happened, did_not] = [subject.doubted("happened", 1).await, subject.doubted("did not", 2).await];
    for (offer, ruling) in
        [(&did_not, Ruling::NotExecuted), (&happened, Ruling::Completed(answer(200, "late decision")))]
    {
        subject.clock.advance(HOUR * 48);
        subject.amend(offer, decide(offer.attempt_id, ruling)).await.unwrap();
        let end = subject.clock.now().after(HOUR);
        // Where it is written beside the path, it is there soon.
        let known = async {
            loop {
                let [usage] = &subject.store.lineages().await.unwrap()[..] else { panic!("one lineage") };
                if usage.live_until >= end {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), known).await.expect("until its retention is over");
    }
    let end = subject.clock.now().after(HOUR);
    subject.restart().await;
    let [usage] = &subject.store.lineages().await.unwrap()[..] else { panic!("one lineage") };
    assert!(usage.live_until >= end && usage.open == 0, "{usage:?}");
}
