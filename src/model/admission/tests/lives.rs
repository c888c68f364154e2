//! Whole lives of one key: callers, owners, crashes and time in any order.
//!
//! The model's states are compared with an onlooker who has none. It keeps a
//! list of the attempts that were granted and what their owners have said, and
//! knows the promises; whatever the store is asked, both must say the same.

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::model::record::Refusal;

const RETENTION: Duration = Duration::from_millis(1_000);
const GUARD: Duration = Duration::from_millis(500);
const LEASE: Duration = Duration::from_millis(300);

#[derive(Debug, Clone)]
enum Step {
    /// Somebody sends one of two requests, to a route that forwards or not.
    Claim { other_request: bool, forward: bool, leased: bool },
    /// An owner, whether or not it still is one, says what it learned.
    Settle { owner: Owner, word: Word },
    /// An owner, whether or not it still is one, says that it is alive.
    Confirm { owner: Owner },
    /// The process ends and another one begins.
    Restart,
    /// Time passes, in milliseconds.
    Pass(u64),
    /// Somebody writes down what time has made of the row.
    Sweep,
}

/// Whoever was granted an attempt.
#[derive(Debug, Clone)]
enum Owner {
    Latest,
    Any(Index),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Word {
    Answered(u16),
    NotSent,
    Lost,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let word = prop_oneof![
        3 => prop::sample::select(vec![200, 201, 204, 302, 404, 500]).prop_map(Word::Answered),
        2 => Just(Word::NotSent),
        2 => Just(Word::Lost),
    ];
    let owner = prop_oneof![3 => Just(Owner::Latest), 1 => any::<Index>().prop_map(Owner::Any)].boxed();
    let step = prop_oneof![
        6 => (prop::bool::weighted(0.2), any::<bool>(), any::<bool>())
            .prop_map(|(other_request, forward, leased)| Step::Claim { other_request, forward, leased }),
        6 => (owner.clone(), word).prop_map(|(owner, word)| Step::Settle { owner, word }),
        3 => owner.prop_map(|owner| Step::Confirm { owner }),
        1 => Just(Step::Restart),
        // In steps that meet the ends of leases, retention and guard exactly.
        3 => (0..8u64).prop_map(|tenths| Step::Pass(tenths * 100)),
        1 => Just(Step::Sweep),
    ];
    prop::collection::vec(step, 1..40)
}

// ---- The onlooker ----------------------------------------------------------

/// An attempt, and what has been heard of it.
#[derive(Debug)]
struct Seen {
    token: AttemptToken,
    other_request: bool,
    term: Term,
    orphaned: bool,
    /// The owner's last word, as far as it was listened to.
    word: Option<(Word, Timestamp)>,
}

impl Seen {
    /// Everything but a believed "not sent" may have been acted on.
    fn may_have_been_acted_on(&self) -> bool {
        !matches!(self.word, Some((Word::NotSent, _)))
    }

    fn is_running(&self, now: Timestamp) -> bool {
        let believed = match self.term {
            Term::Process(_) => !self.orphaned,
            Term::Until(until) => now < until,
        };
        self.word.is_none() && believed
    }
}

/// What is known of the present record.
#[derive(Debug, Default)]
struct Life {
    attempts: Vec<Seen>,
    completed: Option<(Timestamp, StoredResponse)>,
}

impl Life {
    fn last(&self) -> &Seen {
        self.attempts.last().unwrap()
    }

    /// Whether an attempt before the last one may have been acted on.
    fn has_earlier_doubt(&self) -> bool {
        self.attempts.iter().rev().skip(1).any(Seen::may_have_been_acted_on)
    }

    /// Nothing was done, as far as anybody knows for certain.
    fn is_released(&self) -> bool {
        self.completed.is_none() && !self.attempts.iter().any(Seen::may_have_been_acted_on)
    }

    fn state(&self, now: Timestamp) -> StateName {
        match &self.completed {
            Some((at, _)) if now < at.after(RETENTION) => StateName::Completed,
            Some(_) => StateName::Expired,
            None if self.is_released() => StateName::Released,
            None if self.last().is_running(now) => StateName::InFlight,
            None => StateName::Unknown,
        }
    }

    fn is_over(&self, now: Timestamp) -> bool {
        match (&self.completed, self.last().word) {
            (Some((at, _)), _) => at.after(RETENTION).after(GUARD) <= now,
            (None, Some((_, at))) if self.is_released() => at.after(RETENTION) <= now,
            (None, _) => false,
        }
    }

