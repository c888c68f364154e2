//! What is written is read again as it was, and nothing else is read at all.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::model::decision::{Author, Decision, DecisionKind};
use crate::model::fingerprint::{Fingerprint, RecipeId};
use crate::model::inquiry::{Inconclusive, Inquiry, Lookup, Needs, Occasion, Proof};
use crate::model::key::{Identity, Lineage, ScopeDigest};
use crate::model::outcome::{Conclusion, DoubtReason, ReleaseReason};
use crate::model::record::{
    Attempt, AttemptToken, BootId, Boundaries, Completion, Doubt, Epitaph, Keeping, Lease, Release, Source, SpanName,
    Term, Tombstone,
};
use crate::model::response::{Fields, NotStored, StoredBody, StoredResponse};
use crate::model::time::Timestamp;

// ---- Any record ------------------------------------------------------------

// The strategies are boxed: a record's, in one piece, is larger than a stack.

/// Small numbers, and those at the borders of every spelling.
fn number() -> BoxedStrategy<u64> {
    prop_oneof![
        0..300u64,
        (0..u64::BITS).prop_map(|bits| 1 << bits),
        (0..u64::BITS).prop_map(|bits| u64::MAX >> bits),
        any::<u64>(),
    ]
    .boxed()
}

fn time() -> BoxedStrategy<Timestamp> {
    number().prop_map(Timestamp::from_millis).boxed()
}

fn span() -> BoxedStrategy<Duration> {
    (number(), 0..1_000_000_000u32).prop_map(|(seconds, nanoseconds)| Duration::new(seconds, nanoseconds)).boxed()
}

fn token() -> BoxedStrategy<AttemptToken> {
    any::<[u8; 16]>().prop_map(AttemptToken::from_bytes).boxed()
}

fn boot() -> BoxedStrategy<BootId> {
    any::<[u8; 8]>().prop_map(BootId::from_bytes).boxed()
}

fn release_reason() -> BoxedStrategy<ReleaseReason> {
    prop_oneof![
        Just(ReleaseReason::Unreachable),
        Just(ReleaseReason::NotSent),
        Just(ReleaseReason::ClaimStale),
        Just(ReleaseReason::Stopping),
        any::<u16>().prop_map(ReleaseReason::Status),
        any::<u16>().prop_map(ReleaseReason::StatusRetryAfter),
        Just(ReleaseReason::NotFound),
        Just(ReleaseReason::Decided),
    ]
    .boxed()
}

fn doubt_reason() -> BoxedStrategy<DoubtReason> {
    prop_oneof![
        Just(DoubtReason::ConnectionLost),
        Just(DoubtReason::MalformedAnswer),
        Just(DoubtReason::BodyBroken),
        Just(DoubtReason::TimedOut),
        any::<u16>().prop_map(DoubtReason::Status),
        Just(DoubtReason::LeaseLapsed),
        Just(DoubtReason::OwnerLost),
        Just(DoubtReason::Stopped),
        Just(DoubtReason::Abandoned),
    ]
    .boxed()
}

fn conclusion() -> BoxedStrategy<Conclusion> {
    prop_oneof![
        any::<u16>().prop_map(Conclusion::Answered),
        release_reason().prop_map(Conclusion::Released),
        doubt_reason().prop_map(Conclusion::Doubtful),
    ]
    .boxed()
}

fn attempt() -> BoxedStrategy<Attempt> {
    (any::<u32>(), any::<u64>(), boot(), time(), option::of((time(), conclusion())), option::of(span_name()))
        .prop_map(|(number, id, node, started_at, ended, span)| Attempt { number, id, node, started_at, ended, span })
        .boxed()
}

fn span_name() -> BoxedStrategy<SpanName> {
    (any::<[u8; 16]>(), any::<[u8; 8]>()).prop_map(|(trace, span)| SpanName { trace, span }).boxed()
}

fn source() -> BoxedStrategy<Source> {
    prop_oneof![Just(Source::Exchange), Just(Source::Lookup), Just(Source::Operator)].boxed()
}

fn needs() -> BoxedStrategy<Needs> {
    let bytes = || vec(any::<u8>(), 0..80).prop_map(Vec::into_boxed_slice);
    prop_oneof![bytes().prop_map(Needs::Plain), bytes().prop_map(Needs::Sealed)].boxed()
}

fn proof() -> BoxedStrategy<Proof> {
    let why = prop_oneof![
        Just(Inconclusive::Failed),
        Just(Inconclusive::TimedOut),
        Just(Inconclusive::NoCondition),
        Just(Inconclusive::Unreadable),
        Just(Inconclusive::TooLarge),
        Just(Inconclusive::MatchMissing),
        Just(Inconclusive::TooOld),
        Just(Inconclusive::Impossible),
        Just(Inconclusive::Undated),
    ];
    prop_oneof![
        Just(Proof::Found),
        Just(Proof::Different),
        Just(Proof::NotFound),
        Just(Proof::NotFoundOnce),
        Just(Proof::TooEarly),
        why.prop_map(Proof::Nothing),
    ]
    .boxed()
}

fn lookup() -> BoxedStrategy<Lookup> {
    let occasion = prop_oneof![Just(Occasion::Retry), Just(Occasion::Background)];
    (time(), time(), boot(), occasion, option::of(any::<u16>()), proof())
        .prop_map(|(started_at, ended_at, node, occasion, status, finding)| Lookup {
            started_at,
            ended_at,
            node,
            occasion,
            status,
            finding,
        })
        .boxed()
}

