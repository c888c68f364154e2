//! Hears what is published on one channel.
//!
//! Messages may get lost on their way, and nobody but this knows when: after
//! each time it did not listen it says so. It never waits for whoever reads
//! its news, and keeps no more than a bounded number for them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::time::{MissedTickBehavior, interval};

use super::connect::{Address, answer};
use super::fault::Fault;
use super::pace::Pace;
use super::shared::Shared;

/// News that may wait to be read.
pub(super) const UNREAD: usize = 1_024;
/// How often the connection is asked whether it still lives.
const BEAT: Duration = Duration::from_secs(1);

/// How often in a row a subscription fails, at a server that can be reached,
/// before it is told: once may be its end.
const FAILURES: u32 = 3;

/// What an ear tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store::redis) enum News {
    /// Somebody published this.
    Message(Vec<u8>),
    /// Until now nobody listened, or nobody read: messages may be missing.
    Lost,
}

/// Listens until all is closed or the news are not wanted any more.
pub(super) async fn listen(shared: Arc<Shared>, channel: String, news: mpsc::Sender<News>) {
    let mut outlet = Outlet { news, owes_lost: false };
    let mut pace = Pace::new();
    let closed = outlet.news.clone();
    let closing = shared.closing.clone();
    let listening = closing.run_until_cancelled(async {
        let mut failures = 0_u32;
        loop {
            // Where nobody is connected, there is nobody to listen to.
            if let Some(address) = shared.somewhere() {
                let why = match hear(&shared, &address, &channel, &mut outlet, &mut pace).await {
                    Ok(why) => {
                        failures = 0;
                        why
                    }
                    Err(fault) => {
                        failures = failures.saturating_add(1);
                        fault.why()
                    }
                };
                if failures == FAILURES {
                    tracing::warn!(redis = %address, channel, reason = why, "redis: the channel cannot be subscribed to; who waits for another node is told up to a second late");
                }
                tracing::debug!(redis = %address, reason = why, "redis: the subscription ended");
            }
            pace.wait().await;
        }
    });
    tokio::select! {
        _ = listening => {}
        () = closed.closed() => {}
    }
}

/// Subscribes, and listens until that ends; why it did.
async fn hear(
    shared: &Shared,
    address: &Address,
    channel: &str,
    outlet: &mut Outlet,
    pace: &mut Pace,
) -> Result<String, Fault> {
    let (messages, gauge) = shared.dialer.dial_for_messages(address, &shared.login).await?;
    let (mut sink, mut messages) = messages.split();
    answer(shared.dialer.timeout(), sink.subscribe(channel)).await?;
    pace.well();
    outlet.owe_lost();
    let mut beats = interval(BEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut pinger = sink.clone();
    let silent = async {
        loop {
            beats.tick().await;
            if let Err(fault) = answer::<redis::Value>(shared.dialer.timeout(), pinger.ping()).await {
                return fault.why();
            }
            gauge.reset();
            if !shared.is_somewhere(address) {
                return "it is no longer a master".to_owned();
            }
        }
    };
    let mut silent = std::pin::pin!(silent);
    let mut debts = interval(BEAT);
    loop {
        tokio::select! {
            why = &mut silent => return Ok(why),
            message = messages.next() => match message {
                Some(message) => {
                    gauge.reset();
                    outlet.tell(message.get_payload_bytes().to_vec());
                }
                None => return Ok("the server ended the connection".to_owned()),
            },
            _ = debts.tick() => outlet.settle(),
        }
    }
}

/// Gives news out, and remembers when it could not.
struct Outlet {
    news: mpsc::Sender<News>,
    owes_lost: bool,
}

impl Outlet {
    fn owe_lost(&mut self) {
        self.owes_lost = true;
        self.settle();
    }

    /// Says that news were lost, if it has to and can.
    fn settle(&mut self) {
        if self.owes_lost {
            self.owes_lost = self.news.try_send(News::Lost).is_err();
        }
    }

    fn tell(&mut self, message: Vec<u8>) {
        self.settle();
        match self.news.try_send(News::Message(message)) {
            Ok(()) | Err(TrySendError::Closed(_)) => {}
            Err(TrySendError::Full(_)) => self.owes_lost = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_reader_is_told_that_news_are_missing() {
        let (news, mut reader) = mpsc::channel(2);
        let mut outlet = Outlet { news, owes_lost: false };
        for message in [b"1", b"2", b"3"] {
            outlet.tell(message.to_vec());
        }
        assert_eq!(reader.try_recv(), Ok(News::Message(b"1".to_vec())));
        outlet.settle();
        assert_eq!(reader.try_recv(), Ok(News::Message(b"2".to_vec())));
        assert_eq!(reader.try_recv(), Ok(News::Lost));
        outlet.tell(b"4".to_vec());
        assert_eq!(reader.try_recv(), Ok(News::Message(b"4".to_vec())));
    }
}
