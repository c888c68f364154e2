//! A record has one stored form, and a stored form one record.

use onceward::model::codec::{DecodeError, decode, encode, head};

/// The versions there are.
const VERSIONS: [u8; 2] = [1, 2];

/// The bytes as they are, and as what stands between version and checksum: no
/// fuzzer guesses a checksum.
pub fn holds(data: &[u8]) {
    is_its_own_spelling(data);
    for version in VERSIONS {
        let mut stored = [&[version], data].concat();
        stored.extend(crc32fast::hash(&stored).to_be_bytes());
        is_its_own_spelling(&stored);
    }
}

fn is_its_own_spelling(stored: &[u8]) {
    let hint = head(stored);
    let Ok(record) = decode(stored) else { return };
    assert_eq!(encode(&record), stored);
    assert_eq!(decode(&encode(&record)).as_ref(), Ok(&record));

    let hint = hint.expect("a whole record has a head");
    assert_eq!((hint.route, hint.key, hint.scope), (&*record.route, &*record.key, record.scope));
    for end in 0..stored.len() {
        assert!(decode(&stored[..end]).is_err(), "no beginning of a record is one");
        assert!(head(&stored[..end]).is_none_or(|early| early == hint), "a head is whole or not there");
    }
    let mut damaged = stored.to_vec();
    *damaged.last_mut().expect("no record is empty") ^= 1;
    assert_eq!(decode(&damaged), Err(DecodeError::Checksum));
}
