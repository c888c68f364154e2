//! Whose data a key was in until now.
//!
//! A server that takes another's place may lack what the other had promised.
//! Whoever connects asks here which server that was. In a cluster a place is a
//! slot: slots that one living master handed to another were not lost.

use std::sync::Arc;

use super::link::Link;
use super::slots::{SLOTS, SlotSet};
use super::vitals::Vitals;

/// The servers that were welcomed last, by what they held.
#[derive(Debug)]
pub(super) struct Histories {
    /// Outside a cluster.
    whole: Option<Arc<Vitals>>,
    /// In a cluster, by slot.
    by_slot: Vec<Option<Arc<Vitals>>>,
}

impl Histories {
    pub(super) fn new(cluster: bool) -> Self {
        Self { whole: None, by_slot: if cluster { vec![None; usize::from(SLOTS)] } else { Vec::new() } }
    }

    /// The run id of a server that held some of this, is no longer there, and
    /// that `now` is not: if there are several, any.
    pub(super) fn before(
        &self,
        slots: Option<&SlotSet>,
        now: &Vitals,
        living: impl Fn(&Vitals) -> bool,
    ) -> Option<String> {
        let lost = |known: &&Arc<Vitals>| !now.continues(known) && (known.run_id == now.run_id || !living(known));
        let Some(slots) = slots else { return self.whole.iter().find(lost).map(|known| known.run_id.clone()) };
        let mut last: Option<&Arc<Vitals>> = None;
        let held = slots.iter().filter_map(|slot| self.by_slot.get(usize::from(slot))?.as_ref());
        // Neighbours mostly have the same history: each is looked at once.
        let mut distinct = held.filter(|known| !last.replace(known).is_some_and(|last| Arc::ptr_eq(last, known)));
        distinct.find(lost).map(|known| known.run_id.clone())
    }

    /// From now on `vitals` holds this.
    pub(super) fn note(&mut self, slots: Option<&SlotSet>, vitals: &Arc<Vitals>) {
        let Some(slots) = slots else {
            self.whole = Some(Arc::clone(vitals));
            return;
        };
        for slot in slots.iter() {
            if let Some(known) = self.by_slot.get_mut(usize::from(slot)) {
                *known = Some(Arc::clone(vitals));
            }
        }
    }
}

/// Whether a server is one of these masters, and connected.
pub(super) fn lives(links: &[Arc<Link>], vitals: &Vitals) -> bool {
    links.iter().any(|link| link.vitals().is_some_and(|here| here.run_id == vitals.run_id))
}
