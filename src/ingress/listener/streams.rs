//! What goes on on one HTTP/2 connection: how many exchanges run, which one
//! waits for a client that takes nothing, and whether the client only opens
//! streams to give them up.
//!
//! HTTP/2 has windows of its own above the socket, so that a client may take
//! nothing of one answer while its connection is fine. The socket cannot see
//! that; what can is the body, which is not asked for its next frame.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::TaskTracker;

use super::super::body::ClientBody;
use crate::destination::body::BodyError;

/// The most that is handed on at once, in bytes. The last piece of an answer is
/// out of sight once it is handed on; it is as small as a frame.
const PIECE: usize = 16 << 10;
/// How many streams a client may give up at once before it counts whether it
/// ever waits for an answer, and what at once is: nobody's patience is shorter.
const GIVEN_UP: u64 = 200;
const AT_ONCE: Duration = Duration::from_secs(1);

tokio::task_local! {
    /// Since when the last frame of this task's answer waits to be taken.
    static WAITING: Cell<Option<Instant>>;
}

/// The streams of one connection. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Streams {
    state: Arc<watch::Sender<State>>,
    tasks: TaskTracker,
    /// How long a client may take nothing of an answer.
    patience: Duration,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    has_stalled: bool,
    answered: u64,
    /// Streams that were given up at once.
    given_up: u64,
}

impl Streams {
    /// Runs exchanges as `tasks`, and cuts one whose client takes nothing for
    /// `patience`.
    pub(super) fn new(tasks: TaskTracker, patience: Duration) -> Self {
        Self { state: Arc::new(watch::Sender::default()), tasks, patience }
    }

    /// Resolves when nothing has run for this long.
    pub(super) async fn idle(&self, length: Duration) {
        let mut state = self.state.subscribe();
        loop {
            // The sender is `self`'s: it is there.
            let _ = state.wait_for(|state| state.running == 0).await;
            if timeout(length, state.changed()).await.is_err() {
                return;
            }
        }
    }

    /// Resolves once a stream was cut because nothing was taken of it. What it
    /// leaves behind may never go out, so that its connection has to end.
    pub(super) async fn stalled(&self) {
        let _ = self.state.subscribe().wait_for(|state| state.has_stalled).await;
    }

    /// Resolves once the client has shown that it opens streams to give them up
    /// (CVE-2023-44487): each costs the destination a request.
    pub(super) async fn flooded(&self) {
        let is_flood = |state: &State| state.given_up > GIVEN_UP.max(state.answered);
        let _ = self.state.subscribe().wait_for(is_flood).await;
    }

    /// Waits for an answer, and counts a stream that is given up before.
    pub(super) async fn answer<T>(&self, answer: impl Future<Output = T>) -> T {
        let mut waiting = Waiting { streams: self, since: Instant::now(), is_answered: false };
        let answer = answer.await;
        waiting.is_answered = true;
        answer
    }
}

/// An answer that is waited for. Dropped before it is there, it was given up.
struct Waiting<'a> {
    streams: &'a Streams,
    since: Instant,
    is_answered: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.streams.state.send_modify(|state| match self.is_answered {
            true => state.answered += 1,
            false => state.given_up += u64::from(self.since.elapsed() < AT_ONCE),
        });
    }
}

/// Counts a stream as long as it runs.
struct Running(Streams);

