//! A destination's fields → a [`DestinationPlan`].

use std::net::{IpAddr, SocketAddr};

use super::{Around, tls};
use crate::config::fields::Fields;
use crate::config::finding::Report;
use crate::config::schema;
use crate::config::units::show_duration;
use crate::config::value::{DestinationUrl, Value};
use crate::plan::route::{DestinationPlan, Forwarded};
use crate::tls::{ClientTls, HttpVersions};

/// Compiles a destination whose fields are complete.
pub(super) fn compile(fields: Option<&Fields>, around: Around<'_>, report: &mut Report) -> Option<DestinationPlan> {
    let fields = fields?;
    let (response_timeout, attempt_timeout) = (fields.duration("response_timeout"), fields.duration("attempt_timeout"));
    if let (Some(response), Some(attempt)) = (response_timeout, attempt_timeout)
        && response > attempt
    {
        let message = format!(
            "{} is longer than `attempt_timeout` ({}), which ends any exchange",
            show_duration(response),
            show_duration(attempt)
        );
        report.error(&fields.at("response_timeout"), message);
    }
    let url = match fields.get("url").map(|given| &given.value) {
        Some(Value::Url(url)) => url,
        _ => return None,
    };
    if around.listen.iter().any(|(listener, _)| leads_back(url, &listener.address)) {
        report.error(&fields.at("url"), "the proxy itself listens there; every request would come back to it");
    }
    let keep_alive = match fields.get("keep_alive")?.value {
        Value::Off => None,
        Value::Duration(duration) => Some(duration),
        _ => return None,
    };
    let versions = versions(fields, url, report);
    let tls = if url.is_https { Some(client_tls(fields, around, report)?) } else { None };
    if let (false, Some(written)) = (url.is_https, fields.get("tls")) {
        report.error(&written.at, "the url is `http`, which has no TLS; write `https`, or take this out");
    }
    Some(DestinationPlan {
        host: url.host.clone(),
        port: url.port,
        authority: url.authority.clone(),
        path_prefix: url.path_prefix.clone(),
        tls,
        versions: versions?,
        connect_timeout: fields.duration("connect_timeout")?,
        response_timeout: response_timeout?,
        late_answer: fields.duration("late_answer")?,
        body_idle_timeout: fields.duration("body_idle_timeout")?,
        attempt_timeout: attempt_timeout?,
        keep_alive,
        preserve_host: fields.boolean("preserve_host")?,
        preserve_header_case: fields.boolean("preserve_header_case")?,
        forwarded: match fields.word("forwarded")? {
            "forwarded" => Forwarded::Rfc7239,
            "both" => Forwarded::Both,
            "off" => Forwarded::Off,
            _ => Forwarded::XForwarded,
        },
        via: fields.boolean("via")?,
    })
}

/// Header names have no spelling in HTTP/2 (RFC 9113, section 8.2).
fn versions(fields: &Fields, url: &DestinationUrl, report: &mut Report) -> Option<HttpVersions> {
    Some(match (fields.boolean("http2")?, fields.boolean("preserve_header_case")?) {
        (true, true) => {
            let message = "HTTP/2 has header names in small letters alone; take `http2` or this out";
            report.error(&fields.at("preserve_header_case"), message);
            return None;
        }
        (true, false) => HttpVersions::Http2,
        (false, false) if url.is_https => HttpVersions::Negotiated,
        (false, _) => HttpVersions::Http1,
    })
}

fn client_tls(fields: &Fields, around: Around<'_>, report: &mut Report) -> Option<ClientTls> {
    match fields.fields("tls") {
        Some(written) => tls::client(written, around.base, report),
        None if fields.is_refused("tls") => None,
        None => tls::client(&Fields::empty(&schema::DESTINATION_TLS, fields.at("url")), around.base, report),
    }
}

/// Whether a destination written as an address is one that the proxy listens
/// on. Names are not resolved here.
fn leads_back(url: &DestinationUrl, listen: &SocketAddr) -> bool {
    let ip = url.host.parse::<IpAddr>().ok();
    let same_ip = ip.is_some_and(|ip| ip == listen.ip() || (listen.ip().is_unspecified() && ip.is_loopback()));
    same_ip && url.port == listen.port()
}
