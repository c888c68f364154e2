//! Counts of what stands open, kept beside the rows by every store.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{Counts, LineageUse};
use crate::model::admission::{Offer, UnknownCount};
use crate::model::key::{Lineage, ScopeDigest};
use crate::model::record::{Record, RecordState, StateName};
use crate::model::time::Timestamp;

/// The counts. A row that changes is counted out as it was and in as it is.
#[derive(Debug, Default)]
pub(super) struct Census {
    totals: Counts,
    unknown_in_scope: HashMap<(Lineage, ScopeDigest), u64>,
    /// How many became unknown when.
    unknown_since: BTreeMap<Timestamp, u64>,
    lineages: HashMap<Lineage, Kin>,
}

#[derive(Debug)]
struct Kin {
    route: Arc<str>,
    in_flight: u64,
    unknown: u64,
    live_until: Timestamp,
}

impl Census {
    /// Counts a change of one row.
    pub(super) fn change(&mut self, before: Option<&Record>, after: Option<&Record>) {
        if let Some(record) = before {
            self.count(record, |n| *n = n.saturating_sub(1));
        }
        if let Some(record) = after {
            self.count(record, |n| *n += 1);
            if let Some(until) = record.state.lives_until() {
                self.remember(record.lineage, &record.route, until);
            }
        }
    }

    /// Notes that records of a lineage may live until that instant.
    pub(super) fn remember(&mut self, lineage: Lineage, route: &Arc<str>, live_until: Timestamp) {
        let kin = self.kin(lineage, route);
        kin.live_until = kin.live_until.max(live_until);
    }

    fn count(&mut self, record: &Record, by: impl Fn(&mut u64)) {
        match record.state.name() {
            StateName::InFlight => {
                by(&mut self.totals.in_flight);
                by(&mut self.kin(record.lineage, &record.route).in_flight);
            }
            StateName::Unknown => {
                by(&mut self.totals.unknown);
                by(&mut self.kin(record.lineage, &record.route).unknown);
                let scope = (record.lineage, record.scope);
                let in_scope = self.unknown_in_scope.entry(scope).or_default();
                by(in_scope);
                if *in_scope == 0 {
                    self.unknown_in_scope.remove(&scope);
                }
                if let RecordState::Unknown(doubt) = &record.state {
                    let at_that_time = self.unknown_since.entry(doubt.since).or_default();
                    by(at_that_time);
                    if *at_that_time == 0 {
                        self.unknown_since.remove(&doubt.since);
                    }
                }
            }
            StateName::Completed | StateName::Released | StateName::Expired => {}
        }
    }

    fn kin(&mut self, lineage: Lineage, route: &Arc<str>) -> &mut Kin {
        self.lineages.entry(lineage).or_insert_with(|| Kin {
            route: Arc::clone(route),
            in_flight: 0,
            unknown: 0,
            live_until: Timestamp::default(),
        })
    }

    /// What the caps on unknown records are compared with.
    pub(super) fn unknown_for(&self, offer: &Offer) -> UnknownCount {
        UnknownCount {
            in_scope: self.unknown_in_scope.get(&(offer.lineage, offer.scope)).copied().unwrap_or(0),
            in_route: self.lineages.get(&offer.lineage).map_or(0, |kin| kin.unknown),
        }
    }

    pub(super) fn totals(&self) -> Counts {
        let oldest_unknown = self.unknown_since.first_key_value().map(|(since, _)| *since);
        Counts { oldest_unknown, ..self.totals }
    }

    pub(super) fn lineages(&self) -> Vec<LineageUse> {
        let usage = |(&lineage, kin): (&Lineage, &Kin)| LineageUse {
            lineage,
            route: Arc::clone(&kin.route),
            open: kin.in_flight + kin.unknown,
            live_until: kin.live_until,
        };
        self.lineages.iter().map(usage).collect()
    }
}
