//! Which route a request is on.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Method;

use super::path::{self, NormalPath};
use super::policy::Policy;
use super::template::Template;
use crate::model::key::Lineage;
use crate::tls::{ClientTls, HttpVersions};

/// A guarded route, compiled.
#[derive(Debug)]
pub struct Route {
    /// Part of every record's identity.
    pub name: Arc<str>,
    /// The methods it guards.
    pub methods: Vec<Method>,
    /// The host it is limited to, lower case.
    pub host: Option<String>,
    /// Its path.
    pub pattern: Pattern,
    /// Where its requests go.
    pub destination: Arc<DestinationPlan>,
    /// Whether that is another than the plan's.
    pub has_own_destination: bool,
    /// What it promises.
    pub policy: Policy,
    /// How it makes identities now.
    pub lineage: Lineage,
    /// Earlier identities whose records still count.
    pub formerly: Vec<Former>,
}

/// An earlier identity of a route.
#[derive(Debug, Clone)]
pub struct Former {
    /// The name it had.
    pub name: Arc<str>,
    /// The key template it had.
    pub key: Template,
    /// The scope template it had.
    pub scope: Template,
    /// How it made identities then.
    pub lineage: Lineage,
}

/// A destination and how patient the proxy is with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DestinationPlan {
    /// Host name or address, as in the URL; IPv6 without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// `host[:port]` for the Host header, as in the URL.
    pub authority: String,
    /// Path prefix of the URL, without its trailing slash; usually empty.
    pub path_prefix: String,
    /// The TLS spoken with it; in the clear if there is none.
    pub tls: Option<ClientTls>,
    /// The versions of HTTP spoken with it.
    pub versions: HttpVersions,
    /// For a connection to stand.
    pub connect_timeout: Duration,
    /// From the connection's grant to the response head.
    pub response_timeout: Duration,
    /// How long an exchange is still listened to after the client was told 504.
    pub late_answer: Duration,
    /// Between two body chunks, either way.
    pub body_idle_timeout: Duration,
    /// The end of any exchange.
    pub attempt_timeout: Duration,
    /// How long an idle connection is kept; `None`: not at all.
    pub keep_alive: Option<Duration>,
    /// Whether the client's Host goes on.
    pub preserve_host: bool,
    /// Whether the spelling of header names goes on.
    pub preserve_header_case: bool,
    /// The fields that tell the destination who asked for what.
    pub forwarded: Forwarded,
    /// Whether `Via` names this proxy, both ways (RFC 9110, section 7.6.3).
    pub via: bool,
}

/// As people know it.
impl fmt::Display for DestinationPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "https://" } else { "" };
        write!(f, "{scheme}{}{}", self.authority, self.path_prefix)
    }
}

/// How a destination is told who asked for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forwarded {
    /// `X-Forwarded-For`, `-Proto` and `-Host`.
    XForwarded,
    /// `Forwarded` (RFC 7239).
    Rfc7239,
    /// Both of these.
    Both,
    /// Not at all.
    Off,
}

/// A path pattern: `/orders/{id}/refund`, `/hooks/{*rest}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    segments: Vec<Segment>,
    /// The same as a lenient server sees it.
    folded: Vec<Segment>,
    trailing_slash: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Literal(String),
    Parameter(String),
    Rest(String),
}

impl Route {
    /// Whether it is for requests to `host`, with or without a port.
    fn is_for_host(&self, host: &str) -> bool {
        let Some(wanted) = &self.host else { return true };
        // The root's dot is left out by whoever does not mean it (RFC 1034,
        // section 3.1).
        let without_port = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
        let name = without_port.map_or(host, |(name, _)| name);
        let name = name.strip_suffix('.').unwrap_or(name);
        wanted == host || wanted == name
    }
}

