//! Telling an operator of a record that has stayed unknown for a while.
//!
//! Which node tells is decided in the record. It is told at least once: if that
//! fails, or its node ends meanwhile, it is tried again.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

use super::Engine;
use crate::destination::{Outbound, OutboundBody, Wanted};
use crate::model::decision::Amendment;
use crate::model::inquiry::Errand;
use crate::model::record::{Record, RecordState};
use crate::plan::notify::{Notify, Recipient};
use crate::plan::route::DestinationPlan;
use crate::receipt;
use crate::store::StoreError;

/// How long a recipient may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// For how long whoever tells is believed; then it is tried again.
const BELIEVED: Duration = Duration::from_secs(60);

impl Engine {
    /// Tells of a record that is unknown, unless somebody else does.
    pub(super) async fn tell(&self, record: &Record, notify: &Notify) -> Result<(), StoreError> {
        let RecordState::Unknown(doubt) = &record.state else { return Ok(()) };
        let id = record.id();
        let until = self.store.now().after(BELIEVED);
        if self.amend(id, Amendment::Undertake(doubt.token, Errand::Notice, until)).await?.is_err() {
            return Ok(());
        }
        let repeats = self.repeats(id).await.unwrap_or_default();
        let document = receipt::receipt(record, &repeats).to_string();
        let sent = async {
            match &notify.to {
                Recipient::Webhook { destination, target, headers } => {
                    self.post(destination, target, headers.clone(), document).await
                }
                Recipient::Command(command) => run(command, document).await,
            }
        };
        let sent = tokio::select! {
            sent = timeout(PATIENCE, sent) => sent,
            // A stop waits for no recipient: another node, or the next run, tells.
            () = self.stopping.draining.cancelled() => return Ok(()),
        };
        match sent.unwrap_or_else(|_| Err("it did not take it in time".into())) {
            Ok(()) => {
                self.metrics.notice("delivered");
                tracing::info!(record = %id, route = %record.route, "told of a record that has stayed unknown");
                // Whoever ended it meanwhile has made this needless.
                drop(self.amend(id, Amendment::Told(doubt.token)).await?);
            }
            Err(detail) => {
                self.metrics.notice("failed");
                tracing::warn!(record = %id, route = %record.route, detail, "nobody could be told of an unknown record; that is tried again");
            }
        }
        Ok(())
    }

    async fn post(
        &self,
        destination: &Arc<DestinationPlan>,
        target: &str,
        headers: HeaderMap,
        document: String,
    ) -> Result<(), String> {
        let (mut head, ()) = Request::new(()).into_parts();
        head.method = Method::POST;
        head.uri = target.parse::<Uri>().map_err(|error| error.to_string())?;
        head.headers = headers;
        let host = HeaderValue::from_str(&destination.authority).map_err(|error| error.to_string())?;
        head.headers.insert(HOST, host);
        head.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let connection = self.destination.acquire(destination, Wanted::Any).await.map_err(|failure| failure.detail)?;
        let outbound = Outbound { head, body: OutboundBody::whole(Bytes::from(document)) };
        let answer = connection.send(outbound).await.map_err(|failure| failure.detail)?;
        if answer.status.is_success() { Ok(()) } else { Err(format!("it answered {}", answer.status.as_u16())) }
    }
}

/// A command that runs, and what it has started. All of it ends if this is dropped
/// before it was waited for.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // Where all have ended there is nobody to signal.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Runs a command with the document on its standard input.
async fn run(command: &[String], document: String) -> Result<(), String> {
    let (program, arguments) = command.split_first().ok_or("there is no command")?;
    let mut child = Command::new(program)
        .args(arguments)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("it cannot be run: {error}"))?;
    let mut group = Group(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
    if let Some(mut input) = child.stdin.take()
        && let Err(error) = input.write_all(document.as_bytes()).await
        // One that does not read it may know enough without it.
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        return Err(format!("it cannot be written to: {error}"));
    }
    let ended = child.wait().await.map_err(|error| error.to_string())?;
    // What goes on behind it is meant to, and its number is free.
    group.0 = None;
    if ended.success() { Ok(()) } else { Err(format!("it ended with {ended}")) }
}
