//! Follows the map of a cluster: which master holds which slots.
//!
//! Any node that is well may be asked. A map is only taken whole, and one that
//! is older than what was seen already is not taken while a newer is to be had.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, Value};

use super::connect::{Address, answer};
use super::fault::{Fault, message};
use super::pace::Pace;
use super::shared::Shared;
use super::slots::{SLOTS, SlotSet};

/// How often the map is asked for when nothing happens.
const REFRESH: Duration = Duration::from_secs(5);
/// The least time between two questions, however much happens.
const LEAST: Duration = Duration::from_millis(100);
/// Nodes that are remembered to ask.
const NODES: usize = 64;
/// Nodes that are asked at a time, each on a new connection.
const AT_ONCE: usize = 8;

/// What a server that is alone says to a question about its cluster.
const NO_CLUSTER: &str = "cluster support disabled";

/// What one node said.
#[derive(Debug, Clone)]
pub(super) struct View {
    /// Whether the node thinks that the cluster works.
    well: bool,
    /// Grows with each failover.
    epoch: u64,
    pub(super) masters: HashMap<Address, SlotSet>,
    replicas: Vec<Address>,
}

/// Follows the map until all is closed.
pub(super) async fn follow(shared: Arc<Shared>, seed: Address) {
    let mut survey = Survey { shared: Arc::clone(&shared), seed, nodes: Vec::new(), epoch: 0, turn: 0 };
    let closing = shared.closing.clone();
    closing.run_until_cancelled(follow_forever(&shared, &mut survey)).await;
}

async fn follow_forever(shared: &Arc<Shared>, survey: &mut Survey) {
    let mut pace = Pace::new();
    let mut said = false;
    loop {
        match survey.make().await {
            Ok(view) => {
                said = false;
                pace.well();
                shared.apply(view);
            }
            Err(_) if shared.closing.is_cancelled() => return,
            Err(fault) => {
                if !said {
                    tracing::warn!(reason = fault.why(), "redis: the cluster's map cannot be had; trying until it can");
                    said = true;
                }
                shared.lost_sight(&fault.why());
                pace.wait().await;
                continue;
            }
        }
        tokio::time::sleep(LEAST).await;
        let _ = tokio::time::timeout(REFRESH, shared.remap.notified()).await;
    }
}

struct Survey {
    shared: Arc<Shared>,
    seed: Address,
    /// All nodes of the last map.
    nodes: Vec<Address>,
    /// The highest that was seen.
    epoch: u64,
    /// Another node is asked first each time, so that one that lives in the
    /// past is not believed for long.
    turn: usize,
}

impl Survey {
    async fn make(&mut self) -> Result<View, Fault> {
        let (mut best, mut enough) = (None, false);
        let mut last = Fault::Unavailable("no node of the cluster is known".to_owned());
        let mut links = self.shared.map.load().links.clone();
        if !links.is_empty() {
            self.turn = self.turn.wrapping_add(1);
            let first = self.turn % links.len();
            links.rotate_left(first);
        }
        for link in links.iter().filter(|link| link.present().is_ok()) {
            let address = link.address();
            let asked = link.call(link.deadline(), |mut connection| async move { ask(&mut connection).await });
            let view = asked.await.and_then(|replies| read(replies, &address).map_err(|fault| fault.at(&address)));
            enough = self.enough(view, &mut best, &mut last);
            if enough {
                break;
            }
        }
        if !enough {
            // Those that no link leads to, some at a time: most may be dead.
            let connected = |node: &Address| links.iter().any(|link| link.present().is_ok_and(|p| p.address == *node));
            let nodes: Vec<Address> =
                std::iter::once(&self.seed).chain(&self.nodes).filter(|node| !connected(node)).cloned().collect();
            let survey = &*self;
            let views = stream::iter(nodes).map(|node| async move { survey.ask_anew(&node).await });
            let mut asked = std::pin::pin!(views.buffer_unordered(AT_ONCE));
            while !enough && let Some(view) = asked.next().await {
                enough = self.enough(view, &mut best, &mut last);
            }
        }
        let view = best.ok_or(last)?;
        self.epoch = self.epoch.max(view.epoch);
        self.nodes = view.masters.keys().chain(&view.replicas).take(NODES).cloned().collect();
        Ok(view)
    }