impl Former {
    /// The identity that a route had by this name and these templates.
    pub fn new(name: Arc<str>, key: Template, scope: Template) -> Self {
        let lineage = Lineage::of(&name, &key.canonical(), &scope.canonical());
        Self { name, key, scope, lineage }
    }
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// Says in a sentence what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !text.starts_with('/') {
            return Err("a path begins with `/`".into());
        }
        if text.contains(['?', '#']) {
            return Err("a path has no query and no fragment".into());
        }
        if text.contains('\\') || text.split('/').any(|segment| matches!(segment, "." | "..")) || text.contains("//") {
            return Err("write the path in its plain form, without dot segments, empty segments and backslashes".into());
        }
        let normal = path::strict(text);
        let mut segments: Vec<Segment> = Vec::new();
        for segment in &normal.segments {
            if matches!(segments.last(), Some(Segment::Rest(_))) {
                return Err("`{*rest}` can only stand at the end".into());
            }
            segments.push(parse_segment(segment)?);
        }
        let mut names: Vec<&str> = segments.iter().filter_map(Segment::parameter).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair.first() == pair.last()) {
            return Err("a parameter name occurs twice".into());
        }
        let trailing_slash = normal.trailing_slash;
        let folded = path::lenient(text).into_iter().flat_map(|form| form.segments);
        let folded = folded.map(|segment| parse_segment(&segment).unwrap_or(Segment::Literal(segment))).collect();
        Ok(Self { text: text.to_owned(), segments, folded, trailing_slash })
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The names of its parameters.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(Segment::parameter)
    }

    /// Whether two patterns match the same paths with the same specificity.
    pub fn equals(&self, other: &Pattern) -> bool {
        let kinds_equal = |(a, b): (&Segment, &Segment)| match (a, b) {
            (Segment::Literal(a), Segment::Literal(b)) => a == b,
            (Segment::Parameter(_), Segment::Parameter(_)) | (Segment::Rest(_), Segment::Rest(_)) => true,
            (Segment::Literal(_) | Segment::Parameter(_) | Segment::Rest(_), _) => false,
        };
        self.trailing_slash == other.trailing_slash
            && self.segments.len() == other.segments.len()
            && self.segments.iter().zip(&other.segments).all(kinds_equal)
    }

    /// Orders patterns from the most specific: literal, parameter, rest,
    /// segment by segment; a longer pattern before its prefix.
    fn specificity(&self) -> Vec<u8> {
        let rank = |segment: &Segment| match segment {
            Segment::Literal(_) => 0,
            Segment::Parameter(_) => 1,
            Segment::Rest(_) => 2,
        };
        self.segments.iter().map(rank).chain([3]).collect()
    }

    /// The values of the parameters, if the pattern matches.
    fn matches(&self, path: &NormalPath, case: Case) -> Option<Vec<(String, String)>> {
        let mut values = Vec::new();
        let mut rest = path.segments.as_slice();
        let segments = match case {
            Case::Exact => &self.segments,
            Case::Folded => &self.folded,
        };
        for segment in segments {
            match segment {
                Segment::Rest(name) => {
                    values.push((name.clone(), rest.join("/")));
                    return Some(values);
                }
                Segment::Parameter(name) => {
                    let (value, after) = rest.split_first()?;
                    // Without `;params`: a server may not see them, and they
                    // must not make another key of it.
                    let value = value.split(';').next().unwrap_or_default();
                    values.push((name.clone(), value.to_owned()));
                    rest = after;
                }
                Segment::Literal(literal) => {
                    let (value, after) = rest.split_first()?;
                    if literal != value {
                        return None;
                    }
                    rest = after;
                }
            }
        }
        let slash_fits = match case {
            Case::Exact => self.trailing_slash == path.trailing_slash,
            Case::Folded => true,
        };
        (rest.is_empty() && slash_fits).then_some(values)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    Exact,
    /// Case and trailing slash do not count; the path is in lower case already.
    Folded,
}

impl Segment {
    fn parameter(&self) -> Option<&str> {
        match self {
            Segment::Literal(_) => None,
            Segment::Parameter(name) | Segment::Rest(name) => Some(name),
        }
    }
}

fn parse_segment(text: &str) -> Result<Segment, String> {
    let Some(inner) = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')) else {
        if text.contains(['{', '}']) {
            return Err(format!("`{text}`: a parameter takes a whole segment, such as `{{id}}`"));
        }
        return Ok(Segment::Literal(text.to_owned()));
    };
    let (name, segment): (&str, fn(String) -> Segment) = match inner.strip_prefix('*') {
        Some(name) => (name, Segment::Rest),
        None => (inner, Segment::Parameter),
    };
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !is_name {
        return Err(format!("`{text}`: a parameter name consists of letters, digits and `_`"));
    }
    Ok(segment(name.to_owned()))
}

/// What the router makes of a request.
#[derive(Debug)]
pub enum Matched {
    /// No guard: the request passes through. Where a route has the path but not
    /// the method, its destination is that route's.
    Unguarded(Option<Arc<Route>>),
    /// This route guards it.
    Guarded(Arc<Route>, Vec<(String, String)>),
    /// A lenient server could take this path, or this method, for a guarded one.
    Ambiguous(Arc<Route>),
}