fn inquiry() -> BoxedStrategy<Inquiry> {
    let when = || option::of(time());
    (any::<u32>(), when(), when(), when(), any::<bool>(), when(), when(), vec(lookup(), 0..5))
        .prop_map(|(asked, asking_until, next_at, absent_since, conflict, telling_until, told_at, lookups)| Inquiry {
            asked,
            asking_until,
            next_at,
            absent_since,
            conflict,
            telling_until,
            told_at,
            lookups,
        })
        .boxed()
}

fn decision() -> BoxedStrategy<Decision> {
    let kind = prop_oneof![Just(DecisionKind::Completed), Just(DecisionKind::NotExecuted), Just(DecisionKind::Erased)];
    (time(), kind, any::<u32>(), ".{0,20}", ".{0,60}")
        .prop_map(|(at, kind, attempt, operator, reason)| Decision {
            at,
            kind,
            attempt,
            by: Author { operator: operator.into(), reason: reason.into() },
        })
        .boxed()
}

fn keeping() -> BoxedStrategy<Keeping> {
    (span(), span(), option::of(span()))
        .prop_map(|(retention, guard, unknown_retention)| Keeping { retention, guard, unknown_retention })
        .boxed()
}

fn boundaries() -> BoxedStrategy<Boundaries> {
    (time(), time()).prop_map(|(expires_at, guarded_until)| Boundaries { expires_at, guarded_until }).boxed()
}

fn header_name() -> BoxedStrategy<HeaderName> {
    "[a-z0-9!#$%&'*+.^_`|~-]{1,20}".prop_map(|name| HeaderName::from_lowercase(name.as_bytes()).unwrap()).boxed()
}

fn fields() -> BoxedStrategy<Fields> {
    let value = vec(prop_oneof![Just(b'\t'), 0x20..=0x7eu8, 0x80..=0xffu8], 0..24)
        .prop_map(|bytes| HeaderValue::from_bytes(&bytes).unwrap());
    vec((header_name(), value), 0..6)
        .prop_map(|pairs| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(name, value);
            }
            Fields::pack(&headers, |_| true)
        })
        .boxed()
}

fn body() -> BoxedStrategy<StoredBody> {
    prop_oneof![
        vec(any::<u8>(), 0..300).prop_map(|bytes| StoredBody::Whole(Bytes::from(bytes))),
        Just(StoredBody::NotStored(NotStored::TooLarge)),
        Just(StoredBody::NotStored(NotStored::StoreRefused)),
        Just(StoredBody::NotStored(NotStored::Erased)),
    ]
    .boxed()
}

fn response() -> BoxedStrategy<StoredResponse> {
    (any::<u16>(), fields(), body(), fields())
        .prop_map(|(status, headers, body, trailers)| StoredResponse { status, headers, body, trailers })
        .boxed()
}

fn doubt() -> BoxedStrategy<Doubt> {
    (token(), doubt_reason(), time(), any::<bool>(), keeping())
        .prop_map(|(token, reason, since, earlier, keeping)| Doubt { token, reason, since, earlier, keeping })
        .boxed()
}

fn state() -> BoxedStrategy<RecordState> {
    let term = prop_oneof![boot().prop_map(Term::Process), time().prop_map(Term::Until)];
    prop_oneof![
        (token(), term, keeping(), option::of(doubt()))
            .prop_map(|(token, term, keeping, over)| RecordState::InFlight(Lease { token, term, keeping, over })),
        (token(), time(), boundaries(), source(), response()).prop_map(|(token, at, boundaries, source, response)| {
            RecordState::Completed(Completion { token, at, boundaries, source, response })
        }),
        doubt().prop_map(RecordState::Unknown),
        (token(), release_reason(), time(), keeping()).prop_map(|(token, reason, until, keeping)| {
            RecordState::Released(Release { token, reason, until, keeping })
        }),
        (boundaries(), option::of((time(), any::<u16>(), source()))).prop_map(|(boundaries, answer)| {
            let answer = answer.map(|(at, status, source)| Epitaph { at, status, source });
            RecordState::Expired(Tombstone { boundaries, answer })
        }),
    ]
    .boxed()
}

fn fingerprint() -> BoxedStrategy<Fingerprint> {
    (any::<[u8; 8]>(), any::<[u8; 32]>(), any::<[u8; 32]>(), vec(header_name(), 0..4))
        .prop_map(|(recipe, digest, raw, listed)| Fingerprint {
            recipe: RecipeId::from_bytes(recipe),
            digest,
            raw,
            listed: listed.into(),
        })
        .boxed()
}

/// Most records have none.
fn file() -> BoxedStrategy<(Option<Needs>, Option<Inquiry>, Vec<Decision>)> {
    prop_oneof![Just((None, None, Vec::new())), (option::of(needs()), option::of(inquiry()), vec(decision(), 0..4)),]
        .boxed()
}