impl Running {
    fn begin(streams: &Streams) -> Self {
        streams.state.send_modify(|state| state.running += 1);
        Self(streams.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.state.send_modify(|state| state.running -= 1);
    }
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Streams {
    fn execute(&self, exchange: F) {
        let running = Running::begin(self);
        self.tasks.spawn(WAITING.scope(Cell::new(None), async move {
            tokio::select! {
                biased;
                () = exchange => {}
                () = waiting_for(running.0.patience) => {
                    running.0.state.send_modify(|state| state.has_stalled = true);
                }
            }
        }));
    }
}

/// Resolves when a frame of this task's answer has waited for so long. Looks
/// whenever the exchange has moved: they are one task.
async fn waiting_for(patience: Duration) {
    let mut end = pin!(sleep_until(Instant::now()));
    poll_fn(|cx| {
        let Ok(Some(since)) = WAITING.try_with(Cell::get) else { return Poll::Pending };
        if end.deadline() != since + patience {
            end.as_mut().reset(since + patience);
        }
        end.as_mut().poll(cx)
    })
    .await;
}

fn note_waiting(since: Option<Instant>) {
    // A body that somebody else takes is nobody's business here.
    let _ = WAITING.try_with(|waiting| waiting.set(since));
}

/// A body that tells the task it is sent by when a frame waits to be taken, and
/// gives no more at once than a [`PIECE`].
#[derive(Debug)]
pub(super) struct Paced {
    body: ClientBody,
    rest: Bytes,
}

impl Paced {
    pub(super) fn new(body: ClientBody) -> Self {
        Self { body, rest: Bytes::new() }
    }

    fn piece(&mut self) -> Frame<Bytes> {
        Frame::data(self.rest.split_to(self.rest.len().min(PIECE)))
    }
}

impl Body for Paced {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        note_waiting(None);
        let frame = if this.rest.is_empty() {
            match std::task::ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        this.rest = data;
                        this.piece()
                    }
                    Err(other) => other,
                },
                end => return Poll::Ready(end),
            }
        } else {
            this.piece()
        };
        note_waiting(Some(Instant::now()));
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let of_body = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest + of_body.lower());
        if let Some(upper) = of_body.upper() {
            hint.set_upper(rest + upper);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use hyper::rt::Executor;
    use tokio::time::sleep;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn streams() -> Streams {
        Streams::new(TaskTracker::new(), PATIENCE)
    }

    /// Sends a body to a client that takes each frame after a while.
    async fn send(mut body: Paced, pause: Duration) {
        while body.frame().await.is_some() {
            sleep(pause).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_when_nothing_has_run_for_long() {
        let streams = streams();
        let begun = Instant::now();
        streams.execute(sleep(Duration::from_secs(100)));
        let again = streams.clone();
        tokio::spawn(async move {
            sleep(Duration::from_secs(110)).await;
            // However short it is, the count begins again.
            again.execute(async {});
        });
        streams.idle(Duration::from_secs(30)).await;
        assert_eq!(begun.elapsed().as_secs(), 140);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_of_which_nothing_is_taken_is_cut() {
        let streams = streams();
        let begun = Instant::now();
        let body = Paced::new(ClientBody::whole(Bytes::from(vec![0; 10 * PIECE]), None));
        streams.execute(send(body, PATIENCE * 2));
        streams.stalled().await;
        assert_eq!(begun.elapsed(), PATIENCE);
        streams.tasks.close();
        streams.tasks.wait().await;
        assert_eq!(begun.elapsed(), PATIENCE, "the exchange has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_and_a_slow_client_are_not_cut() {
        let streams = streams();
        let body = Paced::new(ClientBody::whole(Bytes::from(vec![0; 10 * PIECE]), None));
        streams.execute(send(body, PATIENCE - Duration::from_secs(1)));
        streams.execute(sleep(PATIENCE * 20));
        streams.tasks.close();
        streams.tasks.wait().await;
        assert!(!streams.state.borrow().has_stalled);
    }

    #[tokio::test]
    async fn a_body_comes_in_pieces_and_whole() {
        let bytes: Bytes = (0..100_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
        let trailers = http::HeaderMap::from_iter([(http::header::ETAG, http::HeaderValue::from_static("x"))]);
        let mut body = Paced::new(ClientBody::whole(bytes.clone(), None));
        assert_eq!(body.size_hint().exact(), Some(100_000));
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!((first.len(), body.size_hint().exact()), (PIECE, Some(100_000 - PIECE as u64)));
        let body = Paced::new(ClientBody::whole(bytes.clone(), Some(trailers.clone())));
        let whole = body.collect().await.unwrap();
        assert_eq!(whole.trailers(), Some(&trailers));
        assert_eq!(whole.to_bytes(), bytes);
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_more_than_it_waits_for_floods() {
        let streams = streams();
        let is_flooded = async || timeout(Duration::ZERO, streams.flooded()).await.is_ok();
        let give_up = async |after| {
            assert!(timeout(after, streams.answer(std::future::pending::<()>())).await.is_err());
        };
        for _ in 0..GIVEN_UP + 50 {
            streams.answer(async {}).await;
        }
        for _ in 0..GIVEN_UP + 50 {
            give_up(Duration::ZERO).await;
            give_up(AT_ONCE).await;
        }
        assert!(!is_flooded().await, "a client may be unlucky or out of patience");
        give_up(Duration::ZERO).await;
        assert!(is_flooded().await);
    }
}