/// All routes, most specific first.
#[derive(Debug, Default)]
pub struct Router {
    routes: Vec<Arc<Route>>,
    /// Every method that any route guards: most reads are done with after this.
    methods: HashSet<Method>,
    /// Whether any route has a destination of its own.
    have_destinations: bool,
}

impl Router {
    /// Orders the routes. A route for a host goes before one for any host, then
    /// the more specific path. The caller has refused two equal ones.
    pub fn new(routes: Vec<Route>) -> Self {
        let mut routes: Vec<Arc<Route>> = routes.into_iter().map(Arc::new).collect();
        routes.sort_by_cached_key(|route| (route.host.is_none(), route.pattern.specificity()));
        let methods = routes.iter().flat_map(|route| route.methods.iter().cloned()).collect();
        let have_destinations = routes.iter().any(|route| route.has_own_destination);
        Self { routes, methods, have_destinations }
    }

    /// The routes, most specific first.
    pub fn routes(&self) -> &[Arc<Route>] {
        &self.routes
    }

    /// Finds the route for a request. No spelling of a guarded path slips past
    /// its guard, and no spelling of its method: what matches a more specific
    /// route only in its lenient form is guarded when the difference is a
    /// trailing slash or `;params`, and otherwise ambiguous.
    pub fn find(&self, method: &Method, host: &str, path: &str) -> Matched {
        if self.methods.contains(method) {
            return self.find_by_path(method, host, path);
        }
        // Methods are case-sensitive (RFC 9110, section 9.1), but not to every
        // server.
        let meant = self.methods.iter().find(|guarded| guarded.as_str().eq_ignore_ascii_case(method.as_str()));
        match meant.map(|meant| self.find_by_path(meant, host, path)) {
            Some(Matched::Guarded(route, _) | Matched::Ambiguous(route)) => Matched::Ambiguous(route),
            Some(Matched::Unguarded(_)) | None => Matched::Unguarded(self.neighbour(host, path)),
        }
    }

    fn find_by_path(&self, method: &Method, host: &str, path: &str) -> Matched {
        let strict = self.first(Some(method), host, &path::strict(path), Case::Exact);
        let forms = path::lenient(path);
        let lenient = forms.iter().filter_map(|form| self.first(Some(method), host, form, Case::Folded));
        let lenient = lenient.min_by_key(|found| found.index);
        match (strict, lenient) {
            (Some(strict), Some(lenient)) if strict.index <= lenient.index => strict.guarded(),
            (_, Some(lenient)) => {
                let tolerant = self.first(Some(method), host, &path::without_parameters(path), Case::Exact);
                let folded = self.first(Some(method), host, &fold_slash(path), Case::Exact);
                match [tolerant, folded].into_iter().flatten().find(|found| found.index == lenient.index) {
                    Some(found) => found.guarded(),
                    None => Matched::Ambiguous(lenient.route),
                }
            }
            (Some(strict), None) => strict.guarded(),
            (None, None) => Matched::Unguarded(self.neighbour(host, path)),
        }
    }

    /// The route whose path this is, whatever the method.
    fn neighbour(&self, host: &str, path: &str) -> Option<Arc<Route>> {
        if !self.have_destinations {
            return None;
        }
        self.first(None, host, &path::strict(path), Case::Exact).map(|found| found.route)
    }

    fn first(&self, method: Option<&Method>, host: &str, path: &NormalPath, case: Case) -> Option<Found> {
        let candidates =
            self.routes.iter().enumerate().filter(|(_, route)| {
                method.is_none_or(|method| route.methods.contains(method)) && route.is_for_host(host)
            });
        for (index, route) in candidates {
            if let Some(values) = route.pattern.matches(path, case) {
                return Some(Found { index, route: Arc::clone(route), values });
            }
        }
        None
    }
}

/// The strict form of a path whose only oddity is a trailing slash more or less.
fn fold_slash(path: &str) -> NormalPath {
    let normal = path::strict(path);
    NormalPath { trailing_slash: !normal.trailing_slash, ..normal }
}

struct Found {
    index: usize,
    route: Arc<Route>,
    values: Vec<(String, String)>,
}

impl Found {
    fn guarded(self) -> Matched {
        Matched::Guarded(self.route, self.values)
    }
}

#[cfg(test)]
mod tests;
