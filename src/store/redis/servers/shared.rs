//! What all tasks of this room share, and the one place where a connection
//! becomes usable.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Welcome;
use super::cluster::View;
use super::connect::{Address, Dialer};
use super::fault::Fault;
use super::histories::{Histories, lives};
use super::keep::{Whereabouts, keep};
use super::link::{Link, Present};
use super::login::Login;
use super::slots::{SLOTS, SlotSet, slot};
use super::tls::Trust;
use super::vitals::Vitals;
use crate::clock::Clock;
use crate::plan::{RedisPlan, RedisServers, RedisUrl};

/// What all tasks share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) dialer: Dialer,
    pub(super) login: Login,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) welcome: Arc<dyn Welcome>,
    pub(super) prefix: String,
    pub(super) replicas: u32,
    pub(super) tasks: TaskTracker,
    pub(super) closing: CancellationToken,
    pub(super) map: ArcSwap<Map>,
    pub(super) remap: Arc<Notify>,
    pub(super) health: watch::Sender<Result<(), String>>,
    /// Held while a connection becomes usable and while slots change hands, so
    /// that no slot is ever served by a connection that was not asked about it.
    histories: Mutex<Histories>,
}

/// The masters, and who holds what.
#[derive(Debug)]
pub(super) struct Map {
    pub(super) links: Vec<Arc<Link>>,
    /// In a cluster: the place of a slot's master in `links`.
    by_slot: Option<Vec<Option<usize>>>,
}

impl Map {
    /// The master that holds a key.
    pub(super) fn holder(&self, key: &[u8]) -> Result<Arc<Link>, Fault> {
        let index = match &self.by_slot {
            None => Some(0),
            Some(by_slot) => by_slot.get(usize::from(slot(key))).copied().flatten(),
        };
        let link = index.and_then(|index| self.links.get(index)).cloned();
        link.ok_or_else(|| Fault::Unavailable("no master is known that holds the key's slot".to_owned()))
    }
}

impl Shared {
    pub(super) fn new(trust: Trust, plan: &RedisPlan, clock: Arc<dyn Clock>, welcome: Arc<dyn Welcome>) -> Self {
        let (login, cluster) = match &plan.servers {
            RedisServers::One(url) => (Login::of(url), false),
            RedisServers::Sentinel { login, .. } => (Login::of(login), false),
            // A cluster has one database.
            RedisServers::Cluster(url) => (Login::of(&RedisUrl { database: 0, ..url.clone() }), true),
        };
        let (tasks, closing) = (TaskTracker::new(), CancellationToken::new());
        Self {
            dialer: Dialer::new(trust, plan.timeout, tasks.clone(), closing.clone()),
            login,
            clock,
            welcome,
            prefix: plan.prefix.clone(),
            replicas: plan.replicas,
            tasks,
            closing,
            map: ArcSwap::from_pointee(Map { links: Vec::new(), by_slot: cluster.then(Vec::new) }),
            remap: Arc::new(Notify::new()),
            health: watch::Sender::new(Err("not connected yet".to_owned())),
            histories: Mutex::new(Histories::new(cluster)),
        }
    }

    /// Sets up the one master outside a cluster.
    pub(super) fn only(self: &Arc<Self>, address: Address, whereabouts: Whereabouts) {
        let link = self.link(address, None);
        self.map.store(Arc::new(Map { links: vec![Arc::clone(&link)], by_slot: None }));
        self.tasks.spawn(keep(Arc::clone(self), link, whereabouts));
    }

    fn link(&self, address: Address, slots: Option<SlotSet>) -> Arc<Link> {
        let retired = self.closing.child_token();
        Arc::new(Link::new(address, slots, self.dialer.timeout(), Arc::clone(&self.remap), retired))
    }