    /// Whether the owner of `token` still speaks for the record.
    fn listens_to(&self, token: AttemptToken, now: Timestamp) -> bool {
        self.last().token == token && self.state(now) != StateName::Expired
    }

    /// Takes in what the owner of `token` says, if it is listened to.
    fn hear(&mut self, token: AttemptToken, word: Word, response: StoredResponse, now: Timestamp) -> bool {
        if !self.listens_to(token, now) {
            return false;
        }
        let earlier_doubt = self.has_earlier_doubt();
        let released = self.is_released();
        let Some(last) = self.attempts.last_mut() else { return false };
        match word {
            Word::Answered(_) if self.completed.is_some() => true,
            Word::NotSent | Word::Lost if self.completed.is_some() => false,
            Word::Lost if released => false,
            Word::NotSent if released => true,
            Word::Answered(status) if !earlier_doubt || (200..300).contains(&status) => {
                self.completed = Some((now, response));
                true
            }
            Word::Lost => {
                last.word.get_or_insert((word, now));
                true
            }
            Word::Answered(_) | Word::NotSent => {
                last.word = Some((word, now));
                true
            }
        }
    }
}

// ---- The world -------------------------------------------------------------

#[derive(Debug)]
struct World {
    now: Timestamp,
    run: u8,
    row: Option<Record>,
    life: Option<Life>,
    /// Every token that was ever granted, and whether under a lease.
    granted: Vec<(AttemptToken, bool)>,
    counter: u8,
}

impl World {
    fn new() -> Self {
        Self { now: START, run: 1, row: None, life: None, granted: Vec::new(), counter: 0 }
    }

    fn boot(&self) -> BootId {
        BootId::from_bytes([self.run; 8])
    }

    fn term(&self, leased: bool) -> Term {
        if leased { Term::Until(self.now.after(LEASE)) } else { Term::Process(self.boot()) }
    }

    fn count(&mut self) -> u8 {
        self.counter += 1;
        self.counter
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Claim { other_request, forward, leased } => self.claim(*other_request, *forward, *leased),
            Step::Settle { owner, word } => self.settle(owner, *word),
            Step::Confirm { owner } => self.confirm(owner),
            Step::Restart => self.restart(),
            Step::Pass(millis) => self.now = self.now.after(Duration::from_millis(*millis)),
            Step::Sweep => self.row = self.row.take().and_then(|row| row.at(self.now)),
        }
        if self.life.as_ref().is_some_and(|life| life.is_over(self.now)) {
            self.life = None;
        }
        self.agree();
    }

