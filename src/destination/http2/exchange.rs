//! One request on a stream, and its answer.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use http::header::{CONTENT_LENGTH, HOST, TE};
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{Extensions, HeaderValue, Method, Request, StatusCode, Version, request};
use http_body::Body;
use tokio_util::task::AbortOnDropHandle;

use super::body::Arriving;
use super::upload::upload;
use super::{Slot, is_ready};
use crate::destination::body::BodyError;
use crate::destination::{
    DestinationFuture, Failure, Granted, Inbound, InboundBody, Outbound, OutboundBody, classify, headers,
};

/// A stream of which one request may make use.
pub(in crate::destination) struct Lent {
    pub(in crate::destination) slot: Slot,
    /// Whether the connection is under TLS.
    pub(in crate::destination) is_secure: bool,
}

impl Granted for Lent {
    fn is_reused(&self) -> bool {
        self.slot.is_reused
    }

    fn send(self: Box<Self>, request: Outbound) -> DestinationFuture<'static, Inbound> {
        Box::pin(exchange(self.slot, self.is_secure, request))
    }
}

async fn exchange(slot: Slot, is_secure: bool, request: Outbound) -> Result<Inbound, Failure> {
    let mut sender = slot.connection.sender.clone();
    if !is_ready(&mut sender) {
        return Err(classify::handed_back(request, "the connection takes no more requests".into()));
    }
    let Outbound { head, body } = request;
    let method = head.method.clone();
    let head = translate(head, &body, is_secure).map_err(classify::unsendable)?;
    let is_whole = body.is_end_stream();
    let (mut answer, stream) =
        sender.send_request(head, is_whole).map_err(|error| classify::unsendable(classify::describe_http2(&error)))?;
    drop(sender);
    let mut upload = (!is_whole).then(|| Box::pin(upload(body, stream)));
    let mut had_interim = false;
    let answer = poll_fn(|cx| {
        if let Some(sending) = &mut upload
            && let Poll::Ready(sent) = sending.as_mut().poll(cx)
        {
            upload = None;
            sent.map_err(|error| classify::broke_off(&error))?;
        }
        // What was said before the answer is taken note of and dropped.
        while let Poll::Ready(Some(Ok(_))) = answer.poll_informational(cx) {
            had_interim = true;
        }
        Pin::new(&mut answer).poll(cx).map_err(|error| classify::http2(&error, had_interim))
    })
    .await?;
    let (head, stream) = answer.into_parts();
    let mut fields = head.headers;
    let said = fields.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    headers::settle_answer(&mut fields, head.status, said);
    let length = if has_no_body(&method, head.status) { Some(0) } else { said };
    // An answer may come before the request was sent whole (RFC 9113, section
    // 8.1). Its end is the end of both: what is left of the request is for nobody.
    let upload = upload.map(|sending| AbortOnDropHandle::new(tokio::spawn(finish(sending))));
    let body = InboundBody::new(Arriving::new(stream, length), move || drop((upload, slot)));
    Ok(Inbound { status: head.status, headers: fields, body, extensions: Extensions::new() })
}

/// Sends the rest of a body. That it broke off, the other side is told by a
/// reset, and whoever reads the answer finds it broken.
async fn finish(sending: impl Future<Output = Result<(), BodyError>>) {
    if let Err(error) = pin!(sending).await {
        tracing::debug!(%error, "a request's body broke off after the head of its answer");
    }
}

/// Makes a head one of HTTP/2 (RFC 9113, section 8.3.1): the scheme and the Host
/// are in the target, and nothing is about the connection.
fn translate(mut head: request::Parts, body: &OutboundBody, is_secure: bool) -> Result<Request<()>, String> {
    let reads_trailers = headers::reads_trailers(&head.headers);
    headers::keep_end_to_end(&mut head.headers);
    // The one field about the connection that it has (section 8.2.2). Servers of
    // gRPC refuse a call without it.
    if reads_trailers {
        head.headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    let host = head.headers.remove(HOST);
    let host = host.ok_or("there is no Host to ask for")?;
    let mut target = head.uri.into_parts();
    target.scheme = Some(if is_secure { Scheme::HTTPS } else { Scheme::HTTP });
    target.authority =
        Some(Authority::try_from(host.as_bytes()).map_err(|_| "HTTP/2 has no way to ask for such a Host")?);
    target.path_and_query.get_or_insert(PathAndQuery::from_static("/"));
    if let Some(length) = length_to_say(&head.method, body) {
        head.headers.entry(CONTENT_LENGTH).or_insert(HeaderValue::from(length));
    }
    let mut request = Request::new(());
    *request.method_mut() = head.method;
    *request.uri_mut() = Uri::from_parts(target).map_err(|error| error.to_string())?;
    *request.version_mut() = Version::HTTP_2;
    *request.headers_mut() = head.headers;
    Ok(request)
}

/// The length of a body, where saying it means anything (RFC 9110, section 8.6).
fn length_to_say(method: &Method, body: &OutboundBody) -> Option<u64> {
    let expects_content = [Method::POST, Method::PUT, Method::PATCH].contains(method);
    body.size_hint().exact().filter(|&length| length > 0 || expects_content)
}

/// Whether an answer has no body, whatever length it names (RFC 9110, section
/// 6.4.1).
fn has_no_body(method: &Method, status: StatusCode) -> bool {
    *method == Method::HEAD || [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status)
}
