//! The body of a request on its way out, as fast as the other side takes it.

use std::future::poll_fn;

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body;
use http_body_util::BodyExt;

use crate::destination::body::BodyError;
use crate::destination::{OutboundBody, headers};

/// Sends a body to its end, or to where the other side wants no more of it: what
/// came of the request then, the stream's answer tells.
///
/// # Errors
/// The body broke off. The stream is reset, so that nobody takes what there was
/// for all of it.
pub(super) async fn upload(mut body: OutboundBody, mut stream: SendStream<Bytes>) -> Result<(), BodyError> {
    loop {
        let frame = tokio::select! {
            biased;
            _ = poll_fn(|cx| stream.poll_reset(cx)) => return Ok(()),
            frame = body.frame() => frame,
        };
        let went = match frame {
            None => stream.send_data(Bytes::new(), true).map(|()| true),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(chunk) => send(&mut stream, chunk, body.is_end_stream()).await,
                Err(frame) => {
                    let mut trailers = frame.into_trailers().unwrap_or_default();
                    headers::keep_trailers(&mut trailers);
                    stream.send_trailers(trailers).map(|()| true)
                }
            },
            Some(Err(error)) => {
                stream.send_reset(Reason::CANCEL);
                return Err(error);
            }
        };
        match went {
            Ok(false) => {}
            Ok(true) | Err(_) => return Ok(()),
        }
    }
}

/// Sends a chunk piece by piece, as there is room for it. Whether it was the
/// last, or the stream takes no more.
async fn send(stream: &mut SendStream<Bytes>, mut chunk: Bytes, is_last: bool) -> Result<bool, h2::Error> {
    if chunk.is_empty() {
        return if is_last { stream.send_data(chunk, true).map(|()| true) } else { Ok(false) };
    }
    while !chunk.is_empty() {
        stream.reserve_capacity(chunk.len());
        while stream.capacity() == 0 {
            match poll_fn(|cx| stream.poll_capacity(cx)).await {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => return Ok(true),
            }
        }
        let piece = chunk.split_to(chunk.len().min(stream.capacity()));
        stream.send_data(piece, is_last && chunk.is_empty())?;
    }
    Ok(is_last)
}
