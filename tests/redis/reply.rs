//! A client small enough to read at a glance: one command, one connection.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(2);

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Text(String),
    Int(i64),
    Nil,
    List(Vec<Reply>),
    Error(String),
}

impl Reply {
    /// The text, or a panic.
    pub fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Int(int) => int.to_string(),
            Self::Nil | Self::List(_) | Self::Error(_) => panic!("not a text: {self:?}"),
        }
    }

    /// The elements, or a panic.
    pub fn list(self) -> Vec<Reply> {
        match self {
            Self::List(list) => list,
            Self::Text(_) | Self::Int(_) | Self::Nil | Self::Error(_) => panic!("not a list: {self:?}"),
        }
    }

    /// Panics unless the command was done.
    pub fn done(self) {
        assert!(!matches!(self, Self::Error(_)), "{self:?}");
    }
}

pub(super) fn command(port: u16, password: Option<&str>, words: &[&str]) -> io::Result<Reply> {
    let mut stream = TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    if let Some(password) = password {
        stream.write_all(&request(&["AUTH", password]))?;
        read(&mut reader)?;
    }
    stream.write_all(&request(words))?;
    read(&mut reader)
}

fn request(words: &[&str]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    request.into_bytes()
}

fn read(reader: &mut BufReader<TcpStream>) -> io::Result<Reply> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let rest = line[1..].trim_end().to_owned();
    let number = || rest.parse::<i64>().map_err(io::Error::other);
    Ok(match line.as_bytes()[0] {
        b'+' => Reply::Text(rest),
        b'-' => Reply::Error(rest),
        b':' => Reply::Int(number()?),
        b'$' => match usize::try_from(number()?) {
            Err(_) => Reply::Nil,
            Ok(length) => {
                let mut bytes = vec![0; length + 2];
                reader.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Reply::Text(String::from_utf8_lossy(&bytes).into_owned())
            }
        },
        b'*' => match usize::try_from(number()?) {
            Err(_) => Reply::Nil,
            Ok(count) => Reply::List((0..count).map(|_| read(reader)).collect::<io::Result<_>>()?),
        },
        _ => return Err(io::Error::other(line)),
    })
}