prop_compose! {
    fn record()(
        identity in any::<[u8; 32]>(),
        route in ".{0,40}",
        lineage in any::<[u8; 8]>(),
        key in ".{0,200}",
        scope in any::<[u8; 16]>(),
        fingerprint in fingerprint(),
        (created_at, updated_at) in (time(), time()),
        attempts in vec(attempt(), 0..20),
        (needs, inquiry, decisions) in file(),
        state in state(),
    ) -> Record {
        Record {
            identity: Identity::from_bytes(identity),
            route: route.into(),
            lineage: Lineage::from_bytes(lineage),
            key: key.into(),
            scope: ScopeDigest::from_bytes(scope),
            fingerprint,
            created_at,
            updated_at,
            attempts,
            needs,
            inquiry: inquiry.map(Box::new),
            decisions,
            state,
        }
    }
}

/// `content` with the checksum that belongs to it.
fn sealed(content: &[u8]) -> Vec<u8> {
    [content, &crc32fast::hash(content).to_be_bytes()].concat()
}

/// Everything before the checksum.
fn content(stored: &[u8]) -> &[u8] {
    &stored[..stored.len() - CHECKSUM_BYTES]
}

proptest! {
    #[test]
    fn every_record_comes_back_as_it_was(record in record()) {
        let stored = encode(&record);
        prop_assert_eq!(decode(&stored), Ok(record));
    }

    #[test]
    fn writing_allocates_once_and_little_too_much(record in record()) {
        let bound = size_bound(&record);
        let length = encode(&record).len();
        let lookups = record.inquiry.as_ref().map_or(0, |inquiry| inquiry.lookups.len());
        let file = 93 + 34 * lookups + 36 * record.decisions.len();
        let slack = 344 + 70 * record.attempts.len() + 10 * record.fingerprint.listed.len() + file;
        prop_assert!(length <= bound, "{length} bytes do not fit in {bound}");
        prop_assert!(bound - length <= slack, "{bound} bytes for {length}");
    }

    #[test]
    fn no_damaged_byte_is_overlooked(record in record(), flip in 1..=255u8) {
        let mut stored = encode(&record);
        for at in 0..stored.len() {
            stored[at] ^= flip;
            let read = decode(&stored);
            stored[at] ^= flip;
            match at {
                // One version may be taken for the other: their checksums are in one place.
                0 => prop_assert!(matches!(read, Err(DecodeError::UnknownVersion(_) | DecodeError::Checksum))),
                _ => prop_assert_eq!(read, Err(DecodeError::Checksum), "byte {}", at),
            }
        }
    }

    #[test]
    fn no_beginning_of_a_record_is_a_record(record in record()) {
        let stored = encode(&record);
        for length in 0..stored.len() {
            prop_assert!(decode(&stored[..length]).is_err(), "the first {} bytes", length);
        }
        // Nor would it be one if the checksum happened to be right.
        for length in 1..content(&stored).len() {
            prop_assert_eq!(decode(&sealed(&stored[..length])), Err(DecodeError::Truncated), "the first {} bytes", length);
        }
    }

    #[test]
    fn nothing_may_follow_a_record(record in record(), more in vec(any::<u8>(), 1..8)) {
        let longer = [content(&encode(&record)), &more].concat();
        prop_assert_eq!(decode(&sealed(&longer)), Err(DecodeError::Malformed("end")));
    }

    #[test]
    fn forged_content_is_refused_or_is_the_one_form_of_its_record(
        record in record(),
        edits in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut forged = content(&encode(&record)).to_vec();
        for (at, byte) in edits {
            let at = at.index(forged.len());
            forged[at] = byte;
        }
        let forged = sealed(&forged);
        if let Ok(read) = decode(&forged) {
            prop_assert_eq!(encode(&read), forged);
        }
    }

    #[test]
    fn arbitrary_bytes_are_refused_without_a_panic(noise in vec(any::<u8>(), 0..400)) {
        prop_assert!(decode(&noise).is_err());
        for version in [VERSION_WITHOUT_FILE, VERSION_WITH_FILE] {
            let versioned = sealed(&[&[version][..], &noise].concat());
            if let Ok(read) = decode(&versioned) {
                prop_assert_eq!(encode(&read), versioned);
            }
        }
    }
}

// ---- Forgeries by hand -----------------------------------------------------

fn read_number(bytes: &[u8]) -> Result<u64, DecodeError> {
    Reader(bytes).varint()
}

#[test]
fn a_number_has_one_spelling() {
    assert_eq!(read_number(&[0x00]), Ok(0));
    assert_eq!(read_number(&[0x7f]), Ok(127));
    assert_eq!(read_number(&[0x80, 0x01]), Ok(128));
    assert_eq!(read_number(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]), Ok(u64::MAX));

    let malformed = Err(DecodeError::Malformed("number"));
    assert_eq!(read_number(&[0x80, 0x00]), malformed, "padded");
    assert_eq!(read_number(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]), malformed, "65 bits");
    assert_eq!(read_number(&[0x80; 11]), malformed, "endless");
    assert_eq!(read_number(&[0x80]), Err(DecodeError::Truncated));
}

/// The stored form of an expired record up to the count of listed headers.
fn up_to_listed() -> Vec<u8> {
    let stored = encode(&with_state(RecordState::Expired(Tombstone { boundaries: BOUNDARIES, answer: None })));
    let listed = 1 + 32 + (1 + 6) + 8 + (1 + 3) + 16 + 8 + 32 + 32;
    stored[..listed].to_vec()
}