    fn histories(&self) -> MutexGuard<'_, Histories> {
        self.histories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.map.load().by_slot.is_some()
    }

    /// The run id of a server whose promises this one may lack.
    pub(super) fn before(&self, slots: Option<&SlotSet>, vitals: &Vitals) -> Option<String> {
        let map = self.map.load();
        self.histories().before(slots, vitals, |known| lives(&map.links, known))
    }

    /// Makes a connection usable that was welcomed for `slots`.
    pub(super) fn admit(
        &self,
        link: &Link,
        present: Arc<Present>,
        slots: Option<&SlotSet>,
    ) -> Result<Arc<Present>, Fault> {
        let mut histories = self.histories();
        let vitals = present.vitals();
        histories.note(slots, &vitals);
        if let (Some(slots), Some(now)) = (slots, link.slots()) {
            let gained = now.without(slots);
            let map = self.map.load();
            if histories.before(Some(&gained), &vitals, |known| lives(&map.links, known)).is_some() {
                return Err(Fault::Unavailable(format!("{}: it took over more slots meanwhile", link.place())));
            }
            histories.note(Some(&gained), &vitals);
        }
        link.install(Arc::clone(&present));
        Ok(present)
    }

    /// Takes a new map.
    pub(super) fn apply(self: &Arc<Self>, view: View) {
        let mut histories = self.histories();
        let old = self.map.load_full();
        let mut by_slot = vec![None; usize::from(SLOTS)];
        let (mut links, mut fresh, mut changed) = (Vec::new(), Vec::new(), Vec::new());
        for (address, slots) in view.masters {
            for slot in slots.iter() {
                if let Some(place) = by_slot.get_mut(usize::from(slot)) {
                    *place = Some(links.len());
                }
            }
            match old.links.iter().find(|link| *link.address() == address) {
                Some(link) => {
                    links.push(Arc::clone(link));
                    changed.push((Arc::clone(link), slots));
                }
                None => {
                    let link = self.link(address, Some(slots));
                    fresh.push(Arc::clone(&link));
                    links.push(link);
                }
            }
        }
        for (link, slots) in changed {
            self.reassign(&mut histories, &links, &link, slots);
        }
        let gone: Vec<_> = old.links.iter().filter(|link| !links.iter().any(|kept| Arc::ptr_eq(kept, link))).collect();
        gone.iter().for_each(|link| link.retired.cancel());
        if !fresh.is_empty() || !gone.is_empty() {
            tracing::info!(
                masters = links.len(),
                new = fresh.len(),
                gone = gone.len(),
                "redis: the cluster has changed"
            );
        }
        self.map.store(Arc::new(Map { links, by_slot: Some(by_slot) }));
        drop(histories);
        for link in fresh {
            let whereabouts = Whereabouts::Fixed((*link.address()).clone());
            self.tasks.spawn(keep(Arc::clone(self), link, whereabouts));
        }
        self.report();
    }

    /// Gives a link its slots. One that is connected and took over slots of a
    /// server that is gone has to be welcomed anew.
    fn reassign(&self, histories: &mut Histories, links: &[Arc<Link>], link: &Arc<Link>, slots: SlotSet) {
        let before = link.slots();
        if before.as_deref() == Some(&slots) {
            return;
        }
        if let (Ok(present), Some(before)) = (link.present(), before) {
            let (gained, vitals) = (slots.without(&before), present.vitals());
            if histories.before(Some(&gained), &vitals, |known| lives(links, known)).is_some() {
                link.leave(&present, &format!("{}: it took over slots of a master that is gone", link.place()));
            } else {
                histories.note(Some(&gained), &vitals);
            }
        }
        link.assign(slots);
    }

    /// Says how it is, to those who watch.
    pub(super) fn report(&self) {
        self.tell(|| {
            let map = self.map.load();
            let lost = map.links.iter().find_map(|link| link.present().err());
            match lost {
                None if map.links.is_empty() => None,
                None => Some(Ok(())),
                Some(fault) => Some(Err(fault.why())),
            }
        });
    }

    /// The cluster's map cannot be had. That matters only if there is none.
    pub(super) fn lost_sight(&self, why: &str) {
        self.tell(|| self.map.load().links.is_empty().then(|| Err(why.to_owned())));
    }

    /// Looked at while it is told, so that an older look is never told after a
    /// newer one.
    fn tell(&self, look: impl FnOnce() -> Option<Result<(), String>>) {
        self.health.send_if_modified(|known| match look() {
            Some(health) if *known != health => {
                *known = health;
                true
            }
            Some(_) | None => false,
        });
    }

    /// The address of any master that is connected.
    pub(super) fn somewhere(&self) -> Option<Address> {
        let map = self.map.load();
        map.links.iter().find_map(|link| link.present().ok()).map(|present| present.address.clone())
    }

    /// Whether a master is connected there.
    pub(super) fn is_somewhere(&self, address: &Address) -> bool {
        let map = self.map.load();
        map.links.iter().filter_map(|link| link.present().ok()).any(|present| present.address == *address)
    }
}
