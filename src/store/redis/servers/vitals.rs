//! What a server says of itself.
//!
//! Asked on every new connection before anything else uses it, and every ten
//! seconds after that. What a server hides is unknown, never assumed.

use std::collections::HashMap;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, Value};

use super::connect::answer;
use super::fault::Fault;

/// One server, at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store::redis) struct Vitals {
    /// A new one each time the server starts.
    pub(in crate::store::redis) run_id: String,
    /// `redis` or `valkey`.
    pub(in crate::store::redis) product: String,
    /// The version of the Redis whose commands it has. A Valkey says 7.2.x.
    pub(in crate::store::redis) version: (u32, u32, u32),
    /// Whether it follows a master.
    pub(in crate::store::redis) is_replica: bool,
    /// Whether it is one server of a cluster.
    pub(in crate::store::redis) is_in_cluster: bool,
    /// Whether it is no server, but knows of some.
    pub(super) is_sentinel: bool,
    /// Whether it is still reading its data from disk.
    pub(in crate::store::redis) is_loading: bool,
    /// How many replicas follow it now.
    pub(in crate::store::redis) connected_replicas: u32,
    /// `noeviction`, unless records may vanish.
    pub(in crate::store::redis) eviction_policy: Option<String>,
    /// Bytes of memory it may use; 0 is no limit.
    pub(in crate::store::redis) max_memory: Option<u64>,
    /// Whether it writes an append-only file.
    pub(in crate::store::redis) appends: bool,
    /// Whether it writes an append-only file or snapshots.
    pub(in crate::store::redis) persists: Option<bool>,
    /// The history of its data, which ends when it becomes a replica.
    replication_id: String,
    /// Whether it was a replica before, since it started.
    promoted: bool,
}

impl Vitals {
    /// Asks.
    pub(super) async fn ask(connection: &mut MultiplexedConnection, within: Duration) -> Result<Self, Fault> {
        let mut pipeline = Pipeline::with_capacity(3);
        pipeline.cmd("INFO");
        for setting in ["save", "appendonly"] {
            pipeline.cmd("CONFIG").arg("GET").arg(setting);
        }
        let replies = answer(within, connection.send_packed_commands(&pipeline, 0, 3)).await?;
        let mut replies = replies.into_iter();
        let info = match replies.next() {
            Some(Value::BulkString(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
            Some(Value::VerbatimString { text, .. } | Value::SimpleString(text)) => text,
            Some(Value::ServerError(error)) => return Err(Fault::of_reply(&error)),
            Some(_) | None => return Err(Fault::Refused("INFO brought no text".to_owned())),
        };
        let mut setting = || replies.next().and_then(setting);
        let (save, append) = (setting(), setting());
        Self::read(&info, save.as_deref(), append.as_deref())
            .ok_or_else(|| Fault::Refused("INFO tells no run_id".to_owned()))
    }

    fn read(info: &str, save: Option<&str>, append: Option<&str>) -> Option<Self> {
        let fields: HashMap<&str, &str> = info.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
        let number = |field: &str| fields.get(field).and_then(|value| value.parse::<u64>().ok());
        let yes = |field: &str| number(field) == Some(1);
        let appends = append == Some("yes") || yes("aof_enabled");
        Some(Self {
            run_id: fields.get("run_id").filter(|id| !id.is_empty())?.to_string(),
            product: fields.get("server_name").unwrap_or(&"redis").to_string(),
            version: version(fields.get("redis_version").unwrap_or(&"")),
            is_replica: fields.get("role").is_some_and(|role| *role != "master"),
            is_in_cluster: fields.get("redis_mode") == Some(&"cluster"),
            is_sentinel: fields.get("redis_mode") == Some(&"sentinel"),
            is_loading: yes("loading"),
            connected_replicas: number("connected_slaves").and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
            eviction_policy: fields.get("maxmemory_policy").map(ToString::to_string),
            max_memory: number("maxmemory"),
            appends,
            persists: if appends { Some(true) } else { save.map(|save| !save.is_empty()) },
            replication_id: fields.get("master_replid").unwrap_or(&"").to_string(),
            promoted: fields.get("master_replid2").is_some_and(|id| id.bytes().any(|byte| byte != b'0')),
        })
    }

    /// Whether this is what `before` was, without a time as a replica in
    /// between: then all that was written to it is still there. The history's
    /// name changes too when a first replica comes or the last has long gone,
    /// but only one that ended leaves its name behind.
    pub(super) fn continues(&self, before: &Self) -> bool {
        self.run_id == before.run_id && (self.replication_id == before.replication_id || !self.promoted)
    }
}

/// `7.0.15` as numbers; what cannot be read is 0.
fn version(text: &str) -> (u32, u32, u32) {
    let mut numbers = text.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}

/// The value in an answer to CONFIG GET; none where that is forbidden.
fn setting(reply: Value) -> Option<String> {
    let value = match reply {
        Value::Array(mut pair) if pair.len() == 2 => pair.pop(),
        Value::Map(mut pairs) => pairs.pop().map(|(_, value)| value),
        _ => None,
    };
    match value? {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\nrun_id:abc\r\n\
        # Persistence\r\nloading:0\r\naof_enabled:0\r\n# Memory\r\nmaxmemory:1048576\r\nmaxmemory_policy:allkeys-lru\r\n\
        # Replication\r\nrole:master\r\nconnected_slaves:2\r\nmaster_replid:r1\r\nmaster_replid2:0000\r\n";

    #[test]
    fn what_is_told_is_read_and_what_is_hidden_stays_unknown() {
        let vitals = Vitals::read(INFO, Some(""), Some("no")).unwrap();
        assert_eq!((vitals.product.as_str(), vitals.version), ("valkey", (7, 2, 4)));
        assert_eq!((vitals.is_replica, vitals.connected_replicas), (false, 2));
        assert_eq!((vitals.eviction_policy.as_deref(), vitals.max_memory), (Some("allkeys-lru"), Some(1 << 20)));
        assert_eq!(vitals.persists, Some(false));
        assert_eq!(Vitals::read(INFO, None, None).unwrap().persists, None);
        assert_eq!(Vitals::read(INFO, Some("3600 1"), None).unwrap().persists, Some(true));
        assert_eq!(Vitals::read("redis_version:7\r\n", None, None), None);
    }

    #[test]
    fn a_server_that_was_a_replica_meanwhile_does_not_continue() {
        let read = |info: &str| Vitals::read(info, None, None).unwrap();
        let before = read(INFO);
        assert!(before.continues(&before));
        assert!(!read(&INFO.replace("abc", "def")).continues(&before), "restarted");
        assert!(read(&INFO.replace("r1", "r2")).continues(&before), "its first replica came");
        assert!(!read(&INFO.replace("r1", "r2").replace("0000", "r3")).continues(&before), "demoted and promoted");
    }
}
