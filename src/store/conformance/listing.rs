//! Looking through records.

use std::collections::BTreeSet;

use super::amended::decide;
use super::*;
use crate::model::decision::Ruling;
use crate::model::record::Record;
use crate::store::list::{Cursor, Filter, NoSuchPlace, Page, Query};

impl Subject {
    async fn page(&self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Page {
        let query = Query { filter: filter.clone(), after, limit };
        let page = self.store.list(query).await.unwrap().unwrap();
        assert!(page.records.len() <= limit, "{} records of {limit}", page.records.len());
        page
    }

    /// All records that `filter` says, page by page.
    async fn all(&self, filter: &Filter, limit: usize) -> Vec<Arc<Record>> {
        let (mut all, mut after, mut places) = (Vec::new(), None, BTreeSet::new());
        loop {
            let page = self.page(filter, after, limit).await;
            all.extend(page.records);
            after = match page.next {
                None => return all,
                Some(next) => Some(next),
            };
            let place = after.as_ref().map(|next| next.0.clone());
            assert!(places.insert(place.clone()), "it goes in circles at {place:?}");
        }
    }

    /// The keys of all records that `filter` says, sorted; each is met once.
    pub(super) async fn keys(&self, filter: Filter) -> Vec<String> {
        let mut keys: Vec<_> = self.all(&filter, 3).await.iter().map(|record| record.key.to_string()).collect();
        keys.sort_unstable();
        keys
    }

    async fn keys_of(&self, state: StateName) -> Vec<String> {
        self.keys(Filter { state: Some(state), ..Filter::default() }).await
    }
}

/// Records of every state: so many of each.
async fn some_of_each(subject: &Subject, count: u8) {
    for n in 0..count {
        let settlements = [
            ("running", None),
            ("completed", Some(Settlement::Complete(answer(200, "x")))),
            ("unknown", Some(Settlement::Doubt(DoubtReason::TimedOut))),
            ("released", Some(Settlement::Release(ReleaseReason::NotSent))),
        ];
        for (state, settlement) in settlements {
            let offer = subject.offer(&format!("{state} {n:02}"), n + 1);
            subject.grant(offer.clone()).await;
            if let Some(settlement) = settlement {
                subject.settle(&offer, settlement).await.unwrap().as_str();
            }
        }
    }
}

pub(super) async fn pages_of_any_size_hold_every_record_once(mut subject: Subject) {
    assert_eq!(subject.keys(Filter::default()).await, Vec::<String>::new());
    some_of_each(&subject, 6).await;
    let expected = |states: &[&str]| {
        let of_state = |state: &&str| -> Vec<String> { (0..6).map(|n| format!("{state} {n:02}")).collect() };
        let mut expected: Vec<String> = states.iter().flat_map(of_state).collect();
        expected.sort_unstable();
        expected
    };
    let everything = ["running", "completed", "unknown", "released"];
    // What one run leaves in flight, the next one of a store without leases
    // finds unknown: so they are looked at before the restart.
    for limit in (1..=8).chain([23, 24, 25, 1000]) {
        for (state, states) in [
            (None, &everything[..]),
            (Some(StateName::InFlight), &["running"]),
            (Some(StateName::Unknown), &["unknown"]),
            (Some(StateName::Completed), &["completed"]),
            (Some(StateName::Released), &["released"]),
            (Some(StateName::Expired), &[]),
        ] {
            let filter = Filter { state, ..Filter::default() };
            let mut keys: Vec<_> = subject.all(&filter, limit).await.iter().map(|one| one.key.to_string()).collect();
            keys.sort_unstable();
            assert_eq!(keys, expected(states), "{state:?} in pages of {limit}");
        }
    }
    subject.restart().await;
    assert_eq!(subject.keys(Filter::default()).await, expected(&everything));
}

pub(super) async fn a_listed_record_is_the_one_that_is_read(subject: Subject) {
    some_of_each(&subject, 2).await;
    let listed = subject.all(&Filter::default(), 5).await;
    assert_eq!(listed.len(), 8);
    for record in listed {
        assert_eq!(subject.store.read(record.id()).await.unwrap(), Some(record));
    }
}

/// What a page may be asked for.
pub(super) async fn every_filter_finds_what_it_says(subject: Subject) {
    let scope = |name: &str| ScopeDigest::of(&[Part::Text(name.into())]);
    let make = |route: &str, key: &str, tenant: &str, n: u8| Offer {
        identity: Identity::of(route, &[Part::Text(tenant.into())], &[Part::Text(key.into())]),
        route: route.into(),
        scope: scope(tenant),
        ..subject.offer(key, n)
    };
    // The same key in two routes and in two scopes.
    let offers = [
        make("orders", "k1", "ada", 1),
        make("orders", "k1", "bob", 2),
        make("refunds", "k1", "ada", 3),
        make("orders", "k2", "ada", 4),
        make("refunds", "k3", "bob", 5),
    ];
    for offer in &offers {
        subject.grant(offer.clone()).await;
        let settlement = match offer.attempt_id {
            2 | 5 => Settlement::Complete(answer(200, &offer.key)),
            _ => Settlement::Doubt(DoubtReason::TimedOut),
        };
        subject.settle(offer, settlement).await.unwrap();
        subject.clock.advance(MINUTE);
    }
    let by = |operator: &str, reason: &str| Author { operator: operator.into(), reason: reason.into() };
    let decide = async |n: usize, ruling, by| {
        let offer: &Offer = &offers[n - 1];
        subject.amend(offer, Amendment::Decide(offer.attempt_id, ruling, by)).await.unwrap();
    };
    decide(1, Ruling::Completed(answer(201, "x")), by("grace", "ticket 77: it is in the ledger")).await;
    decide(2, Ruling::Erase, by("linus", "ticket 78")).await;
    decide(2, Ruling::Erase, by("grace", "again")).await;
    let found = async |filter: Filter| {
        let mut ids: Vec<u64> = subject.all(&filter, 2).await.iter().map(|record| record.attempts[0].id).collect();
        ids.sort_unstable();
        ids
    };
    let any = Filter::default;
    let route = |name: &str| Some(Box::<str>::from(name));
    let cases: Vec<(Filter, &[u64])> = vec![
        (any(), &[1, 2, 3, 4, 5]),
        (Filter { state: Some(StateName::Unknown), ..any() }, &[3, 4]),
        (Filter { state: Some(StateName::Completed), ..any() }, &[1, 2, 5]),
        (Filter { state: Some(StateName::InFlight), ..any() }, &[]),
        (Filter { route: route("orders"), ..any() }, &[1, 2, 4]),
        (Filter { route: route("order"), ..any() }, &[]),
        (Filter { key: route("k1"), ..any() }, &[1, 2, 3]),
        (Filter { key: route("k"), ..any() }, &[]),
        (Filter { scope: Some(scope("ada")), ..any() }, &[1, 3, 4]),
        (Filter { scope: Some(scope("eve")), ..any() }, &[]),
        (Filter { route: route("orders"), key: route("k1"), ..any() }, &[1, 2]),
        (Filter { route: route("orders"), key: route("k1"), scope: Some(scope("bob")), ..any() }, &[2]),
        (Filter { begun_by: Some(START.before(MINUTE)), ..any() }, &[]),
        (Filter { begun_by: Some(START), ..any() }, &[1]),
        (Filter { begun_by: Some(START.after(MINUTE * 2)), ..any() }, &[1, 2, 3]),
        (Filter { begun_by: Some(START.after(MINUTE * 2)), state: Some(StateName::Unknown), ..any() }, &[3]),
        (Filter { operator: route("grace"), ..any() }, &[1, 2]),
        (Filter { operator: route("linus"), ..any() }, &[2]),
        (Filter { operator: route("grac"), ..any() }, &[]),
        (Filter { note: route("ticket"), ..any() }, &[1, 2]),
        (Filter { note: route("in the ledger"), ..any() }, &[1]),
        (Filter { note: route("ticket"), operator: route("linus"), ..any() }, &[2]),
        (Filter { state: Some(StateName::Unknown), route: route("refunds"), key: route("k1"), ..any() }, &[3]),
        (Filter { state: Some(StateName::Completed), key: route("k1"), ..any() }, &[1, 2]),
    ];
    for (filter, expected) in cases {
        assert_eq!(found(filter.clone()).await, expected, "{filter:?}");
    }
}

pub(super) async fn states_are_judged_when_they_are_listed(subject: Subject) {
    let keep = |offer: Offer, guard, unknown_retention| {
        let keeping = Keeping { guard, unknown_retention, ..offer.keeping };
        Offer { keeping, ..offer }
    };
    let guarded = keep(subject.offer("guarded", 1), HOUR, None);
    let plain = subject.offer("plain", 2);
    let released = subject.offer("released", 3);
    let given_up = keep(subject.offer("given up", 4), HOUR, Some(MINUTE));
    let doubted = subject.offer("doubted", 5);
    let running = subject.offer("running", 6);
    for (offer, settlement) in [
        (&guarded, Some(Settlement::Complete(answer(200, "x")))),
        (&plain, Some(Settlement::Complete(answer(200, "x")))),
        (&released, Some(Settlement::Release(ReleaseReason::NotSent))),
        (&given_up, Some(Settlement::Doubt(DoubtReason::TimedOut))),
        (&doubted, Some(Settlement::Doubt(DoubtReason::TimedOut))),
        (&running, None),
    ] {
        subject.grant(offer.clone()).await;
        if let Some(settlement) = settlement {
            subject.settle(offer, settlement).await.unwrap();
        }
    }
    let [none, keys]: [Vec<String>; 2] =
        [vec![], ["doubted", "given up", "guarded", "plain", "released", "running"].map(String::from).to_vec()];
    assert_eq!(subject.keys(Filter::default()).await, keys);
    subject.clock.advance(MINUTE);
    assert_eq!(subject.keys_of(StateName::Unknown).await, ["doubted"]);
    assert_eq!(subject.keys_of(StateName::Expired).await, ["given up"]);
    subject.clock.advance(HOUR - MINUTE);
    // Retention is over, and the lease where there is one. Nothing was written
    // since.
    assert_eq!(subject.keys_of(StateName::Completed).await, none);
    assert_eq!(subject.keys_of(StateName::Released).await, none);
    assert_eq!(subject.keys_of(StateName::Expired).await, ["given up", "guarded"]);
    if subject.kind.leases {
        assert_eq!(subject.keys_of(StateName::Unknown).await, ["doubted", "running"]);
        assert_eq!(subject.keys_of(StateName::InFlight).await, none);
    } else {
        assert_eq!(subject.keys_of(StateName::Unknown).await, ["doubted"]);
        assert_eq!(subject.keys_of(StateName::InFlight).await, ["running"]);
    }
    let left = ["doubted", "given up", "guarded", "running"];
    assert_eq!(subject.keys(Filter::default()).await, left, "what has vanished is not there");
    subject.clock.advance(HOUR * 2);
    assert_eq!(subject.keys(Filter::default()).await, ["doubted", "running"]);
}

pub(super) async fn what_was_forgotten_is_not_listed(subject: Subject) {
    let offer = subject.completed("k").await;
    subject.completed("another").await;
    subject.amend(&offer, decide(offer.attempt_id, Ruling::Forget)).await.unwrap();
    assert_eq!(subject.keys(Filter::default()).await, ["another"]);
    let by_key = Filter { key: Some("k".into()), ..Filter::default() };
    assert_eq!(subject.keys(by_key).await, Vec::<String>::new());
}

/// Between two pages others complete, vanish, come and are amended.
pub(super) async fn what_stands_still_is_met_once_while_others_change(mut subject: Subject) {
    const STILL: u8 = 40;
    for (state, limit) in
        [(None, 1), (None, 4), (None, 17), (Some(StateName::Unknown), 3), (Some(StateName::Completed), 5)]
    {
        let name = |kind: &str, n: u8| format!("{limit}{state:?} {kind} {n:02}");
        let mut others = Vec::new();
        for n in 0..STILL {
            let settlement = match n % 2 {
                0 => Settlement::Doubt(DoubtReason::TimedOut),
                _ => Settlement::Complete(answer(200, "x")),
            };
            for kind in ["still", "other"] {
                let offer = subject.offer(&name(kind, n), n + 1);
                subject.grant(offer.clone()).await;
                subject.settle(&offer, settlement.clone()).await.unwrap();
                if kind == "other" {
                    others.push((offer, n % 2 == 0));
                }
            }
        }
        let filter = Filter { state, ..Filter::default() };
        let (mut met, mut after, mut fresh) = (Vec::new(), None, 0);
        loop {
            let page = subject.page(&filter, after, limit).await;
            met.extend(page.records.iter().map(|record| record.key.to_string()));
            after = page.next;
            if after.is_none() {
                break;
            }
            for (offer, is_unknown) in others.drain(others.len().saturating_sub(3)..) {
                if is_unknown {
                    subject.amend(&offer, decide(offer.attempt_id, Ruling::Completed(answer(200, "y")))).await.unwrap();
                } else {
                    subject.amend(&offer, decide(offer.attempt_id, Ruling::Forget)).await.unwrap();
                }
            }
            if fresh < 30 {
                fresh += 1;
                subject.completed(&name("fresh", fresh)).await;
            }
            if fresh == 10 {
                // A place is a place for the next run as well.
                subject.reopen(subject.boot).await;
            }
        }
        let prefix = name("still", 0).trim_end_matches(" 00").to_owned();
        let mut still: Vec<_> = met.into_iter().filter(|key| key.starts_with(&prefix)).collect();
        still.sort_unstable();
        let is_meant = |n: &u8| match state {
            Some(StateName::Unknown) => n.is_multiple_of(2),
            Some(StateName::Completed) => n % 2 == 1,
            _ => true,
        };
        let expected: Vec<_> = (0..STILL).filter(is_meant).map(|n| name("still", n)).collect();
        assert_eq!(still, expected, "{state:?} in pages of {limit}");
    }
}

pub(super) async fn a_cursor_of_rubbish_is_no_place(subject: Subject) {
    some_of_each(&subject, 2).await;
    for rubbish in
        ["", " ", "no place", "-1", "1.5", "+1", "||", "a|b|c", "a|1|b", "|1", "18446744073709551616", "\u{0}", "ä"]
    {
        for state in [None, Some(StateName::Unknown), Some(StateName::Completed)] {
            let filter = Filter { state, ..Filter::default() };
            let query = Query { filter, after: Some(Cursor(rubbish.into())), limit: 3 };
            let answered = subject.store.list(query).await.unwrap();
            assert!(matches!(answered, Err(NoSuchPlace)), "{rubbish:?}: {answered:?}");
        }
    }
}
