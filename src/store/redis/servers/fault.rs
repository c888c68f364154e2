//! What went wrong with a call, told by what it means for the caller: was the
//! command surely not executed, or can nobody say?
//!
//! This is the only file that decides it. It must never call a command "surely
//! not executed" on a guess, and never repeat a key or a credential: messages
//! are for an operator's eyes and logs.

use std::time::Duration;

use redis::{RedisError, ServerError, ServerErrorKind};

use super::connect::Address;

/// Longest message of a server that is passed on.
const MESSAGE: usize = 200;

/// Why a call brought no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::store::redis) enum Fault {
    /// Surely not executed.
    #[error("redis is unavailable: {0}")]
    Unavailable(String),
    /// Surely not executed: the server can be reached, and says that it does not
    /// do such a thing at present.
    #[error("redis does not take this now: {0}")]
    NotNow(String),
    /// It may have been executed, or may yet be.
    #[error("redis did not answer: {0}")]
    Unclear(String),
    /// Not executed: the server's memory is used up.
    #[error("redis is full: its memory limit is reached")]
    Full,
    /// The server refuses such a command: a defect, or missing rights.
    #[error("redis refused a command: {0}")]
    Refused(String),
}

impl Fault {
    /// Of a connection that ended, or was never in order, with a command on it.
    /// The crate does not tell whether the bytes were on the wire, so none is
    /// taken as unwritten.
    pub(super) fn of_lost(address: &Address, error: &RedisError) -> Self {
        Self::Unclear(format!("{address}: the connection broke ({})", broken(error)))
    }

    /// Of a time that ran out with a command on its way.
    pub(super) fn of_silence(address: &Address, timeout: Duration) -> Self {
        Self::Unclear(format!("{address}: no answer within {timeout:?}"))
    }

    /// The same, with the server it came from.
    pub(super) fn at(self, address: &Address) -> Self {
        match self {
            Self::Unavailable(why) => Self::Unavailable(format!("{address}: {why}")),
            Self::NotNow(why) => Self::NotNow(format!("{address}: {why}")),
            Self::Unclear(why) => Self::Unclear(format!("{address}: {why}")),
            Self::Refused(why) => Self::Refused(format!("{address}: {why}")),
            Self::Full => Self::Full,
        }
    }

    /// What happened, without what it means.
    pub(super) fn why(&self) -> String {
        match self {
            Self::Unavailable(why) | Self::NotNow(why) | Self::Unclear(why) | Self::Refused(why) => why.clone(),
            Self::Full => self.to_string(),
        }
    }

    /// Of an error reply.
    pub(super) fn of_reply(error: &ServerError) -> Self {
        let (code, details) = (error.code(), error.details().unwrap_or_default());
        // Servers before 7 hand an error inside a script on as a text, with
        // the code in it.
        let code = if code == "ERR" { nested_code(details).unwrap_or(code) } else { code };
        match code {
            // A script is refused for these at its first write or not at all,
            // so nothing of it was done.
            "OOM" => Self::Full,
            "LOADING" | "READONLY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "BUSY" | "NOREPLICAS" | "MISCONF"
            | "NOAUTH" | "WRONGPASS" | "MOVED" | "ASK" => Self::NotNow(message(error)),
            "ERR" if details.starts_with("max number of clients") => Self::NotNow(message(error)),
            _ => Self::Refused(message(error)),
        }
    }
}

/// What an error reply means for the connection it came on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aftermath {
    /// Nothing.
    Keep,
    /// This is no master, or not for us: it has to be found anew.
    Leave,
    /// The slots have moved.
    Remap,
}

impl Aftermath {
    pub(super) fn of(error: &ServerError) -> Self {
        let (code, details) = (error.code(), error.details().unwrap_or_default());
        let code = if code == "ERR" { nested_code(details).unwrap_or(code) } else { code };
        match code {
            "READONLY" | "MASTERDOWN" | "NOAUTH" | "WRONGPASS" => Self::Leave,
            "MOVED" | "ASK" | "CLUSTERDOWN" => Self::Remap,
            _ => Self::Keep,
        }
    }
}

