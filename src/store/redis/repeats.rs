//! How often records were asked for again: a small hash beside each such
//! record, that ends by itself some days after it was last written.
//!
//! ```text
//! <prefix>:1:repeats:<record id>   replays, mismatches, replayed_at, mismatched_at
//! ```

use std::time::Duration;

use redis::Value;

use super::RedisStore;
use super::servers::Fault;
use crate::model::key::RecordId;
use crate::model::time::Timestamp;
use crate::store::list::Repeats;

/// How long one is kept after it was last written.
const KEPT_FOR: Duration = Duration::from_hours(7 * 24);
/// How many are written at a time.
const AT_ONCE: usize = 128;

const FIELDS: [&str; 4] = ["replays", "mismatches", "replayed_at", "mismatched_at"];

impl RedisStore {
    fn key_of_repeats(&self, id: RecordId) -> Vec<u8> {
        self.state.keys.other(&format!("repeats:{id}")).into_bytes()
    }

    pub(super) async fn write_repeats(&self, repeats: Vec<(RecordId, Repeats)>) -> Result<(), Fault> {
        let mut rest = repeats;
        while let Some((first, _)) = rest.first() {
            let link = self.servers.link_for(&self.key_of_repeats(*first))?;
            let (mut here, elsewhere): (Vec<_>, Vec<_>) =
                rest.into_iter().partition(|(id, _)| link.holds(&self.key_of_repeats(*id)));
            rest = elsewhere;
            if here.is_empty() {
                // Its slot is on the move; a count is not worth waiting for it.
                return Ok(());
            }
            while !here.is_empty() {
                let some = here.split_off(here.len().saturating_sub(AT_ONCE));
                let mut pipeline = redis::pipe();
                for (id, repeats) in some {
                    let key = self.key_of_repeats(id);
                    let counts = [repeats.replays, repeats.mismatches];
                    let times = [repeats.replayed_at, repeats.mismatched_at];
                    for ((count, time), at) in counts.into_iter().zip(times).zip(0..) {
                        if let (Some(time), [Some(counted), Some(when)]) = (time, [FIELDS.get(at), FIELDS.get(at + 2)])
                        {
                            pipeline.cmd("HINCRBY").arg(&key).arg(counted).arg(count);
                            pipeline.cmd("HSET").arg(&key).arg(when).arg(time.as_millis());
                        }
                    }
                    pipeline.cmd("EXPIRE").arg(&key).arg(KEPT_FOR.as_secs());
                }
                // One that is refused is lost.
                self.servers.pipeline(&link, &pipeline).await?;
            }
        }
        Ok(())
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
