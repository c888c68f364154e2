//! The one script, as it is called and as it answers.

use redis::Value;

use super::row::Row;
use super::servers::Fault;
use crate::model::time::Timestamp;

/// The text of the script; what it does is told there.
pub(super) const TEXT: &str = include_str!("scripts/put.lua");

/// One call.
#[derive(Debug, Default)]
pub(super) struct Put<'a> {
    /// The row as the caller knows it.
    pub(super) expected: Option<&'a [u8]>,
    /// What is to be written; `None`: it only looks.
    pub(super) next: Option<&'a Row>,
    /// Between which times of the server.
    pub(super) window: (Timestamp, Timestamp),
    /// Whether the caller waits if the row stands open.
    pub(super) waits: bool,
    /// Whom to tell what, if somebody waits for this row.
    pub(super) news: Option<(&'a str, &'a [u8])>,
    /// The time, where a test says what it is.
    pub(super) now: Option<Timestamp>,
}

/// The answer, and the server's time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) at: Timestamp,
    pub(super) outcome: Outcome,
}

/// What a call came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The row is written.
    Written,
    /// Nothing was written; this is what there is.
    Found(Option<Vec<u8>>),
    /// It came too late, or the caller's idea of the time is wrong.
    Untimely(Option<Vec<u8>>),
    /// What is there is no row of ours.
    Foreign,
}

impl Put<'_> {
    /// Calls the script through `call`, which is given its arguments.
    pub(super) async fn run<T>(&self, call: impl AsyncFnOnce(&[&[u8]]) -> T) -> T {
        let millis = |time: Option<Timestamp>| time.map(|time| time.as_millis().to_string()).unwrap_or_default();
        let row = self.next;
        let (due, expires) = (millis(row.and_then(|row| row.due)), millis(row.and_then(|row| row.expires)));
        let (earliest, latest) = (millis(Some(self.window.0)), millis(Some(self.window.1)));
        let now = millis(self.now);
        let (channel, news) = self.news.unwrap_or_default();
        call(&[
            self.expected.unwrap_or_default(),
            row.map(|row| &row.bytes[..]).unwrap_or_default(),
            row.map(|row| row.shape).unwrap_or_default().as_bytes(),
            due.as_bytes(),
            expires.as_bytes(),
            earliest.as_bytes(),
            latest.as_bytes(),
            if self.waits { b"1" } else { b"" },
            channel.as_bytes(),
            news,
            now.as_bytes(),
        ])
        .await
    }
}

impl Answered {
    /// Reads the script's answer.
    pub(super) fn read(value: Value) -> Result<Self, Fault> {
        let strange = || Fault::Refused("its answer to the script cannot be read".into());
        let Value::Array(parts) = value else { return Err(strange()) };
        let mut parts = parts.into_iter();
        let (Some(Value::Int(at)), Some(word)) = (parts.next(), parts.next()) else { return Err(strange()) };
        let at = Timestamp::from_millis(u64::try_from(at).map_err(|_| strange())?);
        let row = match parts.next() {
            Some(Value::BulkString(row)) => Some(row),
            // An absent row ends the array where the script says `false`.
            Some(Value::Nil) | None => None,
            Some(_) => return Err(strange()),
        };
        let word = match &word {
            Value::BulkString(word) => word.as_slice(),
            Value::SimpleString(word) => word.as_bytes(),
            _ => return Err(strange()),
        };
        let outcome = match word {
            b"written" => Outcome::Written,
            b"found" => Outcome::Found(row),
            b"untimely" => Outcome::Untimely(row),
            b"foreign" => Outcome::Foreign,
            _ => return Err(strange()),
        };
        Ok(Self { at, outcome })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn an_answer_is_read_and_a_strange_one_is_a_fault() {
        let read = |parts: Vec<Value>| Answered::read(Value::Array(parts)).map(|answered| answered.outcome);
        assert_eq!(read(vec![Value::Int(5), bulk("written")]), Ok(Outcome::Written));
        assert_eq!(read(vec![Value::Int(5), bulk("found"), Value::Nil]), Ok(Outcome::Found(None)));
        assert_eq!(read(vec![Value::Int(5), bulk("found"), bulk("row")]), Ok(Outcome::Found(Some(b"row".to_vec()))));
        assert_eq!(read(vec![Value::Int(5), bulk("untimely")]), Ok(Outcome::Untimely(None)));
        assert_eq!(read(vec![Value::Int(5), bulk("foreign")]), Ok(Outcome::Foreign));
        for strange in
            [vec![], vec![bulk("written")], vec![Value::Int(-1), bulk("written")], vec![Value::Int(5), bulk("x")]]
        {
            assert!(read(strange).is_err());
        }
        assert!(Answered::read(Value::Nil).is_err());
    }
}