    /// Keeps the better of two views, and says whether it is good enough.
    fn enough(&self, view: Result<View, Fault>, best: &mut Option<View>, last: &mut Fault) -> bool {
        match view {
            Ok(view) => {
                let enough = view.well && view.epoch >= self.epoch;
                let rank = |view: &View| (view.well, view.epoch);
                if best.as_ref().is_none_or(|best| rank(best) < rank(&view)) {
                    *best = Some(view);
                }
                enough
            }
            Err(fault) => {
                *last = fault;
                false
            }
        }
    }

    async fn ask_anew(&self, address: &Address) -> Result<View, Fault> {
        let connected = self.shared.dialer.dial(address, &self.shared.login).await?;
        let mut connection = connected.connection.clone();
        let replies = answer(self.shared.dialer.timeout(), ask(&mut connection)).await;
        let named = |fault: Fault| Fault::Unavailable(format!("{address}: {}", fault.why()));
        replies.and_then(|replies| read(replies, address)).map_err(named)
    }
}

async fn ask(connection: &mut MultiplexedConnection) -> redis::RedisResult<Vec<Value>> {
    let mut pipeline = Pipeline::with_capacity(2);
    pipeline.cmd("CLUSTER").arg("INFO");
    pipeline.cmd("CLUSTER").arg("SLOTS");
    connection.send_packed_commands(&pipeline, 0, 2).await
}

fn read(replies: Vec<Value>, asked: &Address) -> Result<View, Fault> {
    let mut view = View { well: false, epoch: 0, masters: HashMap::new(), replicas: Vec::new() };
    let mut ranges = Vec::new();
    for reply in replies {
        match reply {
            Value::ServerError(error) if error.details().is_some_and(|details| details.contains(NO_CLUSTER)) => {
                let why = format!("{}; take `store.redis.cluster` out", message(&error));
                return Err(Fault::Unavailable(why));
            }
            Value::ServerError(error) => return Err(Fault::of_reply(&error)),
            Value::Array(found) => ranges = found,
            other => {
                let info = text(&other).unwrap_or_default();
                let field = |name: &str| {
                    info.lines()
                        .find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':').map(str::to_owned))
                };
                view.well = field("cluster_state").as_deref() == Some("ok");
                view.epoch = field("cluster_current_epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
            }
        }
    }
    for range in ranges.iter().take(usize::from(SLOTS)) {
        add_range(&mut view, range, asked);
    }
    if view.masters.is_empty() {
        return Err(Fault::Unavailable("it knows of no master that holds slots".to_owned()));
    }
    Ok(view)
}

/// `[first, last, master, replica…]`, each node `[host, port, …]`.
fn add_range(view: &mut View, range: &Value, asked: &Address) -> Option<()> {
    let Value::Array(parts) = range else { return None };
    let [Value::Int(first), Value::Int(last), master, replicas @ ..] = parts.as_slice() else { return None };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    let slots = view.masters.entry(node(master, asked)?).or_insert_with(SlotSet::empty);
    for slot in first..=last.min(SLOTS - 1) {
        slots.insert(slot);
    }
    let replicas = replicas.iter().filter_map(|replica| node(replica, asked));
    view.replicas.extend(replicas.take(NODES.saturating_sub(view.replicas.len())));
    Some(())
}

fn node(value: &Value, asked: &Address) -> Option<Address> {
    let Value::Array(parts) = value else { return None };
    let [host, Value::Int(port), ..] = parts.as_slice() else { return None };
    // A node that does not know how it is called says nothing, or "?".
    Some(Address::announced(&text(host).unwrap_or_default(), u16::try_from(*port).ok()?, asked))
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(text: &str) -> Value {
        redis::parse_redis_value(text.replace('|', "\r\n").as_bytes()).unwrap()
    }

    #[test]
    fn a_map_is_read_and_hosts_left_out_are_the_one_that_was_asked() {
        let asked = Address { host: "10.0.0.1".into(), port: 7000 };
        let info = "cluster_state:ok\r\ncluster_current_epoch:7\r\n";
        let slots = "*3|*4|:0|:100|*2|$0||:7000|*2|$1|?|:7003|*3|:101|:16383|*2|$8|10.0.0.2|:7001|*1|:5|";
        let view = read(vec![Value::BulkString(info.into()), reply(slots)], &asked).unwrap();
        assert!(view.well);
        assert_eq!((view.epoch, view.masters.len()), (7, 2));
        assert!(view.masters[&asked].contains(100) && !view.masters[&asked].contains(101));
        assert_eq!(view.replicas, [Address { host: "10.0.0.1".into(), port: 7003 }]);
        assert!(read(vec![reply("*0|")], &asked).is_err());
        assert!(read(vec![reply("-ERR This instance has cluster support disabled|")], &asked).is_err());
    }
}