    /// The row and the onlooker tell the same story. In particular, a row that
    /// is gone had been completed or released, and for long enough.
    fn agree(&self) {
        let row = self.row.clone().and_then(|row| row.at(self.now));
        let state = row.as_ref().map(|row| row.state.name());
        assert_eq!(state, self.life.as_ref().map(|life| life.state(self.now)));
        let (Some(row), Some(life)) = (row, &self.life) else { return };
        let numbers: Vec<u32> = row.attempts.iter().map(|attempt| attempt.number).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "attempt numbers grow: {numbers:?}");
        assert_eq!(row.last_attempt() as usize, life.attempts.len(), "and count the attempts of this life");
        match &row.state {
            RecordState::InFlight(lease) => assert_eq!(lease.token, life.last().token),
            RecordState::Unknown(doubt) => assert_eq!(doubt.token, life.last().token),
            RecordState::Released(release) => assert_eq!(release.token, life.last().token),
            RecordState::Completed(completion) => assert_eq!(completion.token, life.last().token),
            RecordState::Expired(_) => {}
        }
    }

    fn claim(&mut self, other_request: bool, forward: bool, leased: bool) {
        let number = self.count();
        let presented = if other_request { different() } else { same() };
        let term = self.term(leased);
        let keeping = Keeping { retention: RETENTION, guard: GUARD, unknown_retention: None };
        let offer = Offer { forward_unknown: forward, node: self.boot(), keeping, ..offer(number, presented) };
        let (admission, written) = admit(self.row.clone(), &offer, term, ROOM, self.now);

        let state = self.life.as_ref().map(|life| life.state(self.now));
        match (state, self.life.as_ref()) {
            (None, _) | (_, None) => assert_eq!(admission, Admission::Granted(Grant { attempt: 1, over_doubt: false })),
            (Some(StateName::Released), Some(life)) => {
                let attempt = life.attempts.len() as u32 + 1;
                assert_eq!(admission, Admission::Granted(Grant { attempt, over_doubt: false }));
            }
            (Some(state), Some(life)) if life.last().other_request != other_request => {
                assert_eq!(admission, Admission::Mismatch(state));
            }
            (Some(StateName::InFlight), Some(_)) => assert!(matches!(admission, Admission::InFlight(_))),
            (Some(StateName::Unknown), Some(life)) if forward => {
                let attempt = life.attempts.len() as u32 + 1;
                assert_eq!(admission, Admission::Granted(Grant { attempt, over_doubt: true }));
            }
            (Some(StateName::Unknown), Some(_)) => assert!(matches!(admission, Admission::Unknown(_))),
            (Some(StateName::Expired), Some(_)) => assert_eq!(admission, Admission::Expired),
            (Some(StateName::Completed), Some(life)) => {
                let (at, response) = life.completed.clone().unwrap();
                let Admission::Replay(replay) = &admission else { panic!("{admission:?}") };
                assert_eq!((replay.at, &replay.response), (at, &response));
            }
        }

        let is_granted = matches!(admission, Admission::Granted(_));
        assert_eq!(is_granted, written.is_some(), "written if and only if granted");
        if let Some(record) = written {
            assert!(matches!(&record.state, RecordState::InFlight(lease) if lease.token == offer.token));
            self.row = Some(record);
            self.granted.push((offer.token, leased));
            let seen = Seen { token: offer.token, other_request, term, orphaned: false, word: None };
            self.life.get_or_insert_default().attempts.push(seen);
        }
    }

    /// As every store applies an event: to the row as it stands now.
    fn apply(&mut self, event: Event) -> Result<(), Refusal> {
        let mut record = self.row.clone().and_then(|row| row.at(self.now)).ok_or(Refusal::Superseded)?;
        record.apply(event, self.now)?;
        self.row = Some(record);
        Ok(())
    }

    /// The token of `owner`, and whether it was granted under a lease.
    fn token_of(&self, owner: &Owner) -> Option<(AttemptToken, bool)> {
        let latest = self.granted.last()?;
        match owner {
            Owner::Latest => Some(*latest),
            Owner::Any(index) => Some(*index.get(&self.granted)),
        }
    }

    fn settle(&mut self, owner: &Owner, word: Word) {
        let Some((token, _)) = self.token_of(owner) else { return };
        // No two answers are alike, so that a replay shows whose it is.
        let body = StoredBody::Whole(Bytes::from(format!("answer {}", self.count())));
        let response = |status| StoredResponse { status, body: body.clone(), ..answer(status) };
        let (settlement, response) = match word {
            Word::Answered(status) => (Settlement::Complete(response(status)), response(status)),
            Word::NotSent => (Settlement::Release(ReleaseReason::NotSent), response(0)),
            Word::Lost => (Settlement::Doubt(DoubtReason::ConnectionLost), response(0)),
        };
        let taken = self.apply(Event::Settle(token, settlement)).is_ok();
        let now = self.now;
        let heard = self.life.as_mut().is_some_and(|life| life.hear(token, word, response, now));
        assert_eq!(taken, heard, "{word:?}");
    }

    fn confirm(&mut self, owner: &Owner) {
        let Some((token, leased)) = self.token_of(owner) else { return };
        let term = self.term(leased);
        let taken = self.apply(Event::Confirm(token, term)).is_ok();
        let last = self.life.as_mut().filter(|life| life.completed.is_none()).and_then(|life| life.attempts.last_mut());
        match last {
            Some(last) if last.token == token && last.word.is_none() && !last.orphaned => {
                assert!(taken, "a heartbeat is believed while its attempt is the last and has not ended");
                last.term = term;
            }
            Some(_) | None => assert!(!taken, "a heartbeat of an attempt that has ended"),
        }
    }

    fn restart(&mut self) {
        let boot = self.boot();
        let taken = self.apply(Event::OwnerGone(boot)).is_ok();
        let last = self.life.as_mut().filter(|life| life.completed.is_none()).and_then(|life| life.attempts.last_mut());
        match last {
            Some(last) if last.word.is_none() && last.term == Term::Process(boot) => {
                assert!(taken, "what the process held is nobody's now");
                last.orphaned = true;
            }
            Some(_) | None => assert!(!taken, "the process held nothing"),
        }
        self.run += 1;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Never is a second attempt granted while an earlier one may have been
    /// acted on, unless the route forwards; never is anything replayed but the
    /// answer that completed the record; never does an open row vanish; never
    /// does an owner change what came after it.
    #[test]
    fn no_order_of_events_breaks_a_promise(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
        }
    }
}