#[test]
fn a_count_is_believed_only_as_far_as_there_are_bytes() {
    // Half of all the memory there is, claimed by a row of some hundred bytes.
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    let mut forged = up_to_listed();
    forged.extend(huge);
    assert_eq!(decode(&sealed(&forged)), Err(DecodeError::Truncated), "listed headers");

    let mut forged = up_to_listed();
    forged.extend([0, 0, 0]);
    forged.extend(huge);
    assert_eq!(decode(&sealed(&forged)), Err(DecodeError::Truncated), "attempts");
}

proptest! {
    /// However much of a row was read, its head says what the whole does, or
    /// nothing yet.
    #[test]
    fn the_head_of_a_record_agrees_with_the_whole(record in record()) {
        let stored = encode(&record);
        let expected = Head { route: &record.route, key: &record.key, scope: record.scope };
        let spelled = |text: &str| length_of_count(text.len()) + text.len();
        let ends = 1 + 32 + spelled(&record.route) + 8 + spelled(&record.key) + 16;
        for length in 0..=stored.len() {
            let head = head(&stored[..length]);
            prop_assert_eq!(head, (length >= ends).then_some(expected), "the first {} of {} bytes", length, ends);
        }
    }

    #[test]
    fn the_head_of_anything_is_read_without_a_panic(noise in vec(any::<u8>(), 0..120), version in 0..4u8) {
        _ = head(&noise);
        let versioned = [&[version][..], &noise].concat();
        let is_known = matches!(version, VERSION_WITHOUT_FILE | VERSION_WITH_FILE);
        prop_assert!(is_known || head(&versioned).is_none());
    }
}

fn length_of_count(count: usize) -> usize {
    let mut out = Writer(Vec::new());
    out.count(count);
    out.0.len()
}

/// What is said of the sizes in `size_bound` and `file_size_bound` is what the
/// longest spelling of everything takes.
#[test]
fn the_largest_record_fits_its_bound_to_the_byte() {
    let last = Timestamp::from_millis(u64::MAX);
    let span = Duration::new(u64::MAX, 999_999_999);
    let keeping = Keeping { retention: span, guard: span, unknown_retention: Some(span) };
    let token = AttemptToken::from_bytes([9; 16]);
    let doubt = Doubt { token, reason: DoubtReason::Status(599), since: last, earlier: true, keeping };
    let attempt = Attempt {
        number: u32::MAX,
        id: u64::MAX,
        node: BootId::from_bytes([9; 8]),
        started_at: last,
        ended: Some((last, Conclusion::Released(ReleaseReason::StatusRetryAfter(599)))),
        span: Some(SpanName { trace: [9; 16], span: [9; 8] }),
    };
    let lookup = Lookup {
        started_at: last,
        ended_at: last,
        node: BootId::from_bytes([9; 8]),
        occasion: Occasion::Background,
        status: Some(599),
        finding: Proof::Nothing(Inconclusive::Impossible),
    };
    let inquiry = Inquiry {
        asked: u32::MAX,
        asking_until: Some(last),
        next_at: Some(last),
        absent_since: Some(last),
        conflict: true,
        telling_until: Some(last),
        told_at: Some(last),
        lookups: vec![lookup; 16],
    };
    let by = Author { operator: "o".repeat(200).into(), reason: "r".repeat(20_000).into() };
    let decision = Decision { at: last, kind: DecisionKind::Erased, attempt: u32::MAX, by };
    let lease = Lease { token, term: Term::Until(last), keeping, over: Some(doubt) };
    let record = Record {
        created_at: last,
        updated_at: last,
        attempts: vec![attempt; 16],
        needs: Some(Needs::Sealed(vec![9; 40_000].into())),
        inquiry: Some(Box::new(inquiry)),
        decisions: vec![decision; 16],
        ..with_state(RecordState::InFlight(lease))
    };
    // What is spelled shorter here than it could be: lengths and counts.
    let shorter = |count: usize| 10 - length_of_count(count);
    let names: usize = record.fingerprint.listed.iter().map(|name| shorter(name.as_str().len())).sum();
    let saved = shorter(record.route.len()) + shorter(record.key.len()) + shorter(2) + names + shorter(16);
    let saved = saved + shorter(40_000) + 2 * shorter(16) + 16 * (shorter(200) + shorter(20_000));
    assert_eq!(encode(&record).len() + saved, size_bound(&record));
    assert_eq!(decode(&encode(&record)), Ok(record));
}