/// Where the server says the slot is: `MOVED` for good, `ASK` for this command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Redirect {
    pub(super) asking: bool,
    /// `host:port`; the host is empty if it is the one that was asked.
    pub(super) address: String,
}

impl Redirect {
    pub(super) fn of(error: &ServerError) -> Option<Self> {
        let asking = match error.kind()? {
            ServerErrorKind::Ask => true,
            ServerErrorKind::Moved => false,
            _ => return None,
        };
        let address = error.details()?.split_ascii_whitespace().nth(1)?.to_owned();
        Some(Self { asking, address })
    }
}

/// The code of an error that a script of an older server handed on.
fn nested_code(details: &str) -> Option<&str> {
    let nested = details.split(": -").nth(1)?.split_ascii_whitespace().next()?;
    nested.bytes().all(|byte| byte.is_ascii_uppercase()).then_some(nested)
}

/// A server's message, bounded, in one line, and without the arguments that
/// some messages repeat.
pub(super) fn message(error: &ServerError) -> String {
    let details = error.details().unwrap_or_default();
    let details = details.split(", with args").next().unwrap_or_default();
    clean(&format!("{} {details}", error.code()))
}

fn clean(text: &str) -> String {
    text.chars().take(MESSAGE).map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim_end().to_owned()
}

/// Why a connection could not be made or broke, in few words.
pub(super) fn broken(error: &RedisError) -> String {
    clean(&error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(text: &str) -> ServerError {
        let value = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
        let redis::Value::ServerError(error) = value else { panic!("{value:?}") };
        error
    }

    #[test]
    fn an_error_reply_says_whether_the_command_ran() {
        for unavailable in [
            "LOADING Redis is loading the dataset in memory",
            "READONLY You can't write against a read only replica.",
            "READONLY You can't write against a read only replica. script: abc, on @user_script:1.",
            "MISCONF Errors writing to the AOF file: No space left on device",
            "NOREPLICAS Not enough good replicas to write.",
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "CLUSTERDOWN The cluster is down",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "NOAUTH Authentication required.",
            "ERR max number of clients reached",
            "ERR Error running script (call to f_1): @user_script:1: -READONLY You can't write against a read only replica.",
        ] {
            assert!(matches!(Fault::of_reply(&reply(unavailable)), Fault::NotNow(_)), "{unavailable}");
        }
        for full in [
            "OOM command not allowed when used memory > 'maxmemory'.",
            "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM command not allowed when used memory > 'maxmemory'.",
        ] {
            assert_eq!(Fault::of_reply(&reply(full)), Fault::Full, "{full}");
        }
        for refused in [
            "NOPERM this user has no permissions to run the 'evalsha' command",
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            "ERR user_script:1: Script attempted to access nonexistent global variable 'x'",
        ] {
            assert!(matches!(Fault::of_reply(&reply(refused)), Fault::Refused(_)), "{refused}");
        }
    }

    #[test]
    fn no_argument_of_a_command_is_repeated() {
        let fault = Fault::of_reply(&reply("ERR unknown command 'EVALSHA', with args beginning with: 'secret' 'key' "));
        assert_eq!(fault, Fault::Refused("ERR unknown command 'EVALSHA'".into()));
    }

    #[test]
    fn a_redirect_names_a_place() {
        let moved = Redirect::of(&reply("MOVED 3999 127.0.0.1:6381")).unwrap();
        assert_eq!(moved, Redirect { asking: false, address: "127.0.0.1:6381".into() });
        let ask = Redirect::of(&reply("ASK 3999 :6381")).unwrap();
        assert_eq!(ask, Redirect { asking: true, address: ":6381".into() });
        assert_eq!(Redirect::of(&reply("MOVED 3999")), None);
        assert_eq!(Redirect::of(&reply("ERR no")), None);
    }
}
