//! What is said first on a new connection: the login, the database, our name.
//!
//! Said here and not by the crate, which keeps to itself what a server says
//! against a login. What is handed on of that never holds the login.

use std::io;

use redis::{Cmd, ServerError, Value};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::fault::message;
use super::tls;
use crate::plan::{RedisUrl, Secret};

/// What `CLIENT LIST` calls us.
const NAME: &str = "onceward";
/// Longest line that is read; the longest known is about a kilobyte.
const LINE: usize = 8 << 10;

/// Credentials, database and whether TLS is spoken.
#[derive(Debug, Clone)]
pub(super) struct Login {
    pub(super) tls: bool,
    username: Option<String>,
    password: Option<Secret>,
    database: u32,
}

impl Login {
    pub(super) fn of(url: &RedisUrl) -> Self {
        Self { tls: url.tls, username: url.username.clone(), password: url.password.clone(), database: url.database }
    }

    /// Says who we are and where we want to be.
    ///
    /// # Errors
    /// What the server has against it, or why it was not heard.
    pub(super) async fn introduce<S>(&self, stream: &mut S) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let steps = self.steps();
        let packed: Vec<u8> = steps.iter().flat_map(|(_, cmd)| cmd.get_packed_command()).collect();
        // One that takes nothing may still say why: its answer is read anyway.
        let _ = stream.write_all(&packed).await;
        let _ = stream.flush().await;
        let mut came = Vec::new();
        for (index, (step, _)) in steps.iter().enumerate() {
            let unheard = |unheard| self.unheard(unheard, index > 0);
            if let Value::ServerError(error) = line(stream, &mut came).await.map_err(unheard)? {
                self.heed(*step, &error)?;
            }
        }
        if came.is_empty() { Ok(()) } else { Err(self.unheard(Unheard::Foreign, true)) }
    }

    fn steps(&self) -> Vec<(Step, Cmd)> {
        let mut steps = Vec::with_capacity(3);
        if let Some(password) = &self.password {
            let mut auth = redis::cmd("AUTH");
            auth.arg(self.username.as_deref()).arg(password.reveal());
            steps.push((Step::Auth, auth));
        }
        if self.database != 0 {
            let mut select = redis::cmd("SELECT");
            select.arg(self.database);
            steps.push((Step::Select, select));
        }
        let mut name = redis::cmd("CLIENT");
        name.arg("SETNAME").arg(NAME);
        steps.push((Step::Name, name));
        steps
    }

    fn heed(&self, step: Step, error: &ServerError) -> Result<(), String> {
        let said = self.without_login(message(error));
        // These say it to whatever comes first.
        let turned_away = error.code() == "DENIED" || said.starts_with("ERR max number of clients");
        match step {
            _ if turned_away => Err(said),
            Step::Auth => Err(format!("authentication failed: {said}")),
            Step::Select => Err(format!("database {}: {said}", self.database)),
            // It may be forbidden, and nothing hangs on it.
            Step::Name => Ok(()),
        }
    }

    /// No known server repeats a login; what does is no server to quote.
    fn without_login(&self, said: String) -> String {
        let password = self.password.as_ref().map(Secret::reveal);
        let mut parts = self.username.as_deref().into_iter().chain(password).filter(|part| !part.is_empty());
        if parts.any(|part| said.contains(part)) { "the server's reason repeats the login".to_owned() } else { said }
    }

    fn unheard(&self, unheard: Unheard, answered: bool) -> String {
        let error = match unheard {
            Unheard::Foreign if self.tls => return "its answer is not Redis's; is it another kind of server?".into(),
            Unheard::Foreign => {
                return "its answer is not Redis's; does it speak TLS (`rediss://`), or is it another kind of server?"
                    .into();
            }
            Unheard::Broken(error) => error,
        };
        let is_end = |error: &io::Error| {
            use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
            matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
        };
        match (is_end(&error), self.tls) {
            (true, _) if answered => "it ended the connection".to_owned(),
            (true, false) => "it ended the connection before it answered; does it speak TLS (`rediss://`)?".to_owned(),
            (true, true) => format!("it ended the connection before it answered; {}", tls::NO_CERTIFICATE),
            (false, true) => tls::explain(&error),
            (false, false) => error.to_string(),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Auth,
    Select,
    Name,
}

/// Why there was no answer.
enum Unheard {
    Broken(io::Error),
    /// It is not in Redis's language.
    Foreign,
}

/// The next answer, which is one line: `+OK` or `-ERR …`.
async fn line<S: AsyncRead + Unpin>(stream: &mut S, came: &mut Vec<u8>) -> Result<Value, Unheard> {
    loop {
        if came.first().is_some_and(|first| !b"+-".contains(first)) || came.len() > LINE {
            return Err(Unheard::Foreign);
        }
        if let Some(end) = came.windows(2).position(|two| two == b"\r\n") {
            let line: Vec<u8> = came.drain(..end + 2).collect();
            return redis::parse_redis_value(&line).map_err(|_| Unheard::Foreign);
        }
        match stream.read_buf(came).await {
            Ok(0) => return Err(Unheard::Broken(io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => {}
            Err(error) => return Err(Unheard::Broken(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(username: Option<&str>, password: Option<&str>, database: u32, tls: bool) -> Login {
        let password = password.map(|password| Secret::new(password.to_owned()));
        Login { tls, username: username.map(str::to_owned), password, database }
    }

    async fn told(login: &Login, answers: &[u8]) -> Result<(), String> {
        let (mut ours, mut theirs) = tokio::io::duplex(1 << 16);
        theirs.write_all(answers).await.unwrap();
        theirs.shutdown().await.unwrap();
        login.introduce(&mut ours).await
    }

    #[tokio::test]
    async fn what_a_server_has_against_a_login_is_told() {
        let all = login(Some("shop"), Some("secret"), 16, false);
        for (answers, says) in [
            (
                "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
                "authentication failed: WRONGPASS invalid",
            ),
            (
                "-ERR AUTH <password> called without any password configured for the default user.\r\n",
                "without any password configured",
            ),
            ("+OK\r\n-ERR DB index is out of range\r\n", "database 16: ERR DB index is out of range"),
            ("-DENIED Redis is running in protected mode\r\n", "DENIED Redis is running in protected mode"),
            ("-ERR max number of clients reached\r\n", "ERR max number of clients reached"),
            ("+OK\r\n+OK\r\n", "it ended the connection"),
            ("", "it ended the connection before it answered; does it speak TLS (`rediss://`)?"),
            ("HTTP/1.1 400 Bad Request\r\n\r\n", "its answer is not Redis's; does it speak TLS"),
            ("\x15\x03\x03\x00\x02\x02\x0a", "its answer is not Redis's; does it speak TLS"),
            ("+OK\r\n+OK\r\n+OK\r\n+more\r\n", "its answer is not Redis's"),
        ] {
            let told = told(&all, answers.as_bytes()).await;
            assert!(told.as_ref().is_err_and(|why| why.contains(says)), "{answers}: {told:?}");
        }
        assert_eq!(told(&all, b"+OK\r\n+OK\r\n-NOPERM this user has no permissions\r\n").await, Ok(()));
        let nobody = login(None, None, 0, true);
        assert_eq!(told(&nobody, b"-NOAUTH Authentication required.\r\n").await, Ok(()));
        assert!(told(&nobody, b"").await.is_err_and(|why| why.contains("client certificate")));
        assert!(told(&nobody, b"-DENIED Redis is running in protected mode\r\n").await.is_err());
    }

    #[tokio::test]
    async fn a_login_that_a_server_repeats_is_not_shown() {
        let login = login(Some("shop"), Some("secret"), 0, false);
        for answers in [
            "-ERR unknown command 'AUTH', with args beginning with: 'shop' 'secret' \r\n",
            "-ERR no such login: shop\r\n",
            "-secret is wrong\r\n",
            "secret\r\n",
        ] {
            let why = told(&login, answers.as_bytes()).await.unwrap_err();
            assert!(!why.contains("shop") && !why.contains("secret"), "{why}");
        }
    }

    #[tokio::test]
    async fn an_answer_without_end_is_not_waited_for() {
        let endless = vec![b'+'; LINE + 1];
        assert!(told(&login(None, None, 0, false), &endless).await.is_err());
    }
}