/// Both versions would be one record's otherwise.
#[test]
fn a_file_with_nothing_in_it_is_refused() {
    let record = with_state(RecordState::Expired(Tombstone { boundaries: BOUNDARIES, answer: None }));
    let stored = encode(&record);
    let state = stored.len() - CHECKSUM_BYTES - (1 + 6 + 6);
    let forged = [&[VERSION_WITH_FILE][..], &stored[1..state], &[0, 0, 0], &stored[state..]].concat();
    assert_eq!(decode(&sealed(content(&forged))), Err(DecodeError::Malformed("file")));
    // With one thing in it, it is that record's.
    let inquiry = Inquiry::default();
    let asked = Record { inquiry: Some(Box::new(inquiry)), ..record };
    let file = [0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let forged = [&[VERSION_WITH_FILE][..], &stored[1..state], &file, &stored[state..]].concat();
    assert_eq!(decode(&sealed(content(&forged))), Ok(asked));
}

#[test]
fn a_count_in_a_file_is_believed_only_as_far_as_there_are_bytes() {
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    for (what, before) in [
        ("needs", &[2][..]),
        ("lookups", &[0, 1, 0, 0, 0, 0, 0, 0, 0]),
        ("decisions", &[0, 0]),
        ("operator", &[0, 0, 1, 0, 1, 0]),
    ] {
        let mut forged = up_to_listed();
        forged[0] = VERSION_WITH_FILE;
        // No listed headers, two times, no attempts.
        forged.extend([0, 0, 0, 0]);
        forged.extend(before);
        forged.extend(huge);
        assert_eq!(decode(&sealed(&forged)), Err(DecodeError::Truncated), "{what}");
    }
}

/// It is stored as a completion of version 1.
#[test]
fn an_answer_of_the_attempts_own_is_none_that_somebody_else_brought() {
    let mut forged = unhex(BEFORE_THE_STATE);
    forged.extend([6, 1]);
    forged.extend([0; 60]);
    assert_eq!(decode(&sealed(&forged)), Err(DecodeError::Malformed("source")));
}

#[test]
fn a_newer_version_is_named() {
    let mut stored = encode(&with_state(RecordState::Expired(Tombstone { boundaries: BOUNDARIES, answer: None })));
    stored[0] = 3;
    let refused = decode(&stored).unwrap_err();
    assert_eq!(refused, DecodeError::UnknownVersion(3));
    assert_eq!(refused.to_string(), "the stored record has version 3, which this release cannot read");
}

#[test]
fn what_is_too_short_for_a_record_is_cut_off() {
    assert_eq!(decode(&[]), Err(DecodeError::Truncated));
    assert_eq!(decode(&[VERSION_WITHOUT_FILE]), Err(DecodeError::Truncated));
    assert_eq!(decode(&[VERSION_WITHOUT_FILE, 0, 0, 0]), Err(DecodeError::Truncated));
    for version in [VERSION_WITHOUT_FILE, VERSION_WITH_FILE] {
        assert_eq!(decode(&sealed(&[version])), Err(DecodeError::Truncated));
    }
}

// ---- The format, pinned ----------------------------------------------------
//
// A failure here means that records written by an earlier release are no
// longer read as they were. If that is meant, the version must change too.

const KEEPING: Keeping = Keeping {
    retention: Duration::from_secs(86_400),
    guard: Duration::from_millis(1_500),
    unknown_retention: Some(Duration::from_secs(2_592_000)),
};

const BOUNDARIES: Boundaries = Boundaries {
    expires_at: Timestamp::from_millis(1_800_086_400_000),
    guarded_until: Timestamp::from_millis(1_800_090_000_000),
};

fn with_state(state: RecordState) -> Record {
    let attempt = |number, ended: Option<Conclusion>| Attempt {
        number,
        id: 0x0102_0304_0506_0708,
        node: BootId::from_bytes(*b"nodenode"),
        started_at: Timestamp::from_millis(1_800_000_000_000),
        ended: ended.map(|conclusion| (Timestamp::from_millis(1_800_000_000_250), conclusion)),
        span: None,
    };
    Record {
        identity: Identity::from_bytes([0x11; 32]),
        route: "orders".into(),
        lineage: Lineage::from_bytes(*b"lineage1"),
        key: "k-1".into(),
        scope: ScopeDigest::from_bytes([0x22; 16]),
        fingerprint: Fingerprint {
            recipe: RecipeId::from_bytes(*b"recipe01"),
            digest: [0x33; 32],
            raw: [0x44; 32],
            listed: Arc::new([HeaderName::from_static("x-mode"), HeaderName::from_static("accept")]),
        },
        created_at: Timestamp::from_millis(1_800_000_000_000),
        updated_at: Timestamp::from_millis(1_800_000_000_999),
        attempts: vec![
            attempt(1, Some(Conclusion::Released(ReleaseReason::Status(429)))),
            attempt(127, Some(Conclusion::Answered(201))),
            attempt(300, Some(Conclusion::Doubtful(DoubtReason::TimedOut))),
            attempt(301, None),
        ],
        needs: None,
        inquiry: None,
        decisions: Vec::new(),
        state,
    }
}

/// Version, identity, names, fingerprint, times and attempts of `with_state`.
const BEFORE_THE_STATE: &str = "\
    011111111111111111111111111111111111111111111111111111111111111111066f72646572736c696e6561676531\
    036b2d312222222222222222222222222222222272656369706530313333333333333333333333333333333333333333\
    33333333333333333333333344444444444444444444444444444444444444444444444444444444444444440206782d\
    6d6f64650661636365707480a0f1c2b134e7a7f1c2b134040101020304050607086e6f64656e6f646580a0f1c2b13401\
    faa1f1c2b134020501ad7f01020304050607086e6f64656e6f646580a0f1c2b13401faa1f1c2b1340100c9ac02010203\
    04050607086e6f64656e6f646580a0f1c2b13401faa1f1c2b1340304ad0201020304050607086e6f64656e6f646580a0\
    f1c2b13400";

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

#[track_caller]
fn is_stored_as(state: RecordState, expected: &str) {
    let record = with_state(state);
    let hex: String = encode(&record).iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = [unhex(BEFORE_THE_STATE), unhex(expected)].concat();
    assert_eq!(encode(&record), expected, "stored as {hex}");
    assert_eq!(decode(&expected), Ok(record));
}

fn forwarded_over() -> Doubt {
    Doubt {
        token: AttemptToken::from_bytes([0x55; 16]),
        reason: DoubtReason::Status(504),
        since: Timestamp::from_millis(1_800_000_001_000),
        earlier: false,
        keeping: Keeping { unknown_retention: None, ..KEEPING },
    }
}

#[test]
fn the_form_of_a_record_in_flight_is_fixed() {
    let token = AttemptToken::from_bytes([0x66; 16]);
    let lease = Lease { token, term: Term::Process(BootId::from_bytes(*b"boot-id1")), keeping: KEEPING, over: None };
    is_stored_as(
        RecordState::InFlight(lease.clone()),
        "\
        016666666666666666666666666666666601626f6f742d69643180a305000180cab5ee0101809a9e010000d206bd95",
    );
    let term = Term::Until(Timestamp::from_millis(1_800_000_030_000));
    is_stored_as(
        RecordState::InFlight(Lease { term, over: Some(forwarded_over()), ..lease }),
        "\
        016666666666666666666666666666666602b08af3c2b13480a305000180cab5ee0101809a9e01000155555555555555\
        5555555555555555550501f8e8a7f1c2b1340080a305000180cab5ee0100e2df0ca2",
    );
}

#[test]
fn the_form_of_a_completed_record_is_fixed() {
    let pack = |pairs: &[(&'static str, &'static str)]| {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        Fields::pack(&headers, |_| true)
    };
    let completion = Completion {
        token: AttemptToken::from_bytes([0x66; 16]),
        at: Timestamp::from_millis(1_800_000_000_000),
        boundaries: BOUNDARIES,
        source: Source::Exchange,
        response: StoredResponse {
            status: 201,
            headers: pack(&[("content-type", "application/json"), ("warning", "a"), ("warning", "b")]),
            body: StoredBody::Whole(Bytes::from_static(b"{\"id\":\"o-1\"}")),
            trailers: pack(&[("x-sum", "7")]),
        },
    };
    is_stored_as(
        RecordState::Completed(completion.clone()),
        "\
        026666666666666666666666666666666680a0f1c2b13480d88aecb13480b5e6edb13400c93e000c636f6e74656e742d\
        74797065000000106170706c69636174696f6e2f6a736f6e00077761726e696e67000000016100077761726e696e6700\
        00000162010c7b226964223a226f2d31227d0c0005782d73756d0000000137096d7b43",
    );
    let response = completion.response.without_body(NotStored::TooLarge);
    is_stored_as(
        RecordState::Completed(Completion { response, ..completion }),
        "\
        026666666666666666666666666666666680a0f1c2b13480d88aecb13480b5e6edb13400c9000201006b71d224",
    );
}

#[test]
fn the_form_of_an_unknown_record_is_fixed() {
    let doubt = forwarded_over();
    is_stored_as(
        RecordState::Unknown(doubt.clone()),
        "\
        03555555555555555555555555555555550501f8e8a7f1c2b1340080a305000180cab5ee0100e32612d0",
    );
    let reason = DoubtReason::LeaseLapsed;
    is_stored_as(
        RecordState::Unknown(Doubt { reason, earlier: true, keeping: KEEPING, ..doubt }),
        "\
        035555555555555555555555555555555506e8a7f1c2b1340180a305000180cab5ee0101809a9e010093349a63",
    );
}

#[test]
fn the_form_of_a_released_record_is_fixed() {
    let release = Release {
        token: AttemptToken::from_bytes([0x66; 16]),
        reason: ReleaseReason::Unreachable,
        until: Timestamp::from_millis(1_800_086_400_000),
        keeping: KEEPING,
    };
    is_stored_as(
        RecordState::Released(release),
        "\
        04666666666666666666666666666666660180d88aecb13480a305000180cab5ee0101809a9e0100698eff2c",
    );
}

#[test]
fn the_form_of_an_expired_record_is_fixed() {
    is_stored_as(
        RecordState::Expired(Tombstone { boundaries: BOUNDARIES, answer: None }),
        "0580d88aecb13480b5e6edb1348862e18b",
    );
    let answer = |status, source| Some(Epitaph { at: Timestamp::from_millis(1_800_000_000_000), status, source });
    for (source, expected) in [
        (Source::Exchange, "0780d88aecb13480b5e6edb13480a0f1c2b1340199015b70e18b"),
        (Source::Lookup, "0780d88aecb13480b5e6edb13480a0f1c2b134019902c279b031"),
        (Source::Operator, "0780d88aecb13480b5e6edb13480a0f1c2b134019903b57e80a7"),
    ] {
        is_stored_as(RecordState::Expired(Tombstone { boundaries: BOUNDARIES, answer: answer(409, source) }), expected);
    }
}

#[test]
fn the_form_of_a_completion_that_the_attempt_did_not_bring_is_fixed() {
    for (source, expected) in [
        (
            Source::Lookup,
            "06026666666666666666666666666666666680a0f1c2b13480d88aecb13480b5e6edb13400c80001027b7d007c9a8552",
        ),
        (
            Source::Operator,
            "06036666666666666666666666666666666680a0f1c2b13480d88aecb13480b5e6edb13400c80001027b7d003b8973a9",
        ),
    ] {
        let response = StoredResponse {
            status: 200,
            headers: Fields::default(),
            body: StoredBody::Whole(Bytes::from_static(b"{}")),
            trailers: Fields::default(),
        };
        let token = AttemptToken::from_bytes([0x66; 16]);
        let at = Timestamp::from_millis(1_800_000_000_000);
        is_stored_as(
            RecordState::Completed(Completion { token, at, boundaries: BOUNDARIES, source, response }),
            expected,
        );
    }
}

/// Version, identity, names, fingerprint and times of a record with a file.
const BEFORE_THE_ATTEMPTS: &str = "\
    021111111111111111111111111111111111111111111111111111111111111111066f72646572736c696e6561676531\
    036b2d312222222222222222222222222222222272656369706530313333333333333333333333333333333333333333\
    33333333333333333333333344444444444444444444444444444444444444444444444444444444444444440206782d\
    6d6f64650661636365707480a0f1c2b134e7a7f1c2b134";

#[test]
fn the_form_of_a_record_with_a_file_is_fixed() {
    let at = |seconds: u64| Timestamp::from_millis(1_800_000_000_000 + 1_000 * seconds);
    let span = Some(SpanName { trace: *b"a trace of calls", span: *b"one span" });
    let attempt = |number, ended| Attempt {
        number,
        id: 0x0102_0304_0506_0708,
        node: BootId::from_bytes(*b"nodenode"),
        started_at: at(0),
        ended,
        span,
    };
    let lookup = |seconds, occasion, status, finding| Lookup {
        started_at: at(seconds),
        ended_at: at(seconds + 1),
        node: BootId::from_bytes(*b"nodenode"),
        occasion,
        status,
        finding,
    };
    let decision = |seconds, kind, attempt| Decision {
        at: at(seconds),
        kind,
        attempt,
        by: Author { operator: "ada".into(), reason: "gesehen: Nº 7".into() },
    };
    let inquiry = Inquiry {
        asked: 300,
        asking_until: Some(at(10)),
        next_at: Some(at(11)),
        absent_since: Some(at(12)),
        conflict: true,
        telling_until: Some(at(13)),
        told_at: Some(at(14)),
        lookups: vec![
            lookup(1, Occasion::Retry, Some(404), Proof::NotFoundOnce),
            lookup(2, Occasion::Background, None, Proof::Nothing(Inconclusive::TimedOut)),
            lookup(3, Occasion::Background, Some(200), Proof::Different),
        ],
    };
    let whole = Record {
        attempts: vec![attempt(1, Some((at(1), Conclusion::Doubtful(DoubtReason::TimedOut)))), attempt(2, None)],
        needs: Some(Needs::Sealed((*b"sealed").into())),
        inquiry: Some(Box::new(inquiry)),
        decisions: vec![
            decision(20, DecisionKind::Completed, 1),
            decision(21, DecisionKind::NotExecuted, 2),
            decision(22, DecisionKind::Erased, 300),
        ],
        ..with_state(RecordState::Unknown(forwarded_over()))
    };
    let little = Record {
        attempts: vec![],
        needs: Some(Needs::Plain((*b"plain").into())),
        ..with_state(RecordState::Expired(Tombstone { boundaries: BOUNDARIES, answer: None }))
    };
    for (record, expected) in [
        (
            whole,
            "\
        020101020304050607086e6f64656e6f646580a0f1c2b13403e8a7f1c2b134030461207472616365206f662063616c6c\
        736f6e65207370616e0201020304050607086e6f64656e6f646580a0f1c2b1340261207472616365206f662063616c6c\
        736f6e65207370616e02067365616c656401ac020190eef1c2b13401f8f5f1c2b13401e0fdf1c2b1340101c885f2c2b1\
        3401b08df2c2b13403e8a7f1c2b134d0aff1c2b1346e6f64656e6f64650101019404d0aff1c2b134b8b7f1c2b1346e6f\
        64656e6f646502000602b8b7f1c2b134a0bff1c2b1346e6f64656e6f6465020100c80203a0bcf2c2b134010103616461\
        0e6765736568656e3a204ec2ba203788c4f2c2b1340202036164610e6765736568656e3a204ec2ba2037f0cbf2c2b134\
        03ac02036164610e6765736568656e3a204ec2ba203703555555555555555555555555555555550501f8e8a7f1c2b134\
        0080a305000180cab5ee0100c3a9ca0a",
        ),
        (little, "000105706c61696e00000580d88aecb13480b5e6edb134ecc8e760"),
    ] {
        let stored = encode(&record);
        let hex: String = stored.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(stored, [unhex(BEFORE_THE_ATTEMPTS), unhex(expected)].concat(), "stored as {hex}");
        assert_eq!(decode(&stored), Ok(record));
    }
}

/// The reasons a record of `with_state` does not show.
#[test]
fn the_number_of_every_reason_is_fixed() {
    let written = |write: &dyn Fn(&mut Writer)| {
        let mut out = Writer(Vec::new());
        write(&mut out);
        out.0
    };
    for (reason, stored) in [
        (ReleaseReason::Unreachable, &[1][..]),
        (ReleaseReason::NotSent, &[2]),
        (ReleaseReason::ClaimStale, &[3]),
        (ReleaseReason::Stopping, &[4]),
        (ReleaseReason::Status(0x0102), &[5, 1, 2]),
        (ReleaseReason::StatusRetryAfter(0x0102), &[6, 1, 2]),
        (ReleaseReason::NotFound, &[7]),
        (ReleaseReason::Decided, &[8]),
    ] {
        assert_eq!(written(&|out| out.release_reason(reason)), stored, "{reason}");
        assert_eq!(Reader(stored).release_reason(), Ok(reason));
    }
    for (reason, stored) in [
        (DoubtReason::ConnectionLost, &[1][..]),
        (DoubtReason::MalformedAnswer, &[2]),
        (DoubtReason::BodyBroken, &[3]),
        (DoubtReason::TimedOut, &[4]),
        (DoubtReason::Status(0x0102), &[5, 1, 2]),
        (DoubtReason::LeaseLapsed, &[6]),
        (DoubtReason::OwnerLost, &[7]),
        (DoubtReason::Stopped, &[8]),
        (DoubtReason::Abandoned, &[9]),
    ] {
        assert_eq!(written(&|out| out.doubt_reason(reason)), stored, "{reason}");
        assert_eq!(Reader(stored).doubt_reason(), Ok(reason));
    }
    for (body, stored) in [
        (StoredBody::Whole(Bytes::from_static(b"a")), &[1, 1, b'a'][..]),
        (StoredBody::NotStored(NotStored::TooLarge), &[2, 1]),
        (StoredBody::NotStored(NotStored::StoreRefused), &[2, 2]),
        (StoredBody::NotStored(NotStored::Erased), &[2, 3]),
    ] {
        assert_eq!(written(&|out| out.body(&body)), stored);
        assert_eq!(Reader(stored).body(), Ok(body));
    }
    for (proof, stored) in [
        (Proof::Found, &[1][..]),
        (Proof::Different, &[2]),
        (Proof::NotFound, &[3]),
        (Proof::NotFoundOnce, &[4]),
        (Proof::TooEarly, &[5]),
        (Proof::Nothing(Inconclusive::Failed), &[6, 1]),
        (Proof::Nothing(Inconclusive::TimedOut), &[6, 2]),
        (Proof::Nothing(Inconclusive::NoCondition), &[6, 3]),
        (Proof::Nothing(Inconclusive::Unreadable), &[6, 4]),
        (Proof::Nothing(Inconclusive::TooLarge), &[6, 5]),
        (Proof::Nothing(Inconclusive::MatchMissing), &[6, 6]),
        (Proof::Nothing(Inconclusive::TooOld), &[6, 7]),
        (Proof::Nothing(Inconclusive::Impossible), &[6, 8]),
        (Proof::Nothing(Inconclusive::Undated), &[6, 9]),
    ] {
        assert_eq!(written(&|out| out.proof(proof)), stored, "{proof:?}");
        assert_eq!(Reader(stored).proof(), Ok(proof));
    }
}

#[test]
fn the_forms_that_came_later_are_fixed() {
    let completion = Completion {
        token: AttemptToken::from_bytes([0x66; 16]),
        at: Timestamp::from_millis(1_800_000_000_000),
        boundaries: BOUNDARIES,
        source: Source::Operator,
        response: StoredResponse {
            status: 201,
            headers: Fields::default(),
            body: StoredBody::NotStored(NotStored::Erased),
            trailers: Fields::default(),
        },
    };
    is_stored_as(
        RecordState::Completed(completion),
        "\
        06036666666666666666666666666666666680a0f1c2b13480d88aecb13480b5e6edb13400c9000203006f454b00",
    );
    let answer = Some(Epitaph { at: Timestamp::from_millis(1_800_000_000_000), status: 201, source: Source::Lookup });
    is_stored_as(
        RecordState::Expired(Tombstone { boundaries: BOUNDARIES, answer }),
        "\
        0780d88aecb13480b5e6edb13480a0f1c2b13400c90279008752",
    );
    let release = Release {
        token: AttemptToken::from_bytes([0x66; 16]),
        reason: ReleaseReason::NotFound,
        until: Timestamp::from_millis(1_800_086_400_000),
        keeping: KEEPING,
    };
    is_stored_as(
        RecordState::Released(release),
        "\
        04666666666666666666666666666666660780d88aecb13480a305000180cab5ee0101809a9e010084448d56",
    );
}

/// Nothing in a file is written as no file.
#[test]
fn a_file_with_nothing_in_it_is_none() {
    let mut stored =
        content(&encode(&with_state(RecordState::Expired(Tombstone { boundaries: BOUNDARIES, answer: None }))))
            .to_vec();
    let state = unhex(BEFORE_THE_STATE).len();
    stored[0] = VERSION_WITH_FILE;
    stored.splice(state..state, [0, 0, 0]);
    assert_eq!(decode(&sealed(&stored)), Err(DecodeError::Malformed("file")));
}

#[test]
fn the_beginning_of_a_row_is_enough_to_see_whose_it_is() {
    let stored = encode(&with_state(RecordState::Expired(Tombstone { boundaries: BOUNDARIES, answer: None })));
    let expected = Head { route: "orders", key: "k-1", scope: ScopeDigest::from_bytes([0x22; 16]) };
    let needed = 1 + 32 + (1 + 6) + 8 + (1 + 3) + 16;
    assert_eq!(head(&stored), Some(expected));
    assert_eq!(head(&stored[..needed]), Some(expected), "the rest need not be there");
    assert_eq!(head(&stored[..needed - 1]), None);
    assert_eq!(head(&[9]), None);
}
