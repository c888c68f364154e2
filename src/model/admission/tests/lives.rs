//! Whole lives of one key: callers, owners, crashes and time in any order.
//!
//! The model's states are compared with an onlooker who has none. It keeps a
//! list of the attempts that were granted and what their owners have said, and
//! knows the promises; whatever the store is asked, both must say the same.

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::model::decision::{Amendment, Author, DECISIONS_KEPT, Ruling};
use crate::model::inquiry::{Asked, Errand, Finding, Inconclusive, LOOKUPS_KEPT, Occasion, Proof};
use crate::model::record::{Refusal, Source};
use crate::model::response::NotStored;

const RETENTION: Duration = Duration::from_millis(1_000);
const GUARD: Duration = Duration::from_millis(500);
const LEASE: Duration = Duration::from_millis(300);
const SETTLE: Duration = Duration::from_millis(200);
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(100);

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
    /// Somebody sets out to ask the destination, or to tell of the record.
    Undertake { owner: Owner, errand: Errand },
    /// A lookup about somebody's attempt is over that began so long ago.
    Look { owner: Owner, ago: u64, answer: Answer },
    /// An operator decides about somebody's attempt.
    Decide { owner: Owner, ruling: Decided },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Answer {
    Found,
    Different,
    NotFound { bare: bool },
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Decided {
    Completed,
    NotExecuted,
    Erase,
    Forget,
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
    let look = prop_oneof![
        1 => Just(Answer::Found),
        1 => Just(Answer::Different),
        3 => any::<bool>().prop_map(|bare| Answer::NotFound { bare }),
        1 => Just(Answer::Nothing),
    ];
    let ruling = prop::sample::select(vec![Decided::Completed, Decided::NotExecuted, Decided::Erase, Decided::Forget]);
    let step = prop_oneof![
        6 => (prop::bool::weighted(0.2), any::<bool>(), any::<bool>())
            .prop_map(|(other_request, forward, leased)| Step::Claim { other_request, forward, leased }),
        6 => (owner.clone(), word).prop_map(|(owner, word)| Step::Settle { owner, word }),
        3 => owner.clone().prop_map(|owner| Step::Confirm { owner }),
        1 => Just(Step::Restart),
        // In steps that meet the ends of leases, retention and guard exactly.
        3 => (0..8u64).prop_map(|tenths| Step::Pass(tenths * 100)),
        1 => Just(Step::Sweep),
        1 => (owner.clone(), prop_oneof![Just(Errand::Lookup), Just(Errand::Notice)])
            .prop_map(|(owner, errand)| Step::Undertake { owner, errand }),
        4 => (owner.clone(), 0..6u64, look)
            .prop_map(|(owner, tenths, answer)| Step::Look { owner, ago: tenths * 100, answer }),
        2 => (owner, ruling).prop_map(|(owner, ruling)| Step::Decide { owner, ruling }),
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
    /// When its process ended, if nobody had heard of it before.
    orphaned_at: Timestamp,
    /// A lookup proved, or an operator said, that nothing came of it.
    cleared: bool,
}

impl Seen {
    /// Everything but a believed "not sent" may have been acted on.
    fn may_have_been_acted_on(&self) -> bool {
        !self.cleared && !matches!(self.word, Some((Word::NotSent, _)))
    }

    /// The latest that it can have ended.
    fn latest_end(&self) -> Timestamp {
        match (self.word, self.term) {
            // A process that is over has ended what it was at.
            (Some((Word::Lost, _)), _) if self.orphaned => self.orphaned_at,
            (Some((_, at)), _) => at,
            (None, Term::Until(lapses)) => lapses.after(RESPONSE_TIMEOUT),
            (None, Term::Process(_)) => self.orphaned_at,
        }
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
    completed: Option<(Timestamp, StoredResponse, Source)>,
    /// Since when it is known that nothing came of any attempt.
    open_since: Option<Timestamp>,
    /// Something different was found about the last attempt.
    conflict: bool,
    /// When the lookups about the last attempt began of which a bare status said
    /// that nothing is there.
    bare: Vec<Timestamp>,
    /// Until when somebody is on which errand.
    asking: Option<Timestamp>,
    telling: Option<Timestamp>,
    decisions: usize,
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
            Some((at, ..)) if now < at.after(RETENTION) => StateName::Completed,
            Some(_) => StateName::Expired,
            None if self.is_released() => StateName::Released,
            None if self.last().is_running(now) => StateName::InFlight,
            None => StateName::Unknown,
        }
    }

    fn is_over(&self, now: Timestamp) -> bool {
        match (&self.completed, self.open_since) {
            (Some((at, ..)), _) => at.after(RETENTION).after(GUARD) <= now,
            (None, Some(since)) => since.after(RETENTION) <= now,
            (None, None) => false,
        }
    }

    /// Whether nothing can come of any attempt any more, for one who began to look
    /// then and saw nothing: the promise, in the onlooker's own words.
    fn is_settled_for(&self, began: Timestamp) -> bool {
        let doubtful = self.attempts.iter().filter(|seen| seen.may_have_been_acted_on());
        doubtful.map(Seen::latest_end).all(|end| began > end.after(SETTLE))
    }

    /// Nothing came of any of them.
    fn clear(&mut self, now: Timestamp) {
        self.attempts.iter_mut().for_each(|seen| seen.cleared = true);
        self.open_since = Some(now);
        self.conflict = false;
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
            Word::Answered(_) if let Some((.., source)) = self.completed => source == Source::Exchange,
            Word::NotSent | Word::Lost if self.completed.is_some() => false,
            // Something is there: only an operator opens the key.
            Word::NotSent if self.conflict => false,
            Word::Lost if released => false,
            Word::NotSent if released => true,
            Word::Answered(status) if !earlier_doubt || (200..300).contains(&status) => {
                self.completed = Some((now, response, Source::Exchange));
                self.conflict = false;
                true
            }
            Word::Lost => {
                last.word.get_or_insert((word, now));
                true
            }
            Word::Answered(_) | Word::NotSent => {
                last.word = Some((word, now));
                if self.is_released() {
                    self.open_since = Some(now);
                }
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
            Step::Undertake { owner, errand } => self.undertake(owner, *errand),
            Step::Look { owner, ago, answer } => self.look(owner, *ago, *answer),
            Step::Decide { owner, ruling } => self.decide(owner, *ruling),
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
        assert_eq!(row.needs.is_some(), row.state.is_open(), "what lookups need is there for exactly as long");
        assert_eq!(row.has_conflict(), life.conflict);
        assert_eq!(row.decisions.len(), life.decisions.min(DECISIONS_KEPT));
        assert!(row.inquiry.as_ref().is_none_or(|inquiry| inquiry.lookups.len() <= LOOKUPS_KEPT));
        let numbers: Vec<u32> = row.attempts.iter().map(|attempt| attempt.number).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "attempt numbers grow: {numbers:?}");
        assert_eq!(row.last_attempt() as usize, life.attempts.len(), "and count the attempts of this life");
        match &row.state {
            RecordState::InFlight(lease) => assert_eq!(lease.token, life.last().token),
            RecordState::Unknown(doubt) => assert_eq!(doubt.token, life.last().token),
            RecordState::Released(release) => assert_eq!(release.token, life.last().token),
            RecordState::Completed(completion) => {
                assert_eq!(completion.token, life.last().token);
                let (at, response, source) = life.completed.clone().unwrap();
                assert_eq!((completion.at, &completion.response, completion.source), (at, &response, source));
            }
            RecordState::Expired(_) => {}
        }
    }

    fn claim(&mut self, other_request: bool, forward: bool, leased: bool) {
        let number = self.count();
        let presented = if other_request { different() } else { same() };
        let term = self.term(leased);
        let keeping = Keeping { retention: RETENTION, guard: GUARD, unknown_retention: None };
        let needs = Some(Needs::Plain([number].into()));
        let offer = Offer { forward_unknown: forward, node: self.boot(), keeping, needs, ..offer(number, presented) };
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
            (Some(StateName::Unknown), Some(life)) if forward && !life.conflict => {
                let attempt = life.attempts.len() as u32 + 1;
                assert_eq!(admission, Admission::Granted(Grant { attempt, over_doubt: true }));
            }
            (Some(StateName::Unknown), Some(life)) => {
                assert!(matches!(admission, Admission::Unknown(held) if held.conflict == life.conflict));
            }
            (Some(StateName::Expired), Some(_)) => assert_eq!(admission, Admission::Expired),
            (Some(StateName::Completed), Some(life)) => {
                let (at, response, _) = life.completed.clone().unwrap();
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
            let (token, now) = (offer.token, self.now);
            let seen =
                Seen { token, other_request, term, orphaned: false, word: None, orphaned_at: now, cleared: false };
            let life = self.life.take().unwrap_or_default();
            let mut attempts = life.attempts;
            attempts.push(seen);
            self.life = Some(Life { attempts, decisions: life.decisions, ..Life::default() });
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
        let response = match word {
            Word::Answered(status) => self.answer(status),
            Word::NotSent | Word::Lost => answer(0),
        };
        let settlement = match word {
            Word::Answered(_) => Settlement::Complete(response.clone()),
            Word::NotSent => Settlement::Release(ReleaseReason::NotSent),
            Word::Lost => Settlement::Doubt(DoubtReason::ConnectionLost),
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
        // Nor is one that a lookup or an operator has had a word about.
        let undecided = |life: &&mut Life| life.completed.is_none() && life.open_since.is_none() && !life.conflict;
        let last = self.life.as_mut().filter(undecided).and_then(|life| life.attempts.last_mut());
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
                last.orphaned_at = self.now;
            }
            Some(_) | None => assert!(!taken, "the process held nothing"),
        }
        self.run += 1;
    }

    /// As every store applies what others than the owner say.
    fn amend(&mut self, amendment: Amendment) -> Result<(), Refusal> {
        let before = self.row.clone().and_then(|row| row.at(self.now)).ok_or(Refusal::Superseded)?;
        let mut record = before.clone();
        let amended = record.amend(amendment, self.now);
        if amended.is_err() {
            assert_eq!(record, before, "a refusal changes nothing");
        }
        self.row = Some(record);
        amended
    }

    /// The life, if the last attempt of it has that token and is in doubt.
    fn doubted(&mut self, token: AttemptToken) -> Option<&mut Life> {
        let now = self.now;
        self.life.as_mut().filter(|life| life.last().token == token && life.state(now) == StateName::Unknown)
    }

    fn undertake(&mut self, owner: &Owner, errand: Errand) {
        let Some((token, _)) = self.token_of(owner) else { return };
        let (now, until) = (self.now, self.now.after(LEASE));
        let taken = self.amend(Amendment::Undertake(token, errand, until));
        let on_it = self.doubted(token).map(|life| match errand {
            Errand::Lookup => &mut life.asking,
            Errand::Notice => &mut life.telling,
        });
        match on_it {
            None => assert_eq!(taken, Err(Refusal::Superseded)),
            Some(Some(until)) if now < *until => assert_eq!(taken, Err(Refusal::Undertaken)),
            Some(free) => {
                assert_eq!(taken, Ok(()));
                *free = Some(until);
            }
        }
    }

    fn look(&mut self, owner: &Owner, ago: u64, answer: Answer) {
        let Some((token, _)) = self.token_of(owner) else { return };
        let (now, began) = (self.now, self.now.before(Duration::from_millis(ago)));
        let response = self.answer(200);
        let asked = Asked {
            started_at: began,
            node: self.boot(),
            occasion: Occasion::Background,
            status: Some(200),
            answer: match answer {
                Answer::Found => Finding::Found(response.clone()),
                Answer::Different => Finding::Different,
                Answer::NotFound { bare } => Finding::NotFound { bare },
                Answer::Nothing => Finding::Nothing(Inconclusive::NoCondition),
            },
            settle: SETTLE,
            response_timeout: RESPONSE_TIMEOUT,
            next_at: now,
        };
        let taken = self.amend(Amendment::Learn(token, Box::new(asked)));
        let row = self.row.clone().and_then(|row| row.at(now));
        let released = |life: &&mut Life| life.last().token == token && life.state(now) == StateName::Released;
        if let Some(life) = self.life.as_mut().filter(|life| !life.is_over(now)).filter(released)
            && matches!(answer, Answer::Found)
        {
            // It was said that nothing was done, and here it is.
            assert_eq!(taken, Ok(()));
            life.completed = Some((now, response, Source::Lookup));
            return;
        }
        let Some(life) = self.doubted(token).filter(|life| !life.conflict) else {
            assert_eq!(taken, Err(Refusal::Superseded));
            return;
        };
        assert_eq!(taken, Ok(()));
        life.asking = None;
        let row = row.unwrap();
        let proof = row.inquiry.as_ref().unwrap().lookups.last().unwrap().finding;
        match (row.state.name(), answer) {
            (StateName::Completed, Answer::Found) => life.completed = Some((now, response, Source::Lookup)),
            (StateName::Released, Answer::NotFound { bare }) => {
                assert!(life.is_settled_for(began), "something may still come of an attempt");
                if bare {
                    let is_first = |first: &Timestamp| life.is_settled_for(*first) && began >= first.after(SETTLE);
                    assert!(life.bare.iter().any(is_first), "a bare status needs two answers");
                }
                life.clear(now);
            }
            (StateName::Unknown, Answer::NotFound { bare: true }) => life.bare.push(began),
            (StateName::Unknown, Answer::NotFound { bare: false }) => assert_eq!(proof, Proof::TooEarly),
            (StateName::Unknown, Answer::Different) => life.conflict = true,
            (StateName::Unknown, Answer::Nothing) => {}
            (state, answer) => panic!("{answer:?} made it {state:?}"),
        }
    }

    fn decide(&mut self, owner: &Owner, ruling: Decided) {
        let Some((token, _)) = self.token_of(owner) else { return };
        let now = self.now;
        let response = self.answer(200);
        let [id, ..] = *token.as_bytes();
        let decided = match ruling {
            Decided::Completed => Ruling::Completed(response.clone()),
            Decided::NotExecuted => Ruling::NotExecuted,
            Decided::Erase => Ruling::Erase,
            Decided::Forget => Ruling::Forget,
        };
        let by = Author { operator: "ada".into(), reason: "why not".into() };
        let taken = self.amend(Amendment::Decide(u64::from(id), decided, by));
        let Some(life) = self.life.as_mut().filter(|life| life.last().token == token) else {
            assert_eq!(taken, Err(Refusal::Superseded));
            return;
        };
        match (ruling, life.state(now)) {
            (Decided::Completed, StateName::Unknown) => {
                life.completed = Some((now, response, Source::Operator));
                life.conflict = false;
                life.decisions += 1;
            }
            (Decided::NotExecuted, StateName::Unknown) => {
                life.clear(now);
                life.decisions += 1;
            }
            (Decided::Completed | Decided::NotExecuted, _) => {
                assert_eq!(taken, Err(Refusal::NotUnknown));
                return;
            }
            (Decided::Erase | Decided::Forget, StateName::InFlight | StateName::Unknown) => {
                assert_eq!(taken, Err(Refusal::StillOpen));
                return;
            }
            (Decided::Erase, StateName::Completed | StateName::Released | StateName::Expired) => {
                if let Some((_, response, _)) = &mut life.completed {
                    *response = response.without_body(NotStored::Erased);
                }
                life.decisions += 1;
            }
            (Decided::Forget, StateName::Completed | StateName::Released | StateName::Expired) => self.life = None,
        }
        assert_eq!(taken, Ok(()));
    }

    /// No two answers are alike, so that a replay shows whose it is.
    fn answer(&mut self, status: u16) -> StoredResponse {
        let body = StoredBody::Whole(Bytes::from(format!("answer {}", self.count())));
        StoredResponse { status, body, ..answer(status) }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Never is a second attempt granted while an earlier one may have been
    /// acted on, unless the route forwards, a lookup proved that it was not, or
    /// an operator said so; never is anything replayed but the answer that
    /// completed the record; never does an open row vanish; never does an owner
    /// change what came after it.
    #[test]
    fn no_order_of_events_breaks_a_promise(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
        }
    }
}
