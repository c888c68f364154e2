//! How often records were asked for again: a small hash beside each such
//! record, that ends by itself when the record does.
//!
//! ```text
//! <prefix>:1:repeats:<record id>   replays, mismatches, replayed_at, mismatched_at
//! ```

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::RedisStore;
use super::servers::{Fault, Link};
use crate::model::key::RecordId;
use crate::model::time::Timestamp;
use crate::store::list::Repeats;

/// How long one is kept after it was last written, of a record without an end.
const KEPT_FOR: Duration = Duration::from_hours(7 * 24);
/// How many are written at a time.
const AT_ONCE: usize = 128;

const FIELDS: [&str; 4] = ["replays", "mismatches", "replayed_at", "mismatched_at"];

/// A server, and what of something is on it.
type OnServer<T> = (Arc<Link>, Vec<T>);

impl RedisStore {
    fn key_of_repeats(&self, id: RecordId) -> Vec<u8> {
        self.state.keys.other(&format!("repeats:{id}")).into_bytes()
    }

    pub(super) async fn write_repeats(&self, repeats: Vec<(RecordId, Repeats)>) -> Result<(), Fault> {
        for some in repeats.chunks(AT_ONCE) {
            let mut known: Vec<(RecordId, Repeats, Duration)> = Vec::with_capacity(some.len());
            for (link, here) in self.by_server(some, |(id, _)| self.state.keys.record(*id))? {
                let mut pipeline = redis::pipe();
                for (id, _) in &here {
                    pipeline.cmd("PTTL").arg(self.state.keys.record(*id));
                }
                let answers = self.servers.pipeline(&link, &pipeline).await?;
                let kept = here.into_iter().zip(answers).filter_map(|((id, repeats), left)| match left {
                    Ok(Value::Int(-1)) => Some((id, repeats, KEPT_FOR)),
                    Ok(Value::Int(left)) => {
                        u64::try_from(left).ok().map(|left| (id, repeats, Duration::from_millis(left)))
                    }
                    // It is gone, or on the move.
                    Ok(_) | Err(_) => None,
                });
                known.extend(kept);
            }
            for (link, here) in self.by_server(&known, |(id, ..)| self.key_of_repeats(*id))? {
                let mut pipeline = redis::pipe();
                for (id, repeats, kept_for) in here {
                    self.add(&mut pipeline, id, repeats, kept_for);
                }
                // One that is refused is lost.
                self.servers.pipeline(&link, &pipeline).await?;
            }
        }
        Ok(())
    }

    fn add(&self, pipeline: &mut redis::Pipeline, id: RecordId, repeats: Repeats, kept_for: Duration) {
        let key = self.key_of_repeats(id);
        let [replays, mismatches, replayed_at, mismatched_at] = FIELDS;
        for (counted, count, when, time) in [
            (replays, repeats.replays, replayed_at, repeats.replayed_at),
            (mismatches, repeats.mismatches, mismatched_at, repeats.mismatched_at),
        ] {
            if let Some(time) = time {
                pipeline.cmd("HINCRBY").arg(&key).arg(counted).arg(count);
                pipeline.cmd("HSET").arg(&key).arg(when).arg(time.as_millis());
            }
        }
        pipeline.cmd("PEXPIRE").arg(&key).arg(u64::try_from(kept_for.as_millis()).unwrap_or(u64::MAX >> 1).max(1));
    }

    /// All of these with the server that has their key.
    fn by_server<T: Clone>(&self, all: &[T], key_of: impl Fn(&T) -> Vec<u8>) -> Result<Vec<OnServer<T>>, Fault> {
        let mut groups: Vec<OnServer<T>> = Vec::new();
        for one in all {
            let link = self.servers.link_for(&key_of(one))?;
            match groups.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &link)) {
                Some((_, here)) => here.push(one.clone()),
                None => groups.push((link, vec![one.clone()])),
            }
        }
        Ok(groups)
    }

    pub(super) async fn read_repeats(&self, id: RecordId) -> Result<Repeats, Fault> {
        let key = self.key_of_repeats(id);
        let link = self.servers.link_for(&key)?;
        let found = self.servers.command(&link, redis::cmd("HMGET").arg(&key).arg(&FIELDS)).await?;
        let Value::Array(values) = found else { return Ok(Repeats::default()) };
        let mut numbers = values.iter().map(|value| match value {
            Value::BulkString(text) => std::str::from_utf8(text).ok().and_then(|text| text.parse::<u64>().ok()),
            _ => None,
        });
        let mut next = || numbers.next().flatten();
        Ok(Repeats {
            replays: next().unwrap_or(0),
            mismatches: next().unwrap_or(0),
            replayed_at: next().map(Timestamp::from_millis),
            mismatched_at: next().map(Timestamp::from_millis),
        })
    }

    /// They begin anew: their record was forgotten.
    pub(super) async fn drop_repeats(&self, id: RecordId) {
        let key = self.key_of_repeats(id);
        let dropped = match self.servers.link_for(&key) {
            Ok(link) => self.servers.command(&link, redis::cmd("DEL").arg(&key)).await.map(drop),
            Err(fault) => Err(fault),
        };
        if let Err(fault) = dropped {
            tracing::debug!(record = %id, %fault, "how often a record was asked for is kept longer than the record");
        }
    }
}
