//! A Lua script, and how it is run: by its digest, and by its text where the
//! server does not know it.
//!
//! A server forgets its scripts when it restarts or fails over, or when
//! somebody flushes them; no caller ever sees that.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, ServerErrorKind, Value};

/// A script on one key.
#[derive(Debug)]
pub(in crate::store::redis) struct Script {
    text: String,
    sha1: String,
}

impl Script {
    /// Of its text.
    pub(in crate::store::redis) fn new(text: &str) -> Self {
        Self { text: text.to_owned(), sha1: redis::Script::new(text).get_hash().to_owned() }
    }

    fn by_digest(&self, key: &[u8], args: &[&[u8]]) -> Cmd {
        call("EVALSHA", &self.sha1, key, args)
    }

    fn by_text(&self, key: &[u8], args: &[&[u8]]) -> Cmd {
        call("EVAL", &self.text, key, args)
    }

    /// Runs it. An error reply is a value here; an `Err` is a connection that
    /// broke. A server that says NOSCRIPT has not run it, so that the second
    /// sending is none of the kind that runs something twice.
    pub(super) async fn run(
        &self,
        connection: &mut MultiplexedConnection,
        key: &[u8],
        args: &[&[u8]],
        asking: bool,
    ) -> RedisResult<Value> {
        let reply = send(connection, self.by_digest(key, args), asking).await?;
        match &reply {
            Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript) => {
                send(connection, self.by_text(key, args), asking).await
            }
            _ => Ok(reply),
        }
    }
}

fn call(command: &str, script: &str, key: &[u8], args: &[&[u8]]) -> Cmd {
    let mut cmd = redis::cmd(command);
    cmd.arg(script).arg(1).arg(key);
    for arg in args {
        cmd.arg(*arg);
    }
    cmd
}

/// Sends a command; `asking` prefixes it with ASKING, in one write, so that no
/// other caller's command comes between the two.
async fn send(connection: &mut MultiplexedConnection, cmd: Cmd, asking: bool) -> RedisResult<Value> {
    if !asking {
        return connection.send_packed_command(&cmd).await;
    }
    let mut pipeline = Pipeline::with_capacity(2);
    pipeline.add_command(redis::cmd("ASKING")).add_command(cmd);
    let mut replies = connection.send_packed_commands(&pipeline, 0, 2).await?;
    Ok(replies.pop().unwrap_or(Value::Nil))
}
