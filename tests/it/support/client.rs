//! A client that sends exact bytes and hears exact answers.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::answer::{self, Answer, End};
use super::request::Request;
use super::wire::{Framing, Wire};
use super::{A_WHILE, within};

/// One connection.
#[derive(Debug)]
pub(crate) struct Client {
    wire: Wire,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = within("the proxy accepts", TcpStream::connect(address)).await;
        Self::over(stream.expect("the proxy accepts connections"))
    }

    pub(crate) fn over(stream: TcpStream) -> Self {
        Self { wire: Wire::new(stream) }
    }

    pub(crate) async fn send(&mut self, request: &Request) {
        self.send_bytes(&request.bytes()).await;
    }

    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        within("the proxy takes bytes", self.wire.send(bytes)).await.expect("the connection still stands");
    }

    /// Sends as much as the other side takes before it turns its back.
    pub(crate) async fn send_what_goes(&mut self, bytes: &[u8]) {
        // What is heard afterwards matters, not how far this came.
        let _ = within("the proxy takes bytes or closes", self.wire.send(bytes)).await;
    }

    /// Sends a request and hears its answer.
    pub(crate) async fn ask(&mut self, request: &Request) -> Answer {
        self.send_what_goes(&request.bytes()).await;
        if request.is_head() { self.begin().await } else { self.answer().await }
    }

    /// The head of the next final answer, the body being still to come.
    pub(crate) async fn begin(&mut self) -> Answer {
        self.try_begin().await.unwrap_or_else(|| panic!("the connection ended without an answer"))
    }

    /// The status of the next head, interim ones included.
    pub(crate) async fn interim_head(&mut self) -> u16 {
        answer::status(&self.wire.head().await.expect("an answer comes"))
    }

    async fn try_begin(&mut self) -> Option<Answer> {
        let mut interim = Vec::new();
        loop {
            let head = self.wire.head().await.ok()?;
            match answer::status(&head) {
                status @ 100..=199 => interim.push(status),
                _ => return Some(Answer::of(head, interim)),
            }
        }
    }

    /// The next answer, to its end or to where it broke off.
    pub(crate) async fn answer(&mut self) -> Answer {
        self.hear().await.unwrap_or_else(|| panic!("the connection ended without an answer"))
    }

    /// The next answer, or nothing if the connection ends without one.
    pub(crate) async fn hear(&mut self) -> Option<Answer> {
        let answer = self.try_begin().await?;
        Some(self.finish(answer).await)
    }

    /// Hears the rest of an answer that has begun.
    pub(crate) async fn finish(&mut self, mut answer: Answer) -> Answer {
        if matches!(answer.status, 204 | 304) {
            answer.end = End::Whole;
            return answer;
        }
        let heard = match framing(&answer) {
            Framing::Unsaid => self.wire.until_the_end(&mut answer.body).await,
            framing => match self.wire.body(framing, &mut answer.body).await {
                Ok(trailers) => {
                    answer.trailers = trailers;
                    Ok(())
                }
                Err(error) => Err(error),
            },
        };
        if heard.is_ok() {
            answer.end = End::Whole;
        }
        answer
    }

    /// The next chunk of a streamed answer.
    pub(crate) async fn chunk(&mut self) -> String {
        let chunk = self.wire.chunk().await.expect("the answer goes on");
        String::from_utf8_lossy(&chunk).into_owned()
    }

    /// The next bytes of an answer's body of known length.
    pub(crate) async fn exactly(&mut self, count: usize) -> Vec<u8> {
        self.wire.exactly(count).await.expect("the answer goes on")
    }

    /// Whether nothing arrives, and the connection stands, for a while.
    pub(crate) async fn hears_nothing_for_a_while(&mut self) -> bool {
        timeout(A_WHILE, self.wire.stirs()).await.is_err()
    }

    /// Whether nothing has arrived so far, and the connection stands.
    pub(crate) async fn hears_nothing_yet(&mut self) -> bool {
        timeout(Duration::ZERO, self.wire.stirs()).await.is_err()
    }

    /// Waits until the other side ends the connection, with nothing more said.
    pub(crate) async fn is_closed(&mut self) {
        let mut rest = Vec::new();
        // A reset ends it as well.
        let _ = self.wire.until_the_end(&mut rest).await;
        assert!(rest.is_empty(), "more came: {:?}", String::from_utf8_lossy(&rest));
    }

    /// Says that nothing more will be sent, and goes on listening.
    pub(crate) async fn half_close(&mut self) {
        self.wire.half_close().await;
    }

    /// Leaves with a reset. To leave with a FIN, drop it.
    pub(crate) fn reset(self) {
        self.wire.reset();
    }
}

fn framing(answer: &Answer) -> Framing {
    let chunked = answer.header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"));
    match answer.header("content-length") {
        _ if chunked => Framing::Chunked,
        Some(length) => Framing::Length(length.parse().expect("Content-Length is a number")),
        None => Framing::Unsaid,
    }
}

/// A request that is on its way, on a connection of its own.
#[derive(Debug)]
pub(crate) struct Pending(JoinHandle<Option<Answer>>);

impl Pending {
    pub(crate) fn send(address: SocketAddr, request: Request) -> Self {
        Self(tokio::spawn(async move {
            let mut client = Client::connect(address).await;
            client.send_what_goes(&request.bytes()).await;
            client.hear().await
        }))
    }

    pub(crate) async fn answer(self) -> Answer {
        self.outcome().await.unwrap_or_else(|| panic!("the connection ended without an answer"))
    }

    /// The answer, or nothing if the connection ended without one.
    pub(crate) async fn outcome(self) -> Option<Answer> {
        within("an answer comes", self.0).await.expect("the client did not panic")
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.is_finished()
    }
}
