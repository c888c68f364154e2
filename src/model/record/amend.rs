//! What others than the owner of its attempt have to say about a record: who is
//! about to ask the destination, what a lookup found, that somebody was told,
//! and what an operator decides.

use super::{AttemptToken, Doubt, Event, Record, RecordState, Refusal};
use crate::model::decision::{Amendment, Author, DECISIONS_KEPT, Decision, DecisionKind, Ruling};
use crate::model::inquiry::{Asked, Errand, Finding, Proof};
use crate::model::time::Timestamp;

impl Record {
    /// Applies what somebody else than the owner of its attempt has to say.
    ///
    /// # Errors
    /// [`Refusal`], and then nothing has changed.
    pub fn amend(&mut self, amendment: Amendment, now: Timestamp) -> Result<(), Refusal> {
        match amendment {
            Amendment::Undertake(token, errand, until) => self.undertake(token, errand, until, now),
            Amendment::Learn(token, asked) => self.learn(token, *asked, now),
            Amendment::Told(token) => {
                self.doubt_of(token)?;
                let inquiry = self.inquiry.get_or_insert_default();
                inquiry.telling_until = None;
                inquiry.told_at = Some(now);
                self.updated_at = now;
                Ok(())
            }
            Amendment::Decide(attempt, ruling, by) => self.decide(attempt, ruling, by, now),
        }
    }

    /// The doubt about the attempt of `token`, which is the last one.
    fn doubt_of(&self, token: AttemptToken) -> Result<&Doubt, Refusal> {
        match &self.state {
            RecordState::Unknown(doubt) if doubt.token == token => Ok(doubt),
            RecordState::InFlight(_)
            | RecordState::Completed(_)
            | RecordState::Unknown(_)
            | RecordState::Released(_)
            | RecordState::Expired(_) => Err(Refusal::Superseded),
        }
    }

    fn undertake(
        &mut self,
        token: AttemptToken,
        errand: Errand,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        self.doubt_of(token)?;
        let inquiry = self.inquiry.get_or_insert_default();
        let taken = match errand {
            Errand::Lookup => &mut inquiry.asking_until,
            Errand::Notice if inquiry.told_at.is_some() => return Err(Refusal::Undertaken),
            Errand::Notice => &mut inquiry.telling_until,
        };
        if taken.is_some_and(|until| now < until) {
            return Err(Refusal::Undertaken);
        }
        *taken = Some(until);
        Ok(())
    }

    fn learn(&mut self, token: AttemptToken, asked: Asked, now: Timestamp) -> Result<(), Refusal> {
        if matches!(&self.state, RecordState::Released(release) if release.token == token)
            && let Finding::Found(response) = &asked.answer
        {
            self.apply(Event::Found(token, response.clone()), now)?;
            self.inquiry.get_or_insert_default().remember(&asked, Proof::Found, now);
            return Ok(());
        }
        let mut doubt = self.doubt_of(token)?.clone();
        if self.has_conflict() {
            return Err(Refusal::Superseded);
        }
        // Over an earlier doubt the last attempt may have been answered since.
        let ended = self.attempts.last().and_then(|last| last.ended);
        doubt.since = ended.map_or(doubt.since, |(at, _)| doubt.since.max(at));
        let inquiry = self.inquiry.get_or_insert_default();
        let proof = inquiry.weigh(&doubt, &asked);
        inquiry.note(&doubt, &asked, proof, now);
        match (proof, asked.answer) {
            (Proof::Found, Finding::Found(response)) => self.apply(Event::Found(token, response), now),
            (Proof::NotFound, _) => self.apply(Event::NotFound(token), now),
            (Proof::Found | Proof::Different | Proof::NotFoundOnce | Proof::TooEarly | Proof::Nothing(_), _) => {
                self.updated_at = now;
                Ok(())
            }
        }
    }

    fn decide(&mut self, attempt: u64, ruling: Ruling, by: Author, now: Timestamp) -> Result<(), Refusal> {
        let number = match self.attempts.last() {
            Some(last) if last.id == attempt => last.number,
            Some(_) | None => return Err(Refusal::Superseded),
        };
        let kind = match &ruling {
            Ruling::Completed(_) => Some(DecisionKind::Completed),
            Ruling::NotExecuted => Some(DecisionKind::NotExecuted),
            Ruling::Erase => Some(DecisionKind::Erased),
            Ruling::Forget => None,
        };
        self.apply(Event::Rule(ruling), now)?;
        if let Some(kind) = kind {
            if self.decisions.len() >= DECISIONS_KEPT {
                self.decisions.remove(0);
            }
            self.decisions.push(Decision { at: now, kind, attempt: number, by });
            self.updated_at = now;
        }
        Ok(())
    }
}
